"""Forgetting finds every copy of the words, however they were written."""

from __future__ import annotations

import json

import pytest

from everlong.model import Message
from everlong.store import Store

SECRET = "The harbour's vault opens with pelican-4711"  # noqa: S105 - made up


def index_all(store: Store) -> None:
    while store.searcher.index_pending(5_000):
        pass


def test_a_reply_that_the_client_rewrote_is_forgotten_with_the_message(store: Store) -> None:
    ask: Message = {"role": "user", "content": "Where?"}
    turn = store.turns.begin(store.record([ask]))
    call = {"id": "c1", "type": "function", "function": {"name": "open", "arguments": "{}"}}
    store.turns.finish(turn.id, {"role": "assistant", "content": SECRET, "tool_calls": [call]})
    at = store.record([ask, {"role": "assistant", "content": "It is written down.", "tool_calls": [call]}])
    on = store.append(at, [{"role": "tool", "tool_call_id": "c1", "content": "opened"}])
    store.turns.begin(on)
    store.forget([at.head])
    assert "pelican" not in str(store.turns.reply(turn.id))
    assert store.verify().problems == []


def test_a_forgotten_session_takes_its_replies_along_and_spares_those_that_others_use(store: Store) -> None:
    shared: Message = {"role": "assistant", "content": "Yes, of course."}
    at = store.record([{"role": "user", "content": "Where?"}])
    made = store.sessions.start(at, from_depth=0)
    turns = [store.turns.begin(at, session=made.id) for _ in range(2)]
    store.turns.finish(turns[0].id, {"role": "assistant", "content": SECRET})
    store.turns.finish(turns[1].id, shared)
    other = store.record([{"role": "user", "content": "May I?"}, shared])
    store.conversations.forget(made.id)
    assert "pelican" not in str(store.turns.reply(turns[0].id))
    assert store.turns.reply(turns[1].id) is None
    assert store.context(other)[1] == shared
    assert store.verify().problems == []


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        ('{"path": "pelican-4711", "_note": "albatross"}', '{"path": "pelican-4711"}'),
        ('{"path": "pelican-4711", "rate": NaN}', '{"rate": NaN, "path": "pelican-4711"}'),
        ("pelican-4711 albatross", '{"INVALID_JSON": "pelican-4711 albatross"}'),
        ('{"path": "la\\nchalupa", "n": Infinity}', '{"n": Infinity, "path": "la\\u000achalupa"}'),
    ],
)
def test_a_call_is_found_however_its_arguments_are_written(store: Store, arguments: str, same: str) -> None:
    def call(text: str) -> Message:
        made = {"id": "c1", "type": "function", "function": {"name": "open", "arguments": text}}
        return {"role": "assistant", "content": None, "tool_calls": [made]}

    at = store.record([{"role": "user", "content": "one"}, call(arguments)])
    told: Message = call(same)
    if same.startswith('{"INVALID_JSON"'):
        told = {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "open", "input": json.loads(same)}],
        }
    store.record([{"role": "user", "content": "two"}, told])
    index_all(store)
    assert store.forget([at.head]).messages == 2
