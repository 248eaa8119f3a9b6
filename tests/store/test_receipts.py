"""Receipts of calls on the side are kept with their session, read back in order, and go with it."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from everlong.errors import NotStored, StoreError
from everlong.model import Message
from everlong.store import Session, Store
from everlong.store.schema import receipt

TALK: list[Message] = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "world"}]
USAGE = {"input_tokens": 12, "output_tokens": 3, "cache_read_tokens": 900, "cache_write_tokens": 40}


def begun(store: Store) -> Session:
    return store.sessions.start(store.record(TALK), from_depth=0)


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
