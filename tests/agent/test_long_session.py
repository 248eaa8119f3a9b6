"""A session of 200 turns with real tools in a window of 32k: it goes on, and what was said early is still known."""

from __future__ import annotations

import pytest
from bench.agent.session import APIS, PARAPHRASED, play

from everlong.testing.server.exchange import Api
from tests.examples import few, length


@pytest.mark.spec("5.5", "7.1", "7.2")
@pytest.mark.parametrize("api", few(APIS))
def test_many_turns_go_through_and_nothing_of_them_is_lost(api: Api) -> None:
    played = play(length(200, 70), api, is_quick=True)
    assert played.errors == []
    assert played.rejections == []
    assert played.missing == []
    assert played.largest_prompt <= played.window
    compacted = [one for one in played.compactions if one.outcome == "compacted"]
    assert len(compacted) >= length(4, 2)
    assert played.sessions == 1 + len(compacted)
    assert {one.fallback for one in compacted} == {None}
    assert played.known(literal=True) == 10
    assert played.known(literal=False) >= PARAPHRASED


@pytest.mark.soak
def test_without_a_model_for_summaries_it_goes_on_just_the_same() -> None:
    played = play(60, "openai", with_model=False, is_quick=True)
    assert (played.errors, played.rejections, played.missing) == ([], [], [])
    assert played.requests["summary"] == 0
    assert {one.summarizer for one in played.compactions} == {"built-in rules"}
    assert played.known(literal=True) == 10
