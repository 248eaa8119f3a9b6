"""The plain strategy and the rough estimate, to the letter."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from everlong import (
    ConfigError,
    PromptCache,
    apply_anthropic_cache_control,
    choose_strategy,
    estimate_messages_tokens_rough,
)
from everlong.caching.rules import model_rules, prices_for, provider_of
from tests.caching.requests import Body, markers_in, reply, step, system, user
from tests.wild import wild_conversations

MARKER = {"type": "ephemeral"}


def places(messages: list[Body]) -> list[int]:
    return [at for at, message in enumerate(messages) if markers_in(message)]


@pytest.mark.spec("6.1")
def test_the_system_prompt_and_the_last_three_messages_are_marked() -> None:
    talk = [user("a"), reply("b"), user("c"), reply("d"), user("e")]
    assert places(apply_anthropic_cache_control([system(), *talk])) == [0, 3, 4, 5]
    assert places(apply_anthropic_cache_control(talk)) == [2, 3, 4]


@pytest.mark.spec("6.2")
def test_a_list_is_marked_on_its_last_element_and_empty_content_on_the_message() -> None:
    parts: list[Body] = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    marked = apply_anthropic_cache_control([{"role": "user", "content": parts}, {"role": "assistant", "content": None}])
    assert marked[0]["content"] == [parts[0], {**parts[1], "cache_control": MARKER}]
    assert marked[1] == {"role": "assistant", "content": None, "cache_control": MARKER}


@pytest.mark.spec("6.2")
def test_a_tool_message_is_marked_on_itself_and_only_for_the_native_api() -> None:
    messages = [system(), user("go"), *step(1, width=3)]
    native = apply_anthropic_cache_control(messages, native_anthropic=True)
    assert [message.get("cache_control") for message in native[3:]] == [MARKER, MARKER, MARKER]
    assert native[3]["content"] == messages[3]["content"]
    other = apply_anthropic_cache_control(messages, native_anthropic=False)
    assert other[3:] == messages[3:]
    assert places(other) == [0, 1, 2]  # the last that can carry one


@pytest.mark.spec("6.1")
@given(wild_conversations())
def test_there_are_at_most_four_markers_on_a_deep_copy_and_once_more_changes_nothing(messages: list[Body]) -> None:
    untouched = copy.deepcopy(messages)
    marked = apply_anthropic_cache_control(messages, native_anthropic=True)
    assert messages == untouched
    assert len(markers_in(marked)) <= 4
    assert apply_anthropic_cache_control(marked, native_anthropic=True) == marked


@pytest.mark.spec("6.1", "3.1")
def test_another_time_to_live_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"prompt_caching\.cache_ttl is '10m', but must be 5m or 1h"):
        apply_anthropic_cache_control([user("a")], cache_ttl="10m")


@pytest.mark.spec("6.3")
def test_the_rough_estimate_is_a_quarter_of_the_characters_and_pictures_weigh_the_same() -> None:
    assert estimate_messages_tokens_rough([]) == 0
    short, long = [user("a" * 40)], [user("a" * 4_040)]
    assert estimate_messages_tokens_rough(long) - estimate_messages_tokens_rough(short) == 1_000

    def picture(size: int) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x" * size}}]}]

    assert estimate_messages_tokens_rough(picture(10)) == estimate_messages_tokens_rough(picture(10_000_000))


@pytest.mark.spec("6.1")
@pytest.mark.parametrize("kind", ["thinking", "future_block"])
def test_a_message_that_ends_with_what_takes_no_marker_is_passed_over(kind: str) -> None:
    messages = [user("a"), user("b"), user("c"), {"role": "user", "content": [{"type": kind, "x": 1}]}]
    assert places(apply_anthropic_cache_control(messages)) == [0, 1, 2]


@pytest.mark.spec("6.3")
@pytest.mark.parametrize(
    ("model", "provider", "settings", "line"),
    [
        ("anthropic/claude-sonnet-4.5", "openrouter", {}, "ENABLED (Claude via OpenRouter, 5m TTL)"),
        ("claude-sonnet-4-5", "anthropic", {"cache_ttl": "1h"}, "ENABLED (Claude via Anthropic, 1h TTL)"),
        ("claude-sonnet-4-5", "anthropic", {"strategy": "off"}, "DISABLED (prompt_caching.strategy is off)"),
        (
            "qwen/qwen3",
            "openrouter",
            {},
            "DISABLED (qwen/qwen3 is not a Claude model, and OpenRouter marks only those)",
        ),
        ("claude-sonnet-4-5", "gateway", {}, "DISABLED (this provider is not known to take cache markers)"),
        ("gpt-5.6", "openai", {}, "ENABLED (automatic at OpenAI, 30m TTL)"),
    ],
)
def test_the_line_at_start_says_what_is_on_and_why(
    model: str, provider: str, settings: dict[str, Any], line: str
) -> None:
    assert choose_strategy(model, provider, settings=settings).line == f"💾 Prompt caching: {line}"


def test_where_the_provider_caches_by_itself_a_routing_key_is_all_that_is_added() -> None:
    cache = PromptCache("gpt-5.6", "openai", session_id="s1")
    body = {"messages": [user("a")]}
    assert cache.apply(body) == {**body, "prompt_cache_key": "s1"}
    assert cache.apply({**body, "prompt_cache_key": "own"})["prompt_cache_key"] == "own"
    longer = cache.apply({"messages": [user("a"), reply("b"), user("c")]})
    assert cache.last is not None
    assert (cache.last.strategy, len(longer["messages"])) == ("automatic", 3)


@pytest.mark.parametrize(
    ("model", "least", "read"),
    [
        ("claude-sonnet-4-5-20250929", 1_024, 0.1),
        ("anthropic/claude-sonnet-4.5", 1_024, 0.1),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", 4_096, 0.1),
        ("claude-opus-5", 512, 0.1),
        ("claude-sonnet-5-5", 512, 0.05),
        ("claude-3-5-sonnet-20241022-v2:0", 1_024, 0.1),
        ("gpt-4.1-mini", 1_024, 0.25),
    ],
)
def test_a_models_name_in_any_spelling_finds_its_rules(model: str, least: int, read: float) -> None:
    rules = model_rules(model)
    assert (rules.minimum_tokens, rules.read) == (least, read)


@pytest.mark.parametrize(
    ("name", "base_url", "model", "provider"),
    [
        ("anthropic", "", "", "anthropic"),
        ("", "https://api.anthropic.com", "", "anthropic"),
        ("", "https://openrouter.ai/api/v1", "anthropic/claude-opus-5", "openrouter"),
        ("auto", "", "claude-opus-5", "anthropic"),
        ("", "", "anthropic.claude-opus-4-5-v1:0", "bedrock"),
        ("", "", "anthropic/claude-opus-5", "openrouter"),
        ("", "", "gpt-5.6", "openai"),
        ("", "http://localhost:8000/v1", "qwen", "local"),
        ("some-gateway", "", "claude-opus-5", "unknown"),
    ],
)
def test_a_provider_is_told_by_name_address_or_model(name: str, base_url: str, model: str, provider: str) -> None:
    assert provider_of(name, base_url, model) == provider


@pytest.mark.spec("9.2")
def test_the_compressors_prices_are_those_of_the_model() -> None:
    prices = prices_for("claude-haiku-5-5", cold_share=0.1)
    assert (prices.cache_read, prices.cache_write, prices.cold_share, prices.dearer_above) == (0.1, 1.25, 0.1, 100_000)
