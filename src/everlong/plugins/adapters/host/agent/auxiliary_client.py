"""Calls of a model on the side, by the names that engines know; answers have the shape of OpenAI's client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from everlong.plugins.adapters.host_state import current_host
from everlong.plugins.adapters.llm import (
    Wish,
    as_completion,
    ask_model,
    model_for,
    undisturbed as aux_interrupt_protection,
)

__all__ = [
    "async_call_llm",
    "aux_interrupt_protection",
    "call_llm",
    "extract_content_or_reasoning",
    "get_async_text_auxiliary_client",
    "get_text_auxiliary_client",
    "resolve_provider_client",
]


def call_llm(  # noqa: PLR0913 - the arguments that engines pass elsewhere
    task: str | None = None,
    *,
    messages: Sequence[dict[str, Any]] | None = None,
    prompt: str | None = None,
    provider: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    main_runtime: Any = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    tools: Sequence[dict[str, Any]] | None = None,
    timeout: float | None = None,
    extra_body: dict[str, Any] | None = None,
    **ignored: Any,
) -> SimpleNamespace:
    """Ask the user's auxiliary model, or the one that is named; return its answer."""
    del task, main_runtime, ignored  # there is one auxiliary model for all tasks
    said = list(messages) if messages is not None else [{"role": "user", "content": prompt or ""}]
    reply = ask_model(
        said,
        Wish(model or "", provider or "", base_url or "", api_key or "", timeout),
        max_tokens=max_tokens,
        temperature=temperature,
        tools=tools,
        options=extra_body,
    )
    return as_completion(reply)


async def async_call_llm(task: str | None = None, **call: Any) -> SimpleNamespace:
    """Ask a model asynchronously. See `call_llm`."""
    return await asyncio.to_thread(call_llm, task, **call)


def extract_content_or_reasoning(response: Any) -> str:
    """Return the text of an answer; its thinking where it has no text."""
    message = response.choices[0].message
    for name in ("content", "reasoning_content", "reasoning"):
        text = getattr(message, name, None)
        if isinstance(text, str) and text.strip():
            return text.strip()
    return ""


class _Client:
    """A client with ``client.chat.completions.create(…)``, as OpenAI's has it."""

    def __init__(self, **fixed: Any) -> None:
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))
        self._fixed = fixed

    def _create(self, **call: Any) -> SimpleNamespace:
        wishes = {name: value for name, value in self._fixed.items() if value}
        return call_llm(**{**wishes, **call})


class _AsyncClient(_Client):
    async def _acreate(self, **call: Any) -> SimpleNamespace:
        return await asyncio.to_thread(self._create, **call)

    def __init__(self, **fixed: Any) -> None:
        super().__init__(**fixed)
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._acreate))


def get_text_auxiliary_client(task: str = "", **ignored: Any) -> tuple[_Client, str]:
    """Return a client for the auxiliary model, and that model's name."""
    del task, ignored
    return _Client(), model_for(current_host(), Wish()).model


def get_async_text_auxiliary_client(task: str = "", **ignored: Any) -> tuple[_AsyncClient, str]:
    """Return an asynchronous client for the auxiliary model, and that model's name."""
    del task, ignored
    return _AsyncClient(), model_for(current_host(), Wish()).model


def resolve_provider_client(
    provider: str | None = None, model: str | None = None, async_mode: bool = False, **more: Any
) -> tuple[_Client, str]:
    """Return a client for a provider and a model, and the model's name."""
    where, key = more.get("explicit_base_url"), more.get("explicit_api_key")
    wishes = {"provider": provider, "model": model, "base_url": where, "api_key": key}
    made = (_AsyncClient if async_mode else _Client)(**wishes)
    return made, model or model_for(current_host(), Wish()).model
