"""``everlong setup``: a client's own file leads its requests through the gateway, and everything else in it stays."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from everlong.cli.clients.client import ConfigurationFile
from everlong.cli.clients.formats import JSON, value_at
from everlong.errors import ConfigError
from tests.cli.client_files import EXISTING, FILES, address, scratch_home
from tests.cli.conftest import Run

__all__ = ["address"]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the places of files are those of Linux"),
    pytest.mark.usefixtures("address"),
]

WITH_FILE = list(FILES)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return scratch_home(tmp_path / "home", monkeypatch)


def writing() -> tuple[str, ...]:
    """The options that write, for the gateway of the settings; without its address, it would have to run."""
    return "--write", "--url", f"http://127.0.0.1:{os.environ['EVERLONG_GATEWAY__PORT']}"


def existing(home: Path, client: str) -> Path:
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(EXISTING[client], encoding="utf-8")
    path.chmod(0o640)
    return path


def test_no_client_is_pointed_at_a_gateway_that_does_not_run(run: Run, home: Path, address: str) -> None:
    path = existing(home, "claude-code")
    ran = run("setup", "claude-code", "--write")
    assert ran.code == 1
    assert f"no gateway listens at {address}" in ran.err
    assert "everlong serve" in ran.err
    assert path.read_text(encoding="utf-8") == EXISTING["claude-code"]


@pytest.mark.parametrize("client", WITH_FILE)
def test_an_existing_file_keeps_all_of_its_lines(run: Run, home: Path, address: str, client: str) -> None:
    path = existing(home, client)
    ran = run("setup", client, *writing())
    assert ran.code == 0
    now = path.read_text(encoding="utf-8")
    for line in EXISTING[client].splitlines():
        for word in re.findall(r'[#/]+ [a-z ]+|"[^"]+"|[\w.-]+', line):  # comments, texts, names
            if "localhost:11434" not in word and word != "11434":
                assert word in now, line
    assert address in now
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("client", WITH_FILE)
def test_writing_twice_changes_nothing_and_undo_restores_every_byte(run: Run, home: Path, client: str) -> None:
    path = existing(home, client)
    run("setup", client, *writing())
    once = path.read_bytes()
    ran = run("setup", client, *writing())
    assert (ran.code, path.read_bytes()) == (0, once)
    assert "nothing was changed" in ran.err
    assert "has these settings already" in run("setup", client).err
    run("setup", client, "--write", "--url", "http://127.0.0.1:9999")
    assert run("setup", client, "--undo").code == 0
    assert path.read_bytes() == EXISTING[client].encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.glob("*everlong*")) == []


def test_undo_keeps_what_the_client_wrote_since(run: Run, home: Path) -> None:
    path = existing(home, "claude-code")
    run("setup", "claude-code", *writing())
    values = json.loads(path.read_bytes())
    values["permissions"]["allow"].append("Bash(make:*)")
    path.write_text(json.dumps(values, indent=2), encoding="utf-8")
    ran = run("setup", "claude-code", "--undo")
    assert "took back only" in ran.err
    left = json.loads(path.read_bytes())
    assert left["permissions"]["allow"] == ["Bash(ls:*)", "Bash(make:*)"]
    assert left["env"] == {"MY_OWN": "1"}


@pytest.mark.parametrize(
    "text",
    [
        "note: one\u2028two\nmap-tokens: 1\nauto-commits: false\n",
        "note: 'one\x85two'\nauto-commits: false\n",
        "note: one\u2028more: two\r\nauto-commits: false\r\n",
    ],
)
def test_undo_takes_back_the_right_lines_or_none(run: Run, home: Path, text: str) -> None:
    path = existing(home, "aider")
    path.write_bytes(text.encode())
    run("setup", "aider", *writing())
    changed = path.read_bytes() + b"dark-mode: true\n"
    path.write_bytes(changed)
    ran = run("setup", "aider", "--undo")
    left = path.read_bytes()
    assert left == (text.encode() + b"dark-mode: true\n" if ran.code == 0 else changed)


@pytest.mark.parametrize(
    "text", ['\\"' * 200_000, "/*" * 200_000, " " * 10_000_001], ids=["quotes", "comments", "blanks"]
)
def test_no_file_of_a_project_keeps_anybody_waiting(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)  # as Claude Code has one in a clone
    with pytest.raises(ConfigError):
        ConfigurationFile(tmp_path / "settings.json", JSON).values()


def test_half_a_character_in_a_file_is_no_reason_to_break_it(run: Run, home: Path) -> None:
    path = existing(home, "claude-code")
    path.write_text('{"note": "\\ud83d"}', encoding="utf-8")
    ran = run("setup", "claude-code", *writing())
    assert (ran.code, "nothing was changed" in ran.err) == (1, True)
    assert path.read_text(encoding="utf-8") == '{"note": "\\ud83d"}'


BROKEN = {
    "claude-code": '{"env": {"A": 1}\n"model": "opus"}',
    "codex": 'model = "gpt-5\n',
    "opencode": '{\n  "provider": [}\n',
    "pi": "{'providers': 1}",
    "aider": "a: [1\nb: 2\n",
    "cline": "",
}


@pytest.mark.parametrize("client", [name for name in BROKEN if BROKEN[name]])
@pytest.mark.parametrize("flag", [(), ("--write", "--url", "http://127.0.0.1:9")])
def test_a_broken_file_is_an_error_and_stays_as_it_is(run: Run, home: Path, client: str, flag: tuple[str, ...]) -> None:
    path = existing(home, client)
    path.write_text(BROKEN[client], encoding="utf-8")
    ran = run("setup", client, *flag)
    assert (ran.code, ran.out) == (1, "")
    assert path.name in ran.err
    assert "nothing was changed" in ran.err
    assert path.read_text(encoding="utf-8") == BROKEN[client]
    assert list(path.parent.glob("*everlong*")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("setup", "codex", "--write", "--undo"), "not both"),
        (("setup", "codex", "--url", "over there"), "--url is 'over there'"),
        (("setup", "emacs"), "emacs"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(run: Run, words: tuple[str, ...], said: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert said in ran.err


def test_a_json_file_with_comments_is_shown_what_it_needs_and_stays_as_it_is(
    run: Run, home: Path, address: str
) -> None:
    path = existing(home, "opencode")
    text = '{\n  // only while I try it\n  "model": "anthropic/claude-sonnet-4-5", /* or opus */\n}\n'
    path.write_text(text, encoding="utf-8")
    assert address in run("setup", "opencode").out
    ran = run("setup", "opencode", *writing())
    assert ran.code == 1
    assert "it has comments, which would be lost" in ran.err
    assert path.read_text(encoding="utf-8") == text


def claude_variables(home: Path) -> Any:
    return json.loads((home / FILES["claude-code"]).read_bytes())["env"]


@pytest.mark.parametrize(
    "setting",
    [
        {"EVERLONG_GATEWAY__UPSTREAM": "http://localhost:8080/v1"},
        {"config": "gateway:\n  routes:\n    'claude-*':\n      base_url: https://bedrock.example.com\n"},
    ],
)
def test_elsewhere_claude_code_is_not_told_that_it_is(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]
) -> None:
    for name, value in setting.items():
        if name == "config":
            (home / "everlong").mkdir()
            (home / "everlong" / "config.yaml").write_text(value, encoding="utf-8")
        else:
            monkeypatch.setenv(name, value)
    ran = run("setup", "claude-code", *writing())
    assert list(claude_variables(home)) == ["ANTHROPIC_BASE_URL"]
    assert "Anthropic's own address" in ran.err


def test_codex_keeps_a_provider_of_the_users_own_and_is_told_where_its_requests_went(
    run: Run, home: Path, address: str
) -> None:
    path = existing(home, "codex")
    own = '\nmodel_provider = "team"\n\n[model_providers.team]\nname = "Team"  # ours\nbase_url = "https://llm.example.com/v1"\n'
    path.write_text(own, encoding="utf-8")
    ran = run("setup", "codex", *writing())
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    assert values["model_provider"] == "team"
    assert values["model_providers"]["team"] == {"name": "Team", "base_url": f"{address}/v1"}
    assert "--upstream https://llm.example.com/v1" in ran.err
    run("setup", "codex", "--undo")
    assert path.read_text(encoding="utf-8") == own


def test_opencodes_own_provider_goes_through_the_gateway_too(run: Run, home: Path, address: str) -> None:
    path = existing(home, "opencode").with_name("opencode.jsonc")
    path.write_text(
        '{"model": "box/m", "provider": {"box": {"npm": "@ai-sdk/openai-compatible", '
        '"options": {"baseURL": "http://box:1/v1"}}}}',
        encoding="utf-8",
    )
    ran = run("setup", "opencode", *writing())
    values = json.loads(path.read_bytes())
    assert value_at(values, ("provider", "box", "options", "baseURL")) == f"{address}/v1"
    assert "--upstream http://box:1/v1" in ran.err
