"""The requests of the official clients: their conversation as messages, and the body with other messages.

One format for each API: chat completions and responses of OpenAI, and messages of Anthropic. Bodies are the dicts that
a client is about to send; they are never changed in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from everlong.agent.tools.hidden_tools import ANTHROPIC, OPENAI, RESPONSES, tool_schema
from everlong.caching.markers import strip_markers
from everlong.errors import EverlongError
from everlong.integrations.history import Originals
from everlong.model import Message, calls_of, checked_messages, leading_system_count, text_of
from everlong.providers.anthropic_api import anthropic_reply
from everlong.providers.openai_api import openai_reply, responses_reply
from everlong.wire import from_items, sendable, to_anthropic, to_items, to_openai

if TYPE_CHECKING:
    from everlong.agent.tools.hidden_tools import HiddenTool
    from everlong.providers.base import Reply

__all__ = ["Body", "ClientFormat", "ReadBody", "format_of", "items_of", "pairs_of"]

Body = dict[str, Any]


class ReadBody(NamedTuple):
    """The conversation of a request."""

    messages: list[Message]
    originals: Originals[Any] | None = None
    """The client's own entries by message, where messages are not written as they were read."""


class ClientFormat(ABC):
    """One API's format of requests and answers."""

    api: ClassVar[str]
    """The API's name."""
    provider: ClassVar[str]
    """The provider whose models it has, unless a client goes elsewhere."""
    list_name: ClassVar[str] = "messages"
    """The field that holds the conversation."""
    takes_markers: ClassVar[bool] = False
    """True if cache markers may be put into requests."""

    def read(self, body: Mapping[str, Any]) -> ReadBody | None:
        """Return the conversation of a body; None if there is nothing that could be shortened.

        A body that cannot be read goes out as it is: the API says best what is wrong with it.
        """
        if self._is_kept_elsewhere(body):
            return None
        try:
            return self._read(body)
        except EverlongError:
            return None

    @abstractmethod
    def _read(self, body: Mapping[str, Any]) -> ReadBody:
        """Return the conversation of a body; raises an `EverlongError` if it is none."""

    def _is_kept_elsewhere(self, body: Mapping[str, Any]) -> bool:
        """Return whether the provider keeps or compacts the conversation, so that Everlong must not."""
        del body
        return False

    @abstractmethod
    def write(self, body: Mapping[str, Any], read: ReadBody, messages: Sequence[Message]) -> Body:
        """Return the body with other messages in the place of its conversation."""

    @abstractmethod
    def answer_tokens(self, body: Mapping[str, Any]) -> int:
        """Return the tokens of the longest answer that a request asks for; 0 if it does not say."""

    @abstractmethod
    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        """Return the reply in a whole answer; None if there is none."""

    def can_hide(self, body: Mapping[str, Any]) -> bool:
        """Return whether calls of hidden tools can be kept from the client."""
        del body
        return True

    def with_tools(self, body: Mapping[str, Any], tools: Sequence[HiddenTool]) -> Body:
        """Return the body with hidden tools behind those that it offers."""
        own = body.get("tools")
        offered = list(own) if isinstance(own, list) else []
        return {**body, "tools": [*offered, *(tool_schema(self.api, tool) for tool in tools)]}

    def with_entries(self, body: Mapping[str, Any], entries: Sequence[Any]) -> Body:
        """Return the body with entries behind its conversation."""
        return {**body, self.list_name: [*body[self.list_name], *entries]}


class _ChatFormat(ClientFormat):
    api = provider = OPENAI

    def _read(self, body: Mapping[str, Any]) -> ReadBody:
        return ReadBody(checked_messages(body.get("messages") or ()))

    def write(self, body: Mapping[str, Any], read: ReadBody, messages: Sequence[Message]) -> Body:
        del read
        return {**body, "messages": list(messages)}

    def answer_tokens(self, body: Mapping[str, Any]) -> int:
        return _number(body.get("max_completion_tokens")) or _number(body.get("max_tokens"))

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        return openai_reply(answer, self.provider)

    def can_hide(self, body: Mapping[str, Any]) -> bool:
        return "functions" not in body and _number(body.get("n")) <= 1


