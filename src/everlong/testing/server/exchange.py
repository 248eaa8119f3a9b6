"""One exchange with the server: the record of the request, its size and its bill, and what refuses or damages it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

Api = Literal["openai", "anthropic", "responses"]
"""The API whose rules a request must keep: chat completions, messages, responses."""


def seal(kind: str, text: str) -> str:
    """Return a text as the encrypted content of an answer."""
    return f"{kind}.{base64.urlsafe_b64encode(text.encode()).decode()}"


def unseal(kind: str, content: Any) -> str | None:
    """Return the text of encrypted content; None if it is none of this kind."""
    found, _, inner = content.partition(".") if isinstance(content, str) else ("", "", "")
    try:
        return base64.urlsafe_b64decode(inner.encode()).decode() if found == kind else None
    except ValueError:
        return None


@dataclass(slots=True)
class Record:
    """One request, and its result."""

    number: int
    """The number of this request for a completion, from 0."""
    api: Api
    path: str
    headers: dict[str, str]
    """The headers, with names in lower case."""
    body: dict[str, Any]
    status: int = 0
    """The HTTP status that was sent; 0 if the connection was dropped before."""
    error: str | None = None
    """The words of the refusal or the fault."""
    fault: str | None = None
    """The kind of the fault that was made on purpose."""
    prompt_tokens: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    """The usage that was reported, in the shape of the API."""

    @property
    def rejected(self) -> bool:
        """True if the server itself refused the request."""
        return self.error is not None and self.fault is None


@dataclass(frozen=True, slots=True)
class CacheCharge:
    """The billing of a prompt's tokens; those neither read nor written are plain input."""

    total: int
    read: int = 0
    write_5m: int = 0
    write_1h: int = 0

    @property
    def written(self) -> int:
        """All tokens that were written to the cache."""
        return self.write_5m + self.write_1h

    @property
    def plain(self) -> int:
        """Tokens at the plain price."""
        return self.total - self.read - self.written


class Refusal(Exception):  # noqa: N818 - not an error of the server but an answer to the client
    """An HTTP error: its status, the API's name for its kind, the words, and further fields."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | int | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})


# -- faults ------------------------------------------------------------------------------------------------------------


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
    """A fault made on purpose: it takes the place of an answer, or damages it on its way.

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


# -- the window --------------------------------------------------------------------------------------------------------


Dialect = Literal["openai", "openrouter", "vllm", "llama.cpp"]
"""The server that the OpenAI-format endpoint imitates, in its words and its strictness about unknown fields."""
DIALECTS: tuple[Dialect, ...] = ("openai", "openrouter", "vllm", "llama.cpp")


def check_window(api: Api, dialect: Dialect, prompt: int, answer: int | None, window: int) -> None:
    """Refuse a prompt that does not fit; ``answer`` is the client's limit for the reply, if it set one."""
    if prompt > window or prompt + (answer or 0) > window:
        raise overflow(api, dialect, prompt, answer, window)


def overflow(api: Api, dialect: Dialect, prompt: int, answer: int | None, window: int) -> Refusal:
    """Return the refusal of a prompt that is too long, as this provider words it."""
    if api == "anthropic":
        if prompt > window or not answer:
            return Refusal(f"prompt is too long: {prompt} tokens > {window} maximum")
        return Refusal(
            f"input length and `max_tokens` exceed context limit: {prompt} + {answer} > {window}, "
            "decrease input length or `max_tokens` and try again"
        )
    if api == "responses" and dialect == "openai":
        return Refusal(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            param="input",
            code="context_length_exceeded",
        )
    if dialect == "llama.cpp":
        return Refusal(
            f"request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it",
            kind="exceed_context_size_error",
            code=400,
            extra={"n_prompt_tokens": prompt, "n_ctx": window},
        )
    if dialect == "openrouter":
        return Refusal(
            f"This endpoint's maximum context length is {window} tokens. However, you requested about "
            f"{prompt + (answer or 0)} tokens ({prompt} of text input, {answer or 0} in the output). Please reduce the "
            'length of either one, or use the "middle-out" transform to compress your prompt automatically.',
            code=400,
            extra={"metadata": {"provider_name": None}},
        )
    if dialect == "vllm":
        return Refusal(
            f"This model's maximum context length is {window} tokens. However, your request has {prompt} input tokens. "
            "Please reduce the length of the input messages.",
            kind="BadRequestError",
            code=400,
        )
    needed = (
        f"your messages resulted in {prompt} tokens. Please reduce the length of the messages."
        if not answer or prompt > window
        else f"you requested {prompt + answer} tokens ({prompt} in the messages, {answer} in the completion). Please "
        "reduce the length of the messages or completion."
    )
    return Refusal(
        f"This model's maximum context length is {window} tokens. However, {needed}",
        param="messages",
        code="context_length_exceeded",
    )


_TOKEN = re.compile(r"[A-Za-z0-9_]{1,4}|[^\sA-Za-z0-9_]")
IMAGE_TOKENS = 1_200
MESSAGE_TOKENS, TOOL_TOKENS = 4, 8
"""The tokens of every message and of every tool besides its words."""
_FRAME = frozenset({"type", "role", "cache_control", "signature", "media_type"})
_PICTURES = frozenset({"image", "image_url", "input_image", "document"})


@lru_cache(maxsize=65_536)
def count_text(text: str) -> int:
    """Return the tokens of a text."""
    return sum(1 for _ in _TOKEN.finditer(text))


def count_value(value: Any) -> int:
    """Return the tokens of all words in a JSON value; a picture costs a fixed number, frames nothing."""
    if isinstance(value, str):
        return count_text(value)
    if isinstance(value, Mapping):
        if str(value.get("type")) in _PICTURES:  # a property of a schema may have this name, and any value
            return IMAGE_TOKENS
        return sum(_count_entry(name, item) for name, item in value.items() if name not in _FRAME)
    if isinstance(value, list | tuple):
        return sum(count_value(item) for item in value)
    return 1 if isinstance(value, int | float) and not isinstance(value, bool) else 0


def count_prompt(body: Mapping[str, Any]) -> int:
    """Return the tokens of a request: its tools, its system prompt, and each message with its frame."""
    messages = body.get("messages") or body.get("input") or []
    listed = [{"content": messages}] if isinstance(messages, str) else messages
    tools = sum(TOOL_TOKENS + count_value(tool) for tool in body.get("tools") or [])
    prompt = count_value(body.get("system")) + count_value(body.get("instructions"))
    return tools + prompt + sum(MESSAGE_TOKENS + count_value(message) for message in listed)


def _count_entry(name: str, value: Any) -> int:
    # In the schema of a tool and the input of a call the names are words that the model reads.
    known = {"text", "content", "thinking", "data", "id", "tool_use_id", "tool_call_id", "input", "arguments"}
    known |= {"call_id", "output", "summary", "encrypted_content"}
    return count_value(value) + (0 if name in known else count_text(name))
