"""The server under test, and the official clients pointed at it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anthropic
import openai
import pytest

from everlong.testing import ModelServer
from tests.waiting import PATIENCE

KEY = "key-of-nobody"


class Raw(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def post(server: ModelServer, path: str, body: Any, **headers: str) -> Raw:
    """A request by hand, for what no client would send."""
    sent = {"authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", path, data, {name: value for name, value in sent.items() if value})
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Raw(response.status, found, response.read().decode())
    finally:
        connection.close()


Serve = Callable[..., ModelServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[ModelServer] = []

    def start(script: Any = "Understood.", **options: Any) -> ModelServer:
        server = ModelServer(script, **options)
        server.__enter__()
        running.append(server)
        return server

    yield start
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture
def claude() -> Iterator[Callable[[ModelServer], anthropic.Anthropic]]:
    clients: list[anthropic.Anthropic] = []

    def connect(server: ModelServer) -> anthropic.Anthropic:
        clients.append(anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, timeout=PATIENCE))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def gpt() -> Iterator[Callable[[ModelServer], openai.OpenAI]]:
    clients: list[openai.OpenAI] = []

    def connect(server: ModelServer) -> openai.OpenAI:
        clients.append(openai.OpenAI(base_url=server.openai_url, api_key=KEY, max_retries=0, timeout=PATIENCE))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()
