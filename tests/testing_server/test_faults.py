"""Faults on demand: each looks to the official clients as the real thing would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from everlong.testing import Fault, ModelServer
from tests.testing_server.conftest import Serve

HELLO: Any = [{"role": "user", "content": "Hello"}]
Claude = Callable[[ModelServer], anthropic.Anthropic]
Gpt = Callable[[ModelServer], openai.OpenAI]


@pytest.mark.parametrize(
    ("kind", "error", "status"),
    [
        ("bad_request", anthropic.BadRequestError, 400),
        ("unauthorized", anthropic.AuthenticationError, 401),
        ("quota", anthropic.BadRequestError, 400),
        ("too_large", anthropic.APIStatusError, 413),
        ("rate_limit", anthropic.RateLimitError, 429),
        ("server_error", anthropic.InternalServerError, 500),
        ("overloaded", anthropic.InternalServerError, 529),
        ("overflow", anthropic.BadRequestError, 400),
        ("stream_error", anthropic.InternalServerError, 529),
    ],
)
def test_claude_faults(
    serve: Serve, claude: Claude, kind: Any, error: type[anthropic.APIStatusError], status: int
) -> None:
    server = serve(faults={0: Fault(kind)})
    client = claude(server)
    with pytest.raises(error) as raised:
        client.messages.create(model="claude-opus-5", max_tokens=9, messages=HELLO)
    assert raised.value.status_code == status
    assert (server.requests[0].fault, server.requests[0].rejected) == (kind, False)
    assert client.messages.create(model="claude-opus-5", max_tokens=9, messages=HELLO).stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("kind", "error", "status"),
    [
        ("bad_request", openai.BadRequestError, 400),
        ("unauthorized", openai.AuthenticationError, 401),
        ("quota", openai.RateLimitError, 429),
        ("too_large", openai.APIStatusError, 413),
        ("rate_limit", openai.RateLimitError, 429),
        ("server_error", openai.InternalServerError, 500),
        ("overloaded", openai.InternalServerError, 503),
        ("overflow", openai.BadRequestError, 400),
    ],
)
def test_gpt_faults(serve: Serve, gpt: Gpt, kind: Any, error: type[openai.APIStatusError], status: int) -> None:
    with pytest.raises(error) as raised:
        gpt(serve(faults={0: Fault(kind)})).chat.completions.create(model="gpt-5", messages=HELLO)
    assert raised.value.status_code == status


@pytest.mark.parametrize("kind", ["cut", "garbage", "stream_error"])
@pytest.mark.parametrize("api", ["anthropic", "openai"])
def test_a_damaged_stream_raises_in_the_client(serve: Serve, claude: Claude, gpt: Gpt, kind: Any, api: str) -> None:
    server = serve("A long answer. " * 20, faults={0: Fault(kind)})
    stream: Any
    if api == "anthropic":
        stream = claude(server).messages.create(model="claude-x", max_tokens=999, messages=HELLO, stream=True)
    else:
        stream = gpt(server).chat.completions.create(model="gpt-5", messages=HELLO, stream=True)
    with pytest.raises((openai.OpenAIError, anthropic.AnthropicError, httpx2.TransportError, ValueError)):
        list(stream)
