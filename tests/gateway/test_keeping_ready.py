"""Whether a gateway says that it can keep requests, where a small one still finds room and a large one does not."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from pathlib import Path

import httpx
import pytest

from everlong.gateway.account import RequestAccount
from everlong.gateway.auth import Refused
from everlong.testing import ModelServer
from tests.gateway.running import Running, run_gateway
from tests.waiting import PATIENCE, until


def _problem(relay: Running) -> str:
    return asyncio.run_coroutine_threadsafe(relay.gateway.keeping_problem(), relay.loop).result(PATIENCE)


def test_who_has_turned_a_request_away_is_not_ready_until_the_journal_has_room(
    relay: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = relay.gateway
    monkeypatch.setattr(gateway._journal, "can_write", lambda: False)
    assert _problem(relay) == "", "the database takes what is small"
    with pytest.raises(Refused):
        gateway._backlog.warn_unkept(OSError(errno.ENOSPC, "no room"), RequestAccount("one"))
    assert "had room" in _problem(relay)
    monkeypatch.setattr(gateway._journal, "can_write", lambda: True)
    assert _problem(relay) == ""
    monkeypatch.setattr(gateway._journal, "can_write", lambda: False)
    assert _problem(relay) == ""


def test_a_gateway_that_stores_nothing_though_turns_wait_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.gateway._STALLED_SECONDS", 0.0)
    with ModelServer(lambda _: "Yes.") as model, run_gateway(model.url, str(tmp_path / "store.db")) as running:
        locking = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        body = {"model": "m", "messages": [{"role": "user", "content": "Are you there?"}]}
        key = {"authorization": "Bearer made-up"}
        answer = httpx.post(f"{running.url}/v1/chat/completions", json=body, headers=key, timeout=PATIENCE)
        assert answer.status_code == 200
        told = httpx.get(f"{running.url}/readyz")
        assert (told.status_code, told.json()["status"]) == (503, "not ready")
        assert "nothing was stored" in told.json()["problem"]
        assert _oldest(running) > 0
        locking.execute("ROLLBACK")
        locking.close()
        until(lambda: httpx.get(f"{running.url}/readyz").status_code == 200)
        assert _oldest(running) == 0


def _oldest(running: Running) -> float:
    lines = httpx.get(f"{running.url}/metrics").text.splitlines()
    (line,) = (line for line in lines if line.startswith("everlong_journal_oldest_seconds"))
    return float(line.split()[-1])
