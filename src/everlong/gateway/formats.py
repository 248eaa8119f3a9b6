"""The wire formats of the three APIs (dialects), and what their clients tell about themselves.

A `Dialect` knows where a body has its messages, how to read them in one common form, and how to write a view of them
back. ``docs/development.md`` lists what else a new dialect needs.
"""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from everlong.errors import EverlongError, TranscriptError
from everlong.gateway.body import BrokenBody, Change, Read, Span, dump_json, parse_json
from everlong.model import Message, is_system, text_of, with_part_appended
from everlong.providers.anthropic_api import AnthropicAssembler, anthropic_reply
from everlong.providers.base import Reply
from everlong.providers.client import StreamAssembler
from everlong.providers.openai_api import FirstChoiceAssembler, ResponsesAssembler, openai_reply, responses_reply
from everlong.store.identity import Sender
from everlong.wire import from_items, sendable, to_anthropic, to_items, to_openai

if TYPE_CHECKING:
    from everlong.gateway.body import Draft

__all__ = [
    "ANTHROPIC",
    "FOLDER_ROUTE",
    "OPENAI",
    "PLATFORM",
    "RESPONSES",
    "Dialect",
    "ResponsesRequest",
    "client_of",
    "count_leading",
    "folder_in_path",
    "hint_in",
    "is_leading",
    "is_stateless",
    "looks_aside",
    "messages_of",
    "path_of_folder",
    "read_responses_request",
    "sender_of",
    "whole_number",
]


class Dialect(ABC):
    """One API's wire format."""

    name: ClassVar[str]
    """The format: ``openai``, ``anthropic`` or ``responses``."""
    api: ClassVar[str]
    """The kind of upstream that speaks it: ``openai`` or ``anthropic``."""
    list_name: ClassVar[str] = "messages"
    """The field that holds the conversation."""
    takes_markers: ClassVar[bool] = True
    """True if cache markers may be put into requests."""
    binds_thinking: ClassVar[bool] = True
    """True if the API refuses thinking after anything before it has changed."""
    path: ClassVar[str]
    """The path of its requests."""
    last_event: ClassVar[re.Pattern[bytes]]
    """The beginning of a stream's last event, with the line end before it, because a reply may quote it."""

    @abstractmethod
    def messages_of(self, entry: Any, before: Message | None) -> list[Message]:
        """Return the messages of an entry that follows a message; `BrokenBody` if it is none."""

    def said(self, entries: Sequence[Any], before: Message | None) -> list[list[Message]]:
        """Return the messages of entries that follow a message, by entry: a message belongs to its last entry."""
        found: list[list[Message]] = []
        for entry in entries:
            found.append(self.messages_of(entry, before))
            before = found[-1][-1] if found[-1] else before
        return found

    def is_said(self, entry: Any) -> bool:
        """Return whether an entry of a body was said by the model."""
        return isinstance(entry, dict) and entry.get("role") == "assistant"

    def compacts_upstream(self, read: Read) -> bool:
        """Return whether a request asks the provider to compact it, so that the gateway must not."""
        del read
        return False

    @abstractmethod
    def system_of(self, read: Read) -> list[Message]:
        """Return the system messages that stand outside of the list."""

    @abstractmethod
    def entries_of(self, messages: Sequence[Message]) -> list[Any]:
        """Return messages, without system messages, as entries of a body."""

    @abstractmethod
    def add_note(
        self, body: bytes, read: Read, leading: Sequence[Any], note: str
    ) -> tuple[list[Any] | None, Change | None]:
        """Return a note put after the system prompt: the leading system entries with it, or a change of a field."""

    def ask_usage(self, draft: Draft) -> Draft:
        """Return a body whose streamed answer tells its usage; the same one if it does so anyway."""
        return draft

    @abstractmethod
    def answer_tokens(self, read: Read) -> int:
        """Return the most tokens that the answer may take; 0 if the request does not say."""

    @abstractmethod
    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        """Return the reply in a whole answer; None if there is none."""

    @abstractmethod
    def gathering(self) -> StreamAssembler:
        """Return a new gathering, which adds up the events of a stream."""

    @abstractmethod
    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return an error of the gateway in the shape of the API."""


class _OpenAIDialect(Dialect):
    name = api = "openai"
    path = "/v1/chat/completions"
    last_event = re.compile(rb"[\r\n]data: ?\[DONE\]")

    def messages_of(self, entry: Any, before: Message | None) -> list[Message]:
        del before
        if not isinstance(entry, dict) or not isinstance(entry.get("role"), str):
            raise BrokenBody("an entry of messages is no message")
        return [entry]

    def system_of(self, read: Read) -> list[Message]:
        del read
        return []

    def entries_of(self, messages: Sequence[Message]) -> list[Any]:
        return _unmarked(sendable(messages))

    def add_note(
        self, body: bytes, read: Read, leading: Sequence[Any], note: str
    ) -> tuple[list[Any] | None, Change | None]:
        del body, read
        if not leading:
            return None, None
        return [*leading[:-1], with_part_appended(leading[-1], note)], None

    def ask_usage(self, draft: Draft) -> Draft:
        stream, options = (draft.body[slice(*draft.fields.get(name, (0, 0)))] for name in ("stream", "stream_options"))
        asked = parse_json(options or b"{}") or {}
        if stream != b"true" or not isinstance(asked, dict) or asked.get("include_usage"):
            return draft
        wanted = dump_json({**asked, "include_usage": True})
        if not options:
            return draft.with_field("stream_options", wanted)
        return draft.changed([(*draft.fields["stream_options"], wanted)])

    def answer_tokens(self, read: Read) -> int:
        return whole_number(read.field("max_completion_tokens")) or whole_number(read.field("max_tokens"))

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        return openai_reply(answer, self.name)

    def gathering(self) -> StreamAssembler:
        return FirstChoiceAssembler()

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class _AnthropicDialect(Dialect):
    name = api = "anthropic"
    path = "/v1/messages"
    last_event = re.compile(rb"[\r\n](?:event: ?message_stop|data: ?\{ ?\"type\": ?\"message_stop\")")

    def messages_of(self, entry: Any, before: Message | None) -> list[Message]:
        try:
            return to_openai([entry], before=before)
        except EverlongError as error:
            raise BrokenBody(str(error)) from error

    def system_of(self, read: Read) -> list[Message]:
        try:
            return to_openai([], read.field("system"))
        except EverlongError as error:
            raise BrokenBody(str(error)) from error

    def entries_of(self, messages: Sequence[Message]) -> list[Any]:
        return _unmarked(sendable(to_anthropic(messages)[1]))

    def add_note(
        self, body: bytes, read: Read, leading: Sequence[Any], note: str
    ) -> tuple[list[Any] | None, Change | None]:
        del leading
        place, value = read.fields.get("system"), read.field("system")
        block = dump_json({"type": "text", "text": note})
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

    def gathering(self) -> StreamAssembler:
        return AnthropicAssembler()

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

OPENAI: Dialect = _OpenAIDialect()
ANTHROPIC: Dialect = _AnthropicDialect()


def _unmarked(entries: Sequence[Any], depth: int = 2) -> list[Any]:
    """Return entries without the cache markers that clients placed in them, perhaps by another API.

    Clients move their markers along: old ones would be too many, and one API does not know them.
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
    """Return whether an entry at the beginning of a list belongs to the system prompt."""
    return isinstance(entry, dict) and is_system(entry)


