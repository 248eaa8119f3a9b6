"""A gateway in a process of its own, for benchmarks."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Served", "gateway", "memory_of"]

Served = tuple[str, int]
"""The address of a gateway, and the process that it runs in."""


@contextmanager
def gateway(
    upstream: str, database: str | Path, settings: Mapping[str, Any], journal: Path | None = None
) -> Iterator[Served]:
    """Run a gateway in front of an upstream until the block ends; its journal is in a folder of its own."""
    spawning = multiprocessing.get_context("spawn")
    ports = spawning.Queue()
    process = spawning.Process(target=_run, args=(upstream, str(database), dict(settings), journal, ports), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=300)}", int(process.pid or 0)
    finally:
        process.terminate()
        process.join(10)


def memory_of(process: int) -> float:
    """Return the megabytes that a process has in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _run(upstream: str, database: str, values: Mapping[str, Any], journal: Path | None, ports: Any) -> None:
    from aiohttp import web  # noqa: PLC0415 - in the new process only

    from everlong.config import Settings  # noqa: PLC0415 - as above
    from everlong.gateway.app import make_app  # noqa: PLC0415 - as above
    from everlong.gateway.gateway import Gateway  # noqa: PLC0415 - as above
    from everlong.gateway.routing import Routes  # noqa: PLC0415 - as above
    from everlong.gateway.server import tune  # noqa: PLC0415 - as above
    from everlong.store.upgrade import open_database  # noqa: PLC0415 - as above

    async def serve() -> None:
        settings = Settings.model_validate(values)
        made = Gateway(
            settings, open_database(database, waits_for_disk=False), Routes(settings, upstream), journal=journal
        )
        runner = web.AppRunner(make_app(made), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        tune()
        ports.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(serve())
