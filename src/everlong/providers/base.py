"""The provider protocol, and the values that every provider returns: replies, usage and stream events.

Conversations go in and come out as messages in the OpenAI format. Parts that only one API has (thinking with its
signatures) travel in them byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, Unpack

from everlong.model import Message, calls_of, text_of
from everlong.model.message import ToolCall

__all__ = [
    "CallOptions",
    "Done",
    "Event",
    "Provider",
    "Reply",
    "StopReason",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallMade",
    "Usage",
    "UsageReported",
]

StopReason = Literal["end", "tool_calls", "length", "window", "refusal", "pause"]
"""The reason why a model stopped: done, wants tools, limit of the answer or of the window, declined, or paused."""


_MOST_TOKENS = 10**12
"""No call uses more tokens; a larger count is a mistake of the server."""


_VALUE_WEIGHT = 256


def weigh(value: Any) -> int:
    """Return the weight of JSON: the characters of its texts, and 256 for each value; what it costs to keep it."""
    weight, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        weight += _VALUE_WEIGHT
        if isinstance(item, str):
            weight += len(item)
        elif isinstance(item, dict):
            weight += sum(map(len, item))
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return weight


def tokens_in(usage: Any, *names: str) -> int:
    """Return the token count at a path of names in a server's usage report; 0 if there is no valid count."""
    for name in names:
        usage = usage.get(name) if isinstance(usage, Mapping) else None
    is_count = isinstance(usage, int | float) and not isinstance(usage, bool) and 0 <= usage <= _MOST_TOKENS
    return int(usage) if is_count else 0


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call; the prompt is the sum of plain, cache-read and cache-written tokens."""

    input_tokens: int = 0
    """Plain prompt tokens: neither read from the cache nor written to it."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    """The part of the written tokens that stays for an hour."""
    reasoning_tokens: int = 0
    """The part of the output that was thinking."""

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the prompt."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        """Tokens of prompt and answer."""
        return self.prompt_tokens + self.output_tokens

    def to_dict(self) -> dict[str, int]:
        """Return the usage in the form that `ContextEngine.update_from_response` takes."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.total_tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "cache_write_1h_tokens": self.cache_write_1h_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model."""

    message: Message
    """The assistant message, ready to be appended to the conversation and sent again to any provider."""
    usage: Usage
    stop: StopReason
    model: str
    """The model that answered, as the API names it."""
    provider: str
    id: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The answer as the API sent it, or as its stream adds up."""

    @property
    def text(self) -> str:
        """The words of the answer, without thinking."""
        return text_of(self.message)

    @property
    def calls(self) -> list[ToolCall]:
        """The tools that the model wants to be called."""
        return calls_of(self.message)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More words of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallMade:
    """A tool call, complete."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class UsageReported:
    """The tokens that the call has used."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a stream, with the whole reply; always the last event, and missing only where an error is raised."""

    reply: Reply


Event: TypeAlias = TextDelta | ThinkingDelta | ToolCallMade | UsageReported | Done


class CallOptions(TypedDict, total=False):
    """Optional arguments of a call, besides its messages."""

    tools: Sequence[Mapping[str, Any]]
    """Tools on offer, in the OpenAI format."""
    max_tokens: int | None
    """The most tokens that the answer may have."""
    options: Mapping[str, Any] | None
    """Further fields of the API's own request body; they override those made here."""
    prepare: Callable[[dict[str, Any]], Mapping[str, Any]] | None
    """A function that gets the whole body just before it is sent and returns the one to send, as `PromptCache.apply`.

    It is called for each attempt. Its exceptions pass unchanged."""
    headers: Mapping[str, str] | None
    """HTTP headers to send along, as those of `PromptCache.headers`."""


class Provider(Protocol):
    """One model behind one API. Every failure is raised as a `ProviderError`.

    To add an OpenAI-compatible one, add a row to `ENDPOINTS` in ``endpoints.py``. An API of its own needs a subclass of
    `ClientProvider` (``client.py``) and a branch in ``connection.py``.
    """

    @property
    def name(self) -> str:
        """The provider's name, such as ``anthropic``."""
        ...

    @property
    def model(self) -> str:
        """The model's name, as the API wants it."""
        ...

    @property
    def takes_markers(self) -> bool:
        """True if ``cache_control`` markers in the messages reach the model's cache."""
        ...

    def complete(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Reply:
        """Return the model's answer."""
        ...

    def stream(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Iterator[Event]:
        """Yield the model's answer as it comes; closing the iterator ends the call."""
        ...

    def served_context_length(self) -> int | None:
        """Return the model's window by the server's own account; None if it gives none."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
