"""``bench.gateway.memory`` sends what it says that it sends, and tells growth from what comes and goes."""

from __future__ import annotations

import pytest
from bench.gateway.memory import MOST_MB, run


@pytest.mark.soak
def test_a_short_run_stays_inside_the_bar() -> None:
    seen = run(60, 40_000, 4)
    assert seen.conversations == 8  # four clients, and again for the requests that follow
    assert seen.idle < seen.end <= MOST_MB
    assert (len(seen.during), len(seen.after)) == (60, 30)
