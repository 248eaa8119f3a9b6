"""Every way to fail is told apart, on both formats, whole and streamed, and says what to do next."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import (
    AuthenticationFailed,
    ContextOverflow,
    MalformedReply,
    NetworkFailure,
    Overloaded,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
    RequestTooLarge,
)
from everlong.providers import Retrying, RetryPolicy, TextDelta
from everlong.providers.failures import classify, retry_after_of
from everlong.providers.openai_api import openai_body
from everlong.testing import Fault
from tests.api_rules.faults import ManualClock
from tests.providers.conftest import APIS, Connect, asked
from tests.testing_server.conftest import Serve

HELLO = {"role": "user", "content": "Hello"}
both_apis = pytest.mark.parametrize("api", APIS)
both_ways = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@both_apis
@both_ways
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("bad_request", RequestRefused),
        ("unauthorized", AuthenticationFailed),
        ("quota", QuotaExhausted),
        ("too_large", RequestTooLarge),
        ("rate_limit", RateLimited),
        ("server_error", Overloaded),
        ("overloaded", Overloaded),
        ("overflow", ContextOverflow),
        ("stream_error", Overloaded),
        ("cut", NetworkFailure),
        ("garbage", MalformedReply),
        ("silent", NetworkFailure),
    ],
)
def test_a_fault_is_told_for_what_it_is(
    serve: Serve, connected: Connect, api: str, streamed: bool, kind: Any, error: type[ProviderError]
) -> None:
    server = serve("A long answer. " * 30, faults={0: Fault(kind, retry_after=3)})
    provider = connected(api, server)
    with pytest.raises(ProviderError) as raised:
        asked(provider, [HELLO], streamed=streamed)
    assert type(raised.value) is error
    assert (raised.value.provider, raised.value.model) == (api, provider.model)
    assert f"{api}:{provider.model}" in str(raised.value)
    if kind in {"rate_limit", "overloaded"}:
        assert raised.value.retry_after == 3
    if isinstance(raised.value, ContextOverflow):
        assert (raised.value.prompt_tokens, raised.value.limit) == (200_001, 200_000)
    assert asked(provider, [HELLO], streamed=streamed).text.startswith("A long answer.")


@pytest.mark.parametrize(
    ("dialect", "limit"), [("openai", 100), ("openrouter", 100), ("vllm", 100), ("llama.cpp", 100)]
)
@both_ways
def test_an_overflow_is_one_in_every_makers_words_with_its_numbers(
    serve: Serve, connected: Connect, dialect: Any, limit: int, streamed: bool
) -> None:
    provider = connected("openai", serve("ok", window=100, dialect=dialect), "local", name="workshop")
    with pytest.raises(ContextOverflow) as raised:
        asked(provider, [{"role": "user", "content": "word " * 200}], streamed=streamed)
    assert (raised.value.prompt_tokens, raised.value.limit) == (204, limit)


class AnsweredError(Exception):
    """An exception as a client raises it."""

    def __init__(self, status: int | None, body: Any, headers: dict[str, str] | None = None) -> None:
        super().__init__("said")
        self.status_code = status
        self.body = body
        self.response = type("Response", (), {"headers": headers or {}})()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (402, {"error": {"message": "Payment Required"}}, QuotaExhausted),
        (403, {"error": {"type": "permission_error", "message": "not yours"}}, AuthenticationFailed),
        (404, {"error": {"message": "model: nonsense"}}, RequestRefused),
        (408, {"error": {"message": "timeout"}}, Overloaded),
        (502, "<html>Bad Gateway</html>", Overloaded),
        (200, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Overloaded),
        (
            429,
            {"message": "Request too large for gpt-4o: tokens per min (TPM): Limit 30000, Requested 40000"},
            RequestTooLarge,
        ),
        (400, {"error": "context length exceeded"}, ContextOverflow),
        (429, {"error": {"message": "context window of tokens per minute reached"}}, RateLimited),
        (400, None, RequestRefused),
    ],
)
def test_what_an_answer_carries_decides(status: int, body: Any, error: type[ProviderError]) -> None:
    assert type(classify(AnsweredError(status, body), "p", "m")) is error


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(AnsweredError(429, None, headers), now=40.0) == seconds


def test_no_error_carries_a_key(serve: Serve, connected: Connect) -> None:
    server = serve(api_key="another")
    for api in APIS:
        with pytest.raises(AuthenticationFailed) as raised:
            connected(api, server).complete([HELLO])
        assert "key-of-nobody" not in str(raised.value)
        assert "check the key" in str(raised.value)


@both_apis
def test_a_server_that_is_not_there_is_a_network_failure(serve: Serve, connected: Connect, api: str) -> None:
    server = serve()
    provider = connected(api, server)
    server.__exit__(None, None, None)
    with pytest.raises(NetworkFailure, match="check the connection"):
        provider.complete([HELLO])
    server.__enter__()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-5", "max_completion_tokens"),
        ("o3", "max_completion_tokens"),
        ("gpt-4o", "max_tokens"),
        ("gpt-oss-120b", "max_tokens"),
        ("o2000-chat", "max_tokens"),
    ],
)
def test_models_that_refuse_max_tokens_get_its_other_name_whoever_serves_them(model: str, name: str) -> None:
    body = openai_body([HELLO], model, max_tokens=9, strict=False)
    assert body.keys() - {"model", "messages"} == {name}


def test_after_the_last_attempt_the_error_is_raised(serve: Serve, connected: Connect) -> None:
    server, clock = serve("ok", faults=lambda _: Fault("overloaded")), ManualClock()
    provider = Retrying(connected("openai", server), RetryPolicy(attempts=3), sleep=clock.sleep)
    with pytest.raises(Overloaded):
        provider.complete([HELLO])
    assert len(clock.slept) == 2
    assert len(server.requests) == 3


def test_a_stream_that_has_begun_is_not_tried_again(serve: Serve, connected: Connect) -> None:
    server, clock = serve("A long answer. " * 40), ManualClock()
    server.fail_next(Fault("cut"))
    events = Retrying(connected("anthropic", server), sleep=clock.sleep).stream([HELLO])
    seen: list[Any] = []
    with pytest.raises(NetworkFailure):
        seen.extend(events)
    assert all(isinstance(event, TextDelta) for event in seen)
    assert (clock.slept, len(server.requests)) == ([], 1)