class _MessagesFormat(ClientFormat):
    api = provider = ANTHROPIC
    takes_markers = True

    def _read(self, body: Mapping[str, Any]) -> ReadBody:
        return ReadBody(to_openai(strip_markers(body, texts=False)))

    def _is_kept_elsewhere(self, body: Mapping[str, Any]) -> bool:
        asked = body.get("context_management")
        edits = asked.get("edits") if isinstance(asked, Mapping) else None
        kinds = [edit.get("type") for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else []
        return any(str(kind).startswith("compact_") for kind in kinds)

    def write(self, body: Mapping[str, Any], read: ReadBody, messages: Sequence[Message]) -> Body:
        del read
        system, entries = to_anthropic(messages)
        written = {**strip_markers(body, texts=False), "messages": sendable(entries)}
        if system is not None:
            written["system"] = system if isinstance(system, str) else sendable(system)
        return written

    def answer_tokens(self, body: Mapping[str, Any]) -> int:
        return _number(body.get("max_tokens"))

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        return anthropic_reply(answer, self.provider) if isinstance(answer.get("content"), list) else None


class _ResponsesFormat(ClientFormat):
    api, provider = RESPONSES, OPENAI
    list_name = "input"

    def _read(self, body: Mapping[str, Any]) -> ReadBody:
        pairs, prompt = pairs_of(_items(body)), body.get("instructions")
        own: list[Message] = [{"role": "system", "content": prompt}] if isinstance(prompt, str) and prompt else []
        return ReadBody([*own, *(message for message, _ in pairs)], Originals(pairs))

    def _is_kept_elsewhere(self, body: Mapping[str, Any]) -> bool:
        if body.get("previous_response_id") or body.get("conversation") or body.get("context_management"):
            return True
        return any(isinstance(item, Mapping) and item.get("type") == "compaction_trigger" for item in _items(body))

    def write(self, body: Mapping[str, Any], read: ReadBody, messages: Sequence[Message]) -> Body:
        written = dict(body)
        if written.get("instructions") and leading_system_count(messages):
            written["instructions"], messages = text_of(messages[0]), messages[1:]
        originals = read.originals or Originals(())
        return {**written, "input": [item for message in messages for item in items_of(message, originals)]}

    def answer_tokens(self, body: Mapping[str, Any]) -> int:
        return _number(body.get("max_output_tokens"))

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        return responses_reply(answer, self.provider)

    def can_hide(self, body: Mapping[str, Any]) -> bool:
        return body.get("store") is False  # a later request may name an answer that the provider stores


_FORMATS: Mapping[str, ClientFormat] = {
    "/chat/completions": _ChatFormat(),
    "/responses": _ResponsesFormat(),
    "/v1/messages": _MessagesFormat(),
}


def format_of(url: str) -> ClientFormat | None:
    """Return the format of the requests to a path; None for those that carry no conversation."""
    return _FORMATS.get(url.partition("?")[0])


def pairs_of(items: Sequence[Any]) -> list[tuple[Message, list[Any]]]:
    """Return items of the Responses API as messages, each with the items that it stands for."""
    pairs: list[tuple[Message, list[Any]]] = []
    waiting: list[Any] = []
    for item, ended in zip(items, from_items(items), strict=True):
        waiting.append(item)
        if ended:
            pairs.append((ended[-1], waiting))
            waiting = []
    return pairs


def items_of(message: Message, originals: Originals[list[Any]]) -> list[Any]:
    """Return the items of a message, or new ones for a message that the compaction wrote."""
    if (kept := originals.of(message)) is not None:
        return kept
    if (result := originals.result_of(message)) is not None:
        return [{**result[-1], "output": text_of(message)}]
    if message["role"] != "assistant":
        return to_items([message])
    text = text_of(message)
    said: list[Any] = [{"role": "assistant", "content": text}] if text else []
    calls = calls_of(message)
    return said + [{"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments} for c in calls]


def _items(body: Mapping[str, Any]) -> list[Any]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return list(given) if isinstance(given, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
