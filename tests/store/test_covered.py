"""The messages that a compaction summarized, changed and kept, with its summary."""

from __future__ import annotations

from everlong import ContextCompressor, Store
from everlong.context.literals import summary_body, summary_indices
from everlong.model import Message
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
