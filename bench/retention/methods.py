"""Methods of compaction: the engine, and the simple recipes that it is compared with, all given the same room.

Each takes a list of messages and the tokens that everything but the system prompt may take, and returns the compacted
list, or None where it cannot be made so small. Knows nothing of facts or measures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bench.retention.entities import entities
from bench.retention.texts import Text
from everlong.context import ContextCompressor
from everlong.context.compaction import with_note
from everlong.errors import TargetUnreachable
from everlong.model import Message, calls_of, leading_system_count
from everlong.tokens import MessageCounter

Method = Callable[[list[Message], int], "list[Message] | None"]

WINDOW = 200_000
CLEARED = "[cleared]"
HEAD_SHARE = 0.5
"""A first exchange that takes more of the room than this is reduced to the first request."""

_counter = MessageCounter()


def body_tokens(messages: Sequence[Message]) -> int:
    """Return the tokens of a list without its system prompt."""
    return sum(_counter.counts(messages[leading_system_count(messages) :]))


def extractive(messages: list[Message], room: int) -> list[Message] | None:
    """Compact with a new engine, without a model."""
    return compacted_by(ContextCompressor(WINDOW), messages, room)


def method_of(name: str) -> Method:
    """Return a method for the compactions of one conversation: ``extractive`` keeps its engine, as a host does."""
    return partial(compacted_by, ContextCompressor(WINDOW)) if name == "extractive" else METHODS[name]


def compacted_by(engine: ContextCompressor, messages: list[Message], room: int) -> list[Message] | None:
    """Compact a list with an engine to fit a room."""
    prompt = messages[: leading_system_count(messages)]
    for system in (with_note(prompt), prompt):  # the note is paid for like the prompt, where there is one
        try:
            context = engine.compress(messages, target_tokens=room + sum(engine.counter.counts(system)))
        except TargetUnreachable:
            return None
        if body_tokens(context) <= room:
            return context
    return None


def keep_last(messages: list[Message], room: int) -> list[Message] | None:
    """Return the system prompt and the longest run of newest groups that fits."""
    start = leading_system_count(messages)
    return [*messages[:start], *_suffix(messages[start:], room)]


def clear_results(messages: list[Message], room: int) -> list[Message] | None:
    """Clear old tool results, oldest first, until the rest fits; then drop the oldest groups."""
    start = leading_system_count(messages)
    body, tokens = list(messages[start:]), body_tokens(messages)
    for index, message in enumerate(body):
        if tokens <= room:
            break
        if message.get("role") == "tool":
            body[index] = {**message, "content": CLEARED}
            tokens += sum(_counter.counts([body[index]])) - sum(_counter.counts([message]))
    return [*messages[:start], *_suffix(body, room)]


def head_tail(messages: list[Message], room: int) -> list[Message] | None:
    """Return the system prompt, the first exchange, and the longest run of newest groups that fits."""
    start = leading_system_count(messages)
    body = messages[start:]
    head = _first_exchange(body)
    if body_tokens(body[:head]) > HEAD_SHARE * room:
        head = _first_request(body)
    if body_tokens(body[:head]) > room:
        head = 0
    rest = _suffix(body[head:], room - body_tokens(body[:head]))
    return [*messages[:start], *body[:head], *rest]


def bare_list(messages: list[Message], room: int) -> list[Message] | None:
    """Return a list of names and numbers, newest first, and half the room for the newest groups.

    By the benchmark's own rules, so that it shows what recall alone is worth: it must score low where company counts.
    """
    start = leading_system_count(messages)
    tail = _suffix(messages[start:], room // 2)
    past = Text(messages[start : len(messages) - len(tail)]).parts
    names = dict.fromkeys(entity.text for part in reversed(past) for entity in entities(part))
    listed = list(names)
    while listed and body_tokens([_listing(listed), *tail]) > room:
        listed = listed[: int(len(listed) * 0.95)]
    return [*messages[:start], _listing(listed), *tail]


def _listing(names: Sequence[str]) -> Message:
    return {"role": "user", "content": "\n".join(names)}


DEFAULT = ("extractive", "keep-last", "clear-results", "head+tail")
METHODS: dict[str, Method] = {
    "extractive": extractive,
    "extractive-new": extractive,
    "keep-last": keep_last,
    "clear-results": clear_results,
    "head+tail": head_tail,
    "bare-list": bare_list,
}


def _suffix(body: Sequence[Message], room: int) -> list[Message]:
    start, tokens = len(body), 0
    for index in range(len(body) - 1, -1, -1):
        tokens += sum(_counter.counts([body[index]]))
        if tokens > room:
            break
        if body[index].get("role") != "tool":
            start = index
    return list(body[start:])


def _first_request(body: Sequence[Message]) -> int:
    return next((index for index, message in enumerate(body) if message.get("role") == "assistant"), len(body))


def _first_exchange(body: Sequence[Message]) -> int:
    end = _first_request(body)
    if end == len(body):
        return end
    waiting = len(calls_of(body[end]))
    end += 1
    while waiting and end < len(body) and body[end].get("role") == "tool":
        waiting, end = waiting - 1, end + 1
    return end
