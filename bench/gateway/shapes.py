"""The gateway beside a bare relay, by the shape of the requests: conversations that grow, that fork, and fresh ones.

Rates with several clients, plain and streamed; latency in an open loop at half of the gateway's own rate; and how long
after the last request everything is in the database. `bench.gateway.speed` prints it.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Callable

from bench.gateway.driving import LARGE, SHAPES, SMALL, Rate, Shape, compared, drive_open

__all__ = ["measure_shapes"]

LEAST_RATE: dict[int, dict[Shape, float]] = {
    SMALL: {"growing": 0.5, "forking": 0.4, "fresh": 0.3},
    LARGE: {"growing": 0.5, "forking": 0.4, "fresh": 0.15},
}
"""Requests in a second at sixteen clients, over the relay's."""
MOST_P99 = 4.0
"""Over the relay's, in the open loop."""
MOST_MS = 250.0
STORED_SECONDS = 10.0
CLIENTS = (1, 16, 64)
_BAR_CLIENTS = 16
_REQUESTS = {SMALL: 1_600, LARGE: 320}
_ALONE_SHARE = 0.25
_OPEN_SECONDS = 4.0
_QUEUE = re.compile(r"^everlong_store_queue (\d+)", re.MULTILINE)

Tell = Callable[..., None]
"""Tells the name of a figure, its value, its bar, its unit, and ``at_least`` if more is better."""


def measure_shapes(relay: str, gateway: str, share: float, tell: Tell) -> None:
    """Measure all shapes, sizes and numbers of clients, and tell."""
    urls = {"relay": relay, "gateway": gateway}
    for size in (SMALL, LARGE):
        for shape in SHAPES:
            print(f"{shape}, {size:,} bytes")
            own = 0.0
            for clients in CLIENTS:
                for is_streamed in (False, True):
                    count = int(_REQUESTS[size] * share * (_ALONE_SHARE if clients == 1 else 1))
                    rates = compared(urls, size, clients, count, shape=shape, is_streamed=is_streamed)
                    stored = seconds_until_stored(gateway)
                    _print_rates(clients, is_streamed, rates, stored)
                    if clients == _BAR_CLIENTS and not is_streamed:
                        own, ratio = rates["gateway"].per_second, _over(rates)
                        tell("requests/s over the relay's", ratio, LEAST_RATE[size][shape], "x", at_least=True)
                        tell("everything stored after", stored, STORED_SECONDS, " s")
            _measure_open(urls, size, shape, own / 2, tell)


def _measure_open(urls: dict[str, str], size: int, shape: Shape, per_second: float, tell: Tell) -> None:
    count = max(20, int(per_second * _OPEN_SECONDS))
    seen = {
        name: asyncio.run(drive_open(url, size, _BAR_CLIENTS, count, per_second, shape=shape))
        for name, url in urls.items()
    }
    told = ", ".join(f"{name} p99 {rate.p99_ms:.1f} worst {rate.worst_ms:.1f} ms" for name, rate in seen.items())
    print(f"  open loop, {per_second:.0f} requests/s: {told}")
    tell("p99 over the relay's", seen["gateway"].p99_ms / max(0.01, seen["relay"].p99_ms), MOST_P99, "x")
    tell("slowest request", seen["gateway"].worst_ms, MOST_MS, " ms")


def _print_rates(clients: int, is_streamed: bool, rates: dict[str, Rate], stored: float) -> None:
    kind = "streamed" if is_streamed else "plain"
    both = ", ".join(f"{name} {rate.per_second:.0f}/s p99 {rate.p99_ms:.1f} ms" for name, rate in rates.items())
    print(f"  {clients:>2} clients, {kind:8} {both}: {_over(rates):.2f}x, stored after {stored:.1f} s", flush=True)


def _over(rates: dict[str, Rate]) -> float:
    return rates["gateway"].per_second / rates["relay"].per_second


def seconds_until_stored(gateway: str) -> float:
    """Wait until nothing waits for the database any more; return how long that took."""
    started = time.perf_counter()
    while True:
        with urllib.request.urlopen(gateway + "/metrics", timeout=60) as answer:  # noqa: S310 - loopback
            found = _QUEUE.search(answer.read().decode())
        if found is None or found[1] == "0":
            return time.perf_counter() - started
        time.sleep(0.05)
