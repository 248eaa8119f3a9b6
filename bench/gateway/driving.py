"""Clients that talk to several addresses in turn: how long an answer takes, and how many come in a second.

What listens there is not known here.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from aiohttp import ClientSession, TCPConnector

from bench.gateway.upstreams import PATH

__all__ = ["CLIENT", "LARGE", "SHAPES", "SMALL", "Rate", "Shape", "added", "compared", "drive_open"]

SMALL, LARGE = 1_000, 400_000
Shape = Literal["growing", "forking", "fresh"]
SHAPES: tuple[Shape, ...] = ("growing", "forking", "fresh")
"""A known conversation that is longer by a turn each time; the same history with another last message; another one."""
SLOW_SHARE = 0.1
"""Of the requests, for those that would take too long with all of them."""
_WARM = 3
"""The number of requests at the beginning of a conversation that are not measured."""
_ROUNDS = 4
_TURNS = 20
"""After so many turns a conversation goes back to its beginning, and on from there."""
CLIENT = "X-Client"
"""The header by which a balancer can tell the clients apart, which all come from one address."""
_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer made-up"}


@dataclass(frozen=True)
class Rate:
    """The times that some clients saw."""

    median_ms: float
    per_second: float
    first_byte_ms: float = 0.0
    p99_ms: float = 0.0
    worst_ms: float = 0.0


class Talk:
    """The requests of one client, in one of the shapes.

    They are kept as bytes: a client that writes a long history anew with every request would be what is measured.
    """

    def __init__(self, size: int, name: str, *, shape: Shape = "growing", is_streamed: bool = False) -> None:
        self._shape, self.name = shape, name
        words = "some words of a talk " * (max(1, size // 8_000) * 2)
        head = {"model": "m-1", "stream": True} if is_streamed else {"model": "m-1"}
        self._body = bytearray(json.dumps(head).encode()[:-1] + b', "messages": [')
        self._body += _message("system", f"You are helpful. Client {name}.")
        count = 1
        while len(self._body) < size - 300:
            self._add("user", f"{name}, {count}: {words}")
            self._add("assistant", f"As to {count}: {words}")
            count += 2
        self._size = len(self._body)
        self._turn = 0

    def body(self) -> bytes:
        """Return the next request."""
        if self._turn % _TURNS == 0 or self._shape != "growing":  # small ones stay small
            del self._body[self._size :]
        self._turn += 1
        self._add("user", f"and {self._turn}?")
        data = b"".join((self._body, b"]}"))
        self._add("assistant", "All right, that is noted.")
        if self._shape != "fresh":
            return data
        return data.replace(self.name.encode(), f"{self.name} {self._turn}".encode())

    def _add(self, role: str, text: str) -> None:
        self._body += b", " + _message(role, text)


def _message(role: str, text: str) -> bytes:
    return json.dumps({"role": role, "content": text}).encode()


async def _asked(session: ClientSession, url: str, talk: Talk, *, is_streamed: bool) -> tuple[float, float]:
    body = talk.body()
    started = time.perf_counter()
    first = 0.0
    async with session.post(url + PATH, data=body, headers={**_HEADERS, CLIENT: talk.name}) as answer:
        async for _ in answer.content.iter_any():
            first = first or time.perf_counter() - started
        if answer.status != 200 or is_streamed != (answer.content_type == "text/event-stream"):
            raise RuntimeError(f"{url} answered {answer.status} with {answer.content_type}")
    return 1e3 * (time.perf_counter() - started), 1e3 * first


async def drive(
    url: str, size: int, clients: int, requests: int, *, shape: Shape = "growing", is_streamed: bool = False
) -> Rate:
    """Have some clients talk; the first requests of each are not measured."""
    each = max(1, requests // clients)
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        talks = [_talk(size, number, shape, is_streamed=is_streamed) for number in range(clients)]

        async def ask(talk: Talk, count: int) -> list[tuple[float, float]]:
            return [await _asked(session, url, talk, is_streamed=is_streamed) for _ in range(count)]

        await asyncio.gather(*(ask(talk, _WARM) for talk in talks))
        started = time.perf_counter()
        told = [one for seen in await asyncio.gather(*(ask(talk, each) for talk in talks)) for one in seen]
        seconds = time.perf_counter() - started
    return _rate(told, clients * each / seconds)


async def drive_open(
    url: str, size: int, clients: int, requests: int, per_second: float, *, shape: Shape = "growing"
) -> Rate:
    """Send requests at a given rate, whether or not the ones before are answered; times count from when one was due."""
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        talks = [_talk(size, number, shape) for number in range(clients)]
        for talk in talks:
            for _ in range(_WARM):
                await _asked(session, url, talk, is_streamed=False)
        started = time.perf_counter() + 0.1

        async def ask(number: int) -> tuple[float, float]:
            due = started + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await _asked(session, url, talks[number % clients], is_streamed=False)
            return 1e3 * (time.perf_counter() - due), 0.0

        told = await asyncio.gather(*map(ask, range(requests)))
    return _rate(told, per_second)


def _talk(size: int, number: int, shape: Shape, *, is_streamed: bool = False) -> Talk:
    return Talk(size, f"{number} {size} {is_streamed} {time.time_ns()}", shape=shape, is_streamed=is_streamed)


def _rate(told: Sequence[tuple[float, float]], per_second: float) -> Rate:
    times, firsts = zip(*told, strict=True)
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return Rate(statistics.median(times), per_second, statistics.median(firsts), p99, ordered[-1])


def compared(
    urls: dict[str, str],
    size: int,
    clients: int,
    requests: int,
    *,
    slow: Collection[str] = (),
    shape: Shape = "growing",
    is_streamed: bool = False,
) -> dict[str, Rate]:
    """Measure every address with parts of the requests in turn; ``slow`` ones get fewer of them."""
    parts: dict[str, list[Rate]] = {name: [] for name in urls}
    for _ in range(_ROUNDS):  # in turn, so that a machine that is busy with other things is so for all
        for name, url in urls.items():
            count = int(requests * (SLOW_SHARE if name in slow else 1)) // _ROUNDS
            parts[name].append(asyncio.run(drive(url, size, clients, count, shape=shape, is_streamed=is_streamed)))
    return {
        name: Rate(*(statistics.median(getattr(one, field) for one in found) for field in Rate.__dataclass_fields__))
        for name, found in parts.items()
    }


def added(rates: dict[str, Rate], name: str) -> float:
    """Return the time that a gateway adds to the upstream's, over the time that the relay adds."""
    direct = rates["direct"].median_ms
    return (rates[name].median_ms - direct) / max(0.01, rates["relay"].median_ms - direct)
