"""Embedding models: an endpoint through the official client, and a small ONNX model that the test makes itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everlong.config import ProviderSettings, SearchSettings, Settings
from everlong.config.trust import may_set
from everlong.errors import AuthenticationFailed, ProviderError
from everlong.providers.embeddings import EndpointModel, OnnxModel, embedder_for, usable_embedder
from everlong.testing import Fault, ModelServer
from tests.onnx_folder import SIZE, make_onnx_folder

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


def test_a_folder_gives_vectors_without_any_server(tmp_path: Path) -> None:
    model = embedder_for(settings_for(str(make_onnx_folder(tmp_path / "words"))))
    assert isinstance(model, OnnxModel)
    vectors = model.embed(["the car is blue", "rain", "the car is blue", ""][:3], is_query=False)
    assert vectors.shape == (3, SIZE)
    assert np.allclose(vectors[0], vectors[2], atol=1e-6)
    alone = model.embed(["rain"], is_query=True)
    assert np.allclose(vectors[1], alone[0], atol=1e-6)  # padding does not count


def test_a_missing_key_is_told_and_stops_nothing() -> None:
    with pytest.raises(AuthenticationFailed):
        embedder_for(settings_for("openai:text-embedding-3-small"), env={})
    told: list[str] = []
    assert usable_embedder(settings_for("openai:text-embedding-3-small"), told.append) is None
    assert told[0].startswith("the search goes by words alone: there is no key for openai")
