"""Where the ledger puts its markers, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from everlong.caching import PromptCache
from everlong.caching.simulation import CacheSimulator
from everlong.model import EPHEMERAL
from tests.caching.requests import MODEL, Body, long_text, markers_in, reply, step, system, user

pytestmark = pytest.mark.spec("6.4")


def made(provider: str = "anthropic", model: str = MODEL, **settings: Any) -> PromptCache:
    return PromptCache(model, provider, settings={"strategy": "ledger", **settings}, clock=lambda: 0.0)


def marked(messages: list[Body]) -> list[int]:
    return [at for at, message in enumerate(messages) if markers_in(message)]


def roles(cache: PromptCache) -> list[str]:
    assert cache.last is not None
    return [mark.role for mark in cache.last.marks]


def test_a_growing_conversation_marks_the_system_prompt_the_previous_tail_and_the_end() -> None:
    cache, messages = made(), [system(), user("go")]
    assert marked(cache.apply({"messages": messages}, 0.0)["messages"]) == [0, 1]
    messages = [*messages, *step(1)]
    assert marked(cache.apply({"messages": messages}, 30.0)["messages"]) == [0, 1, 3]
    assert roles(cache) == ["S", "R", "W"]


def test_after_a_compaction_the_summary_is_marked_and_the_system_prompt_is_still_read() -> None:
    cache, simulator = made(), CacheSimulator(MODEL, "anthropic")
    talk = [message for number in range(6) for message in step(number)]
    simulator.send(cache.apply({"messages": [system(), user("go"), *talk]}, 0.0), 0.0)
    summary = user("[CONTEXT COMPACTION — REFERENCE ONLY] " + long_text("gist", 1_500))
    outcome = simulator.send(cache.apply({"messages": [system(), summary, *talk[-2:]]}, 30.0), 30.0)
    assert outcome.read == 2_000
    assert "F" in roles(cache)


def test_going_back_finds_the_point_that_was_marked_then() -> None:
    cache, simulator = made(), CacheSimulator(MODEL, "anthropic")
    first = [system(), user("go"), *step(1)]
    sizes = [simulator.send(cache.apply({"messages": first}, 0.0), 0.0).prompt]
    longer = [*first, *step(2), *step(3)]
    simulator.send(cache.apply({"messages": longer}, 30.0), 30.0)
    back = simulator.send(cache.apply({"messages": [*first, reply("hm"), user("another way")]}, 60.0), 60.0)
    assert back.read == sizes[0]


def test_the_clients_own_markers_stay_and_count() -> None:
    own = {"type": "text", "text": "keep me", "cache_control": {"type": "ephemeral"}}
    messages = [system(), {"role": "user", "content": [own]}, *step(1), user("more")]
    sent = made().apply({"messages": messages}, 0.0)["messages"]
    assert marked(sent) == [0, 1, 4]
    many = [{"role": "user", "content": [{**own, "text": f"keep {at}"}]} for at in range(6)]
    assert marked(made().apply({"messages": [system(), *many]}, 0.0)["messages"]) == [1, 4, 5, 6]


def test_automatic_caching_of_the_client_leaves_three_markers_and_the_last_block_alone() -> None:
    request = {
        "cache_control": {"type": "ephemeral"},
        "system": [{"type": "text", "text": long_text("s", 2_000)}],
        "messages": [user("a"), reply("b"), user("c")],
    }
    sent = made().apply(request, 0.0)
    assert sent["cache_control"] == {"type": "ephemeral"}
    assert len(markers_in(sent["messages"]) + markers_in(sent["system"])) <= 3
    assert not markers_in(sent["messages"][-1])


def test_thinking_empty_text_and_reminders_are_passed_over() -> None:
    last = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "said"},
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": " "},
            {"type": "text", "text": "<system-reminder>be brief</system-reminder>"},
        ],
    }
    sent = made().apply({"system": long_text("s", 2_000), "messages": [user("go"), last]}, 0.0)
    assert [bool(markers_in(part)) for part in sent["messages"][-1]["content"]] == [True, False, False, False]


def test_what_belongs_to_one_request_only_is_neither_marked_nor_sent_with_its_private_key() -> None:
    cache, simulator = made(), CacheSimulator(MODEL, "anthropic")
    history = [system(), user("go"), *step(1)]
    once = {"role": "user", "content": "it is 12:00", EPHEMERAL: True}
    first = cache.apply({"messages": [*history, once]}, 0.0)
    assert marked(first["messages"])[-1] == 3
    assert first["messages"][-1] == user("it is 12:00")
    simulator.send(first, 0.0)
    later = {"messages": [*history, *step(2), {"role": "user", "content": "it is 12:01", EPHEMERAL: True}]}
    assert simulator.send(cache.apply(later, 30.0), 30.0).missed == 0


def test_a_conversation_is_cold_when_its_life_is_over() -> None:
    cache = made()
    cache.apply({"messages": [system(), user("go")]}, 0.0)
    assert (cache.is_cold(290.0), cache.is_cold(300.0)) == (False, True)


UNKNOWN: Body = {"type": "future_block", "x": 1}


@pytest.mark.parametrize("provider", ["anthropic", "openrouter", "vertex"])
def test_a_block_that_nobody_knows_is_passed_over_for_the_nearest_before_it(provider: str) -> None:
    text = {"type": "text", "text": long_text("word", 2_000)}
    sent = made(provider).apply({"messages": [{"role": "user", "content": [text, {**text}, UNKNOWN]}]}, 0.0)
    assert [markers_in(part) for part in sent["messages"][0]["content"]] == [[], ["5m"], []]
    alone = {"messages": [{"role": "user", "content": [UNKNOWN]}]}
    assert not markers_in(made(provider).apply(alone, 0.0))
