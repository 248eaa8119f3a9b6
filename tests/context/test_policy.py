"""The policy of compaction: budgets and thresholds number by number, the pace, waiting, and cuts after an overflow."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import CompressionSettings, ConfigError, ContextCompressor
from everlong.config import CompressionValues, compression_values
from everlong.context.policy import (
    Pace,
    Waiting,
    automatic_budgets,
    compute_budgets,
    compute_pace,
    overflow_target,
)
from everlong.model import Message
from everlong.tokens import Prices
from tests.examples import few

KNOWN = Prices(cache_read=0.1, cache_write=1.25, output=5.0, are_known=True)
WORDS = "the quick brown fox jumps over the lazy dog and then some more of it "


@pytest.mark.spec("3.3")
def test_the_computed_values_of_a_200k_window_at_defaults() -> None:
    budgets = ContextCompressor(200_000).budgets
    assert (budgets.threshold_tokens, budgets.tail_tokens, budgets.summary_cap) == (100_000, 20_000, 10_000)


@pytest.mark.spec("3.3")
def test_the_summary_cap_stops_at_twelve_thousand() -> None:
    assert ContextCompressor(1_000_000).budgets.summary_cap == 12_000


@pytest.mark.spec("3.4")
@pytest.mark.parametrize(
    ("window", "threshold"),
    [(4_096, 3_072), (8_192, 6_144), (32_768, 24_576), (64_000, 48_000), (100_000, 64_000), (128_000, 64_000)],
)
def test_small_windows_have_a_floor_that_stays_under_three_quarters(window: int, threshold: int) -> None:
    assert ContextCompressor(window).threshold_tokens == threshold


@pytest.mark.spec("3.4")
def test_a_threshold_that_the_user_chose_is_obeyed_without_the_floor() -> None:
    chosen = ContextCompressor(32_768, settings=CompressionSettings(threshold=0.5))
    assert chosen.threshold_tokens == 16_384
    assert chosen.budgets.grounds.explain() == ["threshold 16,384 tokens: 50 % of 32,768 (compression.threshold)"]
    usual = ContextCompressor(32_768, settings=CompressionSettings(protect_last_n=5))
    assert usual.threshold_tokens == 24_576
    assert "is 16,384, lifted to the floor" in usual.budgets.grounds.explain()[0]


@pytest.mark.spec("5.3")
@pytest.mark.parametrize(("content", "budget"), [(0, 2_000), (10_000, 2_000), (30_000, 6_000), (900_000, 10_000)])
def test_a_summary_may_take_a_fifth_of_its_content_between_floor_and_cap(content: int, budget: int) -> None:
    assert ContextCompressor(200_000).budgets.summary_tokens(content) == budget


@pytest.mark.spec("5.3")
def test_the_summary_floor_yields_to_the_cap_of_a_small_window() -> None:
    budgets = ContextCompressor(8_192).budgets
    assert budgets.summary_tokens(100) == budgets.summary_tokens(1_000_000) == 409


@pytest.mark.spec("9.4")
def test_every_number_is_a_setting() -> None:
    settings = CompressionSettings(
        threshold=0.4, target_ratio=0.5, summary_ratio=0.1, summary_min_tokens=100, summary_max_tokens=300
    )
    budgets = ContextCompressor(100_000, settings=settings).budgets
    assert (budgets.threshold_tokens, budgets.tail_tokens) == (40_000, 20_000)
    assert [budgets.summary_tokens(content) for content in (10, 2_000, 99_999)] == [100, 200, 300]


@pytest.mark.parametrize("window", [0, -5, True, 1.5, "200k", None])
def test_a_window_that_is_none_is_refused_with_what_to_do(window: object) -> None:
    with pytest.raises(ConfigError, match="context_length must be a whole number of tokens"):
        ContextCompressor(window)  # type: ignore[arg-type]


@pytest.mark.spec("9.2")
def test_an_automatic_threshold_moves_with_the_growth_per_call() -> None:
    def after(growth: int) -> int:
        engine = ContextCompressor(200_000, settings=CompressionSettings(threshold="auto"))
        assert engine.threshold_tokens == 100_000
        for call in range(1, 9):
            engine.update_from_response({"prompt_tokens": 20_000 + call * growth})
        return engine.threshold_tokens

    assert after(200) < after(2_000) < after(15_000) <= 190_000


@pytest.mark.spec("9.2")
def test_the_automatic_threshold_is_the_cheapest_of_all() -> None:
    prices, prefix, growth = Prices(), 10_000, 1_500
    chosen = automatic_budgets(CompressionValues(), 400_000, prefix, growth, prices)

    def cost_per_call(threshold: int) -> float:
        tail = 0.20 * threshold
        start = prefix + chosen.summary_cap + tail
        calls = max(1, int((threshold - start) // growth))
        reading = sum(prices.cache_read * (start + call * growth) for call in range(calls))
        moved = (prices.cache_write - prices.cache_read) * (chosen.summary_cap + tail)
        return (reading + prices.cache_read * threshold + prices.output * chosen.summary_cap + moved) / calls

    others = range(50_000, 340_000, 5_000)
    assert cost_per_call(chosen.threshold_tokens) <= min(map(cost_per_call, others)) * 1.02
    assert chosen.tail_tokens == int(chosen.threshold_tokens * 0.20)


@pytest.mark.spec("3.2", "9.4")
def test_settings_may_be_given_as_a_plain_mapping_and_are_checked() -> None:
    assert ContextCompressor(32_768, settings={"threshold": 0.5}).threshold_tokens == 16_384
    with pytest.raises(ConfigError, match=r"compression\.threshold .* is 7, but must be a number from 0.0 to 1.0"):
        ContextCompressor(settings={"threshold": 7})
    with pytest.raises(ConfigError, match=r"did you mean compression\.threshold"):
        ContextCompressor(settings={"treshold": 0.7})


@pytest.mark.spec("9.2")
def test_an_automatic_threshold_follows_the_mix_of_tool_output_and_talk_and_says_so() -> None:
    def engine(role: str) -> ContextCompressor:
        made = ContextCompressor(1_000_000, settings=CompressionSettings(threshold="auto"), clock=lambda: 0.0)
        messages: list[dict[str, object]] = [{"role": "system", "content": "Be brief. " * 9_000}]
        for call in range(1, 12):
            messages += [{"role": "user", "content": "Look."}, {"role": role, "content": "the gull is in " * 300}]
            made.should_compress_preflight(messages)
            made.update_from_response({"prompt_tokens": 20_000 + call * 1_000})
        return made

    tools, talk = engine("tool"), engine("assistant")
    assert tools.threshold_tokens < talk.threshold_tokens
    told = "\n".join(tools.budgets.grounds.explain())
    assert "100 % of the text is tool output, the rest is talk; a summary takes " in told
    assert " of at most 12,000 tokens, because tool output shrinks to a digest" in told
    before = talk.threshold_tokens
    talk.habits.summarized(2_000)
    talk.adapt_threshold()
    assert talk.threshold_tokens < before
    assert "a summary takes 2,000 of at most 12,000 tokens, as the last 1 did" in "\n".join(
        talk.budgets.grounds.explain()
    )


def pace(window: int, settings: dict[str, Any] | None = None, **parts: Any) -> Pace:
    return compute_pace(compute_budgets(compression_values(settings), window), **parts)


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


def test_a_prompt_stays_below_the_step_in_its_price() -> None:
    assert pace(1_000_000, dearer_above=200_000).room == 200_000
    assert pace(1_000_000, fixed=150_000, dearer_above=200_000).room == 850_000  # it cannot be kept below


@pytest.mark.parametrize("left", [None, 60_000], ids=["first", "next"])
def test_a_compaction_waits_until_waiting_has_cost_as_much(left: int | None) -> None:
    figures, waiting, tokens = pace(200_000, fixed=34_000), Waiting(left), 107_000
    while waiting.reason(tokens, figures, KNOWN) == "cheaper":
        waiting.sent(tokens, figures, KNOWN)
        tokens += 5_000
    assert 120_000 < tokens < 140_000 < figures.room
    assert waiting.paid >= figures.compaction_cost(tokens, KNOWN, asks_model=False)
    dearer = Waiting(paid=waiting.paid)
    assert dearer.reason(tokens, figures, KNOWN, asks_model=True) == "cheaper"


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
@pytest.mark.parametrize("window", few([4_000, 200_000, 8_000, 32_000, 128_000, 1_000_000]))
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
            assert after <= 0.6 * figures.threshold + size + 60
            assert not sizes or before >= min(figures.room, sizes[-1][1] + figures.step)
            sizes.append((before, after))
        engine.update_from_response({"prompt_tokens": engine.estimate_tokens(messages)})
        assert engine.last_prompt_tokens < engine.pace.room + size + 60
        messages = [*messages, *step(number, size)]
    assert 2 <= len(sizes) <= 3 / 0.15


def test_a_refusal_that_names_its_figures_leads_below_the_limit_in_our_own_count() -> None:
    # The provider counted twice as many tokens as we did, so our half of its limit is aimed at, with a margin.
    assert overflow_target(10_000, 0, limit=10_000, reported=20_000, answer_tokens=2_000) == 3_600
    assert overflow_target(10_000, 0, limit=100_000, reported=20_000) == 7_000
