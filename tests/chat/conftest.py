"""A chat in a real terminal, with a model server of this process behind it."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everlong.model import Message
from everlong.store import Store
from everlong.testing import ModelServer
from tests.chat.terminal import Terminal
from tests.testing_server.conftest import serve

__all__ = ["serve"]

Open = Callable[..., Terminal]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is no tmux, say so."""
    if shutil.which("tmux") is not None and shutil.which("bash") is not None:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs tmux and bash (Debian: apt-get install tmux)"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the user's configuration and store."""
    folder = tmp_path / "home"
    folder.mkdir()
    configure(folder)
    return folder


def configure(home: Path, **sections: Any) -> None:
    """Write ``config.yaml``: no memory, summaries by the model that is talked to, windows as the servers have them."""
    values: dict[str, Any] = {
        "memory": {"enabled": False},
        "auxiliary": {"compression": {"provider": "main"}},
        "compression": {"protect_last_n": 6},
        "models": {"some-model": {"context_length": 32_000}},
    }
    (home / "config.yaml").write_text(json.dumps(values | sections), encoding="utf-8")  # JSON is YAML


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has no key of any provider."""
    left_out = ("_API_KEY", "NO_COLOR", "COLUMNS", "LINES")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(left_out) and not name.startswith("EVERLONG_")
    }
    return {**kept, "EVERLONG_HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", **more}


@pytest.fixture
def terminal(home: Path, root: Path) -> Iterator[Open]:
    """Opens terminals in the folder of the chat."""
    opened: list[Terminal] = []

    def open_one(columns: int = 100, rows: int = 40, **env: str) -> Terminal:
        opened.append(Terminal(root, environment(home, **env), columns, rows))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def chat(terminal: Open) -> Open:
    """Opens a terminal with a chat in it that is ready."""

    def open_one(server: ModelServer, *arguments: str, columns: int = 100, rows: int = 40, **more: Any) -> Terminal:
        found = terminal(columns, rows)
        found.start(*talking_to(server), *arguments, **more)
        ready(found)
        return found

    return open_one


def talking_to(server: ModelServer) -> list[str]:
    """The command line of a chat with the model of a server."""
    return ["chat", "-m", "some-model", "--base-url", server.openai_url]


def ready(found: Terminal) -> str:
    """Wait until the chat has started and waits for its user."""
    found.until(lambda: "Prompt caching" in found.everything() or found.has_left, "the start")
    assert not found.has_left, found.everything()
    return idle(found)


def idle(found: Terminal) -> str:
    """Wait until nothing is being done and all of it is printed; what is to be seen then."""
    seen = [""]

    def is_quiet() -> bool:
        seen.append(found.everything())
        status = seen[-1].rpartition("\n")[2]
        return seen[-1] == seen[-2] and re.search(r"│ context [^│]*( │ cache \w+)?( │ \$[\d.]+)?$", status) is not None

    found.until(is_quiet, "a chat that waits for its user")
    return seen[-1]


def long_talk(home: Path, title: str, turns: int = 60, start: float = 1_700_000_000.0) -> list[Message]:
    """Store a conversation about sixty ships, one exchange each."""
    messages: list[Message] = [{"role": "system", "content": "You keep the harbour's book."}]
    for number in range(turns):
        ship = f"ship-{number:03d}.log"
        messages += [
            {
                "role": "user",
                "content": f"Ship {number} came in; note it in {ship}. " + "It carries tea and cloth. " * 20,
            },
            {
                "role": "assistant",
                "content": f"Noted in {ship}: berth {number + 7}. " + "All papers are in order. " * 20,
            },
        ]
    with Store.open(home / "store.db") as store:
        branch = store.record(messages, times=[start + second for second in range(len(messages))])
        store.sessions.start(branch, from_depth=0, title=title, started=start, model="custom:some-model")
    return messages


class Gate(threading.Event):
    """Lets a server's slow answers through piece by piece, when a test says so: ``server.closing = Gate()``."""

    def __init__(self) -> None:
        super().__init__()
        self._tickets = threading.Semaphore(0)
        self.waits = threading.Event()
        """Set as soon as something waits here."""

    def let(self, pieces: int = 1) -> None:
        """Let so many pieces through."""
        self.waits.clear()
        self._tickets.release(pieces)

    def open(self) -> None:
        """Let everything through."""
        self.let(1_000)

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - a test decides, not the clock
        """Wait for a test."""
        self.waits.set()
        while not self.is_set() and not self._tickets.acquire(timeout=0.05):
            continue
        return self.is_set()
