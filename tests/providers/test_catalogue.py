"""Windows and prices: settings, the offline catalogue, the server, a default, and what an overflow teaches."""

from __future__ import annotations

import pytest

from everlong import ConfigError, NetworkFailure
from everlong.config import ProviderSettings, Settings
from everlong.providers import Catalogue, ModelName, Usage, connect, parse_model_name
from everlong.providers.catalogue import DEFAULT_CONTEXT_LENGTH
from everlong.providers.endpoints import ENDPOINTS, Endpoint, endpoint_for
from tests.testing_server.conftest import Serve

OPUS = ModelName("anthropic", "claude-opus-5")
LOCAL = ModelName("workshop", "tiny")
WORKSHOP = Endpoint("workshop", needs_key=False)


def test_a_known_model_has_the_window_and_the_prices_of_the_catalogue() -> None:
    info = Catalogue().info(OPUS, ENDPOINTS["anthropic"])
    assert (info.context_length, info.context_source) == (1_000_000, "catalogue")
    assert info.prices is not None
    assert tuple(map(float, (info.prices.input, info.prices.output, info.prices.cache_read))) == (5.0, 25.0, 0.5)
    assert info.prices.cost(Usage(1_000_000, 1_000_000)) == 30.0


def test_a_price_that_rises_with_the_prompt_is_known_with_its_step() -> None:
    haiku, catalogue = ModelName("anthropic", "claude-haiku-5-5"), Catalogue()
    assert catalogue.info(haiku, ENDPOINTS["anthropic"]).price_step == 100_000
    assert catalogue.cost(str(haiku), Usage(100_000)) == pytest.approx(0.01)
    assert catalogue.cost(str(haiku), Usage(200_000)) == pytest.approx(0.10)


def test_an_unknown_model_asks_its_server_once_and_else_has_the_default() -> None:
    asked: list[int] = []

    def ask() -> int:
        asked.append(1)
        return 5_000

    def silent() -> int | None:
        raise NetworkFailure("nobody there")

    catalogue = Catalogue()
    for _ in range(2):
        info = catalogue.info(LOCAL, WORKSHOP, ask)
        assert (info.context_length, info.context_source, info.prices) == (5_000, "server", None)
    assert len(asked) == 1
    info = Catalogue().info(LOCAL, WORKSHOP, silent)
    assert (info.context_length, info.context_source) == (DEFAULT_CONTEXT_LENGTH, "default")


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("anthropic:claude-opus-5", "anthropic", "claude-opus-5"),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
        ("openrouter:z-ai/glm-5:free", "openrouter", "z-ai/glm-5:free"),
        ("claude-sonnet-5", "anthropic", "claude-sonnet-5"),
        ("gpt-5.4-mini", "openai", "gpt-5.4-mini"),
        ("o3", "openai", "o3"),
        ("moonshotai/kimi-k3", "openrouter", "moonshotai/kimi-k3"),
    ],
)
def test_a_name_says_the_provider_and_the_model(name: str, provider: str, model: str) -> None:
    assert parse_model_name(name) == (provider, model)


def test_an_endpoint_of_ones_own_is_called_by_its_name(serve: Serve) -> None:
    server = serve("From the workshop.", dialect="llama.cpp")
    settings = Settings(providers={"workshop": ProviderSettings(base_url=server.openai_url)})
    connection = connect("workshop:tiny", settings)
    assert connection.complete([{"role": "user", "content": "Hi"}]).text == "From the workshop."
    assert connection.complete([{"role": "user", "content": "Hi"}], max_tokens=9).provider == "workshop"
    assert server.requests[-1].body["max_tokens"] == 9
    connection.close()
    with pytest.raises(ConfigError, match=r"providers\.nowhere\.base_url"):
        endpoint_for("nowhere", {"nowhere": ProviderSettings(api="openai")})
    with pytest.raises(ConfigError, match="is not a known provider"):
        endpoint_for("nowhere")


def test_a_key_comes_from_the_environment_and_goes_to_its_own_provider_only(serve: Serve) -> None:
    server = serve("ok", dialect="vllm")
    env = {"OPENAI_API_KEY": "secret-of-mine"}
    hello = [{"role": "user", "content": "Hi"}]
    for name, settings in (
        ("openai:gpt-5", Settings()),
        ("gpt-5", Settings()),
        ("openai:gpt-5", Settings(providers={"openai": ProviderSettings(base_url=server.openai_url)})),
    ):
        base_url = None if settings.providers else server.openai_url
        connection = connect(name, settings, base_url=base_url, env=env)
        connection.complete(hello)
        connection.close()
    chosen = {"openai": ProviderSettings(base_url=server.openai_url, key_variable="OPENAI_API_KEY")}
    connection = connect("openai:gpt-5", Settings(providers=chosen), env=env)
    connection.complete(hello)
    connection.close()
    sent = [record.headers["authorization"] for record in server.requests]
    assert sent == ["Bearer no-key"] * 3 + ["Bearer secret-of-mine"]
