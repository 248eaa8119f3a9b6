"""Group commit: what is stored in a batch is durable together, and one that fails takes nothing else with it."""

from __future__ import annotations

import sqlite3
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, strategies as st
from sqlalchemy import Connection, event, text

from everlong.errors import MessageError, NotStored, StoreFull
from everlong.model import Message
from everlong.store import Store
from everlong.store.database import Database
from everlong.testing.strategies import conversations
from tests.examples import on_a_database
from tests.waiting import PATIENCE, until


def talk(number: int, length: int = 3) -> list[Message]:
    return [{"role": "user", "content": f"conversation {number}, message {n}"} for n in range(length)]


def commits(store: Store) -> list[str]:
    """One entry for each commit of something written from here on."""
    seen: list[str] = []

    def note(connection: Connection) -> None:
        seen.extend([] if connection.get_execution_options().get("everlong_read") else ["commit"])

    event.listen(store.database.engine, "commit", note)
    return seen


def test_many_conversations_share_one_commit_and_come_back_whole(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.store.database.STEP_SECONDS", PATIENCE)  # no commit in the middle of the batch
    seen = commits(file_store)
    with file_store.batch():
        at = [file_store.record(talk(number)) for number in range(20)]
        with file_store.batch():  # part of the one around it
            made = file_store.sessions.start(at[0], title="One")
        assert file_store.context(at[3]) == talk(3)  # seen by its own thread
        assert seen == []
    assert seen == ["commit"]
    assert [file_store.context(one) for one in at] == [talk(number) for number in range(20)]
    assert file_store.sessions.get(made.id).title == "One"
    assert file_store.verify().problems == []


def test_who_stops_the_program_in_the_middle_of_a_write_hears_of_nothing_else(file_store: Store) -> None:
    def stopped(connection: Connection) -> None:
        connection.invalidate()  # as SQLAlchemy does where Ctrl-C comes in the middle of a statement
        raise KeyboardInterrupt

    def store_some() -> None:
        with file_store.batch():
            file_store.record(talk(1))
            file_store.database.write(stopped)

    with pytest.raises(KeyboardInterrupt):
        store_some()
    assert file_store.verify().problems == []


def test_one_that_fails_takes_nothing_else_with_it(store: Store) -> None:
    store.sessions.start(title="Taken")
    with store.batch():
        first = store.record(talk(1))
        with pytest.raises(MessageError):
            store.record([{"content": "no role"}])
        with pytest.raises(NotStored):
            store.sessions.use_model("nowhere", "m-1")

        def broken(_: object) -> None:
            raise ValueError("half-way")

        with pytest.raises(ValueError, match="half-way"):
            store.database.write(broken)
        second = store.record(talk(2))
    assert store.context(first) == talk(1)
    assert store.context(second) == talk(2)
    assert store.verify().problems == []


def test_a_full_disk_is_told_at_the_latest_when_the_batch_ends(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store:
        store.record(talk(0))

        def limit(connection: sqlite3.Connection, *_: object) -> None:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 4}")

        def fill() -> None:
            with store.batch():
                for number in range(1, 200):
                    try:
                        store.record(talk(number, 20))
                    except StoreFull:
                        continue  # a careless caller

        event.listen(store.database.engine, "checkout", limit)
        with pytest.raises(StoreFull, match="no room left on the disk"):
            fill()
        event.remove(store.database.engine, "checkout", limit)
        store.database.engine.dispose()
        assert store.verify().problems == []
        assert store.context(store.record(talk(0))) == talk(0)


@on_a_database(15)
@given(st.lists(conversations(2), min_size=1, max_size=5), st.integers(0, 4))
def test_a_batch_stores_what_single_writes_store(database: Database, talks: list[list[Message]], broken: int) -> None:
    single, grouped = Store(database, uuid.uuid4().hex), Store(database, uuid.uuid4().hex)
    places = [single.record(one) for one in talks]
    with grouped.batch():
        found = []
        for number, one in enumerate(talks):
            if number == broken:
                with pytest.raises(MessageError):
                    grouped.record([*one, {"role": ""}])
            found.append(grouped.record(one))
    assert [grouped.context(one) for one in found] == [single.context(one) for one in places]
    assert [one.depth for one in found] == [one.depth for one in places]
    assert grouped.verify()[:4] == single.verify()[:4]
    assert grouped.verify().problems == []


def test_a_batch_lets_go_of_what_a_rival_waits_for(schema_url: str) -> None:
    with Store.open(schema_url) as ours, Store.open(schema_url) as theirs, ThreadPoolExecutor(1) as pool:
        backend, holds = ours.database.backend, Event()
        first, second = uuid.uuid4().bytes, uuid.uuid4().bytes

        def cross() -> None:
            with theirs.database.engine.begin() as connection:
                backend.lock_name(connection, second)
                backend.run_rest(connection)
                holds.set()
                backend.lock_name(connection, first)
                backend.run_rest(connection)

        def is_waiting() -> bool:
            with theirs.database.read() as connection:
                return bool(connection.execute(text("SELECT 1 FROM pg_locks WHERE NOT granted")).first())

        with ours.database.batch():
            ours.database.write(partial(backend.lock_name, name=first))
            rival = pool.submit(cross)
            holds.wait(PATIENCE)
            until(is_waiting)
            ours.database.write(partial(backend.lock_name, name=second))
        rival.result(PATIENCE)  # where each waited for the other, the server ended it
