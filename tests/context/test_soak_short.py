"""The long run in short: the shipped session and generated conversations at several windows and lengths."""

from __future__ import annotations

import pytest
from bench.conversations import conversation

from everlong.cli.demo import load_session
from tests.context.soak_checks import WINDOWS, check, cuts
from tests.examples import few, length


@pytest.mark.spec("5.2", "5.4", "5.9")
@pytest.mark.parametrize("window", few(WINDOWS, 2))
@pytest.mark.parametrize("seed", range(1, length(3, 1) + 1))
def test_generated_conversations_compact_well_at_every_length(seed: int, window: int) -> None:
    messages = conversation(120, seed=seed)
    wrong = {cut: found for cut in cuts(messages) if (found := check(messages[:cut], window).problems)}
    assert wrong == {}


@pytest.mark.spec("5.2", "5.4", "5.9")
@pytest.mark.parametrize("window", few(WINDOWS, 2))
def test_the_shipped_session_compacts_well_at_many_lengths(window: int) -> None:
    messages, _ = load_session()
    lengths = list(cuts(messages))[length(0, 60) :: length(10, 120)]
    wrong = {cut: found for cut in lengths if (found := check(messages[:cut], window).problems)}
    assert wrong == {}
