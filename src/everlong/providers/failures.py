"""Failures of model APIs, classified in one place for all providers.

Reads exceptions of the official clients by status, body and headers, so no client has to be imported. The class of an
error in `everlong.errors` says whether to retry, to fall back or to compact.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Mapping, Set
from typing import Any
from urllib.parse import SplitResult, urlsplit

from everlong.errors import (
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

__all__ = ["classify", "classify_answer", "overflow_numbers", "retry_after_of"]

_NUMBER = r"(?P<{0}>\d[\d,_]*)"
_PROMPT, _LIMIT = _NUMBER.format("prompt"), _NUMBER.format("limit")
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # Anthropic
        rf"prompt is too long: {_PROMPT} tokens > {_LIMIT}",
        rf"exceed context limit: (?P<input>\d+) \+ (?P<output>\d+) > {_LIMIT}",
        # OpenAI, vLLM, DeepSeek, OpenRouter
        rf"maximum context length is {_LIMIT} tokens.*?resulted in {_PROMPT} tokens",
        rf"maximum context length is {_LIMIT} tokens.*?requested (?:about )?{_PROMPT} tokens",
        rf"maximum context length is {_LIMIT} tokens.*?has {_PROMPT} input tokens",
        # llama.cpp
        rf"request \({_PROMPT} tokens\) exceeds the available context size \({_LIMIT} tokens\)",
        rf"exceeds the available context size \({_LIMIT} tokens\)",
        # Gemini, xAI, Mistral
        rf"input token count \(?{_PROMPT}\)? exceeds the maximum number of tokens allowed \(?{_LIMIT}",
        rf"maximum prompt length is {_LIMIT} but the request contains {_PROMPT} tokens",
        rf"prompt contains {_PROMPT} tokens.*?{_LIMIT} maximum context length",
    )
)
_KINDS = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_context"})
_WORDS = re.compile(
    r"context[ _-](length|window|size|limit)|maximum context|too many (input )?tokens|prompt is too long"
    r"|input is too long|exceeds? the (model'?s )?maximum (number of )?(input )?tokens",
    re.IGNORECASE,
)
_OUTPUT_LIMIT = re.compile(r"maximum allowed number of output tokens|max(imum)?_?\w* ?output tokens", re.IGNORECASE)
_WITHOUT_VERSION = frozenset({"/chat/completions", "/responses", "/embeddings"})
"""The paths of requests to an address without a version, which hardly any server knows."""
_LONE_NUMBER = re.compile(r"(?<![\w.-])\d[\d,_]*(?![\w-]|\.\d)")
"""A number that is no part of an id, a version or a date."""
_SMALLEST_WINDOW = 1_000
"""A smaller number in words that no pattern knows is something else, such as the status in "Error code: 400"."""


def overflow_numbers(message: str, body: Mapping[str, Any], kinds: Set[str]) -> tuple[int | None, int | None] | None:
    """Return the tokens of the prompt and the limit, each None if unknown; None if this is no overflow."""
    told = body.get("n_prompt_tokens"), body.get("n_ctx")
    if all(isinstance(number, int) for number in told):
        return told
    for pattern in _PATTERNS:
        found = pattern.search(message)
        if found:
            return _numbers(found.groupdict())
    if _OUTPUT_LIMIT.search(message):  # "max_tokens: 100000 > 64000": the requested answer is too long, not the prompt
        return None
    if not (kinds & _KINDS or _WORDS.search(message)):
        return None
    named = (int(re.sub(r"[,_]", "", text)) for text in _LONE_NUMBER.findall(message))
    numbers = sorted(number for number in named if number >= _SMALLEST_WINDOW)
    if len(numbers) >= 2:
        return numbers[-1], numbers[-2]
    return None, numbers[0] if numbers else None


def _numbers(groups: Mapping[str, str | None]) -> tuple[int | None, int | None]:
    def number(name: str) -> int | None:
        text = groups.get(name)
        return None if text is None else int(re.sub(r"[,_]", "", text))

    parts = number("input"), number("output")
    if parts[0] is not None and parts[1] is not None:
        return parts[0] + parts[1], number("limit")
    return number("prompt"), number("limit")


_NETWORK_NAMES = frozenset({"APIConnectionError", "TransportError", "StreamError", "ConnectionError", "TimeoutError"})
_QUOTA = re.compile(r"insufficient_quota|credit balance|billing|your current quota|payment required", re.IGNORECASE)
_TOO_LARGE_FOR_LIMIT = re.compile(r"request too large|tokens per min.*requested \d+", re.IGNORECASE)
_OVERLOADED_TYPES = frozenset({"overloaded_error", "api_error", "server_error", "timeout_error"})


def classify(error: BaseException, provider: str = "", model: str = "") -> ProviderError:
    """Return the error of this package that a client's exception stands for."""
    if isinstance(error, ProviderError):
        return error
    status = getattr(error, "status_code", None)
    body = _body_of(error)
    if status is None and not body:
        return _without_answer(error, provider, model)
    return _from_answer(_message_of(body, error), _kinds_of(body), body, status, error, provider, model)


