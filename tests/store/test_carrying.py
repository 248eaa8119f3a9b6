"""A client that clears old tool results itself keeps the view; one that goes another way does not get it."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, strategies as st
from sqlalchemy import select

from everlong.model import Message
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.schema import view
from tests.examples import on_a_database
from tests.store.engines import ScriptedEngine, summarizing

CLEARED = "[cleared]"


def step(number: int) -> list[Message]:
    """A question, a call, its result and an answer."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"a long result {number} " * 20},
        {"role": "assistant", "content": f"answer {number}"},
    ]


TALK = [message for number in range(5) for message in step(number)]
NEXT: Message = {"role": "user", "content": "and now?"}


def cleared(talk: list[Message], *numbers: int) -> list[Message]:
    names = {f"c{number}" for number in numbers}
    return [{**m, "content": CLEARED} if m.get("tool_call_id") in names else m for m in talk]


def without(talk: list[Message], *numbers: int) -> list[Message]:
    """Without the calls and the results."""
    names = {f"c{number}" for number in numbers}
    return [m for m in talk if m.get("tool_call_id") not in names and not names & {c["id"] for c in calls(m)}]


def calls(message: Message) -> list[Message]:
    found: list[Message] = message.get("tool_calls") or []
    return found


def compacted(store: Store, first: int = 1, last: int = 12) -> list[Message]:
    """Record the talk, have a stretch summarized, and give what is sent then."""
    at = store.record(TALK)
    store.compact(at, ScriptedEngine(summarizing(first, last, "the story so far")))
    return store.context(at)


def test_results_that_the_client_cleared_before_the_cover_keep_the_view(store: Store) -> None:
    before = compacted(store)
    fork = store.record([*cleared(TALK, 0, 1), NEXT])
    assert store.context(fork) == [*before, NEXT]
    assert store.verify().problems == []
    assert store.record([*cleared(TALK, 0, 1), NEXT]) == fork
    more = [*cleared(TALK, 0, 1), NEXT, {"role": "assistant", "content": "this"}]
    assert store.context(store.record(more)) == [*before, *more[-2:]]


@pytest.mark.parametrize(
    "sent",
    [
        [*TALK[:2], {**TALK[2], "content": "a longer result than it was before " * 20}, *TALK[3:]],
        [*TALK[:2], {**TALK[2], "tool_call_id": "c9", "content": CLEARED}, *TALK[3:]],
        [*TALK[:3], {"role": "assistant", "content": "another answer"}, *TALK[4:]],
        [*TALK[:3], {"role": "user", "content": "wait"}, *TALK[3:]],
        [*TALK[:4], NEXT],
        [*cleared(TALK[:8], 0), NEXT],
        [TALK[0], TALK[12], NEXT],
    ],
    ids=["grown", "other call", "reworded", "added", "rewound", "cleared and rewound", "cut and rewound"],
)
def test_a_conversation_that_went_another_way_is_sent_as_it_is(store: Store, sent: list[Message]) -> None:
    compacted(store)
    assert store.context(store.record(sent)) == sent


def test_a_view_made_with_hindsight_is_carried_only_to_who_has_those_turns(store: Store) -> None:
    before = compacted(store)  # a scripted engine sees everything, not only what it covers
    short = cleared(TALK[:16], 0)
    assert store.context(store.record([*short, NEXT])) == [*short, NEXT]
    whole = cleared(TALK, 0)
    assert store.context(store.record([*whole, NEXT])) == [*before, NEXT]


def test_forgetting_voids_the_carried_view_too(store: Store) -> None:
    compacted(store)
    fork = store.record([*cleared(TALK, 0), NEXT])
    words = store.entries(store.record(TALK))[6].id  # covered, and gone from the fork's own words
    assert words is not None
    assert store.forget([words]).views == 2
    assert "the story so far" not in str(store.context(fork))
    with store.database.read() as connection:
        assert set(connection.execute(select(view.c.state).where(view.c.tenant == store.tenant)).scalars()) == {"void"}
    assert store.verify().problems == []


@on_a_database(30)
@given(st.integers(0, 19), st.integers(0, 19), st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)), st.booleans())
def test_whatever_was_cleared_the_literals_stay_and_what_is_kept_is_what_was_sent(
    database: Database, one: int, other: int, shrunk: set[int], removed: set[int], in_blocks: bool
) -> None:
    store = Store(database, uuid.uuid4().hex)
    first, last = sorted((one, other))
    at = store.record(TALK)
    store.compact(at, ScriptedEngine(summarizing(first, last, "the story so far")))
    before = store.context(at)
    sent = without(cleared(TALK, *shrunk), *removed)
    if in_blocks:
        sent = [{**m, "content": [{"type": "text", "text": m["content"]}]} if m["role"] == "user" else m for m in sent]
    fork = store.record([*sent, NEXT])
    shown = store.context(fork)
    assert store.verify().problems == []
    expected = without(cleared(before, *shrunk), *removed)
    assert store.chain.trace(shown).ids == store.chain.trace([*expected, NEXT]).ids
