"""The messages that a compaction summarized, changed and kept, with its summary."""

from __future__ import annotations

from everlong import ContextCompressor, Store
from everlong.context.literals import is_summary, summary_body, summary_indices
from everlong.model import Message
from everlong.store.views import items_of
from everlong.store.whereabouts import covered_by
from tests.context.builders import long_session


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
