"""An upstream on loopback that says exactly the bytes a test wants, piece by piece, and keeps what it was sent.

Knows HTTP/1.1 just well enough to take a request apart; what goes back is the test's own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.waiting import PATIENCE

Headers = list[tuple[str, str]]


class Hangup(ConnectionError):  # noqa: N818 - what the other side did
    """The other side closed the connection."""


class Headed:
    """Something with headers."""

    headers: Headers

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def all(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass
class Received(Headed):
    """One request as it came."""

    method: str
    target: str
    headers: Headers
    body: bytes
    head: bytes
    is_chunked: bool = False


def read_headers(head: bytes) -> tuple[str, Headers]:
    """The first line and the headers of a head."""
    lines = head.decode("latin-1").split("\r\n")
    pairs = [line.split(":", 1) for line in lines[1:] if ":" in line]
    return lines[0], [(name, value.strip(" \t")) for name, value in pairs]


class Wire:
    """A socket that is read by lines and by lengths."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = sock
        self.buffer = b""

    def more(self) -> bytes:
        """Read whatever comes next; `Hangup` at the end."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise Hangup
        self.buffer += data
        return data

    def until(self, mark: bytes) -> bytes:
        """Everything up to and with a mark."""
        while mark not in self.buffer:
            self.more()
        found, _, self.buffer = self.buffer.partition(mark)
        return found + mark

    def exactly(self, size: int) -> bytes:
        """So many bytes."""
        parts, left = [], size
        while left > len(self.buffer):
            parts.append(self.buffer)
            left -= len(self.buffer)
            self.buffer = b""
            self.more()
        parts.append(self.buffer[:left])
        self.buffer = self.buffer[left:]
        return b"".join(parts)

    def chunk(self) -> bytes:
        """One chunk of a chunked body; nothing at its end."""
        data = self.exactly(int(self.until(b"\r\n").split(b";")[0], 16))
        self.until(b"\r\n")
        return data

    def chunks(self) -> bytes:
        """A whole chunked body."""
        parts = []
        while piece := self.chunk():
            parts.append(piece)
        return b"".join(parts)


class Exchange:
    """One request, and the ways to answer it."""

    def __init__(self, wire: Wire, received: Received) -> None:
        self._wire = wire
        self.received = received
        self.is_over = False

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._wire.socket.sendall(data)

    def answer(self, body: bytes = b"", status: str = "200 OK", headers: Iterable[tuple[str, str]] = ()) -> None:
        """A whole answer."""
        given = list(headers)
        if not any(name.lower() == "content-type" for name, _ in given):
            given.append(("content-type", "application/json"))
        given.append(("content-length", str(len(body))))
        self.send(_head(status, given) + body)

    def begin(self, status: str = "200 OK", headers: Iterable[tuple[str, str]] = ()) -> None:
        """The head of a stream."""
        given = list(headers)
        if not any(name.lower() == "content-type" for name, _ in given):
            given.append(("content-type", "text/event-stream; charset=utf-8"))
        self.send(_head(status, [*given, ("transfer-encoding", "chunked")]))

    def chunk(self, data: bytes) -> None:
        """A piece of a stream."""
        self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def end(self) -> None:
        """The end of a stream."""
        self.send(b"0\r\n\r\n")

    def stream(self, *pieces: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        """A whole stream."""
        self.begin(headers=headers)
        for piece in pieces:
            self.chunk(piece)
        self.end()

    def cut(self) -> None:
        """Close the connection, whatever was promised."""
        self.is_over = True
        self._wire.socket.shutdown(socket.SHUT_RDWR)

    def sees_hangup(self) -> bool:
        """Wait for the other side to close the connection."""
        try:
            self._wire.more()
        except (Hangup, ConnectionError):
            self.is_over = True
            return True
        except TimeoutError:
            pass
        return False


def _head(status: str, headers: Headers) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


Script = Callable[[Exchange], None]


def _fine(exchange: Exchange) -> None:
    exchange.answer(b"{}")


@dataclass
class Upstream:
    """A scripted upstream: ``with Upstream() as upstream: upstream.script = …``."""

    script: Script = _fine
    requests: list[Received] = field(default_factory=list)
    problems: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # wakes the thread that accepts
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for sock in self._open:
            sock.close()
        if error is None and self.problems:
            raise AssertionError(f"the script of the upstream failed: {self.problems}")

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    @property
    def last(self) -> Received:
        """The newest request."""
        return self.requests[-1]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        wire = Wire(sock)
        try:
            while True:
                exchange = Exchange(wire, self._received(wire))
                self.requests.append(exchange.received)
                self.script(exchange)
                if exchange.is_over:
                    return
        except OSError:  # whoever asked has gone
            pass
        except BaseException as problem:  # noqa: BLE001 - told when the upstream is left
            self.problems.append(problem)
        finally:
            sock.close()

    def _received(self, wire: Wire) -> Received:
        head = wire.until(b"\r\n\r\n")
        first, headers = read_headers(head)
        method, target, _ = first.split(" ", 2)
        received = Received(method, target, headers, b"", head)
        if "chunked" in (received.header("transfer-encoding") or ""):
            received.is_chunked = True
            received.body = wire.chunks()
        else:
            received.body = wire.exactly(int(received.header("content-length") or 0))
        return received