def count_leading(entries: Iterable[Span]) -> int:
    """Return how many entries at the beginning of a list belong to the system prompt."""
    return sum(1 for _ in takewhile(lambda entry: is_leading(entry.value), entries))


def whole_number(value: Any) -> int:
    """Return a number of tokens from a request; 0 if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


_LONGEST_NAME = 40
_PRODUCT = re.compile(r"[^\s/(),;]+")

_CLIENTS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"claude-(?:cli|code)$", "claude-code"),
        (r"codex(?![a-z])", "codex"),
        (r"cline$", "cline"),
        (r"roo-?code$", "roo"),
        (r"kilo-?code$", "kilo"),
        (r"githubcopilotchat$", "copilot"),
        (r"geminicli$", "gemini-cli"),
        (r"qwencode$", "qwen-code"),
        (r"agents$", "openai-agents"),
        (r"(?:async)?(?:azure)?openai$", "openai-sdk"),
        (r"(?:async)?anthropic(?:bedrock|vertex|foundry)?$", "anthropic-sdk"),
        (r"python$", "python"),
        (r"mozilla$", "browser"),
    )
)
"""Names by the first product of the ``User-Agent``, in lower case, where they are not that product."""
_LIBRARIES = frozenset({"openai-sdk", "anthropic-sdk", "openai-agents", "ai-sdk", "litellm", "python", "browser"})
"""Names that say what a program is made with; the path may say which program it is."""


def client_of(headers: Mapping[str, str], program: str | None = None) -> str | None:
    """Return the short name of the program that sent a request; None if neither its headers nor its path tell.

    Known programs have one name in all their versions. For others it is the first product of the ``User-Agent``, at
    most 40 printable characters. A program that uses an SDK without naming itself is known by the SDK.
    """
    if headers.get("x-claude-code-session-id"):
        return "claude-code"
    origin = _known(headers.get("originator", ""))
    if origin is not None:
        return origin
    product = _PRODUCT.match(headers.get("user-agent", "").strip())
    if product is None:
        return program
    found = _known(product[0]) or "".join(filter(str.isprintable, product[0]))[:_LONGEST_NAME] or None
    return program or found if found is None or found in _LIBRARIES else found


def _known(product: str) -> str | None:
    return next((name for pattern, name in _CLIENTS if pattern.match(product.lower())), None)


# -- its folder --------------------------------------------------------------------------------------------------------

FOLDER_ROUTE = "/folder/{folder:[A-Za-z0-9_-]+}"
"""The beginning of the paths of clients whose folder is known: `everlong wrap` puts it, and the program's name, into
their base URL."""
_LONGEST_PATH = 1_000
_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]|\\\\[^\\]")
_PROGRAM = re.compile(r"[a-z][a-z0-9_.-]{0,39}")


def path_of_folder(folder: Path, program: str = "") -> str:
    """Return the beginning of the paths of a program that works in a folder."""
    told = f"{folder}\n{program}" if program else str(folder)
    name = base64.urlsafe_b64encode(told.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    return f"/folder/{name}"


def folder_in_path(name: str) -> tuple[str | None, str | None]:
    """Return the folder and the program that `path_of_folder` put into a path; None for what is neither."""
    try:
        told = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode("utf-8")
    except ValueError:
        return None, None
    folder, _, program = told.partition("\n")
    is_path = len(folder) <= _LONGEST_PATH and folder.isprintable() and _ABSOLUTE.match(folder)
    return folder if is_path else None, program if _PROGRAM.fullmatch(program) else None


# -- what it asks on the side ------------------------------------------------------------------------------------------

_TINY = 16
_SYSTEM_HEAD = 1_000
_USER_HEAD = 400

_GAP = r"[^.!?\n]{0,120}?"
_ASKS = r"\b(?:generat|writ|creat|provid|suggest|giv|mak|produc|return|output|extract|com(?:e|ing) up)\w*\b"
_FEW_WORDS = r"\b(?:[1-9]|1[0-2])(?:\s?(?:-|–|to|or)\s?\d{1,2})?[ -]words?\b|\b(?:\d{2}|100)[ -]char(?:acter)?s\b"
_TALK = (
    r"\b(?:this|the|the following|the above|the current) (?:coding |chat )?(?:conversation|session|chat|thread)\b"
    r"|\ba conversation\b|\bchat history\b"
)
"""A conversation, as a system prompt speaks of it."""
_SENT_TALK = (
    r"\b(?:this|the following|the above|the current) (?:coding |chat )?(?:conversation|session|chat|thread)\b"
    r"|\bchat history\b|\bthe conversation(?: history| so far| above| below)?\s*(?:[:.,\n]|$)"
)
"""The same in a user's message, where it must be the one that is sent along."""


