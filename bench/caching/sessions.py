"""Made-up agent sessions for the cache simulator: the same seed always gives the same session.

A session is a series of timed requests in the OpenAI format: a system prompt and tools, tool calls one by one or many
at once, people who ask and pause, compactions, forks and rewinds. Texts are filler of a known size.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from everlong.model import SUMMARY_STARTS, Message
from everlong.tokens.estimate import CHARS_PER_TOKEN

__all__ = ["PROFILES", "Editor", "MadeUpCall", "Shape", "make_session"]

_FILLER = "the harbour office keeps a list of berths and of boats that asked for one; " * 400


class MadeUpCall(NamedTuple):
    """One request of a session."""

    at: float
    messages: list[Message]
    tools: list[dict[str, Any]]

    @property
    def body(self) -> dict[str, Any]:
        """The request as a dict."""
        return {"messages": self.messages, "tools": self.tools}


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a session; sizes in tokens, times in seconds."""

    calls: int = 200
    system: int = 8_000
    tools: int = 6_000
    tool_count: int = 20
    results: tuple[int, int] = (500, 3_000)
    fan_out: tuple[tuple[float, int, int], ...] = ((1.0, 1, 1),)
    """Chances for the number of tools called at once, each with a least and a most."""
    asks: float = 0.1
    """The share of calls after which the assistant replies and the person asks again."""
    gap: float = 30.0
    pause_share: float = 1 / 25
    pause: tuple[float, float] = (360.0, 2_400.0)
    compact_at: int = 100_000
    summary: int = 10_000
    tail: int = 20_000
    rewinds: float = 0.0
    """The share of calls before which the person goes back a few calls and asks something else."""
    forks: float = 0.0
    """The share of calls at which another branch is tried for a few calls before the first goes on."""


PROFILES: dict[str, Shape] = {
    "serial": Shape(),
    "mixed": Shape(fan_out=((0.8, 1, 2), (0.17, 3, 6), (0.03, 12, 16))),
    "wide": Shape(fan_out=((1.0, 1, 25),)),
}

Editor = Callable[[list[Message], list[dict[str, Any]], float], list[Message]]
"""A function that edits history before a request: it takes the messages, the tools and the time."""


def make_session(shape: Shape, seed: int | str, edit: Editor | None = None) -> Iterator[MadeUpCall]:
    """Yield the requests of a session, one after the other."""
    return _SessionMaker(shape, random.Random(f"session {seed}"), edit).run()


