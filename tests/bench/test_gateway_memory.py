"""``bench.gateway.memory`` sends what it says that it sends, and tells growth from what comes and goes."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from bench.gateway.memory import MOST_MB, Seen, Talk, beginning_of, run

_REPLY = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Noted."}}]}).encode()


def test_a_conversation_only_grows_and_is_not_like_another_one() -> None:
    beginning = beginning_of(20_000)
    talk = Talk(beginning, "first")
    bodies = []
    for _ in range(3):
        bodies.append(talk.body())
        talk.take(_REPLY)
    assert all(later.startswith(earlier[:-2]) for earlier, later in pairwise(bodies))
    said = [message["role"] for message in json.loads(bodies[-1])["messages"]]
    assert said == ["system", *["user", "assistant"] * (len(said) // 2 - 1), "user"]
    assert 19_000 <= len(bodies[0]) <= 21_000
    assert Talk(beginning, "other").body() != bodies[0]


def test_memory_that_comes_and_goes_is_no_growth() -> None:
    assert Seen(75, [120], [130, 200, 130, 131, 210, 130]).growth == 1


def test_memory_that_does_not_come_back_is_growth() -> None:
    assert Seen(75, [120], [130, 132, 134, 140, 142, 144]).growth == pytest.approx(140 / 130)


@pytest.mark.soak
def test_a_short_run_stays_inside_the_bar() -> None:
    seen = run(60, 40_000, 4)
    assert seen.conversations == 8  # four clients, and again for the requests that follow
    assert seen.idle < seen.end <= MOST_MB
    assert (len(seen.during), len(seen.after)) == (60, 30)
