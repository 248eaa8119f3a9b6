"""LlamaIndex: a memory whose messages fit the window, and models that survive a refusal.

The chat store keeps every message; `get` returns what to send. Kept messages are the same objects. Needs
``everlong[llama-index]``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY, BaseChatStoreMemory
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore
from llama_index.core.tools import FunctionTool, ToolMetadata

from everlong.integrations.history import (
    Fitted,
    HistoryKeeper,
    MakeEngine,
    OfferedTools,
    Originals,
    OverflowRescue,
    begin_stream,
    send_fitting,
    send_fitting_async,
)
from everlong.model import Message, calls_of, text_of

if TYPE_CHECKING:
    from everlong.agent.tools.hidden_tools import HiddenTool
    from everlong.store import Store

__all__ = ["EverlongMemory"]

Model = TypeVar("Model")

_ROLES = {"chatbot": "assistant", "model": "assistant", "function": "tool", "developer": "system"}


class EverlongMemory(BaseChatStoreMemory):
    """A memory for agents and chat engines: ``agent.run(…, memory=memory)``. One memory is one conversation.

    Make it with `from_defaults`. Give agents `tools`, and the model of `guard`, to get the rest of what Everlong does.
    """

    _keeper: HistoryKeeper = PrivateAttr()
    _offered: OfferedTools = PrivateAttr()
    _tools: tuple[HiddenTool, ...] = PrivateAttr(default=())
    _fitted: Fitted | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which the framework knows the class."""
        return "EverlongMemory"

    @classmethod
    def from_defaults(
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: Any = None,
        *,
        make_engine: MakeEngine | None = None,
        store: Store | None = None,
        recall: bool = False,
        chat_store: BaseChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        **options: Any,
    ) -> EverlongMemory:
        """Return a memory.

        Args:
            chat_history: messages to begin with.
            llm: the model; its window is that of the engine, if ``make_engine`` is not given.
            make_engine: makes the engine, such as ``lambda: ContextCompressor(128_000)``.
            store: keeps every message and compaction, if given.
            recall: have `tools` return those that look things up in the store.
            chat_store: the framework's store of messages; in memory by default.
            chat_store_key: the name of the conversation.
            options: for the base class.
        """
        from everlong.context import ContextCompressor  # noqa: PLC0415 - only without an engine of the caller's own

        window = getattr(getattr(llm, "metadata", None), "context_window", None) or 128_000
        make = make_engine or (lambda: ContextCompressor(int(window)))
        memory = cls(chat_store=chat_store or SimpleChatStore(), chat_store_key=chat_store_key, **options)
        memory._keeper = HistoryKeeper(make, store=store, platform="llama-index")
        memory._offered = OfferedTools(store, recall=recall)
        memory._tools = memory._offered.of(make())
        if chat_history:
            memory.chat_store.set_messages(chat_store_key, chat_history)
        return memory

    def get(self, input: str | None = None, **options: Any) -> list[ChatMessage]:  # noqa: A002, ARG002 - the framework's
        """Return the messages to send."""
        return self.fit(self.get_all(), OverflowRescue())

    async def aget(self, input: str | None = None, **options: Any) -> list[ChatMessage]:  # noqa: A002, ARG002 - as above
        """Return the messages to send; compacting, which may ask a model, runs in a thread."""
        return await asyncio.to_thread(self.fit, await self.aget_all(), OverflowRescue())

    def tools(self) -> list[FunctionTool]:
        """Return the tools of the engine, or of recall, for an agent of this conversation."""
        return [self._tool(tool) for tool in self._tools]

    def guard(self, llm: Model) -> Model:
        """Return a copy of a model that compacts a request which is refused as too long, and sends it again."""
        given: Any = llm
        kind: Any = type(given)
        guarded = given.model_copy()
        object.__setattr__(guarded, "__class__", _guarded_class(kind))
        object.__setattr__(guarded, "everlong_memory", self)
        return guarded  # type: ignore[no-any-return]

    def fit_again(self, messages: list[ChatMessage], rescue: OverflowRescue) -> list[ChatMessage]:
        """Return messages as `get` made them, or shorter ones after a refusal; blocks."""
        return messages if rescue.window is None else self.fit(messages, rescue)

    def fit(self, messages: Sequence[ChatMessage], rescue: OverflowRescue) -> list[ChatMessage]:
        """Return the messages to send in place of others; blocks."""
        pairs = [(_message(original), original) for original in messages]
        key = self.chat_store_key
        name = "" if key == DEFAULT_CHAT_STORE_KEY else key
        self._fitted = self._keeper.fit([message for message, _ in pairs], conversation=name, rescue=rescue)
        originals = Originals(pairs)
        return [_original(message, originals) for message in self._fitted.messages]

    def _tool(self, tool: HiddenTool) -> FunctionTool:
        def call(**arguments: Any) -> str:
            return self._offered.call(self._fitted, tool.name, arguments)

        async def acall(**arguments: Any) -> str:
            return await asyncio.to_thread(self._offered.call, self._fitted, tool.name, arguments)

        metadata = _Metadata(tool.about, tool.name)
        metadata.takes = dict(tool.takes)
        return FunctionTool(fn=call, async_fn=acall, metadata=metadata)


