"""The window: a prompt and its answer must fit, and each provider says so in its own words when they do not."""

from __future__ import annotations

from typing import Literal

from everlong.testing.server.record import Api
from everlong.testing.server.refusal import Refusal

__all__ = ["DIALECTS", "Dialect", "check_window", "overflow"]

Dialect = Literal["openai", "openrouter", "vllm", "llama.cpp"]
"""Whose words the OpenAI-format endpoint speaks, and how strict it is about fields it does not know."""
DIALECTS: tuple[Dialect, ...] = ("openai", "openrouter", "vllm", "llama.cpp")


def check_window(api: Api, dialect: Dialect, prompt: int, answer: int | None, window: int) -> None:
    """Refuse what does not fit; ``answer`` is the most that the client lets the model say, if it said so."""
    if prompt > window or prompt + (answer or 0) > window:
        raise overflow(api, dialect, prompt, answer, window)


def overflow(api: Api, dialect: Dialect, prompt: int, answer: int | None, window: int) -> Refusal:
    """The refusal of a prompt that is too long, as this provider words it."""
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
