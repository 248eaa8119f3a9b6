"""Compactions come calmly: each makes room for a while, whatever the window, the fixed part and the size of results."""

from __future__ import annotations

from typing import Any

import pytest

from everlong.config import compression_values
from everlong.context import ContextCompressor
from everlong.context.policy import Pace, Waiting, compute_budgets, pace_of, room_in
from everlong.model import Message
from everlong.tokens import Prices

KNOWN = Prices(cache_read=0.1, cache_write=1.25, output=5.0, are_known=True)
WORDS = "the quick brown fox jumps over the lazy dog and then some more of it "


def pace(window: int, settings: dict[str, Any] | None = None, **parts: Any) -> Pace:
    return pace_of(compute_budgets(compression_values(settings), window), **parts)


@pytest.mark.spec("4.5")
@pytest.mark.parametrize(
    ("window", "fixed", "answer", "expected"),
    [
        (200_000, 0, 0, (170_000, 30_000, 100_000, 30_000)),
        (200_000, 34_000, 32_000, (164_000, 64_000, 106_666, 30_000)),
        (200_000, 34_000, 64_000, (132_000, 64_000, 106_666, 30_000)),
        (1_000_000, 34_000, 64_000, (850_000, 146_000, 500_000, 150_000)),
        (128_000, 34_000, 16_000, (108_800, 53_200, 88_666, 19_200)),
        (32_000, 2_000, 4_000, (27_200, 8_400, 24_000, 4_800)),
        (8_000, 500, 1_000, (6_800, 2_100, 6_000, 1_200)),
        (4_000, 500, 1_000, (2_920, 1_300, 2_920, 600)),
    ],
)
def test_the_threshold_is_where_a_compaction_makes_enough_room(
    window: int, fixed: int, answer: int, expected: tuple[int, int, int, int]
) -> None:
    found = pace(window, fixed=fixed, answer_tokens=answer)
    assert (found.room, found.need, found.threshold, found.step) == expected


@pytest.mark.spec("4.5")
def test_the_tail_shrinks_where_the_fixed_part_takes_the_room() -> None:
    found = pace(32_000, fixed=14_000)
    assert found.tail < pace(32_000).tail
    assert found.need == int(0.6 * found.room)
    assert pace(32_000, fixed=30_000).tail == 0


@pytest.mark.spec("4.5")
def test_a_threshold_that_the_user_set_is_obeyed_as_it_stands() -> None:
    found = pace(200_000, {"threshold": 0.1}, fixed=34_000)
    assert found.threshold == 20_000
    assert Waiting(left=19_000).reason(20_000, found, KNOWN) is None


def test_an_answer_that_asks_for_the_whole_window_leaves_some_room() -> None:
    assert room_in(32_000, 32_000) == 4_000


def test_a_prompt_stays_below_the_step_in_its_price() -> None:
    assert pace(1_000_000, dearer_above=200_000).room == 200_000
    assert pace(1_000_000, fixed=150_000, dearer_above=200_000).room == 850_000  # it cannot be kept below


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_the_next_compaction_comes_after_a_step() -> None:
    figures = pace(200_000, fixed=34_000)
    waiting = Waiting(left=90_000)
    assert waiting.reason(110_000, figures, Prices()) == "recent"
    assert waiting.reason(120_000, figures, Prices()) is None
    assert Waiting(left=160_000).reason(figures.room, figures, Prices()) is None


def test_a_conversation_that_grows_evenly_is_compacted_where_that_is_nearly_cheapest() -> None:
    figures, growth = pace(200_000, fixed=5_000), 5_000
    least = figures.usual_need

    def cost(threshold: int) -> float:
        """What a long conversation costs for each token that it grows by, beside what every token costs once."""
        reads = KNOWN.cache_read * (threshold - least) ** 2 / (2 * growth)
        return (reads + figures.compaction_cost(threshold, KNOWN, asks_model=True)) / (threshold - least)

    waiting, tokens = Waiting(), least
    while tokens < figures.threshold or waiting.reason(tokens, figures, KNOWN, asks_model=True) == "cheaper":
        waiting.sent(tokens, figures, KNOWN)
        tokens += growth
    best = min(cost(threshold) for threshold in range(figures.threshold, figures.room, 1_000))
    assert cost(tokens) <= 1.05 * best


def test_a_compaction_waits_until_waiting_has_cost_as_much() -> None:
    figures, waiting, tokens = pace(200_000, fixed=34_000), Waiting(), 107_000
    while waiting.reason(tokens, figures, KNOWN) == "cheaper":
        waiting.sent(tokens, figures, KNOWN)
        tokens += 5_000
    assert 120_000 < tokens < figures.room
    assert waiting.paid >= figures.compaction_cost(tokens, KNOWN, asks_model=False)
    dearer = Waiting(paid=waiting.paid)
    assert dearer.reason(tokens, figures, KNOWN, asks_model=True) == "cheaper"


@pytest.mark.parametrize(
    ("prices", "is_cold"),
    [
        (Prices(), False),
        (KNOWN, True),
        (Prices(cache_read=1.0, cache_write=1.0, are_known=True), False),
    ],
    ids=["unknown prices", "a cold cache", "no cache"],
)
def test_nothing_waits_where_a_compaction_costs_nothing_more(prices: Prices, is_cold: bool) -> None:
    figures = pace(200_000, fixed=34_000)
    assert Waiting().reason(figures.threshold, figures, prices, is_cold=is_cold) is None


# -- whole conversations -----------------------------------------------------------------------------------------------


def text(tokens: int) -> str:
    return (WORDS * (tokens // 14 + 1))[: tokens * 4]


def step(number: int, size: int) -> list[Message]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} {text(size)}"},
    ]


@pytest.mark.spec("4.5")
@pytest.mark.parametrize("prices", [Prices(), KNOWN], ids=["unpriced", "priced"])
@pytest.mark.parametrize("share", [0.004, 0.025], ids=["small results", "large results"])
@pytest.mark.parametrize("window", [4_000, 8_000, 32_000, 128_000, 200_000, 1_000_000])
def test_a_session_of_three_windows_is_compacted_seldom_and_far_enough(
    window: int, share: float, prices: Prices
) -> None:
    engine = ContextCompressor(window)
    engine.prices, engine.overhead_tokens, engine.answer_tokens = prices, window // 16, window // 16
    size = max(20, int(share * window))
    messages: list[Message] = [
        {"role": "system", "content": text(window // 16)},
        {"role": "user", "content": "Please read all of it."},
    ]
    sizes: list[tuple[int, int]] = []
    for number in range(3 * window // (size + 30)):
        if engine.should_compress_preflight(messages):
            figures, before = engine.pace, engine.estimate_tokens(messages)
            messages = engine.compress(messages)
            after = engine.estimate_tokens(messages)
            assert after <= figures.need
            assert not sizes or before >= min(figures.room, sizes[-1][1] + figures.step)
            sizes.append((before, after))
        engine.update_from_response({"prompt_tokens": engine.estimate_tokens(messages)})
        assert engine.last_prompt_tokens < engine.pace.room + size + 60
        messages = [*messages, *step(number, size)]
    assert 2 <= len(sizes) <= 3 / 0.15
