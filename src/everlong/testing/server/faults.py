"""Faults made on purpose: the kinds, when they come, and each API's words for them.

A fault takes the place of an answer, or damages it on its way. It depends only on the number of the request, so that a
run can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from everlong.testing.server.exchange import Api, Refusal

__all__ = ["Fault", "FaultKind", "FaultPlan", "fault_refusal"]

FaultKind = Literal[
    "bad_request",
    "unauthorized",
    "quota",
    "too_large",
    "rate_limit",
    "server_error",
    "overloaded",
    "overflow",
    "stream_error",
    "cut",
    "garbage",
    "slow",
    "silent",
]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


@dataclass(frozen=True)
class Fault:
    """One fault.

    ``stream_error`` is an error after the stream began; ``cut`` ends the connection in the middle; ``garbage`` is an
    answer that is no JSON; ``slow`` waits ``seconds`` before every piece; ``silent`` says nothing for ``seconds`` and
    hangs up.
    """

    kind: FaultKind
    retry_after: float | None = None
    """Seconds of the ``retry-after`` header of ``rate_limit`` and ``overloaded``."""
    seconds: float = 0.05

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a fault is one of {', '.join(KINDS)}; got {self.kind!r}")


FaultPlan: TypeAlias = Mapping[int, Fault] | Callable[[int], Fault | None]
"""The fault of each request, by the request's number from 0."""


def fault_refusal(fault: Fault, api: Api) -> Refusal | None:
    """Return a fault's refusal in the words of an API; None if the fault damages the answer instead."""
    found = _WORDING.get((fault.kind, "openai" if api == "responses" else api))
    if found is None:
        return None
    status, kind, code, message = found
    headers = {}
    if fault.retry_after is not None:
        if fault.retry_after == int(fault.retry_after):
            headers["retry-after"] = str(int(fault.retry_after))
        else:
            headers["retry-after-ms"] = str(round(fault.retry_after * 1000))
    return Refusal(message, status=status, kind=kind, code=code, headers=headers)


_WORDING: dict[tuple[FaultKind, Api], tuple[int, str, str | None, str]] = {
    ("bad_request", "anthropic"): (400, "invalid_request_error", None, "messages: Input should be a valid list"),
    ("bad_request", "openai"): (400, "invalid_request_error", "invalid_value", "Invalid value: 'messages'."),
    ("unauthorized", "anthropic"): (401, "authentication_error", None, "invalid x-api-key"),
    ("unauthorized", "openai"): (
        401,
        "invalid_request_error",
        "invalid_api_key",
        "Incorrect API key provided: sk-no***************here. You can find your API key in your account settings.",
    ),
    ("quota", "anthropic"): (
        400,
        "invalid_request_error",
        None,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
        "purchase credits.",
    ),
    ("quota", "openai"): (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    ("too_large", "anthropic"): (413, "request_too_large", None, "Request exceeds the maximum size"),
    ("too_large", "openai"): (413, "invalid_request_error", None, "Request Entity Too Large"),
    ("rate_limit", "anthropic"): (
        429,
        "rate_limit_error",
        None,
        "This request would exceed your organization's rate limit of 50 requests per minute.",
    ),
    ("rate_limit", "openai"): (
        429,
        "requests",
        "rate_limit_exceeded",
        "Rate limit reached for requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.",
    ),
    ("server_error", "anthropic"): (500, "api_error", None, "Internal server error"),
    ("server_error", "openai"): (
        500,
        "server_error",
        None,
        "The server had an error while processing your request. Sorry about that!",
    ),
    ("overloaded", "anthropic"): (529, "overloaded_error", None, "Overloaded"),
    ("overloaded", "openai"): (
        503,
        "server_error",
        None,
        "The engine is currently overloaded, please try again later",
    ),
}