class _Metadata(ToolMetadata):
    takes: dict[str, Any]

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.takes


@lru_cache(maxsize=64)
def _guarded_class(kind: Any) -> Any:
    """Return the subclass of a model's class that survives refusals."""
    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    for method in ("chat", "stream_chat"):
        setattr(made, method, _make_send(kind, method))
        setattr(made, f"a{method}", _make_send_async(kind, f"a{method}"))
    return made


def _make_send(kind: Any, method: str) -> Any:
    """Return a method of a model's class that compacts a refused request and sends it again."""

    def send(self: Any, messages: Any, *args: Any, **options: Any) -> Any:
        def ask(fitting: Any) -> Any:
            answer = getattr(kind, method)(self, fitting, *args, **options)
            return _wait_for_first_piece(answer) if "stream" in method else answer

        return send_fitting(partial(self.everlong_memory.fit_again, list(messages)), ask)[0]

    return send


def _make_send_async(kind: Any, method: str) -> Any:
    """Return the same for an asynchronous method."""

    async def send(self: Any, messages: Any, *args: Any, **options: Any) -> Any:
        async def ask(fitting: Any) -> Any:
            answer = await getattr(kind, method)(self, fitting, *args, **options)
            return await begin_stream(answer) if "stream" in method else answer

        return (await send_fitting_async(partial(self.everlong_memory.fit_again, list(messages)), ask))[0]

    return send


def _wait_for_first_piece(stream: Iterable[Any]) -> Iterator[Any]:
    """Return a stream whose first piece has come: a refusal is raised only then."""
    pieces = iter(stream)
    return chain(list(islice(pieces, 1)), pieces)


def _message(original: ChatMessage) -> Message:
    role = str(getattr(original.role, "value", original.role))
    message: Message = {"role": _ROLES.get(role, role)}
    parts = [
        {"type": "text", "text": block.text if isinstance(block, TextBlock) else block.model_dump_json()}
        for block in original.blocks
        if not isinstance(block, ToolCallBlock)
    ]
    message["content"] = parts[0]["text"] if len(parts) == 1 else parts or None
    if message["role"] == "tool":
        message["tool_call_id"] = str(original.additional_kwargs.get("tool_call_id") or "")
    calls = [_call(b.tool_call_id, b.tool_name, b.tool_kwargs) for b in original.blocks if isinstance(b, ToolCallBlock)]
    for call in [] if calls else original.additional_kwargs.get("tool_calls") or ():
        body = call if isinstance(call, dict) else call.model_dump()
        function = body.get("function") or {}
        calls.append(_call(body.get("id"), function.get("name") or "", function.get("arguments") or "{}"))
    if calls:
        message["tool_calls"] = calls
    return message


def _call(ident: str | None, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": ident or "", "type": "function", "function": {"name": name, "arguments": text}}


def _original(message: Message, originals: Originals[ChatMessage]) -> ChatMessage:
    """Return the original of a message, or a new one for a message that the compaction wrote."""
    if (kept := originals.of(message)) is not None:
        return kept
    text = text_of(message)
    if (result := originals.result_of(message)) is not None:
        return result.model_copy(update={"blocks": [TextBlock(text=text)]})
    blocks: list[Any] = [TextBlock(text=text)] if text else []
    blocks += [
        ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=call.arguments)
        for call in calls_of(message)
    ]
    more = {"tool_call_id": message["tool_call_id"]} if message["role"] == "tool" else {}
    return ChatMessage(role=MessageRole(message["role"]), blocks=blocks, additional_kwargs=more)
