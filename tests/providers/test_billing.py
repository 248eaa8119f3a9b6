"""A long session through the official client: what is billed is what the cache simulator predicts, to the token."""

from __future__ import annotations

import pytest
from bench.agent.billing import READ_SHARE, play, summed

from tests.examples import few, length


@pytest.mark.spec("6.4")
@pytest.mark.parametrize("strategy", few(["ledger, 1h", "ledger"]))
def test_every_request_of_a_session_is_billed_as_the_simulator_predicts(strategy: str) -> None:
    # In both of them calls are tried again, something is compacted, a pause is long and somebody goes back.
    turns, seed, window = length(60, 24), length(3, 14), length(40_000, 20_000)
    billing = play(turns, strategy, seed, window)
    assert billing.failures, "no call was tried again"
    assert billing.compactions, "nothing was compacted"
    assert billing.pauses, "no pause outlived the cache"
    assert billing.rewinds, "nobody went back"
    assert billing.billed == billing.predicted
    assert billing.reported == billing.billed
    assert billing.read_share >= READ_SHARE
    assert bool(summed(billing.billed).written_1h) == ("1h" in strategy)
