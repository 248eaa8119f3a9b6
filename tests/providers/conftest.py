"""Providers of both formats, connected through the official clients to a server on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from everlong.providers import AnthropicProvider, Done, OpenAIProvider, Provider, Reply
from everlong.testing import ModelServer
from tests.testing_server.conftest import KEY, serve
from tests.waiting import PATIENCE

__all__ = ["serve"]

Connect = Callable[..., Provider]
APIS = ("anthropic", "openai")


@pytest.fixture
def connected() -> Iterator[Connect]:
    """Return a function that makes the provider of an API for a server."""
    providers: list[Provider] = []

    def connect(api: str, server: ModelServer, model: str | None = None, **options: Any) -> Provider:
        provider: Provider
        if api == "anthropic":
            provider = AnthropicProvider(
                model or "claude-opus-5", api_key=KEY, base_url=server.url, timeout=PATIENCE, **options
            )
        else:
            provider = OpenAIProvider(
                model or "gpt-5", api_key=KEY, base_url=server.openai_url, timeout=PATIENCE, **options
            )
        providers.append(provider)
        return provider

    yield connect
    for provider in providers:
        provider.close()


def asked(provider: Provider, messages: list[dict[str, Any]], *, streamed: bool, **options: Any) -> Reply:
    """Return the reply, whole or streamed."""
    if not streamed:
        return provider.complete(messages, **options)
    last = list(provider.stream(messages, **options))[-1]
    assert isinstance(last, Done)
    return last.reply
