"""How much memory the gateway takes under large requests, and whether it goes on growing.

Some clients send 400 KB with every request: conversations that the gateway knows, each longer by a turn than the time
before. After some turns a client begins another one, so that many are seen in a run. Exits with 1 where a bar is
missed.

    python -m bench.gateway.memory [--requests 100000] [--bytes 400000] [--clients 16]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientSession, TCPConnector

from bench.gateway.serving import gateway, memory_of
from bench.gateway.upstreams import PATH, upstream
from bench.measure import verdict
from everlong.gateway.passing import WARNING

IDLE_MB = 120.0
MOST_MB = 250.0
MOST_GROWTH = 1.05
"""The last quarter of a run over its second one."""
TURNS_EACH = 50
"""A client begins another conversation after so many turns."""
_SAMPLES = 100
_NAME = b"@name@"
_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer made-up"}
_SETTINGS = {
    "models": {"m-1": {"context_length": 10_000_000}},
    "auxiliary": {"compression": {"provider": "main"}},
}


@dataclass
class Seen:
    """What a run took: megabytes at even distances, the first one when idle."""

    samples: list[float] = field(default_factory=list)
    conversations: int = 0
    seconds: float = 0.0

    @property
    def growth(self) -> float:
        """The last quarter of the run over its second one: by then everything that fills up once is full."""
        quarter = max(1, (len(self.samples) - 1) // 4)
        second, last = self.samples[1 + quarter : 1 + 2 * quarter], self.samples[-quarter:]
        return statistics.median(last) / statistics.median(second or self.samples)


class Talk:
    """A conversation as bytes: a turn is appended to it, and nothing is written anew."""

    def __init__(self, beginning: bytes, name: str) -> None:
        self._body = bytearray(beginning.replace(_NAME, name.encode()))
        self._turn = 0

    def body(self) -> bytes:
        """The next request."""
        self._turn += 1
        self._body += b', {"role": "user", "content": "and what of point %d?"}' % self._turn
        return b"%b]}" % self._body

    def take(self, answer: bytes) -> None:
        """Append what was answered."""
        message = json.loads(answer)["choices"][0]["message"]
        self._body += b", " + json.dumps(message).encode()


def beginning_of(size: int) -> bytes:
    """The beginning of a request of about this size, without its end; no message is the same in two conversations."""
    words = "some words of a talk " * 100
    body = b'{"model": "m-1", "messages": [{"role": "system", "content": "You are helpful."}'
    number = 0
    while len(body) < size:
        number += 1
        role = "user" if number % 2 else "assistant"
        message = {"role": role, "content": f"{_NAME.decode()} {number}: {words}"[: max(40, size - len(body) - 40)]}
        body += b", " + json.dumps(message).encode()
    if number % 2:
        body += b', {"role": "assistant", "content": "All right."}'
    return body


class Run:
    """Clients that share a number of requests."""

    def __init__(self, url: str, process: int, requests: int, size: int) -> None:
        self.seen = Seen([memory_of(process)])
        self._url = url + PATH
        self._process, self._requests = process, requests
        self._beginning = beginning_of(size)
        self._asked = self._done = 0

    async def go(self, clients: int) -> Seen:
        """Send all requests."""
        started = time.perf_counter()
        async with ClientSession(connector=TCPConnector(limit=0)) as session:
            await asyncio.gather(*(self._client(session, number) for number in range(clients)))
        self.seen.seconds = time.perf_counter() - started
        return self.seen

    async def _client(self, session: ClientSession, number: int) -> None:
        while self._asked < self._requests:
            self.seen.conversations += 1
            talk = Talk(self._beginning, f"client {number} talk {self.seen.conversations}")
            for _ in range(TURNS_EACH):
                if self._asked >= self._requests:
                    return
                self._asked += 1
                async with session.post(self._url, data=talk.body(), headers=_HEADERS) as answer:
                    data = await answer.read()
                if answer.status != 200 or WARNING in answer.headers:
                    told = answer.headers.get(WARNING, data[:300])
                    raise RuntimeError(f"the gateway answered {answer.status}: {told!r}")
                talk.take(data)
                self._done += 1
                self._look()

    def _look(self) -> None:
        samples = min(_SAMPLES, self._requests)
        if self._done * samples // self._requests == (self._done - 1) * samples // self._requests:
            return
        self.seen.samples.append(memory_of(self._process))
        if self._done * 10 // self._requests > (self._done - 1) * 10 // self._requests:
            print(f"  after {self._done:>9,} requests {self.seen.samples[-1]:7.1f} MB", flush=True)


def run(requests: int, size: int, clients: int) -> Seen:
    """Have some clients send so many requests of this size to a gateway of its own."""
    with tempfile.TemporaryDirectory(prefix="everlong-bench-") as folder, upstream() as model:
        opened = gateway(model, Path(folder) / "store.db", _SETTINGS, Path(folder) / "spool")
        with opened as (url, process):
            return asyncio.run(Run(url, process, requests, size).go(clients))


def main() -> int:
    """Measure and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.memory", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=400_000, help="of a request")
    parser.add_argument("--clients", type=int, default=16)
    asked = parser.parse_args()
    print(f"{asked.requests:,} requests of {asked.bytes:,} bytes by {asked.clients} clients")
    seen = run(asked.requests, asked.bytes, asked.clients)
    rate = asked.requests / seen.seconds
    print(f"  {seen.conversations:,} conversations, {rate:.0f} requests/s, at most {max(seen.samples):.1f} MB")
    bars = (
        ("memory when idle, MB", seen.samples[0], IDLE_MB),
        ("memory at the end, MB", seen.samples[-1], MOST_MB),
        ("last quarter over the second one", seen.growth, MOST_GROWTH),
    )
    for name, value, bar in bars:
        print(f"  {name:44} {value:.2f} <= {bar:g} {verdict(value, bar)}")
    return 0 if all(value <= bar for _, value, bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
