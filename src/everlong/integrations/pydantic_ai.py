"""Pydantic AI: a capability that keeps an agent's requests inside the window.

The run's own history keeps every message; only the request is shortened. Kept messages are sent as the same objects.
Needs ``everlong[pydantic-ai]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_ai import RunContext  # noqa: TC002 - the framework reads annotations
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters  # noqa: TC002 - as above
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset

from everlong.integrations.history import (
    Fitted,
    HistoryKeeper,
    MakeEngine,
    Newest,
    OfferedTools,
    Originals,
    OverflowRescue,
    send_fitting_async,
)
from everlong.model import Message, calls_of, text_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["EverlongHistory"]


class _Piece(NamedTuple):
    """A part of a request, or a whole response, and the message that it belongs to."""

    owner: ModelMessage
    part: Any = None


class EverlongHistory(AbstractCapability[Any]):
    """A capability for ``Agent(capabilities=[…])``; the run's ``conversation_id`` names the conversation.

    Args:
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given; without one nothing is written anywhere.
        recall: offer the model tools that look things up in the store.
    """

    def __init__(self, make_engine: MakeEngine, *, store: Store | None = None, recall: bool = False) -> None:
        self._keeper = HistoryKeeper(make_engine, store=store, platform="pydantic-ai")
        self._offered = OfferedTools(store, recall=recall)
        self._tools = self._offered.of(make_engine())
        self._counter = MessageCounter()
        self._fitted: Newest[Fitted] = Newest()
        """By conversation, its last request."""

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """Return the tools of the engine, or those of recall."""
        if not self._tools:
            return None

        def call_of(name: str) -> Any:
            async def call(ctx: RunContext[Any], **arguments: Any) -> str:
                fitted = self._fitted.get(ctx.conversation_id or "")
                return await asyncio.to_thread(self._offered.call, fitted, name, arguments)

            return call

        made = [Tool.from_schema(call_of(t.name), t.name, t.about, dict(t.takes), takes_ctx=True) for t in self._tools]
        return FunctionToolset(made)

    def get_wrapper_model(self, model: Model) -> Model:
        """Return a model whose requests fit; a request that is refused as too long is compacted and sent again."""
        return _KeptModel(model, self)

    def fit(
        self, messages: list[ModelMessage], overhead: int, rescue: OverflowRescue, model: str
    ) -> tuple[list[ModelMessage], Fitted]:
        """Return the messages to send, and the engine that must hear of the response; blocks."""
        pairs = [pair for message in messages for pair in _pairs(message)]
        last = next((m for m in reversed(messages) if isinstance(m, ModelRequest)), None)
        prompt = (last.instructions if last is not None else None) or ""
        named = next((m.conversation_id for m in reversed(messages) if m.conversation_id), None) or ""
        fitted = self._keeper.fit(
            [message for message, _ in pairs],
            conversation=named,
            model=model,
            overhead=overhead + self._counter.count_text(prompt),
            rescue=rescue,
        )
        self._fitted.put(named, fitted)
        originals = Originals(pairs)
        pieces = [_piece(message, originals) for message in fitted.messages]
        return _join(pieces, last), fitted


class _KeptModel(WrapperModel):
    def __init__(self, wrapped: Model, history: EverlongHistory) -> None:
        super().__init__(wrapped)
        self._history = history
        self._counter = MessageCounter()

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> ModelResponse:
        async def send(sent: tuple[list[ModelMessage], Fitted]) -> ModelResponse:
            return await self.wrapped.request(sent[0], model_settings, model_request_parameters)

        response, (_, fitted) = await send_fitting_async(partial(self._fit, messages, model_request_parameters), send)
        _report(fitted, response)
        return response

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, *args: Any, **options: Any
    ) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:

            async def send(sent: tuple[list[ModelMessage], Fitted]) -> Any:
                return await stack.enter_async_context(
                    self.wrapped.request_stream(sent[0], model_settings, model_request_parameters, *args, **options)
                )

            stream, (_, fitted) = await send_fitting_async(partial(self._fit, messages, model_request_parameters), send)
            yield stream
            _report(fitted, stream)

    def _fit(
        self, messages: Any, parameters: ModelRequestParameters, rescue: OverflowRescue
    ) -> tuple[list[ModelMessage], Fitted]:
        tools = [*parameters.function_tools, *parameters.output_tools]
        schemas = [
            {"name": t.name, "description": t.description, "parameters": t.parameters_json_schema} for t in tools
        ]
        overhead = self._counter.count_tools(schemas)
        return self._history.fit(list(messages), overhead, rescue, self.wrapped.model_name)


def _report(fitted: Fitted, answer: Any) -> None:
    usage = answer.usage() if callable(answer.usage) else answer.usage
    fitted.report(usage.input_tokens, usage.output_tokens)


def _pairs(message: ModelMessage) -> list[tuple[Message, _Piece]]:
    """Return a message's parts in the OpenAI format, each with its original."""
    if isinstance(message, ModelResponse):
        return [(_assistant(message), _Piece(message))]
    return [(_request_message(part), _Piece(message, part)) for part in message.parts]


