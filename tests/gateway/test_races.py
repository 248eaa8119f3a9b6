"""A request that is refused as too long while its conversation is being compacted is answered all the same."""

from __future__ import annotations

from bench.gateway.races import race


def test_no_client_notices_that_two_compactions_met() -> None:
    raced = race(4)
    assert raced.problems == []
    assert raced.refused > 0
