"""What models, tools and folders write cannot steer a person's terminal, nor hide in what they are asked about."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from everlong import Message, Store
from everlong.agent.text import unmistakable, visible
from everlong.testing import Answer, Ask, Call
from tests.agent.test_approval import Person
from tests.program import everlong_program
from tests.testing_server.conftest import Serve
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.spec("12.3"),
    pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal"),
]

STEERING = ("\x1b]52;c;ZXZpbA==\x07", "\x1b[2J\x1b[H", "\x9b2J", "\u202eevil\u2066", "safe\revil")


def on_terminal(command: list[str], env: dict[str, str], cwd: Path) -> str:
    """All that a program writes to a terminal of its own."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd, close_fds=True)
    os.close(slave)
    seen = b""
    while True:
        if not select.select([master], [], [], PATIENCE)[0]:
            process.kill()
            break
        try:
            data = os.read(master, 65_536)
        except OSError:  # the program has left
            break
        if not data:
            break
        seen += data
    process.wait(PATIENCE)
    os.close(master)
    return seen.decode("utf-8", "replace")


def test_run_writes_nothing_that_a_terminal_obeys(serve: Serve, tmp_path: Path) -> None:
    evil = " ".join(STEERING)

    def model(ask: Ask) -> Answer:
        if ask.results:
            return Answer(f"Before {evil} after.")
        return Answer(f"Look: {evil}.", [Call("read_file", {"path": f"x{evil}y"})])

    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env |= {"EVERLONG_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1", "TERM": "xterm"}
    program = [sys.executable, "-c", "from everlong.cli.main import main; main()", "run", "Hello."]
    seen = on_terminal([*program, "-m", "some-model", "--base-url", serve(model).openai_url], env, tmp_path)
    assert "Before" in seen
    assert "after." in seen
    assert "\x1b" not in seen
    assert not set("\x9b\u202e\u2066\x07") & set(seen)
    assert "safe\revil" not in seen


@pytest.mark.parametrize(
    "sign",
    [
        "\U000e0041",
        "\u3164",
        "\u115f",
        "\uffa0",
        "\u200b",
        "\u2062",
        "\ufe01",
        "\U000e0101",
        "\xad",
        "\u180e",
        "\u034f",
    ],
)
def test_what_cannot_be_seen_is_spelled_out(sign: str) -> None:
    assert sign not in visible(f"rm {sign}x")
    assert f"{ord(sign):x}" in visible(f"rm {sign}x")


@pytest.mark.parametrize("sign", ["\xa0", "\u2003", "\u3000", "\u2800", "\u200d", "\u200c", "\ufe0f"])
def test_what_looks_like_a_space_or_like_nothing_is_spelled_out_where_a_person_decides(sign: str) -> None:
    assert unmistakable(f"rm{sign}x") == f"rm\\u{ord(sign):04x}x"
    assert sign in visible(f"rm{sign}x")  # an emoji in an answer stays one


def test_a_request_on_the_terminal_shows_what_hides_in_it() -> None:
    person = Person("rm -rf x\x1b[2K\r\u202eecho \U000e0041\u3164hi")
    person.reads_until("[n]o: ")
    person.types("n\n")
    assert person.gets() == "no"
    assert "rm -rf x\\x1b[2K" in person.seen
    assert "echo \\U000e0041\\u3164hi" in person.seen
    assert not {"\x1b", "\u202e"} & set(person.seen)


def test_what_is_typed_before_the_question_is_there_is_no_answer() -> None:
    person = Person("ls")
    person.types("s\ns\ny\n")
    person.reads_until("[n]o: ")
    person.types("n\n")
    assert person.gets() == "no"


def test_a_word_that_only_begins_like_an_answer_is_none() -> None:
    person = Person("ls")
    person.reads_until("[n]o: ")
    person.types("sure not\n")
    person.reads_until("[n]o: sure not\r\nAllow it?")
    person.types("yesterday\n")
    person.reads_until("yesterday\r\nAllow it?")
    person.types("no\n")
    assert person.gets() == "no"


