"""The caching benchmark in small: its bars that hold for any session, and that its sessions are what they claim."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from bench.caching import clearing, placement
from bench.caching.sessions import PROFILES, make_session, tokens_of


@pytest.mark.parametrize("width", [12, 60])
def test_a_fan_out_loses_the_plain_strategy_its_prefix_and_the_ledger_nothing(width: int) -> None:
    assert placement.fan_out_share(width, placement.STRATEGIES["ledger"], per_block=True) >= 0.95
    assert placement.fan_out_share(width, placement.STRATEGIES["system_and_3"], per_block=True) < 0.30


@pytest.mark.parametrize("profile", list(PROFILES))
def test_with_forks_and_rewinds_the_ledger_is_never_behind(profile: str) -> None:
    shape = replace(PROFILES[profile], calls=60, forks=0.05, rewinds=0.1)
    for seed in (1, 2):
        plain = placement.play(shape, seed, placement.STRATEGIES["system_and_3"])
        ledger = placement.play(shape, seed, placement.STRATEGIES["ledger"])
        assert ledger.cost <= plain.cost * 1.0001


def test_clearing_by_decision_is_no_dearer_than_never_and_clearing_always_is() -> None:
    shape = replace(PROFILES["serial"], calls=80)
    never, always, decided = (
        clearing.play(shape, 3, clearing.POLICIES[name]) for name in ("never", "every request", "decision")
    )
    assert decided <= never < always


def test_sessions_have_the_shape_that_they_promise() -> None:
    calls = list(make_session(PROFILES["wide"], 1))
    assert len(calls) == 200
    gaps = [later.at - earlier.at for earlier, later in itertools.pairwise(calls)]
    assert all(gap == 30 or 360 <= gap <= 2_400 for gap in gaps)
    assert 2 <= sum(gap > 30 for gap in gaps) <= 18
    sizes = [tokens_of(call.messages, call.tools) for call in calls]
    assert max(sizes) < 110_000
    assert [call.messages for call in make_session(PROFILES["wide"], 1)] == [call.messages for call in calls]
