"""An attacker's surroundings: a folder that somebody cloned, a listener of the attacker's, and the real program."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.program import everlong_program
from tests.testing_server.conftest import serve
from tests.waiting import PATIENCE

__all__ = ["serve"]

Program = Callable[..., "subprocess.CompletedProcess[str]"]


class Listener:
    """A server of the attacker's that notes every request that reaches it."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append(f"{self.requestline}\n{self.headers}")
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_POST = do_GET  # noqa: N815 - the name that the base class looks for

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own configuration and data."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that somebody else has written."""
    folder = tmp_path / "clone"
    (folder / ".everlong").mkdir(parents=True)
    (folder / ".git").mkdir()
    return folder


@pytest.fixture
def everlong(home: Path, clone: Path) -> Program:
    """Runs the program in the clone, with no terminal."""

    def run(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        env |= {"EVERLONG_HOME": str(home), "NO_PROXY": "127.0.0.1", **more}
        command = [*everlong_program(), *arguments]
        return subprocess.run(
            command,
            env=env,
            cwd=clone,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            start_new_session=True,
        )

    return run
