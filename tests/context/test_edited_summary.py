"""A summary in a person's own words: it stands where the old one stood, and the next compaction goes on from it."""

from __future__ import annotations

from everlong import ContextCompressor
from everlong.agent.edited_summary import EditedSummary
from everlong.context.literals import summary_body, summary_indices
from everlong.model import Message
from tests.context.builders import long_session, user

WORDS = "## Goal\n- The harbour moves to port 8437"


def _summary(messages: list[Message]) -> str:
    (place,) = summary_indices(messages)
    return summary_body(messages[place])


def test_only_the_summarys_words_change() -> None:
    before = ContextCompressor(8_000).compress(long_session(60))
    after = EditedSummary(WORDS).compress(before)
    (place,) = summary_indices(before)
    assert _summary(after) == WORDS
    assert [one for at, one in enumerate(after) if at != place] == [one for at, one in enumerate(before) if at != place]
    assert EditedSummary(WORDS).compress([user("nothing was compacted")]) == [user("nothing was compacted")]
