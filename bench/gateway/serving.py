"""A gateway in a process of its own, for benchmarks."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Served", "children_of", "gateway", "memory_of"]

Served = tuple[str, int]
"""The address of a gateway, and the process that it runs in."""


@contextmanager
def gateway(
    upstream: str,
    database: str | Path,
    settings: Mapping[str, Any],
    journal: Path | None = None,
    *,
    in_threads: bool = False,
) -> Iterator[Served]:
    """Run a gateway in front of an upstream until the block ends; its journal is in a folder of its own.

    It stores in a process of its own, as ``everlong serve`` does, or ``in_threads``, as ``everlong wrap`` does.
    """
    spawning = multiprocessing.get_context("spawn")
    ports = spawning.Queue()
    given = (upstream, str(database), dict(settings), journal, ports, in_threads)
    process = spawning.Process(target=_run, args=given, daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=300)}", int(process.pid or 0)
    finally:
        process.terminate()
        process.join(10)


def memory_of(process: int) -> float:
    """Return the megabytes that a process and those that it has started have in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    return own + sum(map(memory_of, children_of(process)))


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    found = (task / "children" for task in Path(f"/proc/{process}/task").iterdir())
    return [int(child) for file in found for child in file.read_text().split()]


def _run(
    upstream: str, database: str, values: Mapping[str, Any], journal: Path | None, ports: Any, in_threads: bool
) -> None:
    from aiohttp import web  # noqa: PLC0415 - in the new process only

    from everlong.config import Settings  # noqa: PLC0415 - as above
    from everlong.gateway.app import make_app  # noqa: PLC0415 - as above
    from everlong.gateway.gateway import Gateway  # noqa: PLC0415 - as above
    from everlong.gateway.routing import Routes  # noqa: PLC0415 - as above
    from everlong.gateway.server import tune  # noqa: PLC0415 - as above
    from everlong.gateway.writer import StoringProcess  # noqa: PLC0415 - as above
    from everlong.store.opening import open_database  # noqa: PLC0415 - as above

    async def serve() -> None:
        settings = Settings.model_validate(values)
        made = Gateway(
            settings,
            open_database(database, waits_for_disk=False),
            Routes(settings, upstream),
            journal=journal,
            writer=None if in_threads else StoringProcess(database),
        )
        runner = web.AppRunner(make_app(made), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        tune()
        ports.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(serve())
