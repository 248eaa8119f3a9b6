"""Clients that use ``everlong mcp``: what was said in one of them is known in another."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from bench.clients.install import command_of, is_installed
from bench.clients.programs import PROGRAMS, Place, Program
from bench.gateway.serving import gateway

from everlong.store import Store
from everlong.testing import Answer, Ask, Call, ModelServer
from tests.waiting import PATIENCE

QUESTION = "Which port did we choose in opencode last week?"
CHOSEN = "We choose port 7431 for the tide table, because 7430 is taken by the crane."
SOURCE = Path(__file__).parents[2] / "src"
WINDOW = 200_000
WAITING = {
    "MCP_CONNECTION_NONBLOCKING": "0",
    "CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "60000",
    "CLAUDE_CODE_MCP_PREWAIT_SERVERS": "everlong",
    "CLAUDE_CODE_MCP_PREWAIT_SERVERS_MS": "60000",
}
"""Has Claude Code wait for its servers: a script asks faster than a person."""


def recalling(ask: Ask) -> Answer:
    """Answer as the model, with thinking where the client asks for it."""
    thinks = (ask.body.get("thinking") or {}).get("type") in {"enabled", "adaptive"}
    return replace(_answer(ask), thinking="Let me see.") if thinks else _answer(ask)


def _answer(ask: Ask) -> Answer:
    """Answer as a model that knows nothing by itself: it calls ``recall`` if it is on offer, and repeats the port."""
    if CHOSEN in ask.last_user:
        return Answer("Noted: port 7431.")
    for _, result in reversed(ask.results):
        if port := re.search(r"We choose port (\d+)", result):
            return Answer(f"We chose port {port[1]}.")
    if QUESTION in ask.last_user and (tool := _recall_of(ask)) is not None and not ask.results:
        return Answer("Let me look.", [Call(tool, {"question": QUESTION}, f"call_{ask.number}")])
    return Answer("I do not know.")


def _recall_of(ask: Ask) -> str | None:
    """Return what a client calls the tool; some put the tools of a server into a namespace."""
    names = list(ask.tools)
    for tool in ask.body.get("tools") or []:
        names += [str(one.get("name")) for one in tool.get("tools") or [] if isinstance(one, dict)]
    own = [name for name in names if re.fullmatch(r"(?:mcp__everlong__|everlong_)?recall", name)]
    return own[0] if own else None


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store that ``everlong`` on the path of every client uses."""
    bin_folder, found = tmp_path / "bin", tmp_path / "everlong.db"
    bin_folder.mkdir()
    program = bin_folder / "everlong"
    lines = [
        "#!/bin/sh",
        f"export EVERLONG_HOME={tmp_path / 'everlong'} EVERLONG_STORE__URL={found} PYTHONPATH={SOURCE}",
        f'exec {sys.executable} -m everlong "$@"',
    ]
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    return found


@pytest.fixture
def place_of(tmp_path: Path) -> Callable[[Program, str], Place]:
    """A home of its own for each client, and one folder for all of them."""
    folder = tmp_path / "work"
    folder.mkdir()

    def make(program: Program, url: str) -> Place:
        home = tmp_path / f"home-{program.name}-{len(list(tmp_path.glob('home-*')))}"
        home.mkdir()
        place = Place(home, folder, url, program.model, WINDOW)
        program.prepare(place)
        return place

    return make


def run(program: Program, place: Place, command: Sequence[str]) -> str:
    done = subprocess.run(
        [*command_of(program.name), *command],
        cwd=place.folder,
        env={**program.environment(place), **WAITING},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]} {done.stderr[-3000:]}"
    return done.stdout


def add_server(program: Program, place: Place) -> None:
    """Do what a person does to give a client the server."""
    if program.name in {"claude-code", "codex"}:
        run(program, place, ["mcp", "add", "everlong", "--", "everlong", "mcp"])
        if program.name == "codex":  # as above
            with (place.home / ".codex/config.toml").open("a") as file:
                file.write("required = true\nstartup_timeout_sec = 60\n")
        return
    own = place.home / ".config/opencode/opencode.json"
    values = json.loads(own.read_text())
    values["mcp"] = {"everlong": {"type": "local", "command": ["everlong", "mcp"], "enabled": True}}
    own.write_text(json.dumps(values))


def ask(program: Program, place: Place, words: str, *, more: Sequence[str] = (), resumes: bool = False) -> str:
    command = program.command(place, words, resumes=resumes)[len(command_of(program.name)) :]
    allowed = [f"{word},mcp__everlong" if word.startswith("Bash,Read") else word for word in command]
    return run(program, place, [*allowed, *more])


def remember_port(database: Path, folder: Path, client: str = "opencode") -> None:
    """Store a conversation of another client in the folder, as the gateway does."""
    with Store.open(database) as store:
        messages = [{"role": "user", "content": CHOSEN}, {"role": "assistant", "content": "Noted: port 7431."}]
        branch = store.record(messages)
        one = store.sessions.start(platform="gateway", client=client, folder=str(folder))
        store.sessions.attach(one.id, branch)


@pytest.mark.parametrize(
    "program",
    [
        "claude-code",
        "codex",
        pytest.param("opencode", marks=pytest.mark.matrix),
    ],
    indirect=True,
)
def test_a_client_knows_what_another_one_was_told_in_the_same_folder(
    program: Program, database: Path, place_of: Callable[[Program, str], Place]
) -> None:
    with ModelServer(recalling, window=WINDOW, models=(program.model,), counts_max_tokens=False) as server:
        place = place_of(program, server.url)
        remember_port(database, place.folder)
        add_server(program, place)
        assert "We chose port 7431." in ask(program, place, QUESTION)


@pytest.mark.matrix
@pytest.mark.parametrize("program", ["claude-code"], indirect=True)
def test_claude_code_answers_from_a_conversation_that_opencode_had_through_the_gateway(
    program: Program, database: Path, tmp_path: Path, place_of: Callable[[Program, str], Place]
) -> None:
    other = PROGRAMS["opencode"]
    if not is_installed(other.name):
        pytest.skip("opencode is not installed; run: make clients")
    models = (program.model, other.model)
    with ModelServer(recalling, window=WINDOW, models=models, counts_max_tokens=False) as server:
        known = {"models": {name: {"context_length": WINDOW} for name in models}}
        with gateway(server.url, database, known, tmp_path / "spool") as (url, _):
            other.run(place_of(other, url), CHOSEN)
        place = place_of(program, server.url)
        add_server(program, place)
        assert "We chose port 7431." in ask(program, place, QUESTION)
        elsewhere = replace(place, folder=tmp_path / "elsewhere")
        elsewhere.folder.mkdir()
        add_server(program, elsewhere)
        assert "I do not know." in ask(program, elsewhere, QUESTION)