def _asking_for_a_label(talk: str) -> re.Pattern[str]:
    title = rf"(?:title|headline|label)\b{_GAP}(?:{talk})|(?:name|topic) (?:for|of) (?:{talk})"
    return re.compile(
        rf"{_ASKS}{_GAP}\b(?:{title})"
        rf"|\b(?:based on|for|from|given) (?:{talk}){_GAP}{_ASKS}{_GAP}\b(?:title|headline|label|name|topic)\b"
        rf"|\b(?:summari[sz]|descri)\w*\b{_GAP}(?:{talk}){_GAP}(?:{_FEW_WORDS})",
        re.IGNORECASE,
    )


_SYSTEM_ASKS = _asking_for_a_label(_TALK)
_USER_ASKS = _asking_for_a_label(_SENT_TALK)
_LABELLER = re.compile(
    r"\b(?:you are|act as) (?:a|an|the) [\w ,-]{0,40}\b(?:title|topic)[ -](?:generator|detector|extractor|writer)\b"
    r"|\byou are a (?:context|conversation) summari[sz]ation (?:agent|assistant)\b"
    r"|\bindicates? a new (?:conversation )?topic\b",
    re.IGNORECASE,
)
_ASKING_ROLES = frozenset({"user", "system", "developer"})


def looks_aside(*, has_tools: bool, max_tokens: int, system_text: str, messages: Sequence[Message]) -> bool:
    """Return whether a request looks like a side request of a client, and not like a conversation.

    A side request brings no tools, has no assistant message, and does one of these:

    - It allows an answer of 1 to 16 tokens only (0 means that it does not say), as a probe of a quota does.
    - Its system prompt asks within the first 1,000 characters for the title, name or topic of a conversation, or for a
      summary of one in so many words, or says that this is a summarization agent.
    - Its last user message begins with such a request about the very conversation that it sends along.

    Everything else is a conversation, even if it has one turn only: "Write a title for my blog post" is one.
    """
    if has_tools or any(message.get("role") not in _ASKING_ROLES for message in messages):
        return False
    asked = next((message for message in reversed(messages) if message.get("role") == "user"), None)
    if asked is None:
        return False
    if 0 < max_tokens <= _TINY:
        return True
    system = system_text or "\n".join(text_of(message) for message in messages if is_system(message))
    head = system[:_SYSTEM_HEAD]
    if _LABELLER.search(head) or _SYSTEM_ASKS.search(head):
        return True
    return _USER_ASKS.search(text_of(asked).lstrip()[:_USER_HEAD]) is not None


