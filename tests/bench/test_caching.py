"""The caching benchmark in small: its bars that hold for any session, and that its sessions are what they claim."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.caching import placement
from bench.caching.sessions import PROFILES


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
