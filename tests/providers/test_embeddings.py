"""Embedding models: an endpoint through the official client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everlong.config import ProviderSettings, SearchSettings, Settings
from everlong.config.trust import may_set
from everlong.errors import AuthenticationFailed, ConfigError, ProviderError
from everlong.providers.embeddings import EndpointModel, embedder_for, usable_embedder
from everlong.testing import Fault, ModelServer

SECRET = "sk-" + "a1b2c3d4" * 5


def settings_for(name: str, **providers: ProviderSettings) -> Settings:
    return Settings(search=SearchSettings(embeddings=name), providers=providers)


def endpoint(server: ModelServer) -> Any:
    found = embedder_for(settings_for("mine:small", mine=ProviderSettings(base_url=server.openai_url)))
    assert isinstance(found, EndpointModel)
    return found


def test_no_model_is_chosen_unasked() -> None:
    assert Settings().search.embeddings == "off"
    assert embedder_for(Settings()) is None


def test_no_folder_may_choose_the_model() -> None:
    assert not may_set("search.embeddings")


def test_an_endpoint_gives_a_vector_for_each_text() -> None:
    with ModelServer(api_key=None) as server:
        model = endpoint(server)
        vectors = model.embed(["the car is blue", "rain falls", "The car is blue!"], is_query=False)
        assert vectors.shape[0] == 3
        assert vectors[0] @ vectors[2] > 0.99 > vectors[0] @ vectors[1]
        assert [record.body["model"] for record in server.requests] == ["small"]
        assert server.rejections == []


def test_secrets_do_not_go_to_an_endpoint() -> None:
    with ModelServer() as server:
        endpoint(server).embed([f"the key is {SECRET}", "rain"], is_query=False)
        endpoint(server).embed([f"where is {SECRET}?"], is_query=True)
        assert len(server.requests) == 2
        assert all(SECRET not in json.dumps(record.body) for record in server.requests)


def test_a_failure_of_the_endpoint_is_one_of_our_errors() -> None:
    with ModelServer() as server:
        model = endpoint(server)
        server.fail_next(Fault("overloaded"))
        with pytest.raises(ProviderError):
            model.embed(["rain"], is_query=False)
        assert len(model.embed(["rain"], is_query=False)) == 1


@pytest.mark.parametrize("name", ["minilm", "~/models/minilm", "anthropic:claude-haiku-5-5", "nobody:model"])
def test_what_names_no_endpoint_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match=r"no PROVIDER:MODEL whose .* name a model of .*ollama.*, or off"):
        embedder_for(settings_for(name))


def test_a_missing_key_is_told_and_stops_nothing() -> None:
    with pytest.raises(AuthenticationFailed):
        embedder_for(settings_for("openai:text-embedding-3-small"), env={})
    told: list[str] = []
    assert usable_embedder(settings_for("openai:text-embedding-3-small"), told.append) is None
    assert told[0].startswith("the search goes by words alone: there is no key for openai")
