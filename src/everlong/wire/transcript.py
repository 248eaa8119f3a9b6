"""Conversation files: the kind of a file, its messages, and the same file with other messages.

A file may be a message list, a request body, or JSONL (or a JSON list) of messages or of objects with messages, in the
OpenAI or the Anthropic format; or a session log of Claude Code. Messages are always returned in the OpenAI format; what
surrounds them is kept as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from everlong.errors import MessageError, TranscriptError
from everlong.model.content import counted
from everlong.model.message import Message, checked_messages
from everlong.wire.anthropic import sendable, to_anthropic, to_openai
from everlong.wire.logs.claude_code import is_log, read_claude_code
from everlong.wire.text import JsonLayout, decode_text, layout_of, parse_json, render_json

__all__ = ["Format", "Transcript", "TranscriptConversation", "TranscriptKind", "format_of", "read_transcript"]

Format: TypeAlias = Literal["openai", "anthropic"]

_CALL_BLOCKS = frozenset({"tool_use", "tool_result"})
_CARRIED_BLOCKS = frozenset({"thinking", "redacted_thinking", "document", "server_tool_use"})
_OPENAI_ROLES = frozenset({"tool", "function", "developer"})


def format_of(messages: Sequence[Message], body: Mapping[str, Any], where: str) -> Format:
    """Return the format of checked messages and their body; ``where`` names them in the error for a mixture."""
    anthropic = _body_sign(body)
    openai = carried = ""
    is_prompted = False
    for message in messages:
        role = message["role"]
        is_prompted = is_prompted or role == "system"
        if role in _OPENAI_ROLES:
            openai = openai or f"a message of the role '{role}'"
        elif message.get("tool_calls"):
            openai = openai or "'tool_calls'"
        for kind, part in _typed_parts(message):
            if kind in _CALL_BLOCKS:
                anthropic = anthropic or f"a block of the type '{kind}'"
            elif kind == "image_url":
                openai = openai or "a part of the type 'image_url'"
            elif kind in _CARRIED_BLOCKS or (kind == "image" and isinstance(part.get("source"), dict)):
                carried = kind
    if anthropic and openai:
        raise TranscriptError(
            f"{where} mixes two formats: {anthropic} is Anthropic's, {openai} is OpenAI's; write all of it in one"
        )
    return "anthropic" if anthropic or (carried and not openai and not is_prompted) else "openai"


def _body_sign(body: Mapping[str, Any]) -> str:
    if isinstance(body.get("system"), str | list):
        return "a top-level 'system'"
    if "anthropic_version" in body:
        return "'anthropic_version'"
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return "a tool with 'input_schema'"
    return ""


def _typed_parts(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("type"), str):
            yield part["type"], part


TranscriptKind: TypeAlias = Literal[
    "messages",
    "request",
    "jsonl-messages",
    "jsonl-conversations",
    "conversations",
    "anthropic-messages",
    "anthropic-request",
    "jsonl-anthropic-messages",
    "jsonl-anthropic",
    "anthropic-conversations",
    "claude-code",
]

ACCEPTED = (
    "Accepted are conversations in the OpenAI or the Anthropic format: a JSON list of messages, a request body with "
    "'messages', or JSONL with a message or an object with 'messages' on each line; and session logs of Claude Code"
)

_ANTHROPIC: dict[TranscriptKind, TranscriptKind] = {
    "messages": "anthropic-messages",
    "request": "anthropic-request",
    "jsonl-messages": "jsonl-anthropic-messages",
    "jsonl-conversations": "jsonl-anthropic",
    "conversations": "anthropic-conversations",
}
_OPENAI = {anthropic: openai for openai, anthropic in _ANTHROPIC.items()}


@dataclass(frozen=True)
class TranscriptConversation:
    """One conversation of a file, in the OpenAI format; ``body`` is the object around its messages, if any.

    ``format`` is its format in the file. ``times`` has the time of each message in seconds since 1970, or None, if the
    file is a log with times.
    """

    messages: list[Message]
    body: dict[str, Any] | None = None
    format: Format = "openai"
    times: list[float | None] | None = None

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tool definitions sent along; empty if there are none."""
        tools = self._field("tools")
        return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []

    @property
    def model(self) -> str | None:
        """The model that the conversation names, if any."""
        return _text_or_none(self._field("model"))

    @property
    def id(self) -> str | None:
        """The id of the conversation in its file, if it has one."""
        names = ("id", "conversation_id", "session_id")
        return next((found for name in names if (found := _text_or_none(self._field(name)))), None)

    def _field(self, name: str) -> Any:
        return None if self.body is None else self.body.get(name)


