"""LangGraph: checkpoints that stay short, and a model whose requests fit, for graphs of one's own.

`trim_checkpoints` works on the side of the checkpointer: what a thread goes on from is the compacted list. `KeptModel`
works on the side of the model, inside a run. Needs ``everlong[langgraph]``.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.base import BaseCheckpointSaver

from everlong.agent.tools.hidden_tools import ROUNDS, RecallLookup
from everlong.integrations.history import Fitted, HistoryKeeper, MakeEngine, Originals, OverflowRescue
from everlong.integrations.langchain_messages import message_of, original_of
from everlong.integrations.tools import OfferedTools
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["KeptModel", "trim_checkpoints"]

Saver = TypeVar("Saver", bound=BaseCheckpointSaver[Any])

_MARK = "everlong"
"""The key in a message under which a trimmed list says what it stands for."""


# -- checkpoints -------------------------------------------------------------------------------------------------------


def trim_checkpoints(
    saver: Saver, make_engine: MakeEngine, *, store: Store | None = None, channel: str = "messages"
) -> Saver:
    """Return a checkpointer that saves a thread's messages compacted once they are too many.

    It is a copy of the checkpointer, over the same data. A thread goes on from the compacted list, so every node sees
    it, and checkpoints do not grow without end. Without a store the compacted messages are gone for good.

    Args:
        saver: the checkpointer, of any kind.
        make_engine: makes an engine for each thread, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given.
        channel: the name of the messages in the graph's state.
    """
    kind: Any = type(saver)
    made: Any = copy.copy(saver)
    made.__class__ = _trimming_class(kind)
    made.everlong = CheckpointTrimmer(make_engine, store, channel)
    return made  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _trimming_class(kind: Any) -> Any:
    def put(self: Any, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return kind.put(self, config, self.everlong.trim(config, checkpoint, new_versions), metadata, new_versions)

    async def aput(self: Any, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        shorter = await asyncio.to_thread(self.everlong.trim, config, checkpoint, new_versions)
        # The asynchronous method of some calls the other one; what is trimmed already stays as it is.
        return await kind.aput(self, config, shorter, metadata, new_versions)

    own = {"put": put, "aput": aput, "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), own)


class CheckpointTrimmer:
    """The compaction of the messages in checkpoints."""

    def __init__(self, make_engine: MakeEngine, store: Store | None, channel: str) -> None:
        self._keeper = HistoryKeeper(make_engine, store=store, platform="langgraph")
        self._store = store
        self._channel = channel

    def trim(self, config: Mapping[str, Any], checkpoint: Any, new_versions: Mapping[str, Any]) -> Any:
        """Return a checkpoint with compacted messages; the same one if they fit; blocks."""
        values = checkpoint.get("channel_values") or {}
        given = values.get(self._channel)
        if self._channel not in new_versions or not isinstance(given, list) or not given:
            return checkpoint
        if not all(isinstance(message, BaseMessage) for message in given):
            return checkpoint
        where = config.get("configurable") or {}
        name = f"{where.get('thread_id', '')}/{where.get('checkpoint_ns', '')}"
        pairs = [(message_of(message), message) for message in given]
        before, start = self._find_stored(given)
        fitted = self._keeper.fit([*before, *(message for message, _ in pairs[start:])], conversation=name)
        if len(fitted.messages) >= len(given):
            return checkpoint
        originals = Originals(pairs)
        shorter = [original_of(message, originals) for message in fitted.messages]
        return {**checkpoint, "channel_values": {**values, self._channel: self._mark(shorter, fitted)}}

    def _find_stored(self, given: Sequence[BaseMessage]) -> tuple[list[Any], int]:
        """Return the stored messages that a trimmed list stands for, and the number of its messages."""
        from everlong.store import Branch  # noqa: PLC0415 - only those with a store load it

        mark = next((m.additional_kwargs[_MARK] for m in given if _MARK in m.additional_kwargs), None)
        if self._store is None or mark is None or len(given) < mark["messages"]:
            return [], 0
        at = Branch(mark["branch"], bytes.fromhex(mark["head"]), mark["depth"])
        return [entry.message for entry in self._store.entries(at)], mark["messages"]

    def _mark(self, shorter: list[Any], fitted: Fitted) -> list[Any]:
        """Return a trimmed list whose first message says where the whole of it is stored."""
        if fitted.at is None:
            return shorter
        at = {"branch": fitted.at.id, "head": fitted.at.head.hex(), "depth": fitted.at.depth}
        plain = [_strip_mark(message) for message in shorter]
        first = plain[0]
        told = {**first.additional_kwargs, _MARK: {**at, "messages": len(plain)}}
        return [first.model_copy(update={"additional_kwargs": told}), *plain[1:]]


def _strip_mark(message: Any) -> Any:
    if _MARK not in message.additional_kwargs:
        return message
    rest = {name: value for name, value in message.additional_kwargs.items() if name != _MARK}
    return message.model_copy(update={"additional_kwargs": rest})


# -- models ------------------------------------------------------------------------------------------------------------


class KeptModel(Runnable[Any, AIMessage]):
    """A chat model for the nodes of a graph; each thread is its own conversation.

    The state keeps every message; only the request is shortened. A request that is refused as too long is compacted and
    sent again. The tools of the engine, or of recall, are offered and answered here: no node sees them.

    Args:
        model: the chat model.
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(128_000)``.
        store: keeps every message and compaction, if given. Give it to `trim_checkpoints` instead if you use both.
        recall: offer the model tools that look things up in the store.
    """

    def __init__(
        self, model: Any, make_engine: MakeEngine, *, store: Store | None = None, recall: bool = False
    ) -> None:
        self._model = model
        self._keeper = HistoryKeeper(make_engine, store=store, platform="langgraph")
        self._offered = OfferedTools(store, recall=recall)
        self._hidden = self._offered.of(make_engine())
        self._counter = MessageCounter()
        self._schemas = [_schema(tool) for tool in self._hidden]
        self._bound: Any = model.bind_tools(self._schemas) if self._hidden else model

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> KeptModel:
        """Return the model with tools on offer, like `bind_tools` of a chat model."""
        bound = copy.copy(self)
        own = [_schema(tool) for tool in self._hidden]
        bound._bound = self._model.bind_tools([*tools, *own], **options)  # noqa: SLF001 - a copy of this very object
        bound._schemas = [*(convert_to_openai_tool(tool) for tool in tools), *own]  # noqa: SLF001 - as above
        return bound

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AIMessage:  # noqa: A002 - the framework's name
        """Return the model's answer to a whole history."""
        messages = input.to_messages() if hasattr(input, "to_messages") else convert_to_messages(input)
        rescue, behind = OverflowRescue(), list[BaseMessage]()
        names = {tool.name for tool in self._hidden}
        left = ROUNDS
        while True:
            sent, fitted = self._fit(messages, config, rescue)
            try:
                answer = self._bound.invoke([*sent, *behind], config, **options)
            except Exception as error:
                if not rescue.takes(error):
                    raise
                continue
            if answer.usage_metadata is not None:
                fitted.report(answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"])
            own = [call for call in answer.tool_calls if call["name"] in names]
            left -= 1
            if not own or not left or len(own) < len(answer.tool_calls):
                kept = [call for call in answer.tool_calls if call["name"] not in names]
                return answer.model_copy(update={"tool_calls": kept}) if own else answer  # type: ignore[no-any-return]
            lookups = [RecallLookup(str(call["id"]), call["name"], call["args"]) for call in own]
            told = self._offered.answer(fitted, lookups)
            behind += [answer, *(ToolMessage(told[str(call["id"])], tool_call_id=call["id"]) for call in own)]

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AIMessage:  # noqa: A002 - as above
        """Do the same in a thread."""
        return await asyncio.to_thread(self.invoke, input, config, **options)

    def _fit(
        self, messages: Sequence[BaseMessage], config: RunnableConfig | None, rescue: OverflowRescue
    ) -> tuple[list[Any], Fitted]:
        pairs = [(message_of(message), message) for message in messages]
        where = (config or {}).get("configurable") or {}
        fitted = self._keeper.fit(
            [message for message, _ in pairs],
            conversation=str(where.get("thread_id") or ""),
            model=str(getattr(self._model, "model_name", None) or getattr(self._model, "model", "")),
            overhead=self._counter.count_tools(self._schemas),
            rescue=rescue,
        )
        originals = Originals(pairs)
        return [original_of(message, originals) for message in fitted.messages], fitted


def _schema(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.about, "parameters": dict(tool.takes)}
    return {"type": "function", "function": function}
