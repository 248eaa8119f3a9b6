"""Load on the cluster: 200 clients whose conversations grow up to 400 KB, at half of the most that it answers.

First as many requests as the gateways answer, then half of that rate for a while; the same clients ask the model itself
at that rate too, and the difference is the gateways' own share. No request may fail, every answer must stand in the
database once, and memory must not grow.

With ``--rates``, instead: requests per second of one, two and three gateways behind HAProxy, and of a bare relay. A
client stays at its gateway, or with ``--apart`` each request goes to any.

    python -m bench.cluster.load [--clients 200] [--seconds 300] [--apart] [--rates]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout, TCPConnector

from bench.cluster.__main__ import FOLDER, enclose, refusal
from bench.cluster.machines import Cluster
from bench.gateway.driving import CLIENT, LARGE, SHAPES, SMALL, compared
from bench.gateway.kills import Client, Seen, audit, drain
from bench.gateway.serving import memory_of
from bench.gateway.upstreams import failing_upstream, relay, upstream
from bench.measure import verdict
from everlong.model import Message

_DISK = 2_000
"""Megabytes of a machine's disk."""
_PART = 10_000
"""Bytes of a question; the answer repeats them."""
_MOST_SECONDS = 60.0
"""Seconds in which the highest rate is measured."""
_MODEL_SECONDS = 30.0
"""Seconds in which the model itself is asked."""
_OWN_SHARE = 150.0
"""Milliseconds that gateways may take of the slowest request in a hundred."""
_GROWTH = 1.1
"""What memory at the end may be of that a third before."""
_WORKERS = 16
"""Clients that ask at once where rates are compared."""
_LEAST = {
    SMALL: {"growing": 0.4, "forking": 0.4, "fresh": 0.3},
    LARGE: {"growing": 0.25, "forking": 0.25, "fresh": 0.15},
}
"""The least rate of a gateway, over the relay's."""


