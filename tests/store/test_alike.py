"""Forgetting reads what the index names and not all that is stored, and still finds every copy."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from sqlalchemy import select

from everlong.model import Message
from everlong.store import Store, alike
from everlong.store.alike import contents_with
from everlong.store.content import value_of
from everlong.store.database import Database
from everlong.store.schema import content
from everlong.store.tombstones import PLACEHOLDER
from everlong.testing.strategies import conversations
from tests.examples import examples
from tests.retellings import retellings
from tests.store.engines import ScriptedEngine, summarizing

SECRET = "The harbour's vault opens with pelican-4711"  # noqa: S105 - made up


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many contents were read since it was last asked."""
    count = 0
    rows_to_compare = alike.rows_to_compare

    def counting(*which: Any) -> Iterator[Any]:
        nonlocal count
        for row in rows_to_compare(*which):
            count += 1
            yield row

    monkeypatch.setattr(alike, "rows_to_compare", counting)

    def asked() -> int:
        nonlocal count
        seen, count = count, 0
        return seen

    return asked


def index_all(store: Store) -> None:
    while store.searcher.index_pending(5_000):
        pass


def test_only_what_may_hold_the_words_is_read(store: Store, looked_at: Callable[[], int]) -> None:
    talk: list[Message] = [{"role": "user", "content": f"message {n} about berth {n % 7}"} for n in range(1_000)]
    at = store.record([*talk, {"role": "assistant", "content": SECRET}])
    other = store.record(
        [{"role": "user", "content": [{"type": "text", "text": SECRET, "cache_control": {"type": "x"}}]}]
    )
    ident = store.entries(at)[-1].id
    assert ident is not None
    index_all(store)
    waiting = store.append(other, [{"role": "user", "content": f"waiting {n}"} for n in range(5)])
    copy = store.append(waiting, [{"role": "assistant", "content": SECRET + "\n"}])  # stored and not indexed yet
    assert store.forget([ident]).messages == 3
    assert looked_at() <= 20  # before the lock is taken, and the new ones again under it
    assert [message["content"] for message in store.context(copy)][0::6] == [PLACEHOLDER, PLACEHOLDER]
    assert "pelican" not in str(store.context(at))
    assert store.verify().problems == []


def test_words_that_no_index_holds_are_found_too(store: Store) -> None:
    at = store.record([{"role": "user", "content": "Where?"}, {"role": "assistant", "content": SECRET}])
    turn = store.turns.begin(at)
    store.turns.finish(turn.id, {"role": "assistant", "content": [{"type": "text", "text": SECRET}]})
    edited: Message = {"role": "user", "content": [{"type": "text", "text": "So:"}, {"type": "text", "text": SECRET}]}
    elsewhere = store.record([{"role": "user", "content": "Tell me."}])
    store.compact(elsewhere, ScriptedEngine(lambda messages: [{**messages[0], "content": edited["content"]}]))
    index_all(store)
    store.forget([at.head])
    with store.database.read() as connection:
        rows = connection.execute(
            select(content.c.bytes, content.c.codec).where(content.c.tenant == store.tenant, content.c.state == "live")
        ).all()
    assert "pelican" not in str([value_of(row.bytes, row.codec) for row in rows])
    assert store.turns.reply(turn.id) == {"role": "assistant", "content": PLACEHOLDER}
    assert store.verify().problems == []


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
    store.forget_session(made.id)
    assert "pelican" not in str(store.turns.reply(turns[0].id))
    assert store.turns.reply(turns[1].id) is None
    assert store.context(other)[1] == shared
    assert store.verify().problems == []


def test_a_picture_has_no_words_so_everything_is_looked_at(store: Store, looked_at: Callable[[], int]) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    at = store.record(
        [{"role": "user", "content": [picture]}, *({"role": "user", "content": f"{n}"} for n in range(50))]
    )
    other = store.record([{"role": "user", "content": "look"}, {"role": "user", "content": [picture]}])
    index_all(store)
    first = store.entries(at)[0].id
    assert first is not None
    assert store.forget([first]).messages == 2
    assert looked_at() >= 50
    assert store.context(other)[1]["content"] == PLACEHOLDER


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


@settings(
    max_examples=examples(30),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking against a database takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(conversations(4), conversations(3), st.data())
def test_the_index_finds_what_a_look_at_everything_finds(
    database: Database, talk: list[Message], others: list[Message], data: st.DataObject
) -> None:
    store = Store(database, uuid.uuid4().hex)
    store.record(talk)
    store.record([{"role": "user", "content": "Another beginning"}, *others, *data.draw(retellings(talk))])
    indexed: bool = data.draw(st.booleans())
    if indexed:
        index_all(store)
    at = store.record([{"role": "user", "content": "A third"}, *data.draw(retellings(talk))])
    store.compact(at, ScriptedEngine(summarizing(0, 2)))
    places: list[int] = data.draw(st.lists(st.integers(0, 30), max_size=3))
    chosen = [talk[place % len(talk)] for place in places]
    with database.read() as connection, pytest.MonkeyPatch.context() as patch:
        found = contents_with(store, connection, chosen)
        patch.setattr(alike, "MOST_LOOKUPS", -1)
        assert found == contents_with(store, connection, chosen)
