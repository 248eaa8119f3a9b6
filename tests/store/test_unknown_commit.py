"""A commit whose answer never came: the turn is tried again while the server still works on it, and stored once."""

from __future__ import annotations

import threading

import psycopg
import pytest
from bench.store.server import binaries, postgres

from everlong.store import Store
from everlong.store.turns import FinishedTurn
from tests.waiting import until

TURN = FinishedTurn({"role": "assistant", "content": "Heard."}, began=1_700_000_000.25)


def test_a_turn_tried_again_while_its_commit_waits_is_stored_once() -> None:
    if binaries() is None:
        pytest.skip("no PostgreSQL: install its server binaries (initdb, postgres)")
    with (
        postgres() as url,
        psycopg.connect(url, autocommit=True) as server,
        Store.open(url) as first,
        Store.open(url) as second,
    ):
        at = first.record([{"role": "user", "content": "Can you hear me?"}])

        def wait_for(standby: str) -> None:
            server.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'")
            server.execute("SELECT pg_reload_conf()")

        def count(event: str) -> bool:
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = %s OR wait_event_type = %s"
            return server.execute(query, (event, event)).fetchone() == (1,)

        def add(store: Store) -> threading.Thread:
            thread = threading.Thread(target=store.turns.add_finished, args=(at, TURN), kwargs={"is_again": True})
            thread.start()
            return thread

        wait_for("nobody")
        threads = [add(first)]
        until(lambda: count("SyncRep"))  # committed, and nobody has been told
        threads.append(add(second))
        until(lambda: count("Lock"))
        wait_for("")
        for thread in threads:
            thread.join()
        assert [turn.status for turn in first.turns.since()] == ["done"]
