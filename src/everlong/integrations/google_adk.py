"""Google ADK: a plugin that keeps the requests of an app's agents inside the window.

The session keeps every event; only the request is shortened. Kept contents are sent as the same objects. Needs
``everlong[google-adk]``.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.genai import types

from everlong.caching.rules import is_claude
from everlong.integrations.history import (
    Fitted,
    HistoryKeeper,
    MakeEngine,
    Newest,
    OfferedTools,
    Originals,
    OverflowRescue,
    arguments_of,
)
from everlong.model import Message, calls_of, text_of
from everlong.tokens import MessageCounter

if TYPE_CHECKING:
    from google.adk.models import LlmRequest, LlmResponse

    from everlong.agent.tools.hidden_tools import HiddenTool
    from everlong.store import Store

__all__ = ["EverlongPlugin"]

_UNDER_WAY = 64
"""The number of requests whose whole contents are kept for the case that they are refused."""


class _Piece(NamedTuple):
    """Parts of a content that make one message, and the content."""

    owner: types.Content
    parts: tuple[types.Part, ...]


class EverlongPlugin(BasePlugin):
    """A plugin for ``App(plugins=[…])``; each agent of each session is a conversation.

    Args:
        make_engine: makes an engine for each conversation, such as ``lambda: ContextCompressor(1_000_000)``.
        store: keeps every message and compaction, if given; without one nothing is written anywhere.
        recall: offer the models tools that look things up in the store.
        cache: have ADK place cache markers in requests for Claude, if the app has no ``context_cache_config``.
        name: the plugin's name, which is unique in an app.
    """

    def __init__(
        self,
        make_engine: MakeEngine,
        *,
        store: Store | None = None,
        recall: bool = False,
        cache: bool = True,
        name: str = "everlong",
    ) -> None:
        super().__init__(name=name)
        self._keeper = HistoryKeeper(make_engine, store=store, platform="google-adk")
        self._offered = OfferedTools(store, recall=recall)
        self._tools = self._offered.of(make_engine())
        self._places_markers = cache
        self._counter = MessageCounter()
        self._fitted: Newest[Fitted] = Newest()
        """By conversation, its last request."""
        self._whole: Newest[list[types.Content]] = Newest(_UNDER_WAY)
        """By request, the contents before they were shortened."""

    async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> None:
        """Shorten a request that would not fit, offer the tools, and ask for cache markers."""
        name = _conversation(callback_context)
        known = llm_request.tools_dict
        own = [_HistoryTool(tool, self, name) for tool in self._tools if tool.name not in known]
        llm_request.append_tools(list(own))
        if self._places_markers and llm_request.cache_config is None and is_claude(llm_request.model or ""):
            llm_request.cache_config = ContextCacheConfig()  # for Gemini it would create caches that cost storage
        whole = list(llm_request.contents)
        await asyncio.to_thread(self._fit, llm_request, whole, name, OverflowRescue())

    async def after_model_callback(self, *, callback_context: Any, llm_response: LlmResponse) -> None:
        """Report the provider's counts."""
        fitted, usage = self._fitted.get(_conversation(callback_context)), llm_response.usage_metadata
        if fitted is not None and usage is not None and not llm_response.partial:
            fitted.report(usage.prompt_token_count, usage.candidates_token_count)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Compact a request that was refused as too long, and send it again; other errors are left alone."""
        rescue, name = OverflowRescue(), _conversation(callback_context)
        agent = callback_context._invocation_context.agent  # noqa: SLF001 - callbacks have no other way to the model
        whole = self._whole.get(id(llm_request))
        while whole is not None and rescue.takes(error):
            await asyncio.to_thread(self._fit, llm_request, whole, name, rescue)
            try:
                answers = [one async for one in agent.canonical_model.generate_content_async(llm_request)]
            except Exception as again:  # noqa: BLE001 - judged by the rescue
                error = again
                continue
            return answers[-1] if answers else None
        return None

    def call(self, name: str, conversation: str, arguments: dict[str, Any]) -> str:
        """Return the answer to a call of one of the tools; blocks."""
        return self._offered.call(self._fitted.get(conversation), name, arguments)

    def _fit(self, request: LlmRequest, whole: list[types.Content], name: str, rescue: OverflowRescue) -> None:
        prompt = request.config.system_instruction
        own: list[Message] = [{"role": "system", "content": prompt}] if isinstance(prompt, str) and prompt else []
        pairs = _pairs(whole)
        tools = [tool for tool in request.config.tools or () if isinstance(tool, types.Tool)]
        declared = [tool.model_dump(mode="json", exclude_none=True) for tool in tools]
        fitted = self._keeper.fit(
            [*own, *(message for message, _ in pairs)],
            conversation=name,
            model=request.model or "",
            overhead=self._counter.count_tools(declared),
            answer_tokens=request.config.max_output_tokens or 0,
            rescue=rescue,
        )
        self._fitted.put(name, fitted)
        self._whole.put(id(request), whole)
        messages, originals = fitted.messages, Originals(pairs)
        if own and messages and messages[0]["role"] == "system":
            request.config.system_instruction, messages = text_of(messages[0]), messages[1:]
        request.contents = _join([_piece(message, originals) for message in messages])


class _HistoryTool(BaseTool):
    """A tool of the engine, or of recall."""

    def __init__(self, tool: HiddenTool, plugin: EverlongPlugin, conversation: str) -> None:
        super().__init__(name=tool.name, description=tool.about)
        self._takes = dict(tool.takes)
        self._plugin = plugin
        self._conversation = conversation

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._takes
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        del tool_context
        return {"result": await asyncio.to_thread(self._plugin.call, self.name, self._conversation, args)}


def _conversation(context: Any) -> str:
    session = context.session
    return f"{session.app_name}/{session.user_id}/{session.id}/{context.agent_name}"


def _pairs(contents: Sequence[types.Content]) -> list[tuple[Message, _Piece]]:
    """Return contents as messages in the OpenAI format, each with the parts that it stands for."""
    found: list[tuple[Message, _Piece]] = []
    open_calls: defaultdict[str, deque[str]] = defaultdict(deque)
    for number, content in enumerate(contents):
        if content.role == "model":
            found.append((_assistant(content, number, open_calls), _Piece(content, tuple(content.parts or ()))))
            continue
        for is_result, group in groupby(content.parts or (), key=lambda part: part.function_response is not None):
            own = list(group)
            if is_result:
                found += [(_result(part, open_calls), _Piece(content, (part,))) for part in own]
            else:
                said = {"role": "user", "content": [_part(part) for part in own]}
                found.append((said, _Piece(content, tuple(own))))
    return found


def _assistant(content: types.Content, number: int, open_calls: defaultdict[str, deque[str]]) -> Message:
    parts = content.parts or []
    texts = [part.text for part in parts if part.text and not part.thought]
    message: Message = {"role": "assistant", "content": "\n\n".join(texts) or None}
    calls = []
    for place, part in enumerate(parts):
        if (call := part.function_call) is not None:
            ident = call.id or f"{number}-{place}"  # models of Google's own give none
            open_calls[call.name or ""].append(ident)
            function = {"name": call.name or "", "arguments": json.dumps(call.args or {}, ensure_ascii=False)}
            calls.append({"id": ident, "type": "function", "function": function})
    if calls:
        message["tool_calls"] = calls
    rest = [part for part in parts if part.function_call is None and (part.thought or not part.text)]
    if rest:  # thinking, code and files of the model: counted, and kept with the message
        message["reasoning_content"] = "\n".join(part.text or part.model_dump_json(exclude_none=True) for part in rest)
    return message


def _result(part: types.Part, open_calls: defaultdict[str, deque[str]]) -> Message:
    response = part.function_response or types.FunctionResponse()
    waiting = open_calls[response.name or ""]
    ident = response.id or (waiting[0] if waiting else "")
    if ident in waiting:
        waiting.remove(ident)
    told = response.response or {}
    text = told["result"] if told.keys() == {"result"} else told
    content = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False, default=str)
    return {"role": "tool", "tool_call_id": ident, "content": content}


def _part(part: types.Part) -> dict[str, Any]:
    if part.text is not None:
        return {"type": "text", "text": part.text}
    return {"type": "text", "text": part.model_dump_json(exclude_none=True)[:100_000]}


def _piece(message: Message, originals: Originals[_Piece]) -> _Piece:
    """Return the original of a message, or a new one for a message that the compaction wrote."""
    if (kept := originals.of(message)) is not None:
        return kept
    text = text_of(message)
    if (result := originals.result_of(message)) is not None and result.parts[0].function_response is not None:
        response = result.parts[0].function_response.model_copy(update={"response": {"result": text}})
        part = types.Part(function_response=response)
        return _Piece(types.Content(role="user", parts=[part]), (part,))
    parts = [types.Part(text=text)] if text else []
    for call in calls_of(message):
        read = arguments_of(call.arguments)
        arguments = {"arguments": call.arguments} if read is None else read
        parts.append(types.Part(function_call=types.FunctionCall(id=call.id, name=call.name, args=arguments)))
    role = "model" if message["role"] == "assistant" else "user"
    return _Piece(types.Content(role=role, parts=parts), tuple(parts))


def _join(pieces: Sequence[_Piece]) -> list[types.Content]:
    """Return pieces as contents: whole ones as the same objects, and parts of one content together."""
    found: list[types.Content] = []
    for _, group in groupby(pieces, key=lambda piece: id(piece.owner)):
        own = list(group)
        owner, parts = own[0].owner, [part for piece in own for part in piece.parts]
        found.append(owner if len(parts) == len(owner.parts or ()) else types.Content(role=owner.role, parts=parts))
    return found
