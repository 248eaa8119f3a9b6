"""Conversation files in the OpenAI format: which kind a file is, its messages, and the same file with other messages.

Read are a message list, a chat-completions request body, and JSONL (or a JSON list) of messages or of objects that
have messages. What surrounds the messages is kept as it is. This module does not know what happens to the messages
between reading and writing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from everlong.errors import MessageError, TranscriptError
from everlong.model.message import Message, checked_messages
from everlong.wire.text import Layout, decoded, layout_of, parse_json, rendered

__all__ = ["Conversation", "Transcript", "TranscriptKind", "read_transcript"]

TranscriptKind: TypeAlias = Literal["messages", "request", "jsonl-messages", "jsonl-conversations", "conversations"]

ACCEPTED = (
    "Accepted are OpenAI-format conversations: a JSON list of messages, a request body with 'messages', "
    "or JSONL with a message or an object with 'messages' on each line"
)


@dataclass(frozen=True)
class Conversation:
    """One conversation of a file; ``body`` is the object around its messages, if there is one."""

    messages: list[Message]
    body: dict[str, Any] | None = None

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tool definitions sent along, or none."""
        tools = self._field("tools")
        return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []

    @property
    def model(self) -> str | None:
        """The model that the conversation names, if it names one."""
        return _text_or_none(self._field("model"))

    @property
    def id(self) -> str | None:
        """What the conversation is called in its file, if it is called something."""
        names = ("id", "conversation_id", "session_id")
        return next((found for name in names if (found := _text_or_none(self._field(name)))), None)

    def _field(self, name: str) -> Any:
        return None if self.body is None else self.body.get(name)


@dataclass(frozen=True)
class Transcript:
    """A file that was understood: its kind, its conversations, and how it was laid out."""

    kind: TranscriptKind
    conversations: list[Conversation]
    layout: Layout

    def describe(self) -> str:
        """What the file was taken for, as a phrase for people."""
        total = sum(len(conversation.messages) for conversation in self.conversations)
        messages = _counted(total, "message")
        if self.kind == "messages":
            return f"an OpenAI message list of {messages}"
        if self.kind == "request":
            model = self.conversations[0].model
            return f"a chat-completions request{f' for {model}' if model else ''} with {messages}"
        if self.kind == "jsonl-messages":
            return f"a JSONL file of {messages}"
        shape = "a JSONL file" if self.kind == "jsonl-conversations" else "a JSON list"
        return f"{shape} of {_counted(len(self.conversations), 'conversation')} with {messages}"

    def render(self, conversations_messages: Sequence[Sequence[Message]]) -> str:
        """The file in the format that came in, with these messages for each conversation."""
        if len(conversations_messages) != len(self.conversations):
            raise ValueError(
                f"expected messages for {len(self.conversations)} conversations, got {len(conversations_messages)}"
            )
        lists = [list(messages) for messages in conversations_messages]
        if self.kind == "jsonl-messages":
            return "".join(rendered(message, self.layout) for message in lists[0])
        if self.kind == "messages":
            return rendered(lists[0], self.layout)
        pairs = zip(self.conversations, lists, strict=True)
        bodies = [{**(conversation.body or {}), "messages": messages} for conversation, messages in pairs]
        if self.kind == "jsonl-conversations":
            return "".join(rendered(body, self.layout) for body in bodies)
        return rendered(bodies[0] if self.kind == "request" else bodies, self.layout)


def read_transcript(data: bytes | str) -> Transcript:
    """Understand a conversation file, or raise a `TranscriptError` that says what is wrong and where."""
    text = decoded(data)
    if not text.strip():
        raise TranscriptError(f"the input is empty. {ACCEPTED}")
    if _is_jsonl(text):
        return _read_lines(text)
    return _classified(parse_json(text, "the input"), layout_of(text))


def _is_jsonl(text: str) -> bool:
    """Whether the first line with content is a whole JSON object and more lines follow."""
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
    if any("messages" in value for value in values.values()):
        conversations = [_conversation(body, f"line {number}") for number, body in values.items()]
        return Transcript("jsonl-conversations", conversations, layout)
    numbers = list(values)
    messages = _checked(values.values(), lambda index: f"line {numbers[index]}")
    return Transcript("jsonl-messages", [Conversation(messages)], layout)


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
        raise TranscriptError(f"line {number} is {_kind(value)}, but each line of JSONL must be an object. {ACCEPTED}")
    return value


def _classified(value: Any, layout: Layout) -> Transcript:
    if isinstance(value, dict):
        if "messages" in value:
            return Transcript("request", [_conversation(value, "the request")], layout)
        if "role" in value:  # JSONL that happens to have one line
            messages = _checked([value], lambda _: "the message")
            return Transcript("jsonl-messages", [Conversation(messages)], layout._replace(indent=None))
        raise TranscriptError(f"found an object {_keys(value)} and without 'messages'. {ACCEPTED}")
    if not isinstance(value, list):
        raise TranscriptError(f"found {_kind(value)}. {ACCEPTED}")
    if any(isinstance(entry, dict) and "messages" in entry and "role" not in entry for entry in value):
        conversations = [_conversation(body, f"conversation {index}") for index, body in enumerate(value)]
        return Transcript("conversations", conversations, layout)
    if value and not isinstance(value[0], dict):
        raise TranscriptError(f"found a list whose first entry is {_kind(value[0])}. {ACCEPTED}")
    return Transcript("messages", [Conversation(_checked(value, lambda index: f"message {index}"))], layout)


def _conversation(body: Any, where: str) -> Conversation:
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        found = f"an object {_keys(body)}" if isinstance(body, dict) else _kind(body)
        raise TranscriptError(f"{where} is {found} and has no list of 'messages'. {ACCEPTED}")
    sign = next((name for name in ("system", "anthropic_version") if name in body), None)
    if sign:
        raise TranscriptError(_anthropic(where, f"a top-level '{sign}'"))
    return Conversation(_checked(body["messages"], lambda index: f"{where}, message {index}"), body)


def _checked(values: Iterable[Any], where: Callable[[int], str]) -> list[Message]:
    try:
        messages = checked_messages(values)
    except MessageError as error:
        problem = str(error).partition(": ")[2]
        raise TranscriptError(f"{where(error.index or 0)}: {problem}. {ACCEPTED}") from error
    for index, message in enumerate(messages):
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result"):
                raise TranscriptError(_anthropic(where(index), f"a content part of type '{part['type']}'"))
    return messages


def _anthropic(where: str, sign: str) -> str:
    return (
        f"{where} is in the Anthropic format ({sign}), which this version does not read; "
        f"convert it to the OpenAI format first. {ACCEPTED}"
    )


def _keys(value: dict[str, Any]) -> str:
    names = [repr(name[:40]) for name in list(value)[:6]]
    if not names:
        return "without any keys"
    more = f" and {len(value) - len(names)} more" if len(value) > len(names) else ""
    return f"with the keys {', '.join(names)}{more}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {str: "text", bool: "true or false", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _text_or_none(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None
