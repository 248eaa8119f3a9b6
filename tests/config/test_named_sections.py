"""Sections with a part per name of the user's: models and providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.config import load_settings, set_value, user_config_path
from everlong.errors import ConfigError


def written(text: str) -> Path:
    path = user_config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.spec("9.4")
def test_a_model_and_a_provider_are_read_with_their_origins() -> None:
    path = written(
        "models:\n  gpt-4.1:\n    context_length: 9000\nproviders:\n  workshop:\n    base_url: http://localhost:1/v1\n"
    )
    loaded = load_settings()
    assert loaded.settings.models["gpt-4.1"].context_length == 9000
    assert loaded.settings.providers["workshop"].base_url == "http://localhost:1/v1"
    assert str(loaded.origins["models.gpt-4.1.context_length"]) == f"{path}:3"


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    ("text", "key", "wording"),
    [
        ("models: {gpt-4.1: {context_length: 0}}", "models.gpt-4.1.context_length", "is 0, but must be a whole number"),
        ("models: {gpt-4.1: {context_lenght: 9}}", "models.gpt-4.1.context_lenght", "did you mean context_length?"),
        ("models: {m: {input_price: -1}}", "models.m.input_price", "is -1, but must be a number from 0, or null"),
        ("models: {m: 5}", "models.m", "is 5, but must be a section with settings of its own"),
        ("providers: {p: {api: soap}}", "providers.p.api", 'is "soap", but must be openai, anthropic or null'),
        ("providers: {p: {base_url: here}}", "providers.p.base_url", "must be an http:// or https:// address"),
        ("gateway: {keys: {ada: {sha256: x}}}", "gateway.keys.ada.sha256", "must be 64 hexadecimal digits, or null"),
        ("gateway: {keys: {ada: {key_varable: X}}}", "gateway.keys.ada.key_varable", "did you mean key_variable?"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_what_is_allowed(text: str, key: str, wording: str) -> None:
    written(text)
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert raised.value.key == key
    assert wording in str(raised.value)


def test_a_named_section_inside_of_another_can_be_set_in_any_order() -> None:
    path = user_config_path()
    set_value(path, "gateway.keys.ada.requests_per_minute", "60")
    set_value(path, "gateway.keys.ada.key_variable", "ADA_KEY")
    set_value(path, "gateway.routes.claude-*.key_variable", "SHOP_KEY")
    settings = load_settings().settings.gateway
    assert (settings.keys["ada"].requests_per_minute, settings.keys["ada"].key_variable) == (60, "ADA_KEY")
    assert settings.routes["claude-*"].key_variable == "SHOP_KEY"