class Growing(Client):
    """Goes on with a conversation until it is 400 KB long, and begins another one."""

    def __init__(self, number: int, url: str, seen: Seen, pause: float, times: list[float]) -> None:
        super().__init__(f"client {number}", [(url, 0)], seen, pause)
        self._times = times

    async def talk(self, session: ClientSession) -> None:
        """Ask until told to stop; the first conversation has any length."""
        first = "the quay and the tide " * self._dice.randrange(LARGE // 22)
        said: list[Message] = [{"role": "system", "content": f"{self._name}: {first}"}]
        size = len(first)
        await asyncio.sleep(self._pause * self._dice.random())
        while not self._seen.is_over:
            self._number += 1
            words = f"{self._name} says {self._number}: " + "the crane and the berth " * (_PART // 24)
            asked: Message = {"role": "user", "content": words}
            began = time.monotonic()
            if await self._ask(session, [*said, asked], words):
                said += [asked, {"role": "assistant", "content": f"Heard: {words}"}]
                size += 2 * len(words)
                self._times.append(time.monotonic() - began)
            if size > LARGE:
                said, size = [{"role": "system", "content": self._name}], 0
            await asyncio.sleep(2 * self._pause * self._dice.random())


async def talk(url: str, clients: int, seconds: float, rate: float, seen: Seen) -> list[float]:
    """Have clients talk for a while; return the seconds that each request took. A rate of 0 is the highest."""
    times: list[float] = []
    seen.is_over = False
    timeout = ClientTimeout(total=120)
    async with ClientSession(connector=TCPConnector(limit=0), timeout=timeout) as session:
        first = random.randrange(1 << 30)
        talkers = [
            asyncio.create_task(
                Growing(first + number, url, seen, clients / rate if rate else 0.0, times).talk(session)
            )
            for number in range(clients)
        ]
        await asyncio.sleep(seconds)
        seen.is_over = True
        await asyncio.gather(*talkers)
    return times


def percentile(times: list[float], share: float) -> float:
    """Return the milliseconds below which a share of the times is."""
    return 1e3 * sorted(times)[min(len(times) - 1, int(share * len(times)))]


def load(cluster: Cluster, model: str, asked: argparse.Namespace) -> bool:
    """Load the gateways, and print what clients saw; return whether every bar was held."""
    seen, began = Seen(), time.monotonic()
    most = asyncio.run(talk(cluster.front, asked.clients, _MOST_SECONDS, 0.0, seen))
    highest = len(most) / (time.monotonic() - began)
    print(f"{asked.clients} clients, as fast as they are answered: {highest:.1f} requests/s", flush=True)
    direct = asyncio.run(talk(model, asked.clients, _MODEL_SECONDS, highest / 2, Seen()))
    memory: list[float] = []
    times: list[float] = []
    for part in range(3):
        times += asyncio.run(talk(cluster.front, asked.clients, asked.seconds / 3, highest / 2, seen))
        memory.append(sum(map(memory_of, cluster.processes())))
        told = f"{len(times):,} requests, p99 {percentile(times, 0.99):.0f} ms, load average {os.getloadavg()[0]:.1f}"
        print(f"  after {asked.seconds * (part + 1) / 3:.0f} s: {told}, gateways {memory[-1]:.0f} MB", flush=True)
    own = percentile(times, 0.99) - percentile(direct, 0.99)
    drained = drain(cluster.url, cluster.folder, seen)
    problems = audit(cluster.url, seen)
    good = True
    for what, value, bar in (
        ("requests that failed", len(seen.asked) - len(seen.answered), 0),
        ("answers in neither database nor journal", drained.lost, 0),
        ("problems in the database", len(problems), 0),
        ("p99 without the model's, ms", round(own), _OWN_SHARE),
        ("memory at the end, over a third before", round(memory[2] / memory[1], 2), _GROWTH),
    ):
        good = good and value <= bar
        print(f"  {what:42}{value:>8}  {verdict(value, bar)}")
    print(f"  median {percentile(times, 0.5):.0f} ms, the model itself {percentile(direct, 0.5):.0f} ms")
    for problem in problems:
        print(f"    {problem}")
    return good


def rates(cluster: Cluster, floor: str, share: float) -> bool:
    """Print the rates of one, two and three gateways beside the relay's; return whether one holds every bar."""
    good = True
    print(f"requests/s at {_WORKERS} clients; load average {os.getloadavg()[0]:.1f}")
    for size, count in ((SMALL, 4_000), (LARGE, 800)):
        for shape in SHAPES:
            urls = {"relay": floor, **{str(number): url for number, url in enumerate(cluster.fronts, 1)}}
            found = compared(urls, size, _WORKERS, int(count * share), shape=shape)
            ratio, least = found["1"].per_second / found["relay"].per_second, _LEAST[size][shape]
            good = good and ratio >= least
            told = ", ".join(f"{name} {one.per_second:.0f} (p99 {one.p99_ms:.0f} ms)" for name, one in found.items())
            print(f"  {size:,} bytes, {shape:8} {told}", flush=True)
            print(f"    one over the relay {ratio:.2f} >= {least} {verdict(ratio, least, at_least=True)}", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f}")
    return good


def run(asked: argparse.Namespace, folder: Path) -> int:
    """Start the cluster and measure; 1 where a bar was missed."""
    with upstream() if asked.rates else failing_upstream(0.0) as model, relay(model) as floor:
        balance = "leastconn" if asked.apart else f"hdr({CLIENT})"
        cluster = Cluster(folder, model, disk=_DISK, balance=balance)
        try:
            cluster.start()
            good = rates(cluster, floor, asked.share) if asked.rates else load(cluster, model, asked)
        finally:
            cluster.close()
    return 0 if good else 1


def main() -> int:
    """Run inside of namespaces of our own, so that nothing stays behind."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster.load", description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300.0, help="at half of the highest rate")
    parser.add_argument("--apart", action="store_true", help="requests of a client go to any gateway")
    parser.add_argument("--rates", action="store_true", help="compare one, two and three gateways with a relay")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of requests, with --rates")
    asked = parser.parse_args()
    if folder := os.environ.pop(FOLDER, ""):  # a name that settings do not know
        return run(asked, Path(folder))
    return refusal() or enclose([sys.executable, "-m", "bench.cluster.load", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
