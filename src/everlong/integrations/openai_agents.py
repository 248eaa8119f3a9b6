"""The OpenAI Agents SDK: a filter that keeps an agent's requests inside the window.

A run's items are those of the Responses API; kept messages are sent as the same items. Needs
``everlong[openai-agents]``.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from agents import FunctionTool
from agents.run import CallModelData, ModelInputData

from everlong.integrations.client_formats import items_of, pairs_of
from everlong.integrations.history import (
    Fitted,
    HistoryKeeper,
    MakeEngine,
    OfferedTools,
    Originals,
    OverflowRescue,
    begin_stream,
    send_fitting_async,
)
from everlong.model import Message, text_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.agent.tools.hidden_tools import HiddenTool
    from everlong.store import Store

__all__ = ["EverlongFilter"]

Model = TypeVar("Model")


class EverlongFilter:
    """A filter for ``RunConfig(call_model_input_filter=…)``; use the same one for every run of a conversation.

    Give agents `tools`, and the model of `guard`, to get the rest of what Everlong does.

    Args:
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given; without one nothing is written anywhere.
        conversation: names the conversation of a call; without it, conversations are recognized by their words.
        recall: have `tools` return those that look things up in the store.
    """

    def __init__(
        self,
        make_engine: MakeEngine,
        *,
        store: Store | None = None,
        conversation: Callable[[CallModelData[Any]], str] = lambda _: "",
        recall: bool = False,
    ) -> None:
        self._keeper = HistoryKeeper(make_engine, store=store, platform="openai-agents")
        self._offered = OfferedTools(store, recall=recall)
        self._tools = self._offered.of(make_engine())
        self._conversation = conversation
        self._counter = MessageCounter()

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the items to send in place of the run's items; compacting, which may ask a model, runs in a thread."""
        sent, fitted = await asyncio.to_thread(self._fit, data, OverflowRescue())
        _CURRENT.set(_Call(self, data, fitted))
        return sent

    def tools(self) -> list[FunctionTool]:
        """Return the tools of the engine, or of recall, for the agents of this filter's runs."""
        return [self._tool(tool) for tool in self._tools]

    def guard(self, model: Model) -> Model:
        """Return a copy of a model that compacts a request which is refused as too long, and sends it again."""
        kind: Any = type(model)
        guarded: Any = copy.copy(model)
        guarded.__class__ = _guarded_class(kind)
        guarded.everlong_filter = self
        return guarded  # type: ignore[no-any-return]

    def fit_again(self, given: ModelInputData, rescue: OverflowRescue) -> ModelInputData:
        """Return a request as the filter made it, or a shorter one after a refusal; blocks."""
        call = self._current()
        if call is None or rescue.window is None:
            return given
        sent, call.fitted = self._fit(call.data, rescue)
        return sent

    def take_usage(self, usage: Any) -> None:
        """Report the provider's counts."""
        call = self._current()
        if call is not None and usage is not None:
            call.fitted.report(usage.input_tokens, usage.output_tokens)

    def _current(self) -> _Call | None:
        call = _CURRENT.get()
        return call if call is not None and call.owner is self else None

    def _fit(self, data: CallModelData[Any], rescue: OverflowRescue) -> tuple[ModelInputData, Fitted]:
        pairs = pairs_of([dict(item) for item in data.model_data.input])
        prompt = data.model_data.instructions
        own: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
        fitted = self._keeper.fit(
            [*own, *(message for message, _ in pairs)],
            conversation=self._conversation(data),
            overhead=self._counter.count_tools([_schema(tool) for tool in data.agent.tools]),
            rescue=rescue,
        )
        originals, messages = Originals(pairs), fitted.messages
        if own and messages[0]["role"] == "system":
            prompt, messages = text_of(messages[0]), messages[1:]
        items: list[Any] = [item for message in messages for item in items_of(message, originals)]
        return ModelInputData(input=items, instructions=prompt), fitted

    def _tool(self, tool: HiddenTool) -> FunctionTool:
        async def invoke(_: Any, text: str) -> str:
            call = self._current()
            try:
                arguments = dict(json.loads(text or "{}"))
            except (TypeError, ValueError):
                return "[the arguments are not a JSON object]"
            fitted = None if call is None else call.fitted
            return await asyncio.to_thread(self._offered.call, fitted, tool.name, arguments)

        return FunctionTool(tool.name, tool.about, dict(tool.takes), invoke, strict_json_schema=False)


@dataclass
class _Call:
    """A call of the model, and the filter that fitted its request."""

    owner: EverlongFilter
    data: CallModelData[Any]
    fitted: Fitted


_CURRENT: ContextVar[_Call | None] = ContextVar("everlong_call", default=None)
"""The newest call of this run: the model and the tools of a turn run in its task, or in tasks that it starts."""


@lru_cache(maxsize=64)
def _guarded_class(kind: Any) -> Any:
    """Return the subclass of a model's class that survives refusals."""
    own = {"get_response": _make_get_response(kind), "stream_response": _make_stream_response(kind)}
    return type(kind.__name__, (kind,), {**own, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _make_get_response(kind: Any) -> Any:
    async def get_response(self: Any, system_instructions: Any, input: Any, *args: Any, **options: Any) -> Any:  # noqa: A002 - the framework's name
        def ask(sent: ModelInputData) -> Any:
            return kind.get_response(self, sent.instructions, sent.input, *args, **options)

        keep = self.everlong_filter
        given = ModelInputData(input=input, instructions=system_instructions)
        answer, _ = await send_fitting_async(partial(keep.fit_again, given), ask)
        keep.take_usage(answer.usage)
        return answer

    return get_response


def _make_stream_response(kind: Any) -> Any:
    async def stream_response(
        self: Any,
        system_instructions: Any,
        input: Any,  # noqa: A002 - as above
        *args: Any,
        **options: Any,
    ) -> AsyncIterator[Any]:
        def ask(sent: ModelInputData) -> Any:
            return begin_stream(kind.stream_response(self, sent.instructions, sent.input, *args, **options))

        keep = self.everlong_filter
        given = ModelInputData(input=input, instructions=system_instructions)
        events, _ = await send_fitting_async(partial(keep.fit_again, given), ask)
        async for event in events:
            if event.type == "response.completed":
                keep.take_usage(event.response.usage)
            yield event

    return stream_response


def _schema(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, FunctionTool):
        return {"type": str(getattr(tool, "name", tool))}
    return {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