def _request_message(part: Any) -> Message:
    if isinstance(part, SystemPromptPart):
        return {"role": "system", "content": part.content}
    if isinstance(part, ToolReturnPart):
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
    if isinstance(part, RetryPromptPart) and part.tool_name is not None:
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response()}
    if isinstance(part, RetryPromptPart):
        return {"role": "user", "content": part.model_response()}
    content = getattr(part, "content", None)
    if isinstance(content, str):
        return {"role": "user", "content": content}
    if isinstance(content, Sequence):
        return {"role": "user", "content": [_content_part(one) for one in content]}
    return {"role": "user", "content": str(part)}


def _content_part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    url = getattr(part, "url", None) or getattr(part, "data_uri", None)
    if url is not None and "image" in type(part).__name__.lower() + str(getattr(part, "media_type", "")):
        return {"type": "image_url", "image_url": {"url": str(url)}}
    return {"type": "text", "text": str(getattr(part, "content", None) or url or part)}


def _assistant(message: ModelResponse) -> Message:
    texts = [part.content for part in message.parts if isinstance(part, TextPart) and part.content]
    result: Message = {"role": "assistant", "content": "\n\n".join(texts) or None}
    calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
    if calls:
        result["tool_calls"] = [
            {
                "id": c.tool_call_id,
                "type": "function",
                "function": {"name": c.tool_name, "arguments": c.args_as_json_str()},
            }
            for c in calls
        ]
    rest = [part for part in message.parts if not isinstance(part, TextPart | ToolCallPart)]
    if rest:  # thinking, files, and tools that ran at the provider: counted, and kept with the message
        told = [part.content if isinstance(part, ThinkingPart) else str(part) for part in rest]
        result["reasoning_content"] = "\n".join(told)
    return result


def _piece(message: Message, originals: Originals[_Piece]) -> _Piece:
    """Return the original of a message, or a new one for a message that the compaction wrote."""
    if (kept := originals.of(message)) is not None:
        return kept
    text = text_of(message)
    if message["role"] == "assistant":
        parts: list[Any] = [TextPart(text)] if text else []
        parts += [ToolCallPart(c.name, c.arguments or "{}", c.id) for c in calls_of(message)]
        return _Piece(ModelResponse(parts=parts))
    part: Any
    if (result := originals.result_of(message)) is not None:
        part = replace(result.part, content=text)
        return _Piece(replace(result.owner, parts=[part]), part)
    if message["role"] == "tool":
        part = ToolReturnPart("tool", text, str(message.get("tool_call_id")))
    else:
        part = SystemPromptPart(text) if message["role"] == "system" else UserPromptPart(text)
    return _Piece(ModelRequest(parts=[part]), part)


def _join(pieces: Sequence[_Piece], last: ModelRequest | None) -> list[ModelMessage]:
    """Return pieces as messages: whole ones as the same objects, and parts of one request together."""
    found: list[ModelMessage] = []
    for _, group in groupby(pieces, key=lambda piece: id(piece.owner)):
        own = list(group)
        owner = own[0].owner
        if isinstance(owner, ModelRequest) and len(own) < len(owner.parts):
            owner = replace(owner, parts=[piece.part for piece in own])
        found.append(owner)
    prompt = last.instructions if last is not None else None
    newest = found[-1] if found else None
    if prompt is not None and isinstance(newest, ModelRequest) and newest.instructions is None:
        found[-1] = replace(newest, instructions=prompt)  # models read it from the newest request
    return found