PLATFORM = "gateway"
"""The platform of sessions of stateless clients."""

_LONGEST = 200
_NAMES = ("thread-id", "session-id", "x-session-affinity")
_PARENTS = ("x-parent-session-id", "x-codex-parent-thread-id")


def sender_of(headers: Mapping[str, str], folder: str | None = None, program: str | None = None) -> Sender:
    """Return the sender of a request by its headers, and by the folder and the program that its path names."""
    own = headers.get("x-everlong-session")
    claude, agent = headers.get("x-claude-code-session-id"), headers.get("x-claude-code-agent-id", "")
    session = own or (f"{claude}/{agent}" if claude else next(filter(None, map(headers.get, _NAMES)), None))
    parent = f"{claude}/" if claude and agent else next(filter(None, map(headers.get, _PARENTS)), None)
    works_for = _cut(parent) if parent and not own else None
    return Sender(PLATFORM, _cut(session) if session else None, works_for, client_of(headers, program), folder)


def hint_in(metadata: Any) -> str | None:
    """Return the client's name for the conversation from the ``metadata.user_id`` of a body."""
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return None
    if user.startswith("{"):
        try:
            told = json.loads(user)
        except (ValueError, RecursionError):
            return None
        named = told.get("session_id") if isinstance(told, dict) else None
        return _cut(named) if isinstance(named, str) and named else None
    _, mark, named = user.rpartition("_session_")
    return _cut(named) if mark and named else None


def _cut(name: str) -> str:
    return name.encode("utf-8", "replace").decode().replace("\0", "")[:_LONGEST]


_OPAQUE = frozenset({"compaction", "compaction_summary", "context_compaction", "item_reference"})
"""Items whose meaning only the upstream knows."""
_NAMED = ("previous_response_id", "conversation", "context_management", "background")
"""Fields of requests whose conversation the upstream keeps, compacts, or answers later."""
_MARKS = tuple(f'"{name}"'.encode() for name in (*_NAMED, *_OPAQUE))
_SIGNS = (
    re.compile(rb'"input"\s*:\s*"'),
    re.compile(rb"\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA])"),  # a letter that nobody needs to escape, maybe of a name above
    # an item that says nothing: an id, maybe twice, and no words
    re.compile(rb'\{(?=[^{}]*"id")\s*+(?:"(?:id|type|role|status)"\s*+:\s*+(?:"[^"]*+"|null|false)\s*+,?\s*+)+\}'),
    re.compile(rb'"type"\s*:\s*null'),
)
"""Signs that a request has to be read before it is clear that it carries its conversation."""


def is_reference(item: Mapping[str, Any]) -> bool:
    """Return whether an item stands for another one, which the upstream has kept: the type may be left out."""
    return item.get("type") == "item_reference" or not (item.get("type") or item.get("role"))


def is_stateless(body: bytes) -> bool:
    """Return whether a request carries its whole conversation, all of which can be read here."""
    if not any(mark in body for mark in _MARKS) and not any(sign.search(body) for sign in _SIGNS):
        return True
    try:
        request = parse_json(body)
    except BrokenBody:
        return True
    if not isinstance(request, dict) or any(request.get(name) for name in _NAMED):
        return False
    items = request.get("input")
    return isinstance(items, list) and not any(
        isinstance(one, dict) and (one.get("type") in _OPAQUE or is_reference(one)) for one in items
    )


