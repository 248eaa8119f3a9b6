"""What the gateway costs, as a multiple of what a bare relay costs in the same run.

Conversations of 1 KB and of 400 KB that grow by a turn with every request; each is known to the gateway when it is
measured. Latency at one client, requests in a second at sixteen, the first byte of a stream, start and memory.

    python -m bench.gateway.speed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession, TCPConnector

from bench.gateway.serving import gateway, memory_of
from bench.gateway.upstreams import PATH, relay, upstream
from bench.measure import verdict

SMALL, LARGE = 1_000, 400_000
MOST_ADDED = {SMALL: 2.0, LARGE: 3.0}
LEAST_RATE = {SMALL: 0.4, LARGE: 0.3}
FIRST_BYTE_MS = 1.0
START_SECONDS = 1.5
IDLE_MB = 120.0
CLIENTS = 16
_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer made-up"}
_SETTINGS = {
    "models": {"m-1": {"context_length": 10_000_000}},
    "auxiliary": {"compression": {"provider": "main"}},
}


@dataclass(frozen=True)
class Rate:
    """What some clients saw."""

    median_ms: float
    per_second: float
    first_byte_ms: float = 0.0


class Talk:
    """A conversation that grows by a turn with every request."""

    def __init__(self, size: int, name: str, *, is_streamed: bool = False) -> None:
        words = "some words of a talk " * (max(1, size // 8_000) * 2)
        self._messages = [{"role": "system", "content": f"You are helpful. Client {name}."}]
        while sum(len(message["content"]) for message in self._messages) < size - 300:
            self._messages += [
                {"role": "user", "content": f"{name}, {len(self._messages)}: {words}"},
                {"role": "assistant", "content": f"As to {len(self._messages)}: {words}"},
            ]
        self._size = len(self._messages)
        self._head = {"model": "m-1", "stream": True} if is_streamed else {"model": "m-1"}
        self._turn = 0

    def body(self) -> bytes:
        """The next request."""
        self._turn += 1
        if len(self._messages) > self._size + 40:  # small ones stay small
            del self._messages[self._size :]
        self._messages.append({"role": "user", "content": f"and {self._turn}?"})
        data = json.dumps({**self._head, "messages": self._messages}).encode()
        self._messages.append({"role": "assistant", "content": "All right, that is noted."})
        return data


async def _asked(session: ClientSession, url: str, talk: Talk) -> tuple[float, float]:
    body = talk.body()
    started = time.perf_counter()
    first = 0.0
    async with session.post(url + PATH, data=body, headers=_HEADERS) as answer:
        async for _ in answer.content.iter_any():
            first = first or time.perf_counter() - started
        if answer.status != 200:
            raise RuntimeError(f"{url} answered {answer.status}")
    return 1e3 * (time.perf_counter() - started), 1e3 * first


async def drive(url: str, size: int, clients: int, requests: int, *, is_streamed: bool = False) -> Rate:
    """Have some clients talk; the first requests of each are not measured."""
    async with ClientSession(connector=TCPConnector(limit=0)) as session:

        async def talk(number: int) -> list[tuple[float, float]]:
            own = Talk(size, f"{number} {size} {clients} {is_streamed} {time.time_ns()}", is_streamed=is_streamed)
            for _ in range(3):
                await _asked(session, url, own)
            return [await _asked(session, url, own) for _ in range(requests // clients)]

        started = time.perf_counter()
        told = [one for seen in await asyncio.gather(*map(talk, range(clients))) for one in seen]
        seconds = time.perf_counter() - started
    times, firsts = zip(*told, strict=True)
    return Rate(statistics.median(times), (requests + 3 * clients) / seconds, statistics.median(firsts))


def compared(urls: dict[str, str], size: int, clients: int, requests: int, **more: bool) -> dict[str, Rate]:
    """Direct, through the relay and through the gateway, a part of the requests at a time in turn."""
    parts: dict[str, list[Rate]] = {name: [] for name in urls}
    for _ in range(4):  # in turn, so that a machine that is busy with other things is so for all
        for name, url in urls.items():
            parts[name].append(asyncio.run(drive(url, size, clients, requests // 4, **more)))
    return {
        name: Rate(*(statistics.median(getattr(one, field) for one in found) for field in Rate.__dataclass_fields__))
        for name, found in parts.items()
    }


def main() -> int:
    """Measure and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.speed", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of requests")
    share = parser.parse_args().share
    good = True

    def told(name: str, value: float, bar: float, unit: str = "", *, at_least: bool = False) -> None:
        nonlocal good
        good = good and (value >= bar if at_least else value <= bar)
        sign = ">=" if at_least else "<="
        print(f"  {name:44} {value:.2f}{unit} {sign} {bar:g} {verdict(value, bar, at_least=at_least)}")

    with tempfile.TemporaryDirectory(prefix="everlong-bench-") as folder, upstream() as model, relay(model) as floor:
        started = time.perf_counter()
        with gateway(model, Path(folder) / "store.db", _SETTINGS, Path(folder) / "spool") as (url, process):
            told("start", time.perf_counter() - started, START_SECONDS, " s")
            told("memory when idle", memory_of(process), IDLE_MB, " MB")
            urls = {"direct": model, "relay": floor, "gateway": url}
            for size, alone, together in ((SMALL, 2_000, 8_000), (LARGE, 400, 1_600)):
                one = compared(urls, size, 1, int(alone * share))
                many = compared(urls, size, CLIENTS, int(together * share))
                print(
                    f"{size:,} bytes, median ms at 1 client: "
                    + ", ".join(f"{name} {rate.median_ms:.2f}" for name, rate in one.items())
                    + f"; requests/s at {CLIENTS}: "
                    + ", ".join(f"{name} {rate.per_second:.0f}" for name, rate in many.items())
                )
                direct = one["direct"].median_ms
                added = max(0.01, one["relay"].median_ms - direct)
                told(
                    "added latency over the relay's", (one["gateway"].median_ms - direct) / added, MOST_ADDED[size], "x"
                )
                rate = many["gateway"].per_second / many["relay"].per_second
                told("requests/s over the relay's", rate, LEAST_RATE[size], "x", at_least=True)
            streams = compared({"relay": floor, "gateway": url}, SMALL, 1, int(1_000 * share), is_streamed=True)
            later = streams["gateway"].first_byte_ms - streams["relay"].first_byte_ms
            told("first byte of a stream after the relay's", later, FIRST_BYTE_MS, " ms")
            print(f"  memory after all that                        {memory_of(process):.0f} MB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
