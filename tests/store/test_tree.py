"""What is recorded comes back as it was, once, and whatever follows becomes a branch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import func, select

from everlong.model import Message
from everlong.store import Store
from everlong.store.schema import annex, branch, content, node

ASK: Message = {"role": "user", "content": "List the files"}
CALL: Message = {
    "role": "assistant",
    "content": "I will look.",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "src"}'}}],
}
RESULT: Message = {"role": "tool", "tool_call_id": "c1", "content": "a.py\nb.py"}
ANSWER: Message = {"role": "assistant", "content": "There are two."}
SYSTEM: Message = {"role": "system", "content": "You are an agent."}
TALK = [SYSTEM, ASK, CALL, RESULT, ANSWER]


def counts(store: Store) -> list[int]:
    with store.database.read() as connection:
        return [
            connection.execute(select(func.count()).select_from(t).where(t.c.tenant == store.tenant)).scalar_one()
            for t in (node, content, branch, annex)
        ]


@pytest.mark.spec("7.1", "7.5")
def test_a_conversation_comes_back_as_it_was_recorded(store: Store) -> None:
    at = store.record(TALK)
    assert store.context(at) == TALK
    assert json.dumps(store.context(at)) == json.dumps(TALK)  # the order of keys too


def test_an_edited_history_becomes_a_fork_and_leaves_the_first_as_it_was(store: Store) -> None:
    first = store.record(TALK)
    edited = [*TALK[:4], {"role": "assistant", "content": "None at all."}]
    second = store.record(edited)
    assert second.id != first.id
    assert store.context(first) == TALK
    assert store.context(second) == edited
    third = store.record([*edited, ASK])
    assert third.id == second.id


def test_messages_merged_by_the_client_are_known(store: Store) -> None:
    one, two = {"role": "user", "content": "one"}, {"role": "user", "content": "two"}
    at = store.record([one, two])
    parts = [{"type": "text", "text": text} for text in ("one", "two", "three")]
    assert store.record([{"role": "user", "content": parts[:2]}]) == at
    grown = store.record([{"role": "user", "content": parts}, ANSWER])
    assert grown.id == at.id
    assert store.context(grown) == [one, two, {"role": "user", "content": parts[2:]}, ANSWER]


def test_messages_without_identity_come_back_in_their_places(store: Store) -> None:
    empty: Message = {"role": "user", "content": ""}
    note: Message = {"role": "developer", "content": "Be brief."}
    thought: Message = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    talk = [SYSTEM, empty, ASK, note, CALL, RESULT, ANSWER, thought, empty]
    at = store.record(talk)
    assert store.context(at) == talk
    before = counts(store)
    assert store.record(talk) == at
    assert counts(store) == before
    more = store.record([*talk, ASK, note])
    assert store.context(more) == [*talk, ASK, note]


def test_the_same_instruction_given_twice_stands_there_twice(store: Store) -> None:
    note: Message = {"role": "developer", "content": "Be brief."}
    for talk in ([ASK, note], [ASK, note, note], [ASK, note, note, ANSWER]):
        assert store.context(store.record(talk)) == talk
        assert store.context(store.record(talk)) == talk


ODD: list[Any] = [
    "\ud800 alone",
    "nul \x00 inside",
    2**70 + 1,
    float("inf"),
    1e16,
    {"nested": [None, True, {"": 0.1}]},
    "字" * 3_000,
]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_values_survive(store: Store, value: Any) -> None:
    message: Message = {"role": "user", "content": f"look {value!r}", "x_client": value}
    (back,) = store.context(store.record([message]))
    assert (back, repr(back)) == (message, repr(message))


def test_equal_texts_of_two_tenants_share_nothing(store: Store, url: str) -> None:
    at = store.record(TALK)
    with Store.open(url, store.tenant + "-other") as other:
        theirs = other.record(TALK)
        assert theirs.id != at.id
        assert theirs.head != at.head
        assert counts(other) == counts(store) == [4, 5, 1, 0]


@pytest.mark.parametrize("talk", [[], [SYSTEM], [{"role": "user", "content": ""}], [SYSTEM, {"role": "user"}]])
def test_a_conversation_in_which_nothing_was_said_yet_is_stored_once_and_goes_on(
    store: Store, talk: list[Message]
) -> None:
    at = store.record(talk)
    assert store.context(at) == talk
    before = counts(store)
    assert store.record(talk) == at
    assert counts(store) == before
    assert store.context(store.append(at, [ASK])) == [*talk, ASK]
    assert store.context(store.append(at, [ANSWER])) == [*talk, ANSWER]
