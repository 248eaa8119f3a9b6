"""The gateway beside the LiteLLM proxy and headroom, in front of the same upstream on loopback.

The measures are those of `bench.gateway.speed`: latency and requests per second beside a bare relay in the same run.
And the CPU of a request, in all processes of a gateway together, which says most on a machine that others use too.
Everlong stores every request; the others run as they come, without a database.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.gateway.driving import LARGE, SMALL, Rate, added, compared, drive
from bench.gateway.peers import PEERS, Unusable, installed, running
from bench.gateway.serving import children_of, gateway
from bench.gateway.upstreams import relay, upstream

__all__ = ["measure_gateways"]

CLIENTS = 8
REQUESTS = {SMALL: (400, 1_200), LARGE: (80, 240)}
"""At one client, and at several; slow gateways get a tenth."""
CPU_REQUESTS = {SMALL: 160, LARGE: 40}
SETTLE_SECONDS = 2.0
"""After the last request a gateway may still store something."""
_SETTINGS = {
    "models": {"m-1": {"context_length": 10_000_000}},
    "auxiliary": {"compression": {"provider": "main"}},
}
_TICKS = 100.0


def measure_gateways(share: float = 1.0) -> dict[str, Any]:
    """Return the costs of each gateway; a share of the requests makes it quicker and less sure."""
    rows: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="everlong-bench-") as folder, upstream() as model, relay(model) as floor:
        with gateway(model, Path(folder) / "store.db", _SETTINGS, Path(folder) / "spool") as (url, process):
            rows.append(_measured("Everlong", url, process, model, floor, share, is_slow=False))
        for peer in PEERS:
            try:
                with running(peer, installed(peer), model) as (url, process):
                    rows.append(_measured(peer.name, url, process, model, floor, share, is_slow=True))
            except (Unusable, TimeoutError, RuntimeError, OSError) as error:
                missing[peer.name] = str(error)
                print(f"public: {peer.name} is left out: {error}", file=sys.stderr)
    return {"missing": missing, "clients": CLIENTS, "rows": rows}


def _measured(
    name: str, url: str, process: int, model: str, floor: str, share: float, *, is_slow: bool
) -> dict[str, Any]:
    print(f"public: gateways, {name}", file=sys.stderr, flush=True)
    urls = {"direct": model, "relay": floor, name: url}
    slow = {name} if is_slow else set()
    row: dict[str, Any] = {"gateway": name}
    for size, (alone, together) in REQUESTS.items():
        row[f"cpu_ms {size}"] = _cpu(url, process, size, max(8, int(CPU_REQUESTS[size] * share)))
        one = compared(urls, size, 1, int(alone * share), slow=slow)
        many = compared(urls, size, CLIENTS, int(together * share), slow=slow)
        row[f"added {size}"] = added(one, name)
        row[f"latency_ms {size}"] = one[name].median_ms - one["direct"].median_ms
        row[f"per_second {size}"] = many[name].per_second
        row[f"of_relay {size}"] = many[name].per_second / many["relay"].per_second
    streams: dict[str, Rate] = compared(urls, SMALL, 1, int(400 * share), slow=slow, is_streamed=True)
    row["first_byte_ms"] = streams[name].first_byte_ms - streams["relay"].first_byte_ms
    return row


def _cpu(url: str, process: int, size: int, requests: int) -> float:
    """Return the CPU milliseconds of a request, in all processes of a gateway."""
    asyncio.run(drive(url, size, 2, 8))
    time.sleep(SETTLE_SECONDS)
    before = cpu_seconds(process)
    asyncio.run(drive(url, size, 2, requests))
    time.sleep(SETTLE_SECONDS)
    sent = 2 * (requests // 2 + 3)  # with those that the driver does not time
    return 1e3 * (cpu_seconds(process) - before) / sent


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds that a process and those that it has started have used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS + sum(map(cpu_seconds, children_of(process)))