@dataclass(frozen=True)
class Transcript:
    """A file that was understood: its kind, its conversations, and its layout."""

    kind: TranscriptKind
    conversations: list[TranscriptConversation]
    layout: JsonLayout

    def describe(self) -> str:
        """Return a phrase for people on what the file was taken for."""
        count = len(self.conversations)
        messages = counted(sum(len(conversation.messages) for conversation in self.conversations), "message")
        shape = _OPENAI.get(self.kind, self.kind)
        anthropic = "Anthropic-format " if shape != self.kind else ""
        if shape == "claude-code":
            return f"a Claude Code session log of {counted(count, 'conversation')} with {messages}"
        if shape == "messages":
            return f"an {'Anthropic' if anthropic else 'OpenAI'} message list of {messages}"
        if shape == "request":
            model = self.conversations[0].model
            name = "an Anthropic Messages" if anthropic else "a chat-completions"
            return f"{name} request{f' for {model}' if model else ''} with {messages}"
        if shape == "jsonl-messages":
            return f"a JSONL file of {messages}{' in the Anthropic format' if anthropic else ''}"
        file = "a JSONL file" if shape == "jsonl-conversations" else "a JSON list"
        return f"{file} of {counted(count, f'{anthropic}conversation')} with {messages}"

    def render(self, conversations_messages: Sequence[Sequence[Message]]) -> str:
        """Return the file in the format that came in, with these messages for each conversation.

        A log of Claude Code becomes a list of messages in the Anthropic format; with sub-agents or several sessions, a
        list of objects with ``id``, ``model`` and ``messages``.
        """
        if len(conversations_messages) != len(self.conversations):
            raise ValueError(
                f"expected messages for {len(self.conversations)} conversations, got {len(conversations_messages)}"
            )
        shape = _OPENAI.get(self.kind, self.kind)
        pairs = zip(self.conversations, conversations_messages, strict=True)
        if shape in ("messages", "jsonl-messages") or (shape == "claude-code" and len(self.conversations) == 1):
            messages = [message for pair in pairs for message in _listed(*pair)]
            if shape == "jsonl-messages":
                return "".join(render_json(message, self.layout) for message in messages)
            return render_json(messages, self.layout)
        bodies = [_body(*pair) for pair in pairs]
        if shape == "jsonl-conversations":
            return "".join(render_json(body, self.layout) for body in bodies)
        return render_json(bodies[0] if shape == "request" else bodies, self.layout)


def _listed(conversation: TranscriptConversation, messages: Sequence[Message]) -> list[Message]:
    """Return the messages in the format of a file that has nothing but messages."""
    if conversation.format == "openai":
        return list(messages)
    system, listed = to_anthropic(messages)
    prompt = [] if system is None else [{"role": "system", "content": system}]
    return sendable([*prompt, *listed])


def _body(conversation: TranscriptConversation, messages: Sequence[Message]) -> dict[str, Any]:
    body = dict(conversation.body or {})
    if conversation.format == "openai":
        return {**body, "messages": list(messages)}
    system, listed = to_anthropic(messages)
    if system is not None:
        body["system"] = sendable(system) if isinstance(system, list) else system
    elif body.get("system") is not None:
        del body["system"]
    return {**body, "messages": sendable(listed)}


def read_transcript(data: bytes | str) -> Transcript:
    """Read a conversation file, or raise a `TranscriptError` that says what is wrong and where."""
    text = decode_text(data)
    if not text.strip():
        raise TranscriptError(f"the input is empty. {ACCEPTED}")
    if _is_jsonl(text):
        return _read_lines(text)
    return _classify(parse_json(text, "the input"), layout_of(text))


def _is_jsonl(text: str) -> bool:
    """Return whether the first line with content is a whole JSON object and more lines follow."""
    start = len(text) - len(text.lstrip())
    end = text.find("\n", start)
    # The cheap signs first: a pretty-printed file's first line is a lone bracket, a compact one has no second line.
    if end < 0 or text[start] != "{" or not text[start:end].rstrip().endswith("}") or not text[end:].strip():
        return False
    try:
        json.loads(text[start:end])
    except (ValueError, RecursionError):
        return False
    return True


