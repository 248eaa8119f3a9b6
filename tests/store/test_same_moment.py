"""Two processes that store the same conversation at the same moment, or in the other order than it was said."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from everlong.model import Message, Trace
from everlong.store import Store
from everlong.store.identity import PlacedRequest, Sender, StatelessRequest
from everlong.store.turns import FinishedTurn
from tests.waiting import PATIENCE, until

ME = Sender("gateway", session="mine")
REPLY: Message = {"role": "assistant", "content": "Hello."}
FIRST: list[Message] = [{"role": "user", "content": "hi"}]
ECHO: Message = {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
SECOND: list[Message] = [*FIRST, ECHO, {"role": "user", "content": "go on"}]


@pytest.fixture
def replicas(postgres_url: str) -> Iterator[tuple[Store, Store]]:
    tenant = uuid.uuid4().hex
    with Store.open(postgres_url, tenant) as one, Store.open(postgres_url, tenant) as other:
        yield one, other


def placed(store: Store, messages: list[Message], sender: Sender = ME) -> PlacedRequest:
    return store.identity.place(StatelessRequest(messages, store.chain.trace(messages), sender))


def answered(store: Store, at: PlacedRequest) -> str | None:
    return store.turns.get(store.turns.add_finished(at.at, FinishedTurn(REPLY, session=at.session))).session


def meanwhile(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, work: Callable[[], Any]) -> threading.Thread:
    """Have something done right after the first call of a method; it may have to wait for the caller's transaction."""
    method, aside = getattr(owner, name), threading.Thread(target=work)

    def called(*given: Any, **named: Any) -> Any:
        found = method(*given, **named)
        if aside.ident is None:
            aside.start()
            aside.join(1.0)
        return found

    monkeypatch.setattr(owner, name, called)
    return aside


def test_a_reply_that_is_sent_back_while_it_is_being_stored_is_one_message(
    replicas: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = replicas
    at = placed(one, FIRST)
    aside = meanwhile(monkeypatch, one.identity.recognizer, "known", lambda: placed(other, SECOND))
    assert answered(one, at) == at.session
    aside.join()
    assert one.conversations.count() == 1
    assert len(list(one.conversations.lines(at.session))) == 3
    assert one.verify().problems == []


def test_a_reply_that_is_stored_while_it_is_being_sent_back_is_one_message(
    replicas: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = replicas
    at = placed(one, FIRST)
    aside = meanwhile(monkeypatch, other.identity.recognizer, "find_more", lambda: answered(one, at))
    assert placed(other, SECOND).session == at.session
    aside.join()
    assert one.conversations.count() == 1
    assert len(list(one.conversations.lines(at.session))) == 3
    assert one.verify().problems == []


@pytest.mark.parametrize("sender", [ME, Sender("gateway")])
def test_a_first_turn_that_is_stored_after_the_second_is_the_same_conversation(store: Store, sender: Sender) -> None:
    begun = placed(store, FIRST, sender)
    with_reply = placed(store, SECOND, sender)
    late = store.identity.place(StatelessRequest([], Trace([], [], []), sender, after=begun.at, mark=begun.mark))
    assert answered(store, late) == answered(store, with_reply)
    assert store.conversations.count() == 1
    assert store.verify().problems == []


def test_a_reply_is_stored_in_the_conversation_that_another_process_begins_with_it(
    replicas: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a name may have its answer, and ask the next question elsewhere, before the answer is stored."""
    monkeypatch.setattr("everlong.store.database.STEP_SECONDS", PATIENCE)  # no commit in the middle of the batch
    one, other = replicas
    begun = placed(one, FIRST, Sender("gateway"))
    aside = threading.Thread(target=answered, args=(one, begun))
    with other.database.batch():
        going_on = placed(other, SECOND, Sender("gateway"))
        aside.start()
        until(lambda: not aside.is_alive() or waits_for_a_lock(one))
    aside.join()
    assert answered(other, going_on) == going_on.session
    assert one.conversations.count() == 1
    assert one.verify().problems == []


def waits_for_a_lock(store: Store) -> bool:
    with store.database.read() as connection:
        return bool(connection.exec_driver_sql("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())
