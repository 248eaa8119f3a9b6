"""The readings of a store that the inspector is made of: lists with filters, sizes without words, figures of turns."""

from __future__ import annotations

import pytest

from everlong.store import Store
from everlong.store.conversation_list import ConversationFilters, ListCursor
from everlong.store.message_sizes import size_along
from everlong.store.paths import Segment, segments_to
from everlong.store.turn_figures import answered_turns, count_turns, page_of_turns, turns_by_id
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


def test_pages_of_a_list_follow_each_other_even_where_times_are_equal(store: Store) -> None:
    for number in range(7):
        begin(store, f"{number}", 5.0)
    seen: list[str] = []
    after: ListCursor | None = None
    while page := store.conversations.page(ConversationFilters(), limit=3, after=after):
        seen += [one.id for one in page]
        after = ListCursor(page[-1].active, page[-1].id)
    assert len(seen) == len(set(seen)) == 7


@pytest.mark.parametrize("text", ["short", "long " * 20_000])
def test_the_size_of_a_message_is_told_without_reading_it(store: Store, text: str) -> None:
    at = store.record([user(text)], conversation="sizes")
    with store.database.read() as connection:
        size = size_along(store, connection, _path(store, at.id, at.depth), 0, at.depth)
    assert size.messages == 1
    assert len(text) // 4 <= size.tokens <= len(text) // 4 + 40


def _path(store: Store, branch: int, depth: int) -> list[Segment]:
    with store.database.read() as connection:
        return segments_to(connection, branch, depth)


def test_figures_of_turns_come_in_pages_and_by_id(store: Store) -> None:
    one = store.sessions.start(title="turns")
    at = store.record([user("0?")], conversation=one.id)
    store.sessions.attach(one.id, at)
    for number in range(5):
        turn = store.turns.begin(at, model="m", session=one.id, began=float(number))
        usage = {"input_tokens": 1, "cache_read_tokens": number, "output_tokens": 2}
        after = store.append(at, [assistant(f"{number}."), user(f"{number + 1}?")])
        miss = {"cache_miss": {"reason": "expired", "tokens": 7, "detail": "late"}} if number == 4 else {}
        store.turns.finish(turn.id, usage={**usage, **miss}, cost=0.25)
        at = after
    path = store.conversations.path(one.id)
    newest = page_of_turns(store, path, [one.id], limit=2)
    assert [(turn.prompt, turn.read, turn.cost) for turn in newest] == [(5, 4, 0.25), (4, 3, 0.25)]
    assert (newest[0].missed, newest[0].missed_by, newest[0].missed_detail) == (7, "expired", "late")
    older = page_of_turns(store, path, [one.id], limit=9, before=newest[-1].id)
    assert [turn.read for turn in older] == [2, 1, 0]
    assert count_turns(store, [one.id]) == 5
    marks = answered_turns(store, [one.id])
    assert [turn.read for turn in turns_by_id(store, path, [mark.id for mark in marks])] == [0, 1, 2, 3, 4]
    assert [turn.turn for turn in older] == [5, 3, 1]
