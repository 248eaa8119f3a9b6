"""``everlong hook``: sessions of clients are stored, and a new one is told where the folder's last one stands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everlong.cli.hook import read_event
from everlong.store import Conversation, Store
from tests.examples import few
from tests.program import everlong_program
from tests.waiting import PATIENCE

SESSION = "0f6b5c1e-3a52-4f0e-9a43-8a1a2a6f1d10"
OTHER = "7a1d3c55-1b1e-4d47-8c0b-1d2f6f9b7c22"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that clients work in."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The store; it is made by the first hook."""
    return tmp_path / "store.db"


def log(folder: Path, *texts: str, session: str = SESSION) -> Path:
    """Write a log as Claude Code does."""
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        content: Any = [{"type": "text", "text": text}] if number % 2 else text
        lines.append(
            {
                "type": role,
                "uuid": f"{session}-{number}",
                "parentUuid": f"{session}-{number - 1}" if number else None,
                "sessionId": session,
                "cwd": str(folder),
                "timestamp": f"2026-11-17T08:00:{number:02}.000Z",
                "message": {"role": role, "content": content, **({"id": f"m{number}"} if number % 2 else {})},
            }
        )
    path = folder.parent / f"{session}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def call(database: Path, client: str, event: dict[str, Any] | str) -> tuple[int, str, str]:
    text = event if isinstance(event, str) else json.dumps(event)
    words = ["hook", client, "--store", str(database)]
    done = subprocess.run(
        [*everlong_program(), *words],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr


def stored(database: Path) -> list[Conversation]:
    with Store.open(database) as store:
        return store.conversations.newest()


def event(name: str, folder: Path, **more: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": SESSION, "cwd": str(folder), **more}


@pytest.mark.parametrize("name", few(["Stop", "PreCompact"]))
def test_a_session_is_stored_once_and_grows(folder: Path, database: Path, name: str) -> None:
    path = log(folder, "Repair the pump.", "It runs.")
    for _ in range(2):
        assert call(database, "claude-code", event(name, folder, transcript_path=str(path))) == (0, "", "")
    (one,) = stored(database)
    assert (one.folder, one.messages, one.client) == (str(folder), 2, "claude-code")
    log(folder, "Repair the pump.", "It runs.", "And the crane?", "Too.")
    assert call(database, "claude-code", event(name, folder, transcript_path=str(path)))[0] == 0
    (one,) = stored(database)
    assert one.messages == 4


def test_a_new_session_is_told_where_the_last_one_of_its_folder_stands(folder: Path, database: Path) -> None:
    path = log(folder, "Never push to main. Repair the pump.", "The pump runs.", session=OTHER)
    assert (
        call(database, "claude-code", {**event("Stop", folder, transcript_path=str(path)), "session_id": OTHER})[0] == 0
    )
    code, out, _ = call(database, "claude-code", event("SessionStart", folder, source="startup"))
    told = json.loads(out)["hookSpecificOutput"]
    assert (code, told["hookEventName"]) == (0, "SessionStart")
    for words in ("Repair the pump.", "Never push to main", "> The pump runs."):
        assert words in told["additionalContext"]
    for silent in (
        event("SessionStart", folder, source="resume"),
        event("SessionStart", folder.parent, source="startup"),
        {**event("SessionStart", folder, source="startup"), "session_id": OTHER},
        {**event("SessionStart", folder, source="compact")},
    ):
        assert call(database, "claude-code", silent)[:2] == (0, "")
    again = {**event("SessionStart", folder, source="compact"), "session_id": OTHER}
    assert "The pump runs." in call(database, "claude-code", again)[1]


def test_codex_tells_a_turn_without_its_log(folder: Path, database: Path, tmp_path: Path) -> None:
    turn = {"hook_event_name": "Stop", "session_id": SESSION, "cwd": str(folder)}
    code, _, err = call(database, "codex", turn)
    assert code == 1
    assert "is not there" in err
    sessions = tmp_path / ".codex" / "sessions" / "2026" / "11" / "17"
    sessions.mkdir(parents=True)
    rollout = sessions / f"rollout-2026-11-17T08-00-00-{SESSION}.jsonl"
    rollout.write_text("")
    found = read_event("codex", json.dumps(turn).encode(), {}, tmp_path)
    assert found is not None
    assert (found.kind, found.log) == ("rest", rollout)
    named = read_event("codex", json.dumps({**turn, "session_id": "../*"}).encode(), {}, tmp_path)
    assert named is not None
    assert named.log is None


def _broken() -> Iterator[tuple[str, str]]:
    yield "", "as JSON"
    yield "not JSON", "as JSON"
    yield "[1]", "an object"
    yield "[" * 100_000, "as JSON"
    yield '{"hook_event_name": "Stop"}', "without its session"
    yield '{"hook_event_name": "Stop", "session_id": 7, "cwd": []}', "without its session"
    yield (
        '{"hook_event_name": "Stop", "session_id": "s", "cwd": "/x", "transcript_path": "/nowhere.jsonl"}',
        "is not there",
    )
    yield '{"hook_event_name": "Stop", "session_id": "s", "cwd": "/x", "transcript_path": "/"}', "is not there"


@pytest.mark.parametrize(("text", "problem"), list(_broken()))
def test_what_goes_wrong_is_said_and_is_no_veto(database: Path, text: str, problem: str) -> None:
    code, out, err = call(database, "claude-code", text)
    assert (code, out) == (1, "")
    assert problem in err
