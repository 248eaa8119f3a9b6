"""A store behind a pooler, on a hot standby, and at a server whose answers to commits get lost."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from bench.store.server import binaries, pooler, pooler_program, postgres
from sqlalchemy import text

from everlong import ContextCompressor
from everlong.errors import StoreBusy, StoreUnavailable
from everlong.model import Message
from everlong.store import Store
from everlong.store.identity import Sender, StatelessRequest
from everlong.store.opening import open_database
from everlong.store.turns import FinishedTurn
from everlong.store.upkeep.maintenance import stats
from tests.waiting import until


@pytest.fixture(scope="module")
def pooled_url() -> Iterator[str]:
    if binaries() is None or pooler_program() is None:
        pytest.skip("no PostgreSQL server or no pooler: install postgresql and pgbouncer")
    with postgres() as server, pooler(server) as url:
        yield url


def talk(length: int) -> list[Message]:
    return [
        {"role": "user" if n % 2 else "assistant", "content": f"The harbour says {n}. " * 20} for n in range(length)
    ]


def test_everything_works_with_another_connection_for_each_transaction(pooled_url: str) -> None:
    with Store.open(pooled_url) as first, Store.open(pooled_url) as second:
        for length in range(2, 30):  # a driver would prepare on one connection what it runs on the next
            at = (first, second)[length % 2].record(talk(length))
        shorter = first.compact(at, ContextCompressor(2_000, settings={"protect_last_n": 2, "threshold": 0.3}))
        assert second.context(at) == shorter.messages
        first.searcher.index_pending(500)
        assert second.search("harbour 17").hits
        assert second.verify().problems == []


def test_limits_of_a_transaction_do_not_stay_with_the_connection(pooled_url: str) -> None:
    with Store.open(pooled_url, uuid.uuid4().hex, wait=0.2) as store:
        at = store.record(talk(2))
        database = open_database(pooled_url)
        with database.engine.connect() as other, other.begin():
            other.execute(text("SELECT 1 FROM branch WHERE id = :id FOR UPDATE"), {"id": at.id})
            with pytest.raises(StoreBusy):
                store.append(at, talk(3)[2:])
        with database.read() as reading:
            assert reading.execute(text("SHOW lock_timeout")).scalar() == "0"
        database.close()


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


def test_a_fork_takes_few_statements_however_many_begin_alike() -> None:
    if binaries() is None:
        pytest.skip("no PostgreSQL: install its server binaries (initdb, postgres)")
    with postgres() as url, psycopg.connect(url, autocommit=True) as server, Store.open(url) as store:

        def place(number: int) -> None:
            said: list[Message] = [{"role": "user", "content": words} for words in ("How", "are", f"you, {number}?")]
            store.identity.place(StatelessRequest(said, store.chain.trace(said), Sender("gateway")))

        for number in range(12):
            place(number)
        server.execute("ALTER SYSTEM SET log_statement = 'all'")
        server.execute("SELECT pg_reload_conf()")
        log = Path(url.rpartition("host=")[2], "log")
        until(lambda: server.execute("SHOW log_statement").fetchone() == ("all",))
        place(12)
        assert 10 < log.read_text().count("LOG:  execute") < 20


SAID: list[Message] = [
    {"role": "user", "content": "Which port does the harbour use?"},
    {"role": "assistant", "content": "The harbour listens on port 4711."},
]


def read_only(url: str) -> str:
    """The address of the same database, for transactions that may only read."""
    return url.replace("search_path", "default_transaction_read_only%3Don%20-csearch_path", 1)


def test_everything_that_reads_works(schema_url: str) -> None:
    with Store.open(schema_url) as primary:
        at = primary.record(SAID)
        session = primary.sessions.start(at, title="The port", from_depth=0)
        primary.searcher.index_pending(500)
        at = primary.append(at, [{"role": "user", "content": "And the lighthouse, 4712?"}])
    with Store.open(read_only(schema_url)) as replica:
        assert replica.context(at)[:2] == SAID
        assert [hit.snippet for hit in replica.search("port 4711").hits]
        assert replica.search("lighthouse").is_partial  # the primary has not indexed it yet
        assert [one.title for one in replica.conversations.newest()] == ["The port"]
        assert replica.sessions.get(session.id).title == "The port"
        assert replica.verify().problems == []
        assert stats(replica)["messages"] == len(replica.entries(at))


def test_what_writes_is_refused_with_the_reason(schema_url: str) -> None:
    Store.open(schema_url).close()
    with Store.open(read_only(schema_url)) as replica, pytest.raises(StoreUnavailable, match="may not be written"):
        replica.record(SAID)
