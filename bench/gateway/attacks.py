"""Hostile upstreams and clients beside a normal one: answers and bodies that are made to stall everybody.

    python -m bench.gateway.attacks [--count N] [--only NAME,…]

The gateway runs as ``everlong serve`` does. One upstream answers the normal client; another one, in a process of its
own, sends answers of 100 MB, of nothing but braces, of events without an end, of hundreds of thousands of events or
calls, packed bombs and endless errors. Attackers in a third process ask for them, and send packed and huge requests,
slow ones and floods of headers, until every attack was made and the normal client has made so many requests. A bare
server that nobody attacks tells how long the machine itself makes everyone wait. Exits with 1 if the normal client
waited for more than 250 ms or was refused, if anything was answered with an error of ours (500), or if the gateway took
more than 600 MB; its storing process is told beside it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import zstandard
from tests.gateway.served import Program, raw
from tests.gateway.upstream import Exchange, Upstream

from bench.gateway.fuzz import LogReader, Neighbour, bare_server, peak_megabytes
from bench.gateway.serving import children_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_MOST_SECONDS = 0.25
_MOST_MEGABYTES = 600
_QUIET_SECONDS = 3.0
_AT_ONCE = 4
_PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")
_MEGABYTE = 1_000_000

# -- answers -----------------------------------------------------------------------------------------------------------


class _Hostile(NamedTuple):
    """A hostile answer."""

    make: Callable[[str], Iterator[bytes]]
    """Makes its pieces, for the path of a request."""
    is_streamed: bool = True
    is_chunked: bool = False
    """True if its pieces are chunks already."""
    status: str = "200 OK"
    encoding: str = ""
    headers: tuple[tuple[str, str], ...] = ()


def _whole(content: bytes = b"ok", more: bytes = b"") -> Iterator[bytes]:
    """Yield an answer that every API takes for one of its own."""
    yield b'{"id":"a","object":"response","status":"completed","role":"assistant","stop_reason":"end_turn","usage":{}'
    yield b',"content":[{"type":"text","text":"%s"}]' % content
    yield b',"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]}]'
    yield b',"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"%s}}]}' % more


_CALL = b'{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}'
_STARTS = {
    "/v1/messages": b'data: {"type":"message_start","message":{"content":[]}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n',
    "/v1/responses": b'data: {"type":"response.created"}\n\n',
}
_WORDS = {
    "/v1/chat/completions": b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n',
    "/v1/messages": b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}\n\n',
    "/v1/responses": b'data: {"type":"response.output_text.delta","delta":"%s"}\n\n',
}
_CALLS = {
    "/v1/chat/completions": b'data: {"choices":[{"index":0,"delta":{"tool_calls":[%s]}}]}\n\n' % _CALL,
    "/v1/messages": b'data: {"type":"content_block_start","index":1,"content_block":'
    b'{"type":"tool_use","id":"c","name":"f","input":{}}}\n\n',
    "/v1/responses": b'data: {"type":"response.output_item.done","output_index":1,"item":'
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}\n\n',
}
_ENDS = {
    "/v1/chat/completions": b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    "/v1/messages": b'data: {"type":"message_stop"}\n\n',
    "/v1/responses": b'data: {"type":"response.completed","response":{"status":"completed","output":[]}}\n\n',
}


def _repeated(path: str, piece: bytes, times: int) -> Iterator[bytes]:
    """Yield a stream that says the same very often."""
    if path in _STARTS:
        yield _STARTS[path]
    at_once = max(1, min(times, 200_000 // len(piece)))
    for _ in range(times // at_once):
        yield piece * at_once
    yield _ENDS[path]


def _said(text: bytes, times: int) -> Callable[[str], Iterator[bytes]]:
    return lambda path: _repeated(path, _WORDS[path] % text, times)


def _same(piece: bytes, times: int) -> Callable[[str], Iterator[bytes]]:
    return lambda path: _repeated(path, piece, times)


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 9),
    "zstd": zstandard.compress,
}


@cache
def _bomb(encoding: str) -> bytes:
    return _PACKERS[encoding](b"".join(_whole(b"a" * 100 * _MEGABYTE)))


@cache
def _packed_stream(encoding: str, path: str) -> bytes:
    return _PACKERS[encoding](b"".join(_said(b"x" * 1_000, 30_000)(path)))


_ANSWERS: dict[str, _Hostile] = {
    "100 MB": _Hostile(lambda _: _whole(b"a" * 100 * _MEGABYTE), is_streamed=False),
    "9 MB of braces": _Hostile(lambda _: _whole(more=b',"x":[%s{}]' % (b"{}," * 3_000_000)), is_streamed=False),
    "7 MB of braces": _Hostile(lambda _: _whole(more=b',"x":[%s{}]' % (b"{}," * 2_300_000)), is_streamed=False),
    "100,000 calls": _Hostile(
        lambda _: _whole(more=b',"tool_calls":[%s]' % b",".join([_CALL] * 100_000)), is_streamed=False
    ),
    "60 events of 2 MB": _Hostile(_said(b"x" * 2 * _MEGABYTE, 60)),
    "100 events of 900 KB": _Hostile(_said(b"x" * 900_000, 100)),
    "no line end": _Hostile(_same(b"data: " + b"x" * 200_000, 600)),
    "500,000 events": _Hostile(_same(b"data: {}\n\n", 500_000)),
    "500,000 words": _Hostile(_said(b"word ", 500_000)),
    "100,000 streamed calls": _Hostile(lambda path: _repeated(path, _CALLS[path], 100_000)),
    "100,000 beginnings": _Hostile(_same(b'data: {"type":"response.in_progress"}\n\n', 100_000)),
    "a long refusal": _Hostile(lambda _: iter([b"no " * 20_000_000]), is_streamed=False, status="400 No"),
    "an endless refusal": _Hostile(lambda _: iter([b"no " * 60_000] * 300), status="400 No"),
    "tiny chunks": _Hostile(lambda _: iter([b"1\r\nx\r\n" * 10_000] * 30), is_chunked=True),
    "many headers": _Hostile(lambda _: iter([b"{}"]), is_streamed=False, headers=(("x-a", "b" * 60_000),) * 1_000),
    "a bomb in gzip": _Hostile(lambda _: iter([_bomb("gzip")]), is_streamed=False, encoding="gzip"),
    "a bomb in zstd": _Hostile(lambda _: iter([_bomb("zstd")]), is_streamed=False, encoding="zstd"),
    "a stream in gzip": _Hostile(lambda path: iter([_packed_stream("gzip", path)]), encoding="gzip"),
    "a stream in zstd": _Hostile(lambda path: iter([_packed_stream("zstd", path)]), encoding="zstd"),
}


def _answer_badly(exchange: Exchange) -> None:
    body = exchange.received.body
    is_asking = len(body) < _MEGABYTE and body.startswith(b"{")  # and neither huge nor packed
    name = json.loads(body)["model"].removeprefix("hostile ").removeprefix("recall ") if is_asking else ""
    hostile = _ANSWERS.get(name, _Hostile(lambda _: iter([b"{}"]), is_streamed=False))
    headers = [*hostile.headers, *([("content-encoding", hostile.encoding)] if hostile.encoding else [])]
    pieces = hostile.make(exchange.received.target)
    try:
        if hostile.is_streamed:
            exchange.begin(hostile.status, headers)
            for piece in pieces:
                (exchange.send if hostile.is_chunked else exchange.chunk)(piece)
            exchange.end()
        else:
            exchange.answer(b"".join(pieces), hostile.status, headers)
    except OSError:  # the gateway hung up
        exchange.is_over = True


# -- requests ----------------------------------------------------------------------------------------------------------

_TOOLS = {
    "/v1/chat/completions": [{"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}],
    "/v1/messages": [{"name": "g", "input_schema": {"type": "object"}}],
    "/v1/responses": [{"type": "function", "name": "g", "parameters": {"type": "object"}}],
}
"""Tools, beside which the gateway offers hidden ones."""


def _request(path: str, model: str, content: str = "go", **more: Any) -> bytes:
    name = "input" if path == "/v1/responses" else "messages"
    said = {"model": model, "max_tokens": 9, name: [{"role": "user", "content": content}], "store": False, **more}
    return json.dumps(said, ensure_ascii=False).encode()


@cache
def _large(path: str) -> bytes:
    """Return a request of 31 MB, about the largest; one letter in it makes every copy four times as large."""
    return _request(path, "hostile", "aA" * 15_500_000 + ("\U0001f600" if path == "/v1/messages" else ""))


@cache
def _packed_request(path: str) -> bytes:
    return gzip.compress(_large(path), 9)


@cache
def _packed_bomb(path: str) -> bytes:
    return gzip.compress(_request(path, "hostile", "a" * 60_000_000), 9)


def _ask(address: str, path: str, body: bytes, *headers: tuple[str, str]) -> str:
    """Send a request, read the answer and throw it away; return its status."""
    with raw(address) as client:
        client.wire.socket.settimeout(120)
        client.begin(body, path, [*headers, ("connection", "close")])
        answer = client.head()
        client.wire.buffer = b""
        with suppress(OSError):
            while client.wire.socket.recv(1 << 18):
                pass
        return str(answer.status)


def _trickle(address: str, head: bytes, data: bytes, times: int) -> str:
    """Send the same bytes again and again until the gateway answers or closes the connection."""
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=20) as sock:
        sock.settimeout(5)
        with suppress(ConnectionError):
            sock.sendall(head)
            for _ in range(times):
                sock.sendall(data)
        with suppress(TimeoutError):
            return sock.recv(100)[9:12].decode("latin-1") or "closed"
    return "waits"


Attack = Callable[[str], str]


def _attacks(only: list[str]) -> dict[str, Attack]:
    """Return the attacks by name."""
    found: dict[str, Attack] = {}
    packed = ("content-encoding", "gzip")
    for number, name in enumerate(_ANSWERS):
        for place, path in enumerate(_PATHS):
            recalls = (number + place) % 2 == 0
            body = _request(path, f"hostile {'recall ' if recalls else ''}{name}", tools=_TOOLS[path], stream=True)
            accepts = ("accept-encoding", "gzip, br, zstd")
            found[f"{name} ({path})"] = partial(_call, _ask, path, body, accepts)
    for path in _PATHS:
        found[f"a packed request ({path})"] = partial(_call, _ask_with, path, _packed_request, packed)
        found[f"a packed bomb ({path})"] = partial(_call, _ask_with, path, _packed_bomb, packed)
        found[f"a huge request ({path})"] = partial(_call, _ask_with, path, _large)
    head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n"
    asked = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1_000
    chunked, chunk = b"transfer-encoding: chunked\r\n\r\n", b"fffff\r\n%s\r\n" % (b" " * 0xFFFFF)
    found |= {
        "long headers": partial(_call, _trickle, head, b"x-a: %s\r\n" % (b"b" * 60_000), 4_000),
        "short headers": partial(_call, _trickle, head, b"a: b\r\n" * 20_000, 500),
        "a body without an end": partial(_call, _trickle, head + chunked, chunk, 300),
        "a body in tiny chunks": partial(_call, _trickle, head + chunked, b"1\r\na\r\n" * 40_000, 20),
        "a body that stops": partial(_call, _trickle, head + chunked, chunk, 20),
        "many requests in a row": partial(_call, _trickle, b"", asked, 50),
    }
    return {name: attack for name, attack in found.items() if not only or any(part in name for part in only)}


def _call(attack: Callable[..., str], *given: Any) -> str:
    """Attack the address that comes last."""
    *before, address = given
    return attack(address, *before)


def _ask_with(address: str, path: str, make: Callable[[str], bytes], *headers: tuple[str, str]) -> str:
    return _ask(address, path, make(path), *headers)


# -- processes ---------------------------------------------------------------------------------------------------------


def _answer_normally(exchange: Exchange) -> None:
    exchange.answer(b'{"choices":[{"message":{"role":"assistant","content":"Yes."}}]}')


def _serve_hostile(ready: Connection) -> None:
    with Upstream(_answer_badly) as upstream:
        ready.send(upstream.url)
        with suppress(EOFError):
            ready.recv()


def _attack_all(results: Connection, address: str, only: list[str]) -> None:
    """Run all attacks again and again, some at a time, until the other side hangs up."""
    stop = threading.Event()
    attacks, lock, done = list(_attacks(only).items()), threading.Lock(), [0]

    def attack() -> None:
        while not stop.is_set():
            with lock:
                name, run = attacks[done[0] % len(attacks)]
                done[0] += 1
            try:
                outcome = run(address)
            except OSError as error:
                outcome = type(error).__name__
            with lock, suppress(OSError):
                results.send((name, outcome))

    threads = [threading.Thread(target=attack, daemon=True) for _ in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    with suppress(EOFError, OSError):
        results.recv()
    stop.set()


@contextmanager
def _process(target: Callable[..., None], *args: Any) -> Iterator[Connection]:
    """Run a function in a process of its own, which ends when the connection to it is closed."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(there, *args), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.join(5)
        if process.is_alive():
            process.kill()