# -- conversations that the upstream keeps -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A request of the Responses API, read."""

    model: str
    system: list[Message]
    """Its instructions, which hold for this request only."""
    messages: list[Message]
    tools: list[Any] | None
    follows: tuple[str, ...]
    """Names of the response or conversation that it continues, which the upstream knows."""
    conversation: str | None

    @property
    def is_answered(self) -> bool:
        """True if a model has spoken before it."""
        return bool(self.follows) or any(message["role"] == "assistant" for message in self.messages)

    def written(self, clean: Callable[[Message], Message]) -> str:
        """Return the request as a text for the journal, with cleaned messages and tools."""
        said = (list(map(clean, self.system)), list(map(clean, self.messages)), clean({"tools": self.tools})["tools"])
        return dump_json([self.model, *said, self.follows, self.conversation]).decode()

    @classmethod
    def read(cls, text: str) -> ResponsesRequest:
        """Read such a text."""
        model, system, messages, tools, follows, conversation = parse_json(text.encode())
        return cls(model, system, messages, tools, tuple(follows), conversation)


def read_responses_request(body: Any) -> ResponsesRequest:
    """Read a request; `BrokenBody` if it is none."""
    if not isinstance(body, dict):
        raise BrokenBody("the body is no JSON object")
    given, tools = body.get("input"), body.get("tools")
    said: list[Message] = [{"role": "user", "content": given}] if isinstance(given, str) else messages_of(given or [])
    talk = body.get("conversation")
    conversation = talk.get("id") if isinstance(talk, dict) else talk
    named = [name for name in (body.get("previous_response_id"), conversation) if isinstance(name, str) and name]
    return ResponsesRequest(
        str(body.get("model") or ""),
        _instructed(body.get("instructions")),
        said,
        tools if isinstance(tools, list) else None,
        tuple(named),
        conversation if isinstance(conversation, str) else None,
    )


def messages_of(items: Any) -> list[Message]:
    """Return items of a request or an answer as messages; `BrokenBody` if they are none."""
    if not isinstance(items, list):
        raise BrokenBody("the items are no list")
    return [message for said in _said(items) for message in said]


def _said(items: Sequence[Any]) -> list[list[Message]]:
    try:
        return from_items(items)
    except TranscriptError as error:
        raise BrokenBody(str(error)) from error


def _instructed(instructions: Any) -> list[Message]:
    return [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []


# -- conversations that the client keeps -------------------------------------------------------------------------------


class _ResponsesDialect(Dialect):
    name = "openai-responses"
    api = "openai"
    list_name = "input"
    takes_markers = False
    binds_thinking = False
    path = "/v1/responses"
    last_event = re.compile(rb"[\r\n](?:event: ?|data: ?\{ ?\"type\": ?\")response\.(?:completed|incomplete|failed)")

    def messages_of(self, entry: Any, before: Message | None) -> list[Message]:
        del before
        return _said([entry])[0]

    def said(self, entries: Sequence[Any], before: Message | None) -> list[list[Message]]:
        del before
        return _said(entries)

    def is_said(self, entry: Any) -> bool:
        kind = str(entry.get("type")) if isinstance(entry, dict) else ""
        return kind == "reasoning" or kind.endswith("_call") or super().is_said(entry)

    def system_of(self, read: Read) -> list[Message]:
        return _instructed(read.field("instructions"))

    def entries_of(self, messages: Sequence[Message]) -> list[Any]:
        return to_items(messages)

    def add_note(
        self, body: bytes, read: Read, leading: Sequence[Any], note: str
    ) -> tuple[list[Any] | None, Change | None]:
        del body
        if leading:
            content = leading[-1].get("content")
            parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else list(content or [])
            last = {**leading[-1], "content": [*parts, {"type": "input_text", "text": note}]}
            return [*leading[:-1], last], None
        place, value = read.fields.get("instructions"), read.field("instructions")
        if place is None or not isinstance(value, str) or not value:
            return None, None
        return None, (*place, dump_json(f"{value}\n\n{note}"))

    def answer_tokens(self, read: Read) -> int:
        return whole_number(read.field("max_output_tokens"))

    def gathering(self) -> StreamAssembler:
        return ResponsesAssembler()

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        return responses_reply(answer, self.api)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return OPENAI.error(status, message)


RESPONSES: Dialect = _ResponsesDialect()
