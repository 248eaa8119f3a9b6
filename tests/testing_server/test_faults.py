"""Faults on demand: each looks to the official clients as the real thing would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from everlong.testing import Fault, ModelServer, random_faults
from tests.testing_server.conftest import Serve, post

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


def test_a_rate_limit_says_when_to_come_back(serve: Serve) -> None:
    server = serve()
    server.fail_next(Fault("rate_limit", retry_after=7), Fault("overloaded", retry_after=0.25))
    body = {"model": "claude-opus-5", "max_tokens": 9, "messages": HELLO}
    assert post(server, "/v1/messages", body).headers["retry-after"] == "7"
    assert post(server, "/v1/messages", body).headers["retry-after-ms"] == "250"
    assert post(server, "/v1/messages", body).status == 200


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


@pytest.mark.parametrize("kind", ["cut", "silent"])
def test_a_cut_or_silent_answer_is_a_lost_connection(serve: Serve, gpt: Gpt, kind: Any) -> None:
    with pytest.raises(openai.APIConnectionError):
        gpt(serve(faults={0: Fault(kind)})).chat.completions.create(model="gpt-5", messages=HELLO)


def test_a_slow_answer_arrives_all_the_same(serve: Serve, claude: Claude) -> None:
    server = serve("Good day.", faults={0: Fault("slow", seconds=0.001)})
    events = list(claude(server).messages.create(model="claude-x", max_tokens=9, messages=HELLO, stream=True))
    assert events[-1].type == "message_stop"


def test_random_faults_repeat_for_a_seed_and_come_as_often_as_asked() -> None:
    plan, again, other = random_faults(7, 0.1), random_faults(7, 0.1), random_faults(8, 0.1)
    assert callable(plan)
    assert callable(again)
    assert callable(other)
    found = [plan(number) for number in range(2_000)]
    assert found == [again(number) for number in range(2_000)]
    assert found != [other(number) for number in range(2_000)]
    assert 150 < sum(fault is not None for fault in found) < 250


def test_an_unknown_fault_or_dialect_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="a fault is one of bad_request"):
        Fault("sleepy")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dialect is one of openai"):
        ModelServer(dialect="klingon")  # type: ignore[arg-type]
