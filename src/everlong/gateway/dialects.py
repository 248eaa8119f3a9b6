"""The APIs that clients speak to the gateway: what of a body is what, and how answers and errors look.

A dialect reads and writes single entries and fields; which of them are sent is decided elsewhere. Messages are those of
the store, in the OpenAI format. Sends nothing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from everlong.errors import EverlongError
from everlong.gateway.raw import Broken, Change, Read, dumped
from everlong.model import Message, is_system, with_part_appended
from everlong.providers.anthropic_api import AnthropicGathering
from everlong.providers.anthropic_request import anthropic_reply
from everlong.providers.openai_api import OpenAIGathering
from everlong.providers.openai_request import openai_reply
from everlong.wire import sendable, to_anthropic, to_openai

if TYPE_CHECKING:
    from everlong.providers.base import Event, Reply
    from everlong.providers.client import Gathering

__all__ = ["ANTHROPIC", "OPENAI", "Dialect", "is_leading", "whole_number"]


class Dialect(ABC):
    """One API."""

    name: ClassVar[str]
    api: ClassVar[str]
    """Whose upstreams speak it: ``openai`` or ``anthropic``."""
    list_name: ClassVar[str] = "messages"
    """The field that holds the conversation."""
    takes_markers: ClassVar[bool] = True
    """Whether cache markers may be put into requests."""
    binds_thinking: ClassVar[bool] = True
    """Whether thinking is refused after what stands before it has changed."""
    path: ClassVar[str]
    """Where requests of this kind are sent."""
    last_event: ClassVar[re.Pattern[bytes]]
    """How the last event of a stream begins, with the end of the line before it: words of a reply may say the same."""

    @abstractmethod
    def messages_of(self, entry: Any, before: Message | None) -> list[Message]:
        """What an entry of a body says, after a message; `Broken` where it is no message."""

    def said(self, entries: Sequence[Any], before: Message | None) -> list[list[Message]]:
        """What entries say that follow a message, by entry: a message stands where its last entry does."""
        found: list[list[Message]] = []
        for entry in entries:
            found.append(self.messages_of(entry, before))
            before = found[-1][-1] if found[-1] else before
        return found

    def is_said(self, entry: Any) -> bool:
        """Return whether an entry of a body is something that the model said."""
        return isinstance(entry, dict) and entry.get("role") == "assistant"

    def compacts_upstream(self, read: Read) -> bool:
        """Return whether a request asks the provider to compact it, so that nobody here may."""
        del read
        return False

    @abstractmethod
    def system_of(self, read: Read) -> list[Message]:
        """The system messages that stand outside of the list."""

    @abstractmethod
    def entries_of(self, messages: Sequence[Message]) -> list[Any]:
        """Messages, without system messages, as entries of a body."""

    @abstractmethod
    def noted(
        self, body: bytes, read: Read, leading: Sequence[Any], note: str
    ) -> tuple[list[Any] | None, Change | None]:
        """A note after the system prompt: the leading system entries with it, or a change of a field."""

    @abstractmethod
    def answer_tokens(self, read: Read) -> int:
        """The room that the answer may take; 0 where the request does not say."""

    @abstractmethod
    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        """What a whole answer says; None where it says nothing."""

    @abstractmethod
    def gathering(self) -> Gathering:
        """Adds up the events of a stream."""

    @abstractmethod
    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error of the gateway's own in the shape of the API."""


class _OpenAI(Dialect):
    name = api = "openai"
    path = "/v1/chat/completions"
    last_event = re.compile(rb"[\r\n]data: ?\[DONE\]")

    def messages_of(self, entry: Any, before: Message | None) -> list[Message]:
        del before
        if not isinstance(entry, dict) or not isinstance(entry.get("role"), str):
            raise Broken("an entry of messages is no message")
        return [entry]

    def system_of(self, read: Read) -> list[Message]:
        del read
        return []

    def entries_of(self, messages: Sequence[Message]) -> list[Any]:
        return _unmarked(sendable(messages))

    def noted(
        self, body: bytes, read: Read, leading: Sequence[Any], note: str
    ) -> tuple[list[Any] | None, Change | None]:
        del body, read
        if not leading:
            return None, None
        return [*leading[:-1], with_part_appended(leading[-1], note)], None

    def answer_tokens(self, read: Read) -> int:
        return whole_number(read.field("max_completion_tokens")) or whole_number(read.field("max_tokens"))

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        return openai_reply(answer, self.name)

    def gathering(self) -> Gathering:
        return _FirstChoice()

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class _FirstChoice(OpenAIGathering):
    """Adds up the first of several answers to one request: a conversation goes on with one of them."""

    def take(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        choices = [choice for choice in chunk.get("choices") or [] if not choice.get("index")]
        yield from super().take({**chunk, "choices": choices})


class _Anthropic(Dialect):
    name = api = "anthropic"
    path = "/v1/messages"
    last_event = re.compile(rb"[\r\n](?:event: ?message_stop|data: ?\{ ?\"type\": ?\"message_stop\")")

    def messages_of(self, entry: Any, before: Message | None) -> list[Message]:
        try:
            return to_openai([entry], before=before)
        except EverlongError as error:
            raise Broken(str(error)) from error

    def system_of(self, read: Read) -> list[Message]:
        try:
            return to_openai([], read.field("system"))
        except EverlongError as error:
            raise Broken(str(error)) from error

    def entries_of(self, messages: Sequence[Message]) -> list[Any]:
        return _unmarked(sendable(to_anthropic(messages)[1]))

    def noted(
        self, body: bytes, read: Read, leading: Sequence[Any], note: str
    ) -> tuple[list[Any] | None, Change | None]:
        del leading
        place, value = read.place("system"), read.field("system")
        block = dumped({"type": "text", "text": note})
        if place is None or not value:
            return None, None
        start, end = place
        if isinstance(value, list):
            return None, (end - 1, end - 1, b"," + block)
        return None, (start, end, b'[{"type":"text","text":' + body[start:end] + b"}," + block + b"]")

    def answer_tokens(self, read: Read) -> int:
        return whole_number(read.field("max_tokens"))

    def compacts_upstream(self, read: Read) -> bool:
        asked = read.field("context_management")
        edits = asked.get("edits") if isinstance(asked, dict) else None
        kinds = (edit.get("type") for edit in edits if isinstance(edit, dict)) if isinstance(edits, list) else ()
        return any(isinstance(kind, str) and kind.startswith("compact_") for kind in kinds)

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        return anthropic_reply(answer, self.name) if isinstance(answer.get("content"), list) else None

    def gathering(self) -> Gathering:
        return AnthropicGathering()

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}


_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

OPENAI: Dialect = _OpenAI()
ANTHROPIC: Dialect = _Anthropic()


def _unmarked(entries: Sequence[Any], depth: int = 2) -> list[Any]:
    """Entries without the cache markers that stood in them when they came, maybe by another API.

    Clients move their markers along; those of long ago would be too many, and one API does not know them.
    """
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            plain = {name: value for name, value in entry.items() if name != "cache_control"}
            if depth and isinstance(plain.get("content"), list):
                plain["content"] = _unmarked(plain["content"], depth - 1)
            found.append(plain)
        else:
            found.append(entry)
    return found


def is_leading(entry: Any) -> bool:
    """Whether an entry at the beginning of a list belongs to the system prompt."""
    return isinstance(entry, dict) and is_system(entry)


def whole_number(value: Any) -> int:
    """Return a number of tokens that a request names; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
