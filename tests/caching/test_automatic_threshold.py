"""The automatic threshold follows prices, pauses and growth."""

from __future__ import annotations

import pytest

from everlong import ContextCompressor
from everlong.tokens import Prices, Workload, cheapest_threshold, cost_per_call


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
