"""Sessions: ids, sources, titles, lineages, totals, the compaction history and the log."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import update

from everlong import ContextCompressor
from everlong.errors import NotStored, StoreError
from everlong.model import Message
from everlong.store import Branch, Occasion, Session, Store, leases
from everlong.store.schema import receipt, session
from everlong.store.session_log import write_session_log
from tests.store.engines import ScriptedEngine, summarizing

TALK: list[Message] = [
    {"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n} " * 40} for n in range(40)
]


@pytest.mark.spec("7.2")
def test_an_id_says_when_the_session_began(store: Store) -> None:
    assert re.fullmatch(r"\d{8}_\d{6}_[0-9a-f]{6}", store.sessions.start().id)


@pytest.mark.spec("7.6")
def test_the_source_is_the_platform_else_the_variable_else_cli(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.sessions.start().source == "cli"
    monkeypatch.setenv("EVERLONG_SESSION_SOURCE", "nightly")
    assert store.sessions.start().source == "nightly"
    assert store.sessions.start(platform="telegram").source == "telegram"


@pytest.mark.spec("7.2")
def test_a_compaction_ends_the_session_and_opens_a_child_that_takes_over_everything(store: Store) -> None:
    at = store.record(TALK)
    old = store.sessions.start(
        at,
        title="Harbour plan",
        platform="telegram",
        user="ada",
        model="m-1",
        system_prompt="You plan harbours.",
        origin={"chat": 7},
        from_depth=0,
    )
    child = store.sessions.roll_over(old.id, at)
    ended = store.sessions.get(old.id)
    assert ended.end_reason == "compression"
    assert ended.to_depth == child.from_depth == 40
    assert ended.ended is not None
    assert child.parent == old.id
    assert (child.source, child.platform, child.user, child.model) == ("telegram", "telegram", "ada", "m-1")
    assert child.origin == {"chat": 7}
    assert store.sessions.system_prompt(child.id) == "You plan harbours."
    assert child.title == "Harbour plan #2"
    assert store.sessions.roll_over(child.id).title == "Harbour plan #3"
    assert [entry.message for entry in store.sessions.entries(old.id)] == TALK
    assert store.sessions.entries(child.id) == []


@pytest.mark.spec("7.2")
def test_a_session_that_cannot_go_on_does_not_cost_the_compaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = store.record(TALK)
    old = store.sessions.start(at, from_depth=0)

    def fail(*_: object) -> None:
        raise StoreError("no room for a child")

    monkeypatch.setattr(type(store.sessions), "_insert", fail)
    done = store.compact(at, ContextCompressor(4_000, settings={"protect_last_n": 2}), roll_over=old.id)
    assert done.outcome == "compacted"
    assert done.messages == store.context(at)
    assert len(done.messages) < len(TALK)
    assert done.child is None
    assert done.warning is not None
    assert "no room for a child" in done.warning
    assert store.sessions.get(old.id).ended is None
    assert len(store.compactions()) == 1


def test_a_session_is_opened_again_unless_it_goes_on_elsewhere(store: Store) -> None:
    at = store.record(TALK)
    old = store.sessions.start(at, from_depth=0, model="m-1")
    store.sessions.end(old.id, "exit")
    again = store.sessions.reopen(old.id)
    assert (again.ended, again.end_reason, again.to_depth) == (None, None, None)
    assert store.sessions.use_model(old.id, "m-2").model == "m-2"
    store.sessions.roll_over(old.id, at)
    with pytest.raises(StoreError, match="goes on in another one"):
        store.sessions.reopen(old.id)


def test_resuming_lands_at_the_newest_end_that_has_a_conversation(store: Store) -> None:
    at = store.record(TALK)
    first = store.sessions.start(at, started=1_000.0)
    second = store.sessions.roll_over(first.id, at)
    third = store.sessions.roll_over(second.id, at)
    for ident in (first.id, second.id, third.id):
        assert store.sessions.resume(ident).id == third.id
    empty = store.sessions.start()

    def adopt(connection) -> None:  # type: ignore[no-untyped-def]
        values = {"parent": third.id, "conversation": first.id}
        connection.execute(session.update().where(session.c.id == empty.id).values(values))

    store.database.write(adopt)
    assert store.sessions.resume(first.id).id == third.id
    assert store.sessions.resume(empty.id).id == third.id
    alone = store.sessions.start()
    assert store.sessions.resume(alone.id).id == alone.id


@pytest.mark.spec("7.4", "9.5")
def test_each_compaction_is_in_the_history(store: Store) -> None:
    at = store.record(TALK)
    made = store.sessions.start(at, model="m-1", from_depth=0)
    engine = ContextCompressor(4_000, settings={"protect_last_n": 2})
    done = store.compact(at, engine, Occasion("threshold", made.id, "m-1"))
    child = store.sessions.roll_over(made.id, at, compaction_id=done.compaction_id)
    (entry,) = store.compactions(session=made.id)
    assert engine.last_report is not None
    assert (entry.reason, entry.engine, entry.model, entry.child) == ("threshold", "compressor", "m-1", child.id)
    assert (entry.messages_before, entry.messages_after) == (40, len(done.messages))
    assert (entry.tokens_before, entry.tokens_after) == (
        engine.estimate_tokens(TALK),
        engine.estimate_tokens(done.messages),
    )
    assert entry.quality == engine.last_report.quality.score if engine.last_report.quality else None
    assert entry.seconds > 0
    assert entry.fallback is None
    assert entry.at > 0
    store.compact(at, ScriptedEngine(summarizing(0, 3)))
    assert [one.engine for one in store.compactions(branch=at.id)] == ["compressor", "scripted"]


@pytest.mark.spec("7.6")
def test_the_log_of_a_session_is_one_json_file_for_its_owner(store: Store, tmp_path: Path) -> None:
    talk: list[Message] = [*TALK[:2], {"role": "user", "content": "half \ud83d of a pair"}]
    made = store.sessions.start(store.record(talk), title="Plan", from_depth=0)
    path = write_session_log(store, made.id, tmp_path / "logs")
    assert path.name == f"session_{made.id}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    log = json.loads(path.read_text(encoding="utf-8"))
    assert log["session_id"] == made.id
    assert log["title"] == "Plan"
    assert [message["content"] for message in log["messages"]] == [message["content"] for message in talk]


def test_a_deleted_session_hands_its_children_to_its_parent(store: Store) -> None:
    at = store.record(TALK)
    first = store.sessions.start(at)
    second = store.sessions.roll_over(first.id, at)
    third = store.sessions.roll_over(second.id, at)
    store.sessions.delete(second.id)
    assert [one.id for one in store.conversations.parts(third.id)] == [first.id, third.id]
    assert store.context(Branch(at.id, at.head, at.depth)) == TALK


def test_a_compaction_does_not_wait_for_a_process_that_died_in_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = store.record(TALK)
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    with monkeypatch.context() as other:
        other.setattr(os, "getpid", lambda: died.pid)
        assert leases.take(store.database, f"compact:{at.id}", 300) is not None
    engine = ContextCompressor(4_000, settings={"protect_last_n": 2})
    assert store.compact(at, engine).outcome == "compacted"
    held = leases.take(store.database, f"compact:{at.id}", 300)  # by a process that lives
    assert held is not None
    assert leases.take(store.database, f"compact:{at.id}", 300) is None


SAID: list[Message] = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
USAGE = {"input_tokens": 12, "output_tokens": 3, "cache_read_tokens": 900, "cache_write_tokens": 40}


def begun(store: Store) -> Session:
    return store.sessions.start(store.record(SAID), from_depth=0)


def test_a_receipt_comes_back_as_it_was_given(store: Store) -> None:
    session = begun(store)
    made = store.receipts.add(session.id, "summary", model="anthropic:m-1", usage=USAGE, cost=0.25, at=7.5)
    assert (made.session, made.kind, made.model) == (session.id, "summary", "anthropic:m-1")
    assert (made.usage, made.cost, made.at) == (USAGE, 0.25, 7.5)
    assert store.receipts.of_session(session.id) == [made]


def test_what_has_no_session_or_no_known_kind_is_refused(store: Store) -> None:
    session = begun(store)
    with pytest.raises(NotStored, match="there is no session 'nowhere'"):
        store.receipts.add("nowhere", "summary", usage=USAGE)
    with pytest.raises(StoreError, match=r"cannot be for 'tea'; allowed are summary, memory, plugin"):
        store.receipts.add(session.id, "tea", usage=USAGE)  # type: ignore[arg-type]
    assert list(store.receipts.since()) == []


def test_one_tenant_neither_sees_nor_adds_to_anothers(store: Store) -> None:
    session = begun(store)
    store.receipts.add(session.id, "plugin", usage=USAGE)
    other = Store(store.database, f"{store.tenant}-other")
    assert list(other.receipts.since()) == []
    with pytest.raises(NotStored):
        other.receipts.add(session.id, "plugin", usage=USAGE)


def test_a_receipt_of_a_session_that_is_not_there_is_a_problem(store: Store) -> None:
    made = store.receipts.add(begun(store).id, "plugin", usage=USAGE)
    store.database.write(
        lambda connection: connection.execute(update(receipt).where(receipt.c.id == made.id).values(session="gone"))
    )
    assert store.verify().problems == ["session gone, which has a receipt, is not there"]