@dataclass
class _SessionMaker:
    shape: Shape
    rng: random.Random
    edit: Editor | None
    number: int = 0
    now: float = 0.0
    stops: list[list[Message]] = field(default_factory=list)
    """The histories of earlier requests that one can go back to."""

    def run(self) -> Iterator[MadeUpCall]:
        tools = self._tools()
        messages: list[Message] = [
            {"role": "system", "content": self._text(self.shape.system)},
            {"role": "user", "content": self._text(self.rng.randint(100, 500))},
        ]
        main: list[Message] | None = None
        branch_calls = 0
        for number in range(self.shape.calls):
            if number:
                self._wait()
                if main is not None and branch_calls == 0:
                    messages, main = main, None
                elif main is None and len(self.stops) > 3 and self.rng.random() < self.shape.forks:
                    main, messages = messages, self._go_back(3)
                    branch_calls = self.rng.randint(2, 6)
                elif len(self.stops) > 3 and self.rng.random() < self.shape.rewinds:
                    messages = self._go_back(8)
            branch_calls -= branch_calls > 0
            messages = self._edit_history(messages, tools)
            yield MadeUpCall(self.now, list(messages), tools)
            self.stops = [*self.stops[-20:], list(messages)]
            messages = [*messages, *self._reply()]

    def _wait(self) -> None:
        is_pause = self.rng.random() < self.shape.pause_share
        self.now += self.rng.uniform(*self.shape.pause) if is_pause else self.shape.gap

    def _go_back(self, furthest: int) -> list[Message]:
        """Return an earlier request's history, with another question at its end."""
        stop = self.stops[-1 - self.rng.randint(1, min(furthest, len(self.stops) - 1))]
        reply = {"role": "assistant", "content": self._text(self.rng.randint(50, 400))}
        return [*stop, reply, {"role": "user", "content": self._text(self.rng.randint(30, 300))}]

    def _reply(self) -> list[Message]:
        if self.rng.random() < self.shape.asks:
            return [
                {"role": "assistant", "content": self._text(self.rng.randint(50, 400))},
                {"role": "user", "content": self._text(self.rng.randint(30, 300))},
            ]
        chance = self.rng.random()
        least, most = 1, 1
        for share, least, most in self.shape.fan_out:  # noqa: B007 - the one that the chance falls on
            if chance < share:
                break
            chance -= share
        ids = [self._id() for _ in range(self.rng.randint(least, most))]
        calls = [
            {
                "id": call,
                "type": "function",
                "function": {"name": "look", "arguments": self._text(self.rng.randint(20, 120))},
            }
            for call in ids
        ]
        said = self._text(self.rng.randint(20, 120)) if self.rng.random() < 0.5 else None
        results = [
            {"role": "tool", "tool_call_id": call, "content": self._text(self.rng.randint(*self.shape.results))}
            for call in ids
        ]
        return [{"role": "assistant", "content": said, "tool_calls": calls}, *results]

    # -- compaction --------------------------------------------------------------------------------------------------

    def _edit_history(self, messages: list[Message], tools: list[dict[str, Any]]) -> list[Message]:
        if self.edit is not None:
            edited = self.edit(messages, tools, self.now)
        elif self.shape.compact_at and tokens_of(messages, tools) >= self.shape.compact_at:
            edited = compacted(messages, self._text, self.shape.summary, self.shape.tail)
        else:
            return messages
        if edited is not messages:
            self.stops = []  # nobody goes back behind an edit
        return edited

    # -- texts -------------------------------------------------------------------------------------------------------

    def _id(self) -> str:
        self.number += 1
        return f"call_{self.number:06}"

    def _text(self, tokens: int) -> str:
        self.number += 1
        return filler(self.number, tokens)

    def _tools(self) -> list[dict[str, Any]]:
        size = self.shape.tools // self.shape.tool_count
        return [
            {"type": "function", "function": {"name": f"tool_{at}", "description": self._text(size - 25)}}
            for at in range(self.shape.tool_count)
        ]


def filler(number: int, tokens: int) -> str:
    """Return a text of ``tokens`` tokens whose beginning is unique to its number."""
    text = f"[{number}] "
    chars = CHARS_PER_TOKEN * tokens
    while len(text) < chars:
        text += _FILLER
    return text[:chars]


def tokens_of(messages: list[Message], tools: list[dict[str, Any]]) -> int:
    """Return the size of a request in tokens, by its texts."""
    characters = sum(len(tool["function"]["description"]) + 100 for tool in tools)
    for message in messages:
        characters += message_size(message)
    return characters // CHARS_PER_TOKEN


def message_size(message: Message) -> int:
    """Return the characters of one message."""
    content = message.get("content")
    calls = message.get("tool_calls") or ()
    said = sum(len(part["text"]) for part in content) if isinstance(content, list) else len(content or "")
    return said + sum(len(call["function"]["arguments"]) + 80 for call in calls)


def compacted(
    messages: list[Message], text: Callable[[int], str], summary_tokens: int, tail_tokens: int
) -> list[Message]:
    """Return a compaction in outline: the system prompt, a summary, and the newest groups that fit the tail."""
    start = len(messages)
    size = 0
    for at in range(len(messages) - 1, 2, -1):
        size += message_size(messages[at])
        if size > CHARS_PER_TOKEN * tail_tokens and start < len(messages):
            break
        if messages[at]["role"] == "assistant":
            start = at
    begins = f"{SUMMARY_STARTS[0]} "
    summary = {"role": "user", "content": begins + text(max(1, summary_tokens - len(begins) // CHARS_PER_TOKEN))}
    return [messages[0], summary, *messages[start:]]
