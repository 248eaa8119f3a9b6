"""Settings, redaction at rest, retention, garbage, backup and reading in pages."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select, update

from everlong.config.settings import StoreSettings
from everlong.errors import NotStored, StoreError
from everlong.model import Message
from everlong.store import Store
from everlong.store.database import ShortWrites
from everlong.store.schema import alias, content, session
from everlong.store.store import open_store
from everlong.store.tree import Branch, Match, RecordRequest
from everlong.store.upkeep import garbage
from everlong.store.upkeep.garbage import collect_garbage
from everlong.store.upkeep.maintenance import backup, retain, stats, vacuum
from everlong.store.upkeep.references import drop_unused
from tests.examples import length
from tests.store.engines import ScriptedEngine, summarizing
from tests.store.test_forget import talk_with_additions
from tests.waiting import PATIENCE

KEY = "ghp_" + "a1B2" * 9
TALK: list[Message] = [
    {"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n} " * 30} for n in range(12)
]


def test_secrets_are_redacted_before_they_are_stored_and_hashed(tmp_path: Path) -> None:
    message: Message = {"role": "user", "content": [{"type": "text", "text": f"my key is {KEY}"}]}
    path = tmp_path / "store.db"
    with open_store(StoreSettings(url=str(path), redact=True)) as store:
        at = store.record([message])
        assert store.record([message]) == at
        prompted = store.record([{"role": "system", "content": f"Use {KEY}"}, *TALK])
        assert store.context(prompted)[0]["content"] == "Use [redacted:api_key]"
        made = store.sessions.start(prompted, system_prompt=f"Use {KEY}")
        assert store.sessions.system_prompt(made.id) == "Use [redacted:api_key]"
        store.turns.finish(store.turns.begin(prompted).id, {"role": "assistant", "content": KEY})
        assert store.context(at) == [
            {"role": "user", "content": [{"type": "text", "text": "my key is [redacted:api_key]"}]}
        ]
        assert store.verify().problems == []
    assert KEY.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_garbage_is_what_no_session_leads_to_and_never_below_a_fork_that_one_needs(store: Store) -> None:
    trunk = store.record(TALK)
    fork = store.record([*TALK[:5], {"role": "user", "content": "a fork"}])
    loose = store.record([{"role": "user", "content": "a title, please"}])
    store.sessions.start(fork, from_depth=0)
    store.compact(trunk, ScriptedEngine(summarizing(0, 8)))
    assert collect_garbage(store).messages == 0  # all of it is young
    collected = collect_garbage(store, min_age=-1.0)
    assert (collected.branches, collected.messages) == (1, 8)
    assert store.context(fork) == [*TALK[:5], {"role": "user", "content": "a fork"}]
    assert store.branch(trunk.id).depth == 5
    with pytest.raises(NotStored):
        store.branch(loose.id)
    assert store.verify().problems == []
    again = store.record(TALK)
    assert store.context(again) == TALK
    assert store.verify().problems == []


def test_what_was_asked_and_answered_in_a_session_is_never_garbage(store: Store) -> None:
    at = store.record(TALK[:1], conversation="a")
    made = store.sessions.start(at, from_depth=0)
    broken = store.turns.begin(at, session=made.id)
    store.turns.finish(broken.id, {"role": "assistant", "content": "as far as it ca"}, status="cancelled")
    whole = store.turns.begin(at, session=made.id)
    store.turns.finish(whole.id, TALK[1])
    taken_back = store.append(store.branch(at.id), TALK[2:4])
    store.turns.begin(taken_back, session=made.id)
    fork = store.append(store.branch(at.id, 2), [{"role": "user", "content": "another way"}])
    store.sessions.attach(made.id, fork)
    stem = store.record([{"role": "user", "content": "asked once"}])
    lone = store.sessions.start(stem, from_depth=0)
    assert collect_garbage(store, min_age=-1.0) == (0, 0, 0)
    assert store.context(taken_back) == TALK[:4]
    turn = store.turns.get(broken.id)
    assert turn.echo_node is not None
    assert store.read(turn.echo_node).text == "as far as it ca"
    for ident in (made.id, lone.id):
        store.sessions.delete(ident)
    assert collect_garbage(store, min_age=-1.0).branches == 4
    left = stats(store)
    assert {name: left[name] for name in ("messages", "contents", "branches", "sessions")} == {
        "messages": 0,
        "contents": 0,
        "branches": 0,
        "sessions": 0,
    }
    assert store.verify().problems == []


def test_with_a_deleted_conversation_its_further_names_go(store: Store) -> None:
    talk_with_additions(store, "ada")
    (made,) = store.sessions.newest()

    def count() -> list[int]:
        with store.database.read() as connection:
            return [
                connection.execute(
                    select(func.count()).select_from(table).where(table.c.tenant == store.tenant)
                ).scalar_one()
                for table in (alias, content)
            ]

    assert 0 not in count()
    collect_garbage(store, min_age=-1.0)
    assert 0 not in count()
    assert store.verify().problems == []
    store.sessions.delete(made.id)
    collect_garbage(store, min_age=-1.0)
    assert count() == [0, 0]


def test_removed_words_leave_the_pages_of_the_index_while_others_write(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store:
        for number in range(40):
            store.record([{"role": "user", "content": f"conversation {number} about pelicanword{number} and more"}])
            store.searcher.index_pending(10)
        at = store.record([{"role": "user", "content": "the vault opens with zebrasecret"}])
        store.searcher.index_pending(10)
        assert "zebrasecret" in _terms(store)
        store.forget([at.head])
        assert "zebrasecret" not in _terms(store)
        with store.database.read() as connection:
            assert not store.searcher.index.has_traces(connection)
            blocks = connection.exec_driver_sql("SELECT block FROM search_passages_data").scalars().all()
        assert not any(b"zebrasecret" in bytes(block) for block in blocks)
        assert [hit.turn for hit in store.search("pelicanword7").hits] == [1]
        assert store.verify().problems == []


def test_a_purge_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path / "store.db") as store:
        for number in range(12):
            at = store.record([{"role": "user", "content": f"the vault {number} opens with zebrasecret"}])
            store.searcher.index_pending(10)
        with monkeypatch.context() as patched:

            def stop(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            patched.setattr("everlong.store.search.sqlite.SQLiteIndex.clear_pages", stop)
            with pytest.raises(KeyboardInterrupt):
                store.forget([at.head])
        with store.database.read() as connection:
            assert store.searcher.index.has_traces(connection)
    with Store.open(tmp_path / "store.db") as store:
        vacuum(store)
        with store.database.read() as connection:
            assert not store.searcher.index.has_traces(connection)


def _terms(store: Store) -> set[str]:
    with store.database.read() as connection:
        vocabulary = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab('main', 'search_passages', 'row')"
        connection.exec_driver_sql(vocabulary)
        return set(connection.exec_driver_sql("SELECT term FROM temp.words").scalars())


def test_retention_deletes_what_ended_long_ago(store: Store) -> None:
    old, new = (store.sessions.start(store.record(talk_about(name, 3))) for name in ("gannets", "fulmars"))
    for one in (old, new):
        store.sessions.end(one.id, "exit")
    ended = update(session).where(session.c.id == old.id).values(ended=1_000.0)
    store.database.write(lambda connection: connection.execute(ended).rowcount)
    assert retain(store, days=1) == [old.id]
    assert [one.id for one in store.sessions.newest()] == [new.id]
    assert stats(store)["messages"] == 3


def talk_about(name: str, count: int = 50) -> list[Message]:
    chance = random.Random(name)
    return [{"role": "user", "content": f"{name} {n} {chance.randbytes(200).hex()}"} for n in range(count)]


def test_a_collection_leaves_what_is_used_again_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    said = talk_about("long", 3 * garbage.MESSAGES_AT_ONCE + 7)
    at = store.record(said)
    steps: list[int] = []
    write = ShortWrites.write

    def use_again(self: ShortWrites, work: Callable[[Connection], Any]) -> Any:
        done = write(self, work)
        steps.append(store.branch(at.id).depth)
        if len(steps) == 2:
            store.sessions.start(store.branch(at.id), from_depth=0)
        return done

    monkeypatch.setattr(ShortWrites, "write", use_again)
    assert collect_garbage(store, min_age=-1.0).branches == 0
    left = store.branch(at.id)
    assert 0 < left.depth == steps[1] < steps[0] < len(said)
    assert store.context(left) == said[: left.depth]
    assert store.verify().problems == []


def test_a_content_that_is_used_again_meanwhile_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    said = talk_about("twice", 3)
    store.record(said, conversation="one")
    delete = drop_unused

    def after_use(connection: Connection, **given: Any) -> int:
        said_again = RecordRequest(
            *(store.chain, store.chain.root("two"), said, [1.0] * 3), root=store.chain.root("two").id
        )
        start = Match(None, said_again.start.id, 0)
        store.recorder.add_at(None, said_again, start, list(said_again.additions(0)), 1.0, connection)
        return delete(connection, **given)

    monkeypatch.setattr(garbage, "drop_unused", after_use)
    assert collect_garbage(store, min_age=-1.0).contents == 0
    assert store.context(store.record(said, conversation="two")) == said
    assert store.verify().problems == []


def test_a_backup_is_made_while_another_process_writes(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store, Store.open(tmp_path / "store.db") as writer:
        store.record(talk_about("much", length(3_000, 1_000)))
        done = threading.Event()
        written: list[Branch] = []

        def write() -> None:
            while not done.is_set() or not written:
                written.append(writer.record([{"role": "user", "content": f"while it is copied {len(written)}"}]))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            backup(store, tmp_path / "copy.db")
        finally:
            done.set()
            thread.join(PATIENCE)
        assert written
    with Store.open(tmp_path / "copy.db") as copy:
        verified = copy.verify()
        assert (verified.problems, verified.remarks) == ([], [])


def test_a_server_is_backed_up_with_its_own_tools(store: Store, tmp_path: Path) -> None:
    if store.database.backend.name == "sqlite":
        backup(store, tmp_path / "copy.db")
    else:
        with pytest.raises(StoreError, match="pg_dump"):
            backup(store, tmp_path / "copy.db")


def test_vacuum_gives_room_back_and_stats_tell(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store.db") as store:
        store.record([{"role": "user", "content": f"{n} " + "x y z " * 400} for n in range(500)])
        before = stats(store)
        assert before["messages"] == 500
        assert vacuum(store, min_age=-1.0).messages == 500
        after = stats(store)
        assert (after["messages"], after["contents"], after["branches"]) == (0, 0, 0)
        assert after["bytes"] < before["bytes"]
