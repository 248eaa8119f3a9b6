"""What a compaction covered, and a summary that a person edited in the store."""

from __future__ import annotations

from everlong import ContextCompressor, Store
from everlong.agent.edited_summary import EditedSummary
from everlong.context.literals import summary_body, summary_indices
from everlong.model import Message
from everlong.store import Occasion
from everlong.store.whereabouts import covered_by
from tests.context.builders import long_session

WORDS = "## Goal\n- The harbour moves to port 8437"


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


def test_in_a_store_it_covers_the_same_messages_can_be_undone_and_is_carried_on(store: Store) -> None:
    at = store.record(long_session(60))
    engine = ContextCompressor(8_000)
    first = store.compact(at, engine)
    edited = store.compact(at, EditedSummary(WORDS), Occasion("edited summary"))
    assert _summary(edited.messages) == WORDS
    one, other = (covered_by(store, done) for done in store.compactions())
    assert (other.summary, len(other.summarized)) == (WORDS, len(one.summarized))
    assert one.summary == _summary(first.messages)
    store.undo(at)
    assert _summary(store.context(at)) == _summary(first.messages)
    store.compact(at, EditedSummary(WORDS), Occasion("edited summary"))
    longer = store.append(at, long_session(40)[1:])
    assert "port 8437" in _summary(store.compact(longer, engine).messages)
    assert store.verify().problems == []
