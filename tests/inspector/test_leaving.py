"""Readers who leave: those who come after them are served, and nobody is told of an error."""

from __future__ import annotations

import logging
import socket
import struct
import threading

import pytest

from everlong.inspector import app
from tests.inspector.conftest import Site
from tests.waiting import PATIENCE, until


def ask(site: Site, path: str) -> socket.socket:
    """Send a request and read nothing."""
    connection = socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode())
    return connection


def test_open_pages_take_one_thread_while_the_store_hangs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, goes_on = list[int](), threading.Event()

    def hang(_: object) -> tuple[int, int, int]:
        looking.append(1)
        goes_on.wait(PATIENCE)
        return 1, 1, 1

    monkeypatch.setattr(app, "newest_change", hang)
    open_pages = [ask(site, "/inspector/live") for _ in range(6)]
    for page in open_pages:
        assert page.recv(12) == b"HTTP/1.1 200"
    assert site.get("/inspector/").status == 200
    assert len(looking) == 1
    goes_on.set()
    for page in open_pages:
        page.close()


@pytest.mark.parametrize("path", ["/inspector/", "/inspector/search?q=ferry", "/inspector/cost"])
def test_a_reader_who_leaves_at_once_is_no_error(site: Site, caplog: pytest.LogCaptureFixture, path: str) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            leaving = ask(site, path)
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes by a reset
            leaving.close()
        until(lambda: site.get("/inspector/").status == 200)
    assert caplog.records == []
