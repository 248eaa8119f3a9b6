"""The messages that ``bench.extraction`` measures are of the sizes that it says, and new each time."""

from __future__ import annotations

import random

import pytest
from bench.extraction import KINDS, extracted, floor

from everlong.model import calls_of, text_of


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_of_about_its_size_and_can_be_read(kind: str) -> None:
    first, other = (KINDS[kind](random.Random(seed), 4_000) for seed in (1, 2))
    size = len(text_of(first)) + sum(len(call.arguments) for call in calls_of(first))
    assert 3_600 <= size <= 9_000
    assert first != other or kind == "one letter"
    assert extracted(first)
    assert floor(first) >= 0
