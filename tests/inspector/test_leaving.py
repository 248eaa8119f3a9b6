"""Readers who leave: their place is free again, and nobody is told of an error."""

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


def is_let_in(site: Site) -> bool:
    with ask(site, "/inspector/live") as connection:
        return connection.recv(12) == b"HTTP/1.1 200"


def test_closed_pages_do_not_count_as_open_ones(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_MOST_READERS", 3)
    monkeypatch.setattr(app, "_BEAT_SECONDS", 1_000.0)  # nothing is written to a page that hears of no change
    open_pages = [ask(site, "/inspector/live") for _ in range(3)]
    for page in open_pages:
        assert page.recv(12) == b"HTTP/1.1 200"
    assert not is_let_in(site)
    for page in open_pages:
        page.close()
    until(lambda: is_let_in(site))


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
        until(lambda: is_let_in(site))
    assert caplog.records == []
