"""What a request missed in a provider's cache, told from it and the one before it."""

from __future__ import annotations

from typing import Any

import pytest

from everlong.caching.misses import REASONS, CachedPrompt, find_miss
from everlong.caching.rules import Provider, cache_rules, model_rules

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
