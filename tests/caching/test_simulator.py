"""The simulator on worked examples: every figure can be checked by hand against the published rules."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import Message, MessageCounter
from everlong.caching.simulation import CacheOutcome, CacheSimulator, replay, requests_of
from tests.caching.requests import Body, long_text

MINUTE = 60.0


def text(tokens: int, word: str = "w", ttl: str | None = None) -> Body:
    part: Body = {"type": "text", "text": long_text(word, tokens)}
    if ttl is None:
        return part
    return {**part, "cache_control": {"type": "ephemeral", **({"ttl": "1h"} if ttl == "1h" else {})}}


def body(system: list[Body], *contents: list[Body], **more: Any) -> Body:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": content} for at, content in enumerate(contents)]
    return {"system": system, "messages": messages, **more}


def sim(model: str = "claude-sonnet-4-5", provider: str = "anthropic", **more: Any) -> CacheSimulator:
    return CacheSimulator(model, provider, **more)


def figures(outcome: CacheOutcome) -> tuple[int, dict[str, int], int]:
    return outcome.read, outcome.written, outcome.fresh


def test_the_first_request_writes_up_to_its_marker_and_the_next_reads_that() -> None:
    cache = sim()
    first = cache.send(body([text(2_000, "s", "5m")], [text(100)]), 0.0)
    assert figures(first) == (0, {"5m": 2_000}, 100)
    assert first.cost == 2_000 * 1.25 + 100
    second = cache.send(body([text(2_000, "s", "5m")], [text(300, "other")]), 10.0)
    assert figures(second) == (2_000, {}, 300)
    assert second.cost == pytest.approx(2_000 * 0.1 + 300)


@pytest.mark.parametrize(("appended", "read"), [(18, True), (19, True), (20, False)])
def test_a_read_walks_back_twenty_positions_the_markers_own_included(appended: int, read: bool) -> None:
    cache = sim()
    start = [text(2_000, "start")]
    cache.send(body([], [*start[:-1], text(2_000, "start", "5m")]), 0.0)
    more = [text(1, f"p{at}") for at in range(appended)]
    outcome = cache.send(body([], [*start, *more[:-1], text(1, f"p{appended - 1}", "5m")]), 1.0 + 5)
    assert (outcome.read == 2_000) is read
    assert (outcome.missed == 2_000) is not read


@pytest.mark.parametrize(
    ("per_block", "provider", "read"), [(True, "anthropic", 0), (False, "anthropic", 2_000), (False, "bedrock", 0)]
)
def test_runs_of_calls_and_results_collapse_only_where_the_rules_say_so(
    per_block: bool, provider: str, read: int
) -> None:
    cache = CacheSimulator("claude-sonnet-4-5", provider, per_block=per_block)
    uses = [{"type": "tool_use", "id": f"t{at}", "name": "look", "input": {}} for at in range(15)]
    results = [{"type": "tool_result", "tool_use_id": f"t{at}", "content": "ok"} for at in range(15)]
    marked = [*results[:-1], {**results[-1], "cache_control": {"type": "ephemeral"}}]
    cache.send({"messages": [{"role": "user", "content": [text(2_000, "s", "5m")]}]}, 0.0)
    request = {
        "messages": [
            {"role": "user", "content": [text(2_000, "s")]},
            {"role": "assistant", "content": uses},
            {"role": "user", "content": marked},
        ]
    }
    assert cache.send(request, 30.0).read == read


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ({}, 3_000),
        ({"tools": [{"name": "new"}]}, 0),
        ({"model": "claude-sonnet-5"}, 0),
        ({"tool_choice": {"type": "any"}}, 2_000),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, 2_000),
        ({"speed": "fast"}, 0),
    ],
)
def test_a_change_loses_its_tier_and_those_after_it(change: Body, read: int) -> None:
    cache = sim()
    system = [text(2_000, "s", "5m")]
    cache.send(body(system, [text(1_000, "m", "5m")]), 0.0)
    assert cache.send(body(system, [text(1_000, "m", "5m")], **change), 5.0).read == read


def test_openai_before_its_markers_reads_in_steps_of_128_and_writes_for_nothing() -> None:
    cache = sim("gpt-5", "openai")
    request = {"messages": [{"role": "user", "content": long_text("m", 2_000)}]}
    assert cache.send(request, 0.0).cost == 2_000
    again = cache.send(request, 10.0)
    assert again.read == 1_920
    assert again.cost == pytest.approx(1_920 * 0.1 + 80)


def test_openai_with_implicit_breakpoints_writes_up_to_the_latest_input_and_keeps_it_half_an_hour() -> None:
    cache = sim("gpt-5.6", "openai")
    request = {"messages": [{"role": "user", "content": long_text("m", 2_000)}]}
    assert cache.send(request, 0.0).cost == 2_000 * 1.25
    assert cache.send(request, 29 * MINUTE).cost == pytest.approx(200)
    assert cache.send(request, 60 * MINUTE).reason == "time"


def test_a_long_session_is_read_message_by_message_and_not_again_with_every_request() -> None:
    talk: list[dict[str, Any]] = []
    for step in range(150):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": f'{{"page": {step}}}'}}
        talk.append({"role": "assistant", "content": None, "tool_calls": [call]})
        talk.append({"role": "tool", "tool_call_id": f"c{step}", "content": long_text("w", 40 + step)})
    counted: list[Message] = []

    class Counter(MessageCounter):
        def count(self, message: Message) -> int:
            counted.append(message)
            return super().count(message)

    asked = requests_of([{"role": "user", "content": "Read it."}, *talk], [])
    played = replay("", asked, "claude-sonnet-4-6", counter=Counter())
    assert played.requests == 151
    assert len(counted) < 15 * len(talk) * len(played.outcomes)
