"""The readings of a store that the inspector is made of: lists with filters, sizes without words, figures of turns."""

from __future__ import annotations

import pytest

from everlong.store import Store
from everlong.store.conversations import ConversationFilters
from everlong.store.paths import Segment, segments_to
from everlong.store.turns import size_along
from everlong.tokens import MessageCounter, counter_for
from tests.context.builders import assistant, user


def begin(store: Store, title: str, at: float, **about: str) -> str:
    one = store.sessions.start(title=title, started=at, **about)  # type: ignore[arg-type]
    place = store.record([user(f"{title}?"), assistant("Yes.")], conversation=one.id, times=[at, at])
    store.sessions.attach(one.id, place)
    return one.id


def listed(store: Store, **filters: object) -> list[str | None]:
    return [one.title for one in store.conversations.page(ConversationFilters(**filters))]  # type: ignore[arg-type]


def test_filters_are_those_of_any_part(store: Store) -> None:
    begin(store, "one", 1.0, client="pi", folder="/a", model="m")
    begin(store, "two", 2.0, client="codex", folder="/b", model="m")
    assert listed(store, client="pi") == ["one"]
    assert listed(store, folder="/b") == ["two"]
    assert sorted(filter(None, listed(store, model="m"))) == ["one", "two"]
    assert listed(store, client="pi", folder="/b") == []
    assert listed(store, is_compacted=True) == []
    assert set(store.conversations.choices().clients) == {"pi", "codex"}


@pytest.mark.parametrize("length", [4, 2_000])
def test_the_newest_messages_stand_for_the_size_of_a_long_stretch(store: Store, length: int) -> None:
    at = store.record([user("one two three")] * length, conversation="sizes")
    counter = MessageCounter(counter_for("gpt-4o"))
    with store.database.read() as connection:
        size = size_along(store, connection, _path(store, at.id, at.depth), 0, at.depth, counter)
    assert size == (length, length * counter.count(user("one two three")))


def _path(store: Store, branch: int, depth: int) -> list[Segment]:
    with store.database.read() as connection:
        return segments_to(connection, branch, depth)
