"""The providers' rules as data: which hold for a name."""

from __future__ import annotations

import pytest

from everlong.caching.rules import model_rules, prices_for, provider_of


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
