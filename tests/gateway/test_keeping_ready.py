"""Whether a gateway says that it can keep requests, where a small one still finds room and a large one does not."""

from __future__ import annotations

import asyncio
import errno

import pytest

from everlong.gateway.account import RequestAccount
from everlong.gateway.auth import Refused
from tests.gateway.running import Running
from tests.waiting import PATIENCE


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
