"""Where the ledger puts its markers, case by case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from everlong.caching import PromptCache
from everlong.caching.blocks import RequestView, layout_of
from everlong.caching.markers import strip_markers
from everlong.caching.misses import REASONS, CachedPrompt, find_miss
from everlong.caching.rules import Provider, cache_rules, model_rules
from everlong.caching.simulation import CacheSimulator
from everlong.model import EPHEMERAL
from tests.caching.requests import MODEL, Body, bodies, long_text, markers_in, reply, step, system, user
from tests.examples import examples

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


some = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Each example is a whole session, and some of their texts are long."""

LIVES = st.sampled_from(({}, {"cache_ttl": "1h"}))


def made_by(provider: str, settings: dict[str, Any] | None = None) -> PromptCache:
    return PromptCache(MODEL, provider, settings={"strategy": "ledger", **(settings or {})}, clock=lambda: 0.0)


def view(provider: str, body: Body) -> RequestView:
    found = RequestView(provider)
    found.update(body, layout_of(provider, body))
    return found


def growing(body: Body) -> Iterator[Body]:
    """The latest requests that led to a conversation."""
    for end in range(max(1, len(body["messages"]) - 5), len(body["messages"]) + 1):
        yield {**body, "messages": body["messages"][:end]}


@some
@given(bodies(), LIVES)
def test_there_are_never_more_than_four_markers_the_clients_own_included(
    case: tuple[str, Body], lives: dict[str, Any]
) -> None:
    provider, body = case
    cache = made_by(provider, lives)
    for at, request in enumerate(growing(body)):
        assert len(markers_in(cache.apply(request, 30.0 * at))) <= 4


@some
@given(bodies(), LIVES)
def test_five_minutes_never_stand_before_an_hour(case: tuple[str, Body], lives: dict[str, Any]) -> None:
    provider, body = case
    cache = made_by(provider, lives)
    bare = strip_markers(body, texts=False)  # what a client mixed up itself stays mixed up
    for at, request in enumerate(growing(bare)):
        sent = view(provider, cache.apply(request, 200.0 * at))
        found = [sent.blocks[place].marker or "" for place in sent.marked]
        assert found == sorted(found)  # "1h" sorts before "5m"


@some
@given(bodies())
def test_taking_the_markers_off_gives_back_the_request(case: tuple[str, Body]) -> None:
    provider, body = case
    sent = made_by(provider).apply(body, 0.0)
    assert strip_markers(sent) == strip_markers(body)


@some
@given(bodies())
def test_each_request_is_a_block_prefix_of_the_next(case: tuple[str, Body]) -> None:
    provider, body = case
    if any(block.kind == "image" for block in view(provider, body).blocks):
        return  # the first picture of a conversation invalidates its messages, by the rules
    if layout_of(provider, {**body, "messages": body["messages"][:1]}) != layout_of(provider, body):
        return  # a conversation that shows its format only later
    cache = made_by(provider)
    before: list[bytes] = []
    leading = True
    for at, request in enumerate(growing(body)):
        chain = view(provider, cache.apply(request, 30.0 * at)).chain
        leading = leading and request["messages"][-1]["role"] in ("system", "developer")
        if not leading:
            assert chain[: len(before)] == before
            before = chain


OLD = CachedPrompt(1_000.0, 300.0, "claude-sonnet-5", 1, 3, [5, 6, 7], None, 20_000, 10_000, 9_000)
COLD = OLD._replace(at=1_030.0, history=[5, 6, 7, 8, 9], prompt=21_000, read=0, written=21_000)


def missed(now: CachedPrompt, provider: Provider = "anthropic", before: CachedPrompt = OLD) -> Any:
    found = find_miss(before, now, cache_rules(provider, now.model), model_rules(now.model))
    return None if found is None else (found.reason, found.tokens)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "claude-opus-5"}, "model"),
        ({"tools": 9}, "tools"),
        ({"system": 9}, "system"),
        ({"history": [5, 9, 7, 8]}, "history"),
        ({"history": [5]}, "history"),
        ({"view": 7, "history": [70, 8], "system": 30}, "compaction"),
        ({"at": 1_301.0}, "time"),
        ({"at": 1_301.0, "system": 9}, "time"),
        ({}, "other"),
    ],
)
def test_what_changed_first_is_the_reason(changes: dict[str, Any], reason: str) -> None:
    assert missed(COLD._replace(**changes)) == (reason, 19_000)
    assert reason in REASONS


def test_what_was_kept_for_an_hour_has_not_expired_after_minutes() -> None:
    now = COLD._replace(at=1_400.0, read=8_000, written=13_000)
    assert missed(now, before=OLD._replace(life=3_600.0)) == ("other", 11_000)
    assert missed(now) == ("time", 11_000)


def test_caches_that_keep_by_themselves_are_expected_to_and_servers_that_may_have_none_are_not() -> None:
    left = OLD._replace(model="gpt-5", read=0, written=0)
    cold = COLD._replace(model="gpt-5", written=0)
    assert missed(cold, "openai", left) == ("other", 20_000)
    assert missed(cold._replace(read=19_968), "openai", left) is None  # it reads in steps
    assert missed(cold, "unknown", left) is None
    assert missed(cold, "unknown", left._replace(read=10_000)) == ("other", 20_000)
