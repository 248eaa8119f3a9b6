"""Turn a client's log into its conversations, each with its facts and its figures.

Each client has a module with ``is_…``, which knows its log, and ``read_…``, which returns what it tells as a `LogRun`
for each conversation. The names that a client has for facts and figures stand in tables: paths into its JSON. A log is
read as a whole, however it has grown; the store knows the messages that it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from everlong.errors import TranscriptError
from everlong.model import Message

__all__ = [
    "LogFacts",
    "LogRun",
    "LogUsage",
    "answer_message",
    "call_of",
    "count_of",
    "dicts_in",
    "dollars_of",
    "explain_malformed",
    "json_in",
    "parse_line",
    "result_message",
    "text_at",
    "usage_at",
    "value_at",
]

_MALFORMED = (ValueError, TypeError, AttributeError, LookupError, OverflowError)
_MOST = 1e15
"""The largest count that is believed; no database could add up a larger one."""
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})


class LogUsage(NamedTuple):
    """The tokens and dollars that a log states; input that a cache served is counted only there."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    api_calls: int = 0
    cost: float = 0.0
    """US dollars, as the client states them; 0 if it states none."""

    def plus(self, *others: LogUsage) -> LogUsage:
        """Return the sum of this and others."""
        return LogUsage(*map(sum, zip(self, *others, strict=True)))

    def without_cached_input(self) -> LogUsage:
        """Return the usage of a client that counts what a cache served as input too."""
        return self._replace(input_tokens=max(0, self.input_tokens - self.cache_read_tokens - self.cache_write_tokens))

    @property
    def is_stated(self) -> bool:
        """True if the log states anything."""
        return self != _NOTHING_USED


_NOTHING_USED = LogUsage()


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts of a log about one conversation, besides its messages."""

    client: str
    session: str | None = None
    """The client's own id of the conversation."""
    agent: str | None = None
    """The name of the sub-agent whose conversation it is."""
    works_for: str | None = None
    """The client's id of the conversation that had it begun, or that it was forked from."""
    title: str | None = None
    """The title that the client, or a person in it, gave; None where there is none."""
    folder: str | None = None
    git_branch: str | None = None
    model: str | None = None
    version: str | None = None
    started: float | None = None

    @property
    def key(self) -> str | None:
        """The name of the conversation among all of its client."""
        if self.agent is None:
            return self.session
        return f"{self.session or 'session'}/agent-{self.agent}"


@dataclass(slots=True)
class LogRun:
    """One conversation of a log."""

    facts: LogFacts
    messages: list[Message] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    usage: LogUsage = _NOTHING_USED
    is_abandoned: bool = False
    """True if a person went back and another way, which is a run of its own."""

    def say(self, time: float | None, *messages: Message) -> None:
        """Add messages to the conversation."""
        self.messages += messages
        self.times += [time] * len(messages)

    def learn(self, **facts: Any) -> None:
        """Note facts of the conversation; None says nothing."""
        self.facts = replace(self.facts, **{name: value for name, value in facts.items() if value is not None})

    def drop_from(self, place: int) -> None:
        """Take back the messages from a place on."""
        del self.messages[place:], self.times[place:]

    def drop_open_reply(self, *, is_quiet: bool) -> None:
        """Take back a last reply that its client may still be writing; in a quiet log, only thoughts wait for more."""
        replies = [at for at, message in enumerate(self.messages) if message["role"] == "assistant"]
        if replies and (not is_quiet or _is_thought(self.messages[replies[-1]])):
            self.drop_from(replies[-1])


def _is_thought(message: Message) -> bool:
    parts = message.get("content")
    is_thought = isinstance(parts, list) and all(part.get("type") in _THOUGHTS for part in dicts_in(parts))
    return is_thought and not message.get("tool_calls")


# -- values of other programs ------------------------------------------------------------------------------------------


def parse_line(line: bytes) -> Any:
    """Return the JSON value of a line.

    Raises:
        ValueError: It is none.
    """
    try:
        return orjson.loads(line)
    except ValueError:  # halves of surrogate pairs and huge numbers, which only the standard library reads
        try:
            return json.loads(line)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def json_in(value: object) -> Any:
    """Return the JSON value in a text; None if there is none."""
    try:
        return json.loads(value) if isinstance(value, str) and value else None
    except (ValueError, RecursionError):
        return None


@contextmanager
def explain_malformed() -> Iterator[None]:
    """Raise the errors of malformed values as a `TranscriptError`: such a log costs itself, and no other one."""
    try:
        yield
    except _MALFORMED as error:
        raise TranscriptError(
            f"the log does not have the form that its client writes ({type(error).__name__}: {error}); "
            "it is damaged, or of a version that is not known yet"
        ) from error


def value_at(value: object, path: str) -> Any:
    """Return what stands at a path of names with dots between them; None if nothing does."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def text_at(value: object, *paths: str) -> str | None:
    """Return the first of some places that holds a text with something in it, as any database takes it."""
    found = (value_at(value, path) for path in paths)
    text = next((text for text in found if isinstance(text, str) and text), None)
    return None if text is None else text.replace("\0", "").encode("utf-8", "replace").decode()


def usage_at(value: object, **paths: str) -> LogUsage:
    """Return the usage of one call; ``paths`` has the place of each figure."""
    used = {name: count_of(value_at(value, path)) for name, path in paths.items() if name != "cost"}
    cost = dollars_of(value_at(value, paths["cost"])) if "cost" in paths else 0.0
    return LogUsage(**used, cost=cost, api_calls=1) if cost or any(used.values()) else _NOTHING_USED


def count_of(value: object) -> int:
    """Return a number of tokens; 0 for anything that is none."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST else 0


def dollars_of(value: object) -> float:
    """Return an amount of dollars; 0 for anything that is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9 else 0.0


def dicts_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; none for anything that is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# -- messages ----------------------------------------------------------------------------------------------------------


def call_of(ident: object, name: object, arguments: object) -> dict[str, Any]:
    """Return a call of a tool in OpenAI's format."""
    function = {"name": str(name or ""), "arguments": json.dumps(arguments or {}, ensure_ascii=False)}
    return {"id": str(ident or ""), "type": "function", "function": function}


def result_message(ident: object, content: Any, *, is_error: bool = False) -> Message:
    """Return the result of a call in OpenAI's format."""
    message: Message = {"role": "tool", "tool_call_id": str(ident or ""), "content": content}
    return {**message, "is_error": True} if is_error else message


def answer_message(parts: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[Message]:
    """Return the answer of a model as one message, with a single text as such; none if it says and calls nothing."""
    is_plain = len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text"
    message: Message = {"role": "assistant", "content": parts[0]["text"] if is_plain else parts or None}
    if calls:
        message["tool_calls"] = calls
    return [message] if parts or calls else []
