"""The program run as a person runs it, in this process, with its exit code and both streams."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everlong import Message, Session, Store
from everlong.cli.demo import Fact, load_session
from everlong.cli.main import main
from tests.context.builders import assistant, long_session, user
from tests.examples import length


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def runner(*arguments: str, stdin: bytes | None = None) -> Ran:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = 0
        try:
            main(list(arguments))
        except SystemExit as exit_request:
            code = int(exit_request.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return runner


@pytest.fixture
def session() -> list[Message]:
    return [*long_session(60), user("Now write the release notes."), assistant("Here they are.")]


@pytest.fixture
def session_file(tmp_path: Path, session: list[Message]) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps(session, indent=2), encoding="utf-8")
    return path


@pytest.fixture
def shorter_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the session of the demo shorter, except in a thorough run."""

    def load() -> tuple[list[Message], list[Fact]]:
        talk, facts = load_session()
        count = length(len(talk), 300)
        return talk[:count], [fact for fact in facts if fact.message < count]

    monkeypatch.setattr("everlong.cli.demo.load_session", load)


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def sessions(run: Run, store_file: Path) -> Run:
    """``everlong sessions`` on a store of its own."""
    return lambda *arguments, **more: run("sessions", "--store", str(store_file), *arguments, **more)


def add_session(
    store: Store, messages: list[Message], title: str | None = None, start: float = 1_000.0, **about: Any
) -> Session:
    """A session from the first message on, with a second between messages."""
    branch = store.record(messages, times=[start + second for second in range(len(messages))])
    return store.sessions.start(branch, from_depth=0, title=title, started=start, **about)
