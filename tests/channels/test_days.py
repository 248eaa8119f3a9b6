"""A chat of some days on Discord, as `bench.channels.days` plays thirty: nothing is refused, nothing early is lost."""

from __future__ import annotations

import pytest
from bench.channels.days import TOLD, live


@pytest.mark.soak
def test_a_chat_of_days_goes_on_and_knows_its_first_day() -> None:
    played = live(days=2, messages=50, window=8_192)
    assert played.refused == []
    assert played.unanswered == []
    assert played.conversations == 1
    assert played.compactions.total() >= 1
    assert sorted(played.known) == sorted(fact.question for fact in TOLD)
    assert played.cost > 0
