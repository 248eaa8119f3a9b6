"""The window: token counts, and each provider's words for a prompt that does not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from everlong.testing.server.exchange import Api, Refusal

__all__ = ["DIALECTS", "Dialect", "check_window", "count_prompt", "overflow"]

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
