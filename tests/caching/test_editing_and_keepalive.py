"""The price of an edit, the price of a pause, and the automatic threshold."""

from __future__ import annotations

import pytest

from everlong import ContextCompressor
from everlong.caching.editing import worth_editing
from everlong.caching.keepalive import keep_alive, ping_request
from everlong.caching.rules import model_rules
from everlong.tokens import Prices, Workload, cheapest_threshold, cost_per_call

RULES = model_rules("claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("gain", "cold", "is_worth_it"),
    [(10_000, False, False), (40_000, False, True), (10_000, True, True), (0, True, False)],
)
def test_history_is_edited_when_cold_or_when_it_frees_enough(gain: int, cold: bool, is_worth_it: bool) -> None:
    assert worth_editing(gain, 30_000, is_cold=cold).is_worth_it is is_worth_it


def test_pings_stop_where_writing_again_is_as_cheap() -> None:
    plan = keep_alive({}, 100_000, RULES)
    assert (plan.interval, plan.pings, plan.ping_cost) == (290.0, 11, 10_000)
    assert plan.rewrite_cost == pytest.approx(115_000)
    assert plan.times(0.0, 900.0) == [290.0, 580.0, 870.0]
    assert len(plan.times(0.0, 100_000.0)) == 11
    assert keep_alive({}, 100_000, model_rules("claude-fable-5-1")).pings == 49


@pytest.mark.parametrize(
    "request_",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
        {"tool_choice": {"type": "any"}},
        {"output_config": {"format": {"type": "json_schema"}}},
    ],
)
def test_no_ping_where_the_provider_would_refuse_it_or_miss_the_cache(request_: dict[str, object]) -> None:
    plan = keep_alive(request_, 100_000, RULES)
    assert plan.pings == 0
    assert plan.reason.startswith("no pings: ")
    assert ping_request(request_) is None


@pytest.mark.spec("9.2")
@pytest.mark.parametrize("read", [0.1, 0.05, 0.025])
@pytest.mark.parametrize("growth", [500, 2_000, 10_000])
@pytest.mark.parametrize("cold", [0.0, 0.04])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_cheapest_threshold_is_the_best_of_all(read: float, growth: int, cold: float, share: float) -> None:
    work = Workload(14_000, 10_000, 20_000, growth, tail_share=share)
    prices = Prices(cache_read=read, cold_share=cold)
    best = cheapest_threshold(work, prices, 1_000_000)
    others = [cost_per_call(work, prices, threshold) for threshold in range(46_000, 1_000_000, 2_000)]
    assert cost_per_call(work, prices, best) <= min(others) * 1.02


@pytest.mark.spec("9.2")
def test_the_threshold_is_capped_by_the_window_and_by_price_steps() -> None:
    work = Workload(14_000, 10_000, 20_000, 20_000)
    assert cheapest_threshold(work, Prices(), 150_000) == 150_000
    assert cheapest_threshold(work, Prices(dearer_above=100_000), 150_000) == 100_000


@pytest.mark.spec("9.2")
def test_the_engines_automatic_threshold_follows_prices_and_pauses() -> None:
    def after(prices: Prices, gap: float) -> int:
        now = 0.0
        engine = ContextCompressor(1_000_000, settings={"threshold": "auto"}, clock=lambda: now)
        engine.prices = prices
        for call in range(1, 12):
            now = call * gap
            engine.update_from_response({"prompt_tokens": 20_000 + call * 2_000})
        return engine.threshold_tokens

    usual = after(Prices(), 30.0)
    assert after(Prices(cache_read=0.025), 30.0) > usual  # cheap reading: later
    assert after(Prices(), 600.0) < usual  # always cold: earlier
    assert after(Prices(dearer_above=60_000), 30.0) == 60_000
