"""A leader that dies under load: its synchronous standby takes over, and every answered turn is stored once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout
from bench.gateway.kills import Client, Seen, audit, drain
from bench.gateway.serving import gateway
from bench.gateway.upstreams import failing_upstream
from bench.store.server import binaries, pair

from everlong.store import Store

SETTINGS = {"models": {"m-1": {"context_length": 1_000_000}}, "auxiliary": {"compression": {"provider": "main"}}}
ANSWERS = 40
"""Answers with the leader, with nobody, and with the standby in its place."""


async def load(address: str, *steps: Callable[[], None]) -> Seen:
    """Let clients talk while one thing after the other happens; return what they saw."""
    seen = Seen()
    async with ClientSession(timeout=ClientTimeout(total=60)) as session:
        talkers = [
            asyncio.create_task(Client(f"client {number}", [(address, 0)], seen).talk(session)) for number in range(4)
        ]
        for step in (*steps, lambda: None):
            before = len(seen.answered)
            while len(seen.answered) < before + ANSWERS:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(step)
        seen.is_over = True
        await asyncio.gather(*talkers)
    return seen


def test_a_standby_takes_over_and_every_answered_turn_is_stored_once(tmp_path: Path) -> None:
    if binaries() is None:
        pytest.skip("no PostgreSQL: install its server binaries (initdb, postgres)")
    with pair() as servers, failing_upstream(0.0) as model:
        Store.open(servers.url).close()
        with gateway(model, servers.url, SETTINGS, tmp_path) as (address, _):
            seen = asyncio.run(load(address, servers.kill_leader, servers.promote))
            drained = drain(servers.url, tmp_path, seen)
        assert (drained.lost, drained.left) == (0, 0)
        assert audit(servers.url, seen) == []
