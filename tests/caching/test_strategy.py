"""Which strategy is in force, what the command line says about it, and what providers without markers get."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import PromptCache, choose_strategy
from tests.caching.requests import reply, user


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
