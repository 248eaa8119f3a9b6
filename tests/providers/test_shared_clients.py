"""Providers of one endpoint share a client, and the last of them closes it."""

from __future__ import annotations

from everlong.providers.openai_api import OpenAIProvider
from everlong.providers.shared_clients import SharedClients


class Client:
    """A client that counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_one_endpoint_has_one_client_until_its_last_holder_has_gone() -> None:
    clients = SharedClients()
    first = clients.take("here", Client)
    assert clients.take("here", Client) is first
    assert clients.take("there", Client) is not first
    clients.give_back("here")
    assert first.closed == 0
    clients.give_back("here")
    assert first.closed == 1
    assert clients.take("here", Client) is not first


def provider(key: str = "made-up", timeout: float = 60.0) -> OpenAIProvider:
    return OpenAIProvider("a-model", api_key=key, base_url="http://127.0.0.1:9/v1", timeout=timeout)


def test_a_provider_that_is_closed_takes_nothing_from_others() -> None:
    first, second = provider(), provider()
    client = first._client
    assert second._client is client
    first.close()
    first.close()
    assert not client.is_closed()
    second.close()
    assert client.is_closed()
    again = first._client
    assert not again.is_closed()
    first.close()
