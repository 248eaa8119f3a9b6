"""Why compaction starts where it does, and why one that was due was not made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from everlong.context import ContextCompressor, SummarizerChain, SummaryRequest
from everlong.tokens import Prices
from tests.context.builders import assistant, long_session, output, system, user


@pytest.mark.spec("9.2")
@pytest.mark.parametrize(
    ("window", "settings", "told"),
    [
        (200_000, {}, "threshold 100,000 tokens: 50 % of 200,000 (the usual share)"),
        (200_000, {"threshold": 0.4}, "threshold 80,000 tokens: 40 % of 200,000 (compression.threshold)"),
        (
            32_000,
            {},
            "threshold 24,000 tokens: 50 % of 32,000 is 16,000, lifted to the floor "
            "(compression.minimum_context_length, at most 75 % of the window)",
        ),
        (
            200_000,
            {"threshold": "auto"},
            "threshold 100,000 tokens: auto has measured nothing yet; until then 50 % of 200,000 (the usual share)",
        ),
    ],
)
def test_a_threshold_says_where_it_comes_from(window: int, settings: dict[str, Any], told: str) -> None:
    assert ContextCompressor(window, settings=settings).budgets.grounds.explain() == [told]


@pytest.mark.spec("9.2")
def test_an_automatic_threshold_shows_the_sum_that_it_is() -> None:
    engine = ContextCompressor(1_000_000, settings={"threshold": "auto"}, clock=lambda: 0.0)
    engine.prices = Prices()
    for call in range(1, 12):
        engine.update_from_response({"prompt_tokens": 20_000 + call * 2_000})
    told = "\n".join(engine.budgets.grounds.explain())
    assert told.startswith(f"threshold {engine.threshold_tokens:,} tokens (compression.threshold: auto)\n")
    assert "measured over 11 calls: 22,000 tokens that always stand there, 2,000 more per call" in told
    ((base, root, share, best),) = re.findall(
        r"\(([\d,]+) \+ ([\d,]+)\) / \(1 − ([\d.]+)\), at most [\d,]+: ([\d,]+)", told
    )
    sum_told = (number(base) + number(root)) / (1 - float(share))
    assert sum_told == pytest.approx(number(best), abs=2)
    assert number(best) == engine.threshold_tokens
    assert "at the usual 500,000 it costs " in told


def number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.spec("5.8")
def test_a_compaction_that_is_held_back_says_when_it_is_made_after_all() -> None:
    engine = ContextCompressor(8_000)
    stuck = [system(output(9_000)), user("Go."), assistant("Yes.")]
    for _ in range(2):
        engine.compress(stuck)
    size = engine.estimate_tokens(stuck)
    assert not engine.should_compress(size)
    assert not engine.should_compress(size + 10)
    (held,) = engine.held_back
    assert held.explain() == (
        f"held back at {size + 10:,} tokens (threshold 6,800): the last 2 compactions saved 0.0 % and 0.0 %, "
        f"less than 10 %; the next is at {size:,} + 1,200 = {size + 1_200:,}"
    )
    assert not engine.should_compress(held.next_at - 1)
    assert engine.should_compress(held.next_at)


def test_where_nothing_can_be_compacted_that_is_said() -> None:
    engine = ContextCompressor(8_000)
    assert not engine.has_content_to_compress([user("Not due.")])
    assert engine.held_back == []
    assert not engine.has_content_to_compress([system(output(9_000)), user("Go.")])
    assert engine.held_back[0].explain().endswith("there was nothing to compact, all of it is recent or protected")


class Broken:
    name = "broken"

    def summarize(self, request: SummaryRequest) -> str:
        raise OSError(f"no connection for {len(request.turns)} turns")


@pytest.mark.parametrize("chained", [False, True])
def test_a_summarizer_that_failed_is_named_with_the_time_that_is_left(chained: bool) -> None:
    now = 0.0
    summarizer = SummarizerChain([Broken()], clock=lambda: now) if chained else Broken()
    engine = ContextCompressor(8_000, settings={"protect_last_n": 2}, summarizer=summarizer, clock=lambda: now)
    assert engine.left_alone == []
    engine.compress(long_session(60))
    now = 200.0
    told = engine.left_alone[-1].explain()
    assert told.startswith("held back: broken is asked for no summary for another 400 of 600 seconds")
    assert "OSError: no connection for " in told
    now = 601.0
    assert engine.left_alone == []