class _Run:
    """A gateway under attack, and the figures about it."""

    def __init__(self, folder: str, normal: str, hostile: str, bare: str) -> None:
        routes = {"hostile recall *": {"base_url": hostile, "recall": True}, "hostile*": {"base_url": hostile}}
        config = {"gateway": {"routes": routes}}
        Path(folder, "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        arguments = ("--port", "0", "--upstream", normal, "--store", f"{folder}/store.db")
        self._program = Program(*arguments, EVERLONG_HOME=folder, EVERLONG_TEST_STARTED="1")
        if not self._program.address:
            raise SystemExit(f"the gateway does not start: {self._program.first}")
        LogReader(self._program).start()
        self.normal = Neighbour(self._program.address, "/v1/chat/completions", pause=0.005)
        self.bare = Neighbour(bare, "/healthz", pause=0.02)
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.slow: list[tuple[float, str]] = []
        self.quiet = self.megabytes = self.storing = 0.0

    def play(self, count: int, only: list[str]) -> None:
        """Attack until the normal client has made so many requests and every attack was made."""
        process = self._program.process
        try:
            for other in (self.normal, self.bare):
                other.start()
            time.sleep(_QUIET_SECONDS)
            self.quiet = max(self.normal.waits, default=0.0)
            for other in (self.normal, self.bare):
                other.forget()
            with _process(_attack_all, self._program.address, only) as attackers:
                names = set(_attacks(only))
                while process.poll() is None and (
                    len(self.normal.waits) < count or names - {name for name, _ in self.outcomes}
                ):
                    self._look(attackers)
            for other in (self.normal, self.bare):
                other.end()
            self.megabytes = peak_megabytes(process.pid)
            self.storing = sum(map(peak_megabytes, children_of(process.pid)))
            self._program.tell(signal.SIGTERM)
            process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _look(self, attackers: Connection) -> None:
        during = "a pause"
        if attackers.poll(1.0):
            name, outcome = attackers.recv()
            self.outcomes[name, outcome] += 1
            told = f"{sum(self.outcomes.values())} attacks, {len(self.normal.waits):,} requests"
            print(told, file=sys.stderr)
            during = f"around {name}: {outcome}"
        if (longest := max(self.normal.new_waits(), default=0.0)) > _MOST_SECONDS:
            self.slow.append((longest, during))

    def problems(self) -> list[str]:
        """Return what missed the bar."""
        found = [f"500 for {name}" for name, outcome in self.outcomes if outcome == "500"]
        found += self.normal.problems[:5]
        if late := sum(wait > _MOST_SECONDS for wait in self.normal.waits):
            found.append(f"the normal client waited for more than {_MOST_SECONDS * 1_000:.0f} ms {late} times")
            found += [f"{wait * 1_000:.0f} ms {when}" for wait, when in sorted(self.slow, reverse=True)[:10]]
        if self.megabytes > _MOST_MEGABYTES:
            found.append(f"the gateway took {self.megabytes:.0f} MB")
        return found


def main() -> int:
    """Attack, and print the longest wait, the memory and the refusals."""
    parser = argparse.ArgumentParser(description="Attack a gateway beside a normal client.")
    parser.add_argument("--count", type=int, default=10_000, help="requests of the normal client")
    parser.add_argument("--only", default="", help="parts of the names of the attacks to run, with commas between them")
    options = parser.parse_args()
    only = [part for part in options.only.split(",") if part]
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        Upstream(_answer_normally) as normal,
        _process(_serve_hostile) as hostile,
        bare_server() as bare,
    ):
        run = _Run(folder, normal.url, hostile.recv(), bare)
        run.play(options.count, only)
    for name, outcome in sorted(run.outcomes):
        print(f"{run.outcomes[name, outcome]:4} × {outcome}  {name}")
    problems = run.problems()
    for problem in problems:
        print(f"FAILED {problem}")
    waits = sorted(run.normal.waits) or [0.0]
    ninety = waits[int(len(waits) * 0.99)]
    print(
        f"normal client: {len(waits):,} requests, slowest {waits[-1] * 1_000:.0f} ms, 99 of 100 within "
        f"{ninety * 1_000:.0f} ms; {run.quiet * 1_000:.0f} ms before"
    )
    floor = run.bare.waits
    slowest, over = max(floor, default=0.0), sum(wait > _MOST_SECONDS for wait in floor)
    print(f"a bare server meanwhile: {len(floor):,} requests, slowest {slowest * 1_000:.0f} ms, {over} over the limit")
    print(f"the gateway: {run.megabytes:.0f} MB at most; its storing process {run.storing:.0f} MB")
    asked = sum(run.outcomes.values())
    print(f"attacks: {asked:,} in {time.perf_counter() - began:.0f} s, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
