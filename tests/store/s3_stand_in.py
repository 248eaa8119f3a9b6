"""A server on loopback that speaks as much of the S3 API as the store uses, and fails on demand."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.waiting import PATIENCE

BUCKET = "payloads"

_FACTS = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}


class StandIn(ThreadingHTTPServer):
    """The objects of one bucket, and the faults that the next requests meet."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.faults: list[str] = []
        """One for each of the next requests: 500, 403, cut (half a body), hang (no answer until released)."""
        self.always = ""
        """A fault that every request meets."""
        self.released = threading.Event()
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandIn

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        del format, args

    def do_PUT(self) -> None:
        key, body, fault = self._begin()
        if not fault:
            self.server.objects[key] = body
            self._answer(200)

    def do_GET(self) -> None:
        key, _, fault = self._begin()
        held = self.server.objects.get(key)
        if fault == "cut" and held is not None:
            self._answer(200, held, sent=len(held) // 2)
            self.close_connection = True
        elif not fault and held is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif not fault:
            self._answer(200, held or b"")

    def do_DELETE(self) -> None:
        key, _, fault = self._begin()
        if not fault:
            self.server.objects.pop(key, None)
            self._answer(204)

    def do_POST(self) -> None:  # several deletions at once
        _, body, fault = self._begin()
        if fault:
            return
        keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
        for key in keys:
            self.server.objects.pop(key, None)
        told = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{told}</DeleteResult>".encode())

    def _begin(self) -> tuple[str, bytes, str]:
        """Read a request; return its key, its body and its fault, which is answered unless it is ``cut``."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")
        self.server.requests.append((self.command, key))
        fault = self.server.faults.pop(0) if self.server.faults else self.server.always
        if fault == "hang":
            self.server.released.wait(PATIENCE)
            self.close_connection = True
        elif fault.isdigit():
            self._answer(int(fault), b"<Error><Code>Made</Code><Message>made to fail</Message></Error>")
        return key, body, fault

    def _answer(self, status: int, body: bytes = b"", sent: int | None = None) -> None:
        self.send_response(status)
        for name, value in _FACTS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])


@contextmanager
def serving() -> Iterator[StandIn]:
    """Serve an empty bucket."""
    stand_in = StandIn()
    thread = threading.Thread(target=stand_in.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        stand_in.released.set()
        stand_in.shutdown()
        stand_in.server_close()
        thread.join()