def _read_lines(text: str) -> Transcript:
    lines = {number: line for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
    last = max(lines)
    values = {number: _line_value(line, number, number == last) for number, line in lines.items()}
    layout = layout_of(text)
    if is_log(values.values()):
        return _read_log(list(values.values()))
    if any("messages" in value for value in values.values()):
        conversations = [_conversation(body, f"line {number}") for number, body in values.items()]
        return _transcript("jsonl-conversations", conversations, layout)
    numbers = list(values)
    return _transcript(
        "jsonl-messages",
        [_bare_conversation(list(values.values()), "the file", lambda index: f"line {numbers[index]}")],
        layout,
    )


def _read_log(entries: Sequence[dict[str, Any]]) -> Transcript:
    conversations = []
    for run in read_claude_code(entries):
        if not run.is_abandoned:
            body = {"id": run.facts.key, "model": run.facts.model, "folder": run.facts.folder}
            known = {key: value for key, value in body.items() if value is not None}
            conversations.append(TranscriptConversation(run.messages, known, "anthropic", run.times))
    return Transcript("claude-code", conversations, JsonLayout(indent=2, comma=","))


def _transcript(kind: TranscriptKind, conversations: list[TranscriptConversation], layout: JsonLayout) -> Transcript:
    is_anthropic = any(conversation.format == "anthropic" for conversation in conversations)
    return Transcript(_ANTHROPIC[kind] if is_anthropic else kind, conversations, layout)


def _line_value(line: str, number: int, is_last: bool) -> dict[str, Any]:
    try:
        value = parse_json(line, f"line {number}", number)
    except TranscriptError as error:
        if not is_last or not isinstance(error.__cause__, json.JSONDecodeError):
            raise
        raise TranscriptError(
            f"{error}. It is the last line, so its writer may have stopped in the middle of it; "
            f"to go on without it: head -n {number - 1} FILE > NEW_FILE"
        ) from error
    if not isinstance(value, dict):
        raise TranscriptError(
            f"line {number} is {_describe_kind(value)}, but each line of JSONL must be an object. {ACCEPTED}"
        )
    return value


def _classify(value: Any, layout: JsonLayout) -> Transcript:
    if isinstance(value, dict):
        if "messages" in value:
            return _transcript("request", [_conversation(value, "the request")], layout)
        if "role" in value:  # JSONL that happens to have one line
            conversation = _bare_conversation([value], "the message", lambda _: "the message")
            return _transcript("jsonl-messages", [conversation], layout._replace(indent=None))
        if is_log([value]):
            return _read_log([value])
        raise TranscriptError(f"found an object {_describe_keys(value)} and without 'messages'. {ACCEPTED}")
    if not isinstance(value, list):
        raise TranscriptError(f"found {_describe_kind(value)}. {ACCEPTED}")
    if any(isinstance(entry, dict) and "messages" in entry and "role" not in entry for entry in value):
        conversations = [_conversation(body, f"conversation {index}") for index, body in enumerate(value)]
        return _transcript("conversations", conversations, layout)
    if value and not isinstance(value[0], dict):
        raise TranscriptError(f"found a list whose first entry is {_describe_kind(value[0])}. {ACCEPTED}")
    return _transcript("messages", [_bare_conversation(value, "the list", lambda index: f"message {index}")], layout)


def _conversation(body: Any, where: str) -> TranscriptConversation:
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        found = f"an object {_describe_keys(body)}" if isinstance(body, dict) else _describe_kind(body)
        raise TranscriptError(f"{where} is {found} and has no list of 'messages'. {ACCEPTED}")
    messages = _check_messages(body["messages"], lambda index: f"{where}, message {index}")
    if format_of(messages, body, where) == "openai":
        return TranscriptConversation(messages, body)
    if not isinstance(body.get("system"), str | list | None):
        raise TranscriptError(
            f"{where} has a 'system' that is {_describe_kind(body['system'])}; it must be text or blocks"
        )
    return TranscriptConversation(to_openai(body), body, "anthropic")


def _bare_conversation(values: Sequence[Any], what: str, where: Callable[[int], str]) -> TranscriptConversation:
    """Return a conversation of which a file has nothing but the messages."""
    messages = _check_messages(values, where)
    if format_of(messages, {}, what) == "openai":
        return TranscriptConversation(messages)
    return TranscriptConversation(to_openai(messages), None, "anthropic")


def _check_messages(values: Iterable[Any], where: Callable[[int], str]) -> list[Message]:
    try:
        return checked_messages(values)
    except MessageError as error:
        problem = str(error).partition(": ")[2]
        raise TranscriptError(f"{where(error.index or 0)}: {problem}. {ACCEPTED}") from error


def _describe_keys(value: dict[str, Any]) -> str:
    names = [repr(name[:40]) for name in list(value)[:6]]
    if not names:
        return "without any keys"
    more = f" and {len(value) - len(names)} more" if len(value) > len(names) else ""
    return f"with the keys {', '.join(names)}{more}"


def _describe_kind(value: object) -> str:
    if value is None:
        return "null"
    names = {str: "text", bool: "true or false", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def _text_or_none(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None
