"""Whereabouts on both databases: what has become of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlong import Message, Store
from everlong.store import Occasion
from everlong.store.whereabouts import count_forgotten, find_whereabouts, is_undone, standing_views
from tests.context.builders import assistant, user
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
        child = store.sessions.free_id(connection)
        store.sessions.continue_in(connection, session.id, other, at.depth, child=child)

    store.database.write(go_on_cleared)
    (one,) = find_whereabouts(store, "number 4417")
    assert (one.conversation, one.state) == (session.id, "left out")
