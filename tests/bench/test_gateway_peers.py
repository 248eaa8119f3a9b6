"""Other gateways are installed and started aside, and one that cannot be had is told with the reason."""

from __future__ import annotations

import http.client
import sys
from contextlib import closing
from pathlib import Path

import pytest
from bench.gateway.peers import Peer, Unusable, installed, running

_SERVER = """
import http.server, os, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["WORD"].encode())

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def peer(program: str, package: str = "made-up==1.0") -> Peer:
    return Peer(
        "made-up 1.0", package, "/", lambda *told: [sys.executable, "-c", program, str(told[-1])], {"WORD": "hello"}
    )


def _said(url: str) -> bytes:
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    with closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().read()


def test_a_peer_runs_until_the_block_ends(tmp_path: Path) -> None:
    with running(peer(_SERVER), tmp_path, "http://127.0.0.1:1") as (url, _):
        assert _said(url) == b"hello"
    with pytest.raises(ConnectionRefusedError):
        _said(url)


def test_a_peer_that_ends_at_its_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    program = "import sys; print('one', flush=True); sys.exit('the port is not mine')"
    with (
        pytest.raises(Unusable, match=r"ended with 1 .*one \| the port is not mine"),
        running(peer(program), tmp_path, ""),
    ):
        pass


def test_a_peer_that_pip_does_not_find_is_told_with_what_pip_said(tmp_path: Path) -> None:
    package = str(tmp_path / "nowhere.whl")
    with pytest.raises(Unusable, match=r"nowhere.whl was not installed: ERROR"):
        installed(peer("", package), tmp_path / "peers")


def test_what_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    home = tmp_path / "made-up-1.0"
    home.mkdir()
    (home / ".installed").write_text("made-up==1.0")
    assert installed(peer(""), tmp_path) == home / "bin"
