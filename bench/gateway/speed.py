"""The gateway's cost, as a multiple of a bare relay's in the same run.

Latency at one client and the first byte of a stream, with conversations of 1 KB and of 400 KB that the gateway knows;
start and memory. Then requests of three shapes, by ``bench.gateway.shapes``.

    python -m bench.gateway.speed
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.gateway.driving import LARGE, SMALL, added, compared
from bench.gateway.serving import gateway, memory_of
from bench.gateway.shapes import measure_shapes
from bench.gateway.upstreams import relay, upstream
from bench.measure import verdict

MOST_ADDED = {SMALL: 2.0, LARGE: 3.0}
FIRST_BYTE_MS = 1.0
START_SECONDS = 1.5
IDLE_MB = 200.0
"""Of both processes: the one that serves, and the one that stores."""
CLIENTS = 16
_SETTINGS = {
    "models": {"m-1": {"context_length": 10_000_000}},
    "auxiliary": {"compression": {"provider": "main"}},
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
                told("added latency over the relay's", added(one, "gateway"), MOST_ADDED[size], "x")
            streams = compared({"relay": floor, "gateway": url}, SMALL, 1, int(1_000 * share), is_streamed=True)
            later = streams["gateway"].first_byte_ms - streams["relay"].first_byte_ms
            told("first byte of a stream after the relay's", later, FIRST_BYTE_MS, " ms")
            measure_shapes(floor, url, share, told)
            print(f"  memory after all that                        {memory_of(process):.0f} MB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
