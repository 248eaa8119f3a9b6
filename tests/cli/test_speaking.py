"""What is said of a compaction, in short lines."""

from __future__ import annotations

import pytest

from everlong.agent.events import CompactionFinished
from everlong.cli.run import compaction_line, fallback_line


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("m, else n: m: ContextOverflow: custom:m: the prompt does not fit", "the prompt does not fit"),
        ("m: SummarizerError: no summary came within 60 seconds\nmore\nand more", "no summary came within 60 seconds"),
        ("m failed before and is left alone for 600 seconds", "m failed before and is left alone for 600 seconds"),
        ("", ""),
    ],
)
def test_the_reason_of_a_fallback_is_one_short_line_without_names(reason: str, told: str) -> None:
    assert fallback_line(reason) == f"the built-in summarizer wrote it: {told}"


def test_one_message_is_one_message_and_dollars_come_before_seconds() -> None:
    done = CompactionFinished("manual", "compacted", "s", 24_310, 870, 61, 1, 0.51, cost=0.004, quality="task kept")
    assert compaction_line(done) == (
        "compacted (manual): 24,310 → 870 tokens, 61 → 1 message, $0.0040, 0.5 s; task kept"
    )
