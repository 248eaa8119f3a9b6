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
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import brotli
import zstandard
from tests.gateway.served import Program, raw
from tests.gateway.upstream import Exchange, Upstream

from bench.gateway.fuzz import Neighbour, bare_server, peak_megabytes
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


def _whole(content: bytes, more: bytes = b"") -> Iterator[bytes]:
    """Yield an answer that every API takes for one of its own."""
    yield b'{"id":"a","object":"response","status":"completed","role":"assistant","stop_reason":"end_turn","usage":{}'
    yield b',"content":[{"type":"text","text":"%s"}]' % content
    yield b',"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]}]'
    yield b',"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"%s}}]}' % more


def _event(text: bytes) -> bytes:
    return b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"},' % text + (
        b'"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text
    )


_START = b'data: {"type":"message_start","message":{"content":[]}}\n\n'
_BLOCK = b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
_END = b'data: {"type":"message_stop","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
_CALL = b'{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}'


def _streamed(*pieces: tuple[bytes, int]) -> Iterator[bytes]:
    yield _START + _BLOCK
    for piece, times in pieces:
        at_once = max(1, min(times, 200_000 // len(piece)))
        for _ in range(times // at_once):
            yield piece * at_once
    yield _END


def _packed(kind: str, megabytes: int) -> bytes:
    plain = b"".join(_whole(b"a" * megabytes * _MEGABYTE))
    return _pack(kind, plain)


def _pack(kind: str, plain: bytes) -> bytes:
    if kind == "br":
        return bytes(brotli.compress(plain, quality=5))
    if kind == "zstd":
        return zstandard.ZstdCompressor().compress(plain)
    return gzip.compress(plain, 9)


def _answer_packed(kind: str, data: bytes, exchange: Exchange) -> None:
    exchange.answer(data, headers=[("content-encoding", kind)])


def _stream_packed(kind: str, data: bytes, exchange: Exchange) -> None:
    pieces = (data[at : at + 60_000] for at in range(0, len(data), 60_000))
    exchange.stream(*pieces, headers=[("content-encoding", kind)])


def _answers() -> dict[str, Callable[[Exchange], None]]:
    """Return the hostile answers by name; the packed ones are made once."""
    bombs = {kind: _packed(kind, 300) for kind in ("gzip", "br", "zstd")}
    streams = {kind: _pack(kind, b"".join(_streamed((_event(b"x" * 1_000), 100_000)))) for kind in ("gzip", "zstd")}

    def whole(make: Callable[[], Iterator[bytes]]) -> Callable[[Exchange], None]:
        return lambda exchange: _send_whole(exchange, make())

    def stream(make: Callable[[], Iterator[bytes]]) -> Callable[[Exchange], None]:
        return lambda exchange: exchange.stream(*make())

    found: dict[str, Callable[[Exchange], None]] = {
        "100 MB": whole(lambda: _whole(b"a" * 100 * _MEGABYTE)),
        "9 MB of braces": whole(lambda: _whole(b"", b',"x":[%s{}]' % (b"{}," * 3_000_000))),
        "7 MB of braces": whole(lambda: _whole(b"", b',"x":[%s{}]' % (b"{}," * 2_300_000))),
        "100,000 calls": whole(lambda: _whole(b"", b',"tool_calls":[%s]' % b",".join([_CALL] * 100_000))),
        "60 events of 2 MB": stream(lambda: _streamed((_event(b"x" * _MEGABYTE), 60))),
        "100 events of 900 KB": stream(lambda: _streamed((_event(b"x" * 450_000), 100))),
        "no line end": stream(lambda: _streamed((b"data: " + b"x" * 200_000, 600))),
        "500,000 events": stream(lambda: _streamed((b"data: {}\n\n", 500_000))),
        "500,000 words": stream(lambda: _streamed((_event(b"word "), 500_000))),
        "100,000 calls in a stream": stream(
            lambda: _streamed(
                (b'data: {"choices":[{"index":0,"delta":{"tool_calls":[%s]}}]}\n\n' % _CALL, 100_000),
            )
        ),
        "events that begin": stream(lambda: _streamed((b'data: {"type":"response.in_progress"}\n\n', 100_000))),
        "a long refusal": lambda exchange: exchange.answer(b'{"error":"%s"}' % (b"no " * 20_000_000), "400 No"),
        "a refusal that takes long to read": lambda exchange: exchange.answer(
            b'{"error":{"message":"%s"}}' % (b"maximum context length is 1 tokens " * 25_000), "400 No"
        ),
        "a refusal that is no end": lambda exchange: exchange.stream(*([b"no " * 60_000] * 300)),
        "many headers": lambda exchange: exchange.answer(b"{}", headers=[("x-a", "b" * 60_000)] * 1_000),
    }
    for kind, data in bombs.items():
        found[f"a bomb in {kind}"] = partial(_answer_packed, kind, data)
    for kind, data in streams.items():
        found[f"a stream in {kind}"] = partial(_stream_packed, kind, data)
    return found


def _send_whole(exchange: Exchange, pieces: Iterator[bytes]) -> None:
    exchange.answer(b"".join(pieces))


# -- requests ----------------------------------------------------------------------------------------------------------


def _request(path: str, model: str, content: bytes = b"go", *, streams: bool = False) -> bytes:
    name = b"input" if path == "/v1/responses" else b"messages"
    more = b',"stream":true' if streams else b""
    return b'{"model":"%s","max_tokens":9%s,"%s":[{"role":"user","content":"%s"}]}' % (
        model.encode(),
        more,
        name,
        content,
    )


@cache
def _large(path: str) -> bytes:
    return _request(path, "hostile nothing", b"aA" * 30_000_000)


@cache
def _packed_request(path: str) -> bytes:
    return gzip.compress(_large(path), 9)


def _ask(address: str, path: str, body: bytes, headers: list[tuple[str, str]]) -> str:
    """Send a request, read the answer and throw it away; return its status."""
    with raw(address) as client:
        client.wire.socket.settimeout(120)
        client.begin(body, path, headers)
        answer = client.head()
        with suppress(OSError):
            client.wire.buffer = b""
            client.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            while client.wire.socket.recv(1 << 18):
                pass
        return str(answer.status)


def _trickle(address: str, data: bytes, size: int, stop: threading.Event) -> str:
    """Send bytes until the gateway closes the connection, or others are done."""
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=20) as sock:
        sock.settimeout(5)
        for _ in range(size):
            if stop.is_set():
                break
            sock.sendall(data)
        with suppress(TimeoutError):
            return sock.recv(100)[9:12].decode("latin-1") or "closed"
    return "waits"


Attack = Callable[[str, threading.Event], str]


def _attack_with(
    path: str, body: Callable[[], bytes], headers: list[tuple[str, str]], address: str, _: threading.Event
) -> str:
    return _ask(address, path, body(), headers)


def _attacks(only: list[str]) -> dict[str, Attack]:
    """Return the attacks by name."""
    found: dict[str, Attack] = {}
    for number, name in enumerate(_NAMES):
        for path in _PATHS:
            streams = (number + len(path)) % 2 == 0
            body, more = _request(path, f"hostile {name}", streams=streams), [("accept-encoding", "gzip, br, zstd")]
            found[f"{name} ({path})"] = partial(_attack_with, path, partial(bytes, body), more)
    for path in _PATHS:
        packed = [("content-encoding", "gzip")]
        found[f"packed request ({path})"] = partial(_attack_with, path, partial(_packed_request, path), packed)
        found[f"huge request ({path})"] = partial(_attack_with, path, partial(_large, path), [])
    head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n"
    found["a flood of headers"] = lambda address, stop: _trickle(
        address, head + b"x-a: %s\r\n" % (b"b" * 60_000) * 20, 200, stop
    )
    found["a flood of short headers"] = lambda address, stop: _trickle(address, head + b"a: b\r\n" * 20_000, 500, stop)
    found["a body without an end"] = lambda address, stop: _trickle(
        address, head + b"transfer-encoding: chunked\r\n\r\n" + b"fffff\r\n%s\r\n" % (b" " * 0xFFFFF), 1, stop
    )
    found["many requests in a row"] = lambda address, stop: _trickle(
        address, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1_000, 20, stop
    )
    return {name: attack for name, attack in found.items() if not only or any(part in name for part in only)}


_NAMES = [
    *("100 MB", "9 MB of braces", "7 MB of braces", "100,000 calls", "60 events of 2 MB", "100 events of 900 KB"),
    *("no line end", "500,000 events", "500,000 words", "100,000 calls in a stream", "events that begin"),
    *("a long refusal", "a refusal that takes long to read", "a refusal that is no end", "many headers"),
    *("a bomb in gzip", "a bomb in br", "a bomb in zstd", "a stream in gzip", "a stream in zstd"),
]


# -- processes ---------------------------------------------------------------------------------------------------------


def _answer_normally(exchange: Exchange) -> None:
    exchange.answer(b'{"choices":[{"message":{"role":"assistant","content":"Yes."}}]}')


def _serve_hostile(ready: Connection) -> None:
    answers = _answers()

    def answer(exchange: Exchange) -> None:
        name = json.loads(exchange.received.body)["model"].removeprefix("hostile ")
        with suppress(OSError):
            if name in answers:
                answers[name](exchange)
            else:
                exchange.answer(b"{}")
            return
        exchange.is_over = True

    with Upstream(answer) as upstream:
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
                outcome = run(address, stop)
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
        config = {"gateway": {"routes": {"hostile *": {"base_url": hostile}}}}
        Path(folder, "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        arguments = (
            "--port",
            "0",
            "--upstream",
            normal,
            "--store",
            f"{folder}/store.db",
            "--log-file",
            f"{folder}/log",
        )
        self._program = Program(*arguments, EVERLONG_HOME=folder, EVERLONG_TEST_STARTED="1")
        if not self._program.address:
            raise SystemExit(f"the gateway does not start: {self._program.first}")
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
            self._program.end()
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def _look(self, attackers: Connection) -> None:
        during = "a pause"
        if attackers.poll(1.0):
            name, outcome = attackers.recv()
            self.outcomes[name, outcome] += 1
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
