"""Why a provider's cache was missed, told from two requests and what was reported for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from everlong.caching.misses import REASONS, CacheTokens, Parts, find_miss
from everlong.caching.rules import Provider, cache_rules, model_rules

OLD = Parts(1_000.0, "claude-sonnet-5", [1, 2], [3], {"thinking": 4}, [5, 6, 7], [1, 1, 1], None, ["5m", "5m"])
NEW = replace(OLD, at=1_030.0, messages=[5, 6, 7, 8, 9], blocks=[1, 1, 1, 1, 1])
LEFT = CacheTokens(20_000, 10_000, 9_000)


def missed(
    got: CacheTokens, provider: Provider = "anthropic", left: CacheTokens = LEFT, old: Parts = OLD, **changes: Any
) -> Any:
    new = replace(NEW, **changes)
    found = find_miss((old, left), (new, got), cache_rules(provider, new.model), model_rules(new.model))
    return None if found is None else (found.reason, found.detail, found.tokens)


COLD = CacheTokens(21_000, 0, 21_000)


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"model": "claude-opus-5"}, "model", ""),
        ({"tools": [1, 9]}, "tools", "tool 2 of 2"),
        ({"tools": [1, 2, 3]}, "tools", "1 tool more"),
        ({"tools": []}, "tools", "2 tools less"),
        ({"system": [9]}, "system", "block 1 of 1"),
        ({"settings": {}}, "setting", "thinking"),
        ({"settings": {"thinking": 4, "tool_choice": 1}}, "setting", "tool_choice"),
        ({"messages": [5, 9, 7, 8]}, "message", "message 2 of 3"),
        ({"messages": [5]}, "message", "2 messages less"),
        ({"view": 7, "messages": [70, 8], "system": [3, 30]}, "compaction", ""),
        ({"at": 1_301.0}, "expired", "301 seconds after the request before; it is held for 300"),
        ({"at": 1_301.0, "system": [9]}, "expired", "301 seconds after the request before; it is held for 300"),
        ({"marks": []}, "no marker", "in this request"),
        ({"blocks": [1, 1, 1, 1, 24]}, "look-back", "25 blocks since the request before; a read walks back over 20"),
        ({}, "provider", ""),
    ],
)
def test_what_changed_first_is_the_reason(changes: dict[str, Any], reason: str, detail: str) -> None:
    assert missed(COLD, **changes) == (reason, detail, 19_000)
    assert reason in REASONS


def test_an_hour_for_the_beginning_and_five_minutes_for_the_rest() -> None:
    old, got = replace(OLD, marks=["1h", "5m"]), CacheTokens(21_000, 8_000, 13_000)
    assert missed(got, old=old, at=1_400.0) == (
        "expired",
        "400 seconds after the request before; it is held for 300",
        11_000,
    )
    assert missed(got, old=old, at=1_400.0, system=[9])[0] == "system"  # which an hour would have kept
    assert missed(got, old=old, at=9_000.0, system=[9])[0] == "expired"


def test_caches_that_keep_by_themselves_are_expected_to_and_servers_that_may_have_none_are_not() -> None:
    old, new = replace(OLD, model="gpt-5", marks=[]), {"model": "gpt-5", "marks": []}
    left, cold = CacheTokens(20_000, 0, 0), CacheTokens(21_000, 0, 0)
    assert missed(cold, "openai", left, old, **new) == ("provider", "", 20_000)
    assert missed(CacheTokens(21_000, 19_968, 0), "openai", left, old, **new) is None  # it reads in steps
    assert missed(cold, "openai", left, old, **new, at=9_000.0)[0] == "expired"
    assert missed(cold, "unknown", left, old, **new) is None
    assert missed(cold, "unknown", CacheTokens(20_000, 10_000, 0), old, **new) == ("provider", "", 20_000)