def classify_answer(status: int, data: bytes, provider: str = "", model: str = "") -> ProviderError:
    """Return the error that an HTTP answer stands for, without a client."""
    error = _Answer(status, data.decode("utf-8", "replace"))
    body = _body_of(error)
    return _from_answer(_message_of(body, error), _kinds_of(body), body, status, error, provider, model)


class _Answer(Exception):  # noqa: N818 - has the attributes of a client's exception
    def __init__(self, status: int, body: str) -> None:
        super().__init__(body[:600])
        self.status_code = status
        self.body = body


def _without_answer(error: BaseException, provider: str, model: str) -> ProviderError:
    names = {base.__name__ for base in type(error).__mro__}
    cause = error.__cause__ or error.__context__
    reason = str(error) or type(error).__name__
    if cause is not None and str(cause) and str(cause) not in reason:
        reason = f"{reason} ({cause})"
    if names & _NETWORK_NAMES:
        place = _url_of(error)
        where = f" {place.scheme}://{place.netloc}" if place is not None and "@" not in place.netloc else ""
        return NetworkFailure(
            f"{_name(provider, model)} could not be reached or broke off: {reason}; check the connection and the "
            f"address{where}, and whether a server of your own is running, then try again",
            provider=provider,
            model=model,
        )
    return MalformedReply(
        f"{_name(provider, model)} sent an answer that cannot be read: {reason}", provider=provider, model=model
    )


def _from_answer(
    message: str,
    kinds: frozenset[str],
    body: Mapping[str, Any],
    status: int | None,
    error: BaseException,
    provider: str,
    model: str,
) -> ProviderError:
    name = _name(provider, model)
    wait = retry_after_of(error)
    numbers = overflow_numbers(message, body, kinds)
    if numbers is not None and status not in {401, 403, 429}:
        return ContextOverflow(
            f"{name}: the prompt does not fit the window: {message}",
            provider=provider,
            model=model,
            status=status,
            prompt_tokens=numbers[0],
            limit=numbers[1],
        )
    found: type[ProviderError]
    advice = ""
    if status == 413 or "request_too_large" in kinds or _TOO_LARGE_FOR_LIMIT.search(message):
        found, advice = RequestTooLarge, "; send less at once"
    elif status == 402 or kinds & {"insufficient_quota", "billing_error"} or _QUOTA.search(message):
        found, advice = QuotaExhausted, "; add credit, or choose another provider"
    elif status in {401, 403} or kinds & {"authentication_error", "permission_error", "invalid_api_key"}:
        found, advice = AuthenticationFailed, f"; {_key_advice(provider)}"
    elif status == 429 or kinds & {"rate_limit_error", "rate_limit_exceeded"}:
        found = RateLimited
    elif (status or 0) >= 500 or status in {408, 409} or kinds & _OVERLOADED_TYPES:
        found = Overloaded
    else:
        found = RequestRefused
        place = _url_of(error)
        if status == 404 and place is not None and place.path in _WITHOUT_VERSION:
            advice = f"; the address is {place.scheme}://{place.netloc}, and most servers want /v1 behind it"
    said = message or f"HTTP status {status}"
    return found(f"{name}: {said}{advice}", provider=provider, model=model, status=status, retry_after=wait)


def _url_of(error: BaseException) -> SplitResult | None:
    """Return the address that a client has asked; None if its exception does not tell."""
    try:
        return urlsplit(str(getattr(error, "request").url))  # noqa: B009 - clients raise here if there is none
    except (AttributeError, RuntimeError, ValueError):
        return None


def _key_advice(provider: str) -> str:
    """Return how to give a provider another key; a server that is known by its address alone has none."""
    if provider == "custom":
        return (
            "give the server a name, then a key: everlong config set providers.NAME.base_url URL, "
            "everlong config set providers.NAME.key_variable VARIABLE, and use the model NAME:MODEL"
        )
    return "check the key; `everlong doctor` shows the variable that it comes from"


def _name(provider: str, model: str) -> str:
    return ":".join(filter(None, (provider, model))) or "the provider"


def _body_of(error: BaseException) -> dict[str, Any]:
    """Return the ``error`` object of the answer; clients pass on the whole body or only this part."""
    body = getattr(error, "body", None)
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return {"message": body[:500]} if body else {}
    if not isinstance(body, dict):
        return {}
    inner = body.get("error")
    return inner if isinstance(inner, dict) else {"message": inner} if isinstance(inner, str) else body


def _message_of(body: Mapping[str, Any], error: BaseException) -> str:
    message = body.get("message")
    text = message if isinstance(message, str) and message else str(error)
    return text if len(text) <= 600 else f"{text[:600]}…"


def _kinds_of(body: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(str(body[name]) for name in ("type", "code") if body.get(name) is not None)


def retry_after_of(error: BaseException, now: float | None = None) -> float | None:
    """Return the seconds that an API asks to wait; None without a valid time."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is None and text:
        moment = email.utils.parsedate_tz(text)
        if moment is not None:
            seconds = email.utils.mktime_tz(moment) - (time.time() if now is None else now)
    return None if seconds is None else max(0.0, seconds)


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if 0 <= value < float("inf") else None
