"""A request that meets a connection which the upstream is just closing is sent once more; any other is not."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import pytest

from tests.gateway.running import Raw
from tests.gateway.upstream import Exchange, Upstream, Wire

ASKED = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
LARGE = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"' + b"hi " * 600_000 + b'"}]}'


@pytest.fixture(autouse=True)
def soon_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection counts as idle as soon as nobody uses it, and a break counts as one at once whenever it comes."""
    monkeypatch.setattr("everlong.gateway.upstream._IDLE_SECONDS", 0.0)
    monkeypatch.setattr("everlong.gateway.upstream._AT_ONCE_SECONDS", 60.0)


class Connections:
    """Counts an upstream's connections, and says which request of its connection this one is."""

    def __init__(self, upstream: Upstream, script: Callable[[Exchange, int, int], None]) -> None:
        self._script = script
        self._wires: list[Wire] = []
        self._lock = threading.Lock()
        self.requests: list[tuple[int, int]] = []
        """The number of the connection, and of the request on it."""
        upstream.script = self._exchange

    def _exchange(self, exchange: Exchange) -> None:
        with self._lock:
            if exchange._wire not in self._wires:
                self._wires.append(exchange._wire)
            number = self._wires.index(exchange._wire)
            count = 1 + sum(one == number for one, _ in self.requests)
            self.requests.append((number, count))
        self._script(exchange, number, count)


def reset(exchange: Exchange) -> None:
    """Break a connection off."""
    wire = exchange._wire
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.socket.close()
    exchange.is_over = True


@pytest.mark.parametrize("leave", [Exchange.cut, reset])
@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/messages", LARGE), ("/v1/responses", ASKED), ("/v1/other", ASKED)],
    ids=["large", "responses", "other"],
)
def test_a_connection_that_was_closed_while_it_was_idle_is_no_error(
    path: str, leave: Callable[[Exchange], None], body: bytes, raw: Raw, upstream: Upstream
) -> None:
    def script(exchange: Exchange, _number: int, count: int) -> None:
        exchange.answer(b"{}") if count == 1 else leave(exchange)

    seen = Connections(upstream, script)
    for _ in range(3):
        assert raw.ask(body, path).status == 200
        assert upstream.last.body == body
    assert seen.requests == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]


@pytest.mark.parametrize(("limit", "value"), [("_IDLE_SECONDS", 60.0), ("_AT_ONCE_SECONDS", -1.0)])
def test_a_connection_that_was_busy_or_breaks_later_may_have_been_acted_on(
    limit: str, value: float, raw: Raw, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"everlong.gateway.upstream.{limit}", value)

    def script(exchange: Exchange, _number: int, count: int) -> None:
        exchange.answer(b"{}") if count == 1 else exchange.cut()

    seen = Connections(upstream, script)
    assert [raw.ask(ASKED).status for _ in range(2)] == [200, 502]
    assert seen.requests == [(0, 1), (0, 2)]


@pytest.mark.parametrize("piece", [b"HTTP/1.1 200 OK\r\ncontent-le", b"HT"])
def test_an_answer_that_has_begun_is_not_asked_for_again(piece: bytes, raw: Raw, upstream: Upstream) -> None:
    def script(exchange: Exchange, _number: int, count: int) -> None:
        if count == 1:
            exchange.answer(b"{}")
        else:
            exchange.send(piece)
            exchange.cut()

    seen = Connections(upstream, script)
    assert [raw.ask(ASKED).status for _ in range(2)] == [200, 502]
    assert seen.requests == [(0, 1), (0, 2)]
