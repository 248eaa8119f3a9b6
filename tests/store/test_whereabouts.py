"""Whereabouts on both databases: what has become of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from everlong import ContextCompressor, Message, Store
from everlong.context.literals import is_summary, summary_body, summary_indices
from everlong.store import Occasion
from everlong.store.paths import segments_to
from everlong.store.turns import size_along
from everlong.store.views import items_of
from everlong.store.whereabouts import count_forgotten, covered_by, find_whereabouts, is_undone, standing_views
from everlong.tokens import MessageCounter, counter_for
from tests.context.builders import assistant, long_session, user
from tests.store.engines import ScriptedEngine, summarizing

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from everlong.store import Compaction

TALK = [
    user("The berth is number 4417."),
    assistant("Noted."),
    user("And the tide?"),
    assistant("High at noon."),
]


def test_a_message_is_followed_through_compactions_and_beyond(store: Store) -> None:
    at = store.record(TALK)
    session = store.sessions.start(at, title="Harbour", from_depth=0)

    def state() -> str:
        (one,) = find_whereabouts(store, "number 4417")
        return one.state

    def undone() -> list[Compaction]:
        standing = standing_views(store, store.conversations.path(session.id))
        return [one for one in store.compactions() if is_undone(one, standing)]

    assert state() == "in context"
    store.compact(at, ScriptedEngine(summarizing(0, 2, "berth number 4417")), Occasion("manual", session.id))
    assert state() == "in summary"
    store.compact(at, ScriptedEngine(summarizing(0, 1, "a berth")), Occasion("manual", session.id))
    assert state() == "summarized"
    assert count_forgotten(store) == 0
    (one,) = find_whereabouts(store, "number 4417")
    assert undone() == []
    store.forget([one.node])
    assert undone() == []
    assert find_whereabouts(store, "number 4417") == []
    assert count_forgotten(store) == 1
    assert [place.state for place in find_whereabouts(store, one.id)] == ["forgotten"]


def test_a_line_about_something_else_does_not_tell_a_message(store: Store) -> None:
    at = store.record([user("Day 5: the ferry takes berth 6."), *TALK[1:]])
    session = store.sessions.start(at, title="Harbour", from_depth=0)
    summary = 'Day 25: berth 6.\nDay 13: berth 5.\nturn 7, "The ferry is late. Noted." (turn 7)'
    store.compact(at, ScriptedEngine(summarizing(0, 2, summary)), Occasion("manual", session.id))
    for words in ("Day 5:", "day 5 berth", "berth 5 day", "Noted."):
        one = find_whereabouts(store, words, limit=1)[0]
        assert (one.state, one.now) == ("summarized", None), words


def test_a_result_that_its_client_cleared_is_left_out(store: Store) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result: Message = {"role": "tool", "tool_call_id": "c1", "content": "the berth is number 4417 " * 40}
    talk = [user("Look."), {"role": "assistant", "content": None, "tool_calls": [call]}, result, assistant("Seen.")]
    at = store.record(talk)
    session = store.sessions.start(at, title="Harbour", from_depth=0)
    other = store.record([*talk[:2], {**result, "content": "[cleared]"}, talk[3], user("Go on.")])
    assert other.id != at.id

    def go_on_cleared(connection: Connection) -> None:  # as the gateway does it
        store.sessions.end_in(connection, session.id, "cleared", at.depth)
        store.sessions.continue_in(connection, session.id, other, at.depth)

    store.database.write(go_on_cleared)
    (one,) = find_whereabouts(store, "number 4417")
    assert (one.conversation, one.state) == (session.id, "left out")


def _summary(messages: list[Message]) -> str:
    (place,) = summary_indices(messages)
    return summary_body(messages[place])


def test_a_compaction_tells_what_it_summarized_and_what_it_kept(store: Store) -> None:
    messages = long_session(60)
    at = store.record(messages)
    done = store.compact(at, ContextCompressor(8_000))
    (compaction,) = store.compactions()
    covered = covered_by(store, compaction)
    assert covered.summary == _summary(done.messages)
    report = compaction.report or {}
    first, last = report["boundaries"]["covered"]
    assert len(covered.summarized) == last - first
    assert [entry.message["role"] for entry in covered.summarized] == [one["role"] for one in messages[first:last]]


def test_a_second_summary_covers_all_messages_up_to_the_tail(store: Store) -> None:
    messages = long_session(120)
    store.compact(store.record(messages[:100]), ContextCompressor(8_000))
    at = store.record(messages)
    done = store.compact(at, ContextCompressor(8_000))
    assert done.view_id is not None
    with store.database.read() as connection:
        items = items_of(connection, store.reader, done.view_id)
    (told,) = [item for item in items if item.message is not None and is_summary(item.message)]
    assert told.to_depth == max(item.to_depth for item in items)


@pytest.mark.parametrize("length", [4, 2_001])
def test_the_newest_messages_stand_for_the_size_of_a_long_stretch(store: Store, length: int) -> None:
    at = store.record([user("one two three")] * length, conversation="sizes")
    counter = MessageCounter(counter_for("gpt-4o"))
    with store.database.read() as connection:
        size = size_along(store, connection, segments_to(connection, at.id, at.depth), 0, at.depth, counter)
    assert size[:2] == (length, length * counter.count(user("one two three")))