HOSTILE = "x\x1b]52;c;ZXZpbA==\x07y\x1b[2Jz\x9b2J\u202eevil\u2066\u200b\U000e0041\u3164 end"
OBEYED = set("\x9b\x07\u202e\u2066\u200b\U000e0041\u3164")
COMMANDS = [
    "sessions list",
    "sessions list --all",
    "sessions show {session}",
    "sessions search needle",
    "sessions history {session}",
    "sessions export {session}",
    "sessions export --format markdown {session}",
    "sessions stats",
    "sessions show {hostile}",
    "inspect {file}",
    "usage",
    "usage --session {session}",
    "doctor",
    "trust list",
    "trust add {folder}",
    "config show",
    "config set {hostile} 1",
    "inspect {hostile}",
    "{hostile}",
]
RUNS_ALL = """
import json, sys
from everlong.cli.main import main
for number, command in enumerate(json.loads(sys.argv[1])):
    print(f"<<{number}>>", flush=True)
    try:
        main(command)
    except SystemExit:
        pass
"""


def test_no_command_writes_what_a_terminal_obeys(tmp_path: Path) -> None:
    folder = tmp_path / f"clone{HOSTILE}"
    (folder / ".everlong").mkdir(parents=True)
    (folder / ".everlong" / "config.yaml").write_text(f"agent: {{model: {json.dumps(HOSTILE)}}}", encoding="utf-8")
    (folder / "AGENTS.md").write_text(HOSTILE, encoding="utf-8")
    function = {"name": HOSTILE, "arguments": json.dumps({HOSTILE: HOSTILE})}
    said: list[Message] = [
        {"role": "system", "content": HOSTILE},
        {"role": "user", "content": f"needle {HOSTILE}"},
        {
            "role": "assistant",
            "content": HOSTILE,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "name": HOSTILE, "content": f"needle {HOSTILE}"},
        {"role": "assistant", "content": HOSTILE},
    ]
    file = tmp_path / f"conversation{HOSTILE}.json"
    file.write_text(json.dumps(said), encoding="utf-8")
    with Store.open(tmp_path / "store.db") as store:
        session = store.sessions.start(
            store.record(said),
            from_depth=0,
            title=HOSTILE[:60],
            platform=HOSTILE[:9],
            model=HOSTILE,
            folder=str(folder),
        )
    names = {"session": session.id, "file": str(file), "folder": str(folder), "hostile": HOSTILE}
    commands = [[names.get(word.strip("{}"), word) for word in command.split()] for command in COMMANDS]
    commands = [
        [*one[:1], "--store", str(tmp_path / "store.db"), *one[1:]] if one[0] == "sessions" else one for one in commands
    ]
    env = {**os.environ, "EVERLONG_HOME": str(tmp_path / "home"), "NO_PROXY": "*", "TERM": "xterm", "PAGER": "cat"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    seen = on_terminal([sys.executable, "-c", RUNS_ALL, json.dumps(commands)], env, folder)
    parts = re.split(r"<<(\d+)>>\r\n", seen)[1:]
    shown = {COMMANDS[int(number)]: said for number, said in zip(parts[::2], parts[1::2], strict=True)}
    assert len(shown) == len(COMMANDS)
    ours = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[[0-9]*[AKG]")  # colours, and bars that move
    for command, said_there in shown.items():
        left = ours.sub("", said_there)
        assert "\x1b" not in left, (command, left)
        assert not OBEYED & set(left), (command, left)
    assert "\\x1b]52;c;" in shown["inspect {hostile}"], "it is told, and spelled out"
    assert any("\x1b[1m" in said_there for said_there in shown.values()), "colours of our own are there"


def test_in_a_pipe_everything_stays_as_it_is(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store:
        session = store.sessions.start(store.record([{"role": "user", "content": HOSTILE}]), from_depth=0)
    command = ["sessions", "--store", str(tmp_path / "store.db"), "export", session.id]
    program = [*everlong_program(), *command]
    env = {**os.environ, "EVERLONG_HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(program, env=env, stdout=subprocess.PIPE, check=True, timeout=PATIENCE).stdout
    written = [json.dumps(HOSTILE, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
    assert any(one in told.decode() for one in written)
