"""A client that only appends stays inside the window, and what it said long ago is found again."""

from __future__ import annotations

import pytest
from bench.gateway.endless import APIS, play

from tests.examples import few, length


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("api", few(APIS))
def test_a_client_that_only_appends_never_hits_the_wall(api: str) -> None:
    window = length(16_000, 12_000)
    played = play(length(90, 60), api, window)
    assert played.errors == played.rejections == played.problems == []
    assert played.largest_prompt < window < played.history_tokens
    assert sum(played.compactions.values()) >= 3
    assert played.read_share >= 0.85  # a short session has more of its beginnings in it than a long one
    assert (played.known(literal=True), played.known(literal=False) >= 7) == (10, True)
