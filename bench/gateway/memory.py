"""The gateway's memory under large requests, and its growth.

Some clients send 400 KB with every request: conversations that the gateway knows, each longer by a turn than the time
before. After some turns a client begins another one, so that many are seen in a run. When all of them are sent, half
as many follow, which may take no more: what is kept of conversations is full by then. Exits with 1 where a bar is
missed.

    python -m bench.gateway.memory [--requests 100000] [--bytes 400000] [--clients 16]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientSession, TCPConnector

from bench.gateway.serving import gateway, memory_of
from bench.gateway.upstreams import PATH, upstream
from bench.measure import verdict
from everlong.gateway.requests import WARNING

IDLE_MB = 200.0
MOST_MB = 300.0
"""Of all processes of the gateway."""
MOST_GROWTH = 1.05
"""The later half of what follows over its earlier half."""
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
    """The memory of a run in megabytes, at even distances."""

    idle: float
    during: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    conversations: int = 0
    seconds: float = 0.0

    @property
    def end(self) -> float:
        """The memory when all requests were sent."""
        return self.during[-1]

    @property
    def growth(self) -> float:
        """The growth over the requests that follow: the least of their later half over the least of their earlier half.

        The least, because what is taken for some large requests and given back a little later is no growth.
        """
        half = len(self.after) // 2
        return min(self.after[half:]) / min(self.after[:half])


class Talk:
    """A conversation as bytes: a turn is appended to it, and nothing is written anew."""

    def __init__(self, beginning: bytes, name: str) -> None:
        self._body = bytearray(beginning.replace(_NAME, name.encode()))
        self._turn = 0

    def body(self) -> bytes:
        """Return the next request."""
        self._turn += 1
        self._body += b', {"role": "user", "content": "and what of point %d?"}' % self._turn
        return b"".join((self._body, b"]}"))

    def take(self, answer: bytes) -> None:
        """Append what was answered."""
        message = json.loads(answer)["choices"][0]["message"]
        self._body += b", " + json.dumps(message).encode()


def beginning_of(size: int) -> bytes:
    """Return the beginning of a request of about this size; no message is the same in two conversations."""
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

    def __init__(self, url: str, process: int, size: int) -> None:
        self.seen = Seen(memory_of(process))
        self._url, self._process = url + PATH, process
        self._beginning = beginning_of(size)
        self._asked = self._done = 0

    async def go(self, requests: int, clients: int, samples: list[float]) -> None:
        """Send so many requests, and look at the memory now and then."""
        self._asked = self._done = 0
        started = time.perf_counter()
        async with ClientSession(connector=TCPConnector(limit=0)) as session:
            talks = (self._client(session, number, requests, samples) for number in range(clients))
            await asyncio.gather(*talks)
        self.seen.seconds += time.perf_counter() - started

    async def _client(self, session: ClientSession, number: int, requests: int, samples: list[float]) -> None:
        while self._asked < requests:
            self.seen.conversations += 1
            talk = Talk(self._beginning, f"client {number} talk {self.seen.conversations}")
            for _ in range(TURNS_EACH):
                if self._asked >= requests:
                    return
                self._asked += 1
                async with session.post(self._url, data=talk.body(), headers=_HEADERS) as answer:
                    data = await answer.read()
                if answer.status != 200 or WARNING in answer.headers:
                    told = answer.headers.get(WARNING, data[:300])
                    raise RuntimeError(f"the gateway answered {answer.status}: {told!r}")
                talk.take(data)
                self._done += 1
                self._look(requests, samples)

    def _look(self, requests: int, samples: list[float]) -> None:
        def passed(parts: int) -> bool:
            return self._done * parts // requests > (self._done - 1) * parts // requests

        if passed(_SAMPLES):
            samples.append(memory_of(self._process))
        if passed(10):
            words = "after" if samples is self.seen.during else "then after"
            print(f"  {words:10} {self._done:>9,} requests {samples[-1]:7.1f} MB", flush=True)


def run(requests: int, size: int, clients: int) -> Seen:
    """Have some clients send so many requests of this size to a gateway of its own, and half as many after them."""
    with tempfile.TemporaryDirectory(prefix="everlong-bench-") as folder, upstream() as model:
        opened = gateway(model, Path(folder) / "store.db", _SETTINGS, Path(folder) / "spool")
        with opened as (url, process):
            made = Run(url, process, size)
            asyncio.run(made.go(requests, clients, made.seen.during))
            asyncio.run(made.go(max(2, requests // 2), clients, made.seen.after))
            return made.seen


def main() -> int:
    """Measure and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.memory", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=400_000, help="of a request")
    parser.add_argument("--clients", type=int, default=16)
    asked = parser.parse_args()
    print(f"{asked.requests:,} requests of {asked.bytes:,} bytes by {asked.clients} clients")
    seen = run(asked.requests, asked.bytes, asked.clients)
    rate = (asked.requests + asked.requests // 2) / seen.seconds
    most = max(seen.during + seen.after)
    print(f"  {seen.conversations:,} conversations, {rate:.0f} requests/s, at most {most:.1f} MB")
    bars = (
        ("memory when idle, MB", seen.idle, IDLE_MB),
        ("memory after all requests, MB", seen.end, MOST_MB),
        ("growth after that", seen.growth, MOST_GROWTH),
    )
    for name, value, bar in bars:
        print(f"  {name:44} {value:.2f} <= {bar:g} {verdict(value, bar)}")
    return 0 if all(value <= bar for _, value, bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
