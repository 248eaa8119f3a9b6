"""Whatever a command prints, others chose some of its words: none of them steers the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from everlong.cli import shown
from everlong.cli.main import cli
from everlong.cli.shown import safe

EVIL = "\x1b]0;title\x07\x1b[2J\x1b[8mhidden\x9b31m\u202eturned\rback\x08\u2066"
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066]")


def _obeyed(text: str) -> list[str]:
    return _OBEYED.findall(text)


def _transcript(folder: Path) -> Path:
    call = {"id": f"c{EVIL}", "type": "function", "function": {"name": f"tool{EVIL}", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": f"needle {EVIL}"},
        {"role": "assistant", "content": EVIL, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{EVIL}", "content": f"needle {EVIL}"},
        {"role": f"odd{EVIL}", "content": EVIL},
    ]
    path = folder / f"t{EVIL}.json"
    path.write_text(json.dumps({"model": f"m{EVIL}", "messages": messages}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["compress", "--diff"],
        ["compress", "--explain"],
        ["compress", "--why", "needle"],
        ["cache-sim"],
        ["sessions", "import"],
    ],
    ids=" ".join,
)
def test_what_a_transcript_says_is_spelled_out(arguments: list[str], tmp_path: Path) -> None:
    said = CliRunner().invoke(cli, [*arguments, str(_transcript(tmp_path))])
    assert said.output
    assert _obeyed(said.output) == []


@pytest.mark.parametrize(
    "arguments",
    [["trust", "add", "."], ["trust", "list"], ["config", "path"], ["config", "show"], ["plugins", "list"], ["doctor"]],
    ids=" ".join,
)
def test_what_a_folder_is_called_is_spelled_out(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"clone{EVIL}"
    (folder / ".everlong" / "plugins" / f"p{EVIL}").mkdir(parents=True)
    (folder / ".everlong" / "config.yaml").write_text(json.dumps({"context": {"engine": EVIL}, EVIL: {EVIL: EVIL}}))
    monkeypatch.chdir(folder)
    runner = CliRunner()
    assert runner.invoke(cli, ["trust", "add", "."]).exit_code == 0
    assert _obeyed(runner.invoke(cli, arguments).output) == []


def test_colours_of_our_own_pass_and_none_that_hide() -> None:
    assert safe("\x1b[31m\x1b[1mred\x1b[0m") == "\x1b[31m\x1b[1mred\x1b[0m"
    assert safe("\x1b[8mhidden\x1b[0m") == "\\x1b[8mhidden\x1b[0m"


def test_data_is_as_it_is_where_a_program_reads_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.echo_data('"\x9b"')
    assert capsys.readouterr().out == '"\x9b"\n'
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown.echo_data('"\x9b"')
    assert json.loads(capsys.readouterr().out) == "\x9b"


def test_every_command_prints_through_one_place() -> None:
    folder = Path(shown.__file__).parent
    found = {
        path.name
        for path in folder.glob("*.py")
        if re.search(r"click\.s?echo\(|(?<![\w.])print\(|\bConsole\(", path.read_text(encoding="utf-8"))
    }
    assert found == {"shown.py", "doctor_setup.py", "progress.py", "sessions_index.py"}, "the last three show no words"
