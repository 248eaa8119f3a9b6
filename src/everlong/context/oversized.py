"""Oversized messages: a text that no window holds becomes a stub, and the store keeps the whole.

A tool result of two megabytes, or a file pasted into a prompt, fits no request, whatever an engine does with the rest
of the conversation. `spill_oversized` puts a stub in its place: what it was, how large it is, its first and last lines,
and the id by which the whole can be read. Hosts call it before and after any engine, only for a request that would
not fit. `Spilling` is the same as an engine, so that the store keeps the result as a view and sends the same bytes
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from everlong.context.engine import ContextEngine
from everlong.context.literals import is_summary
from everlong.context.text import clip, one_line
from everlong.model import (
    Message,
    ToolCall,
    calls_of,
    is_reasoning,
    is_system,
    part_text,
    parts_of,
    text_of,
    with_content,
)
from everlong.tokens import MessageCounter

MOST_SHOWN = 2_000
"""The most tokens of a text that its stub shows; what the user has just sent shows as many as there is room for."""
LEAST_SHOWN = 100
_FRAME = 120
"""Tokens of a stub besides the lines that it shows."""
_FILLED = 0.5
"""Share of their room that the newest messages fill after some of them were spilled; answers need room too."""
_SURELY_LONG = 40
"""A text with this many characters for every token of the room is not counted: it does not fit in any script."""
_CHARS_PER_TOKEN = 4
_LONGEST_CALL = 80
_SHORT_PART = 2_000
"""Characters of a part that stays whole beside a longer one, if there is room."""
_GAP = "…"
_REPLACED = "\ufffd"
_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffd]+")
_STUB = re.compile(
    r"\[(?:Tool output|Message of the (?:user|assistant))\b(?>[^\n]*?; shown: )[^\n]*"
    r"The whole is (?:message|output) [0-9a-f]+"
)
_CAPPED = re.compile(
    r'\n\[… [\d,]+ of ([\d,]+) characters are left out here, [^\n]*; (read_output)\(id="([0-9a-f]{12})"'
)
"""The mark that the agent's tools leave in a result of which they kept the whole apart."""

Ident = Callable[[Message], "str | None"]
"""A function that returns the id under which a message can be read again; None if it cannot."""


@dataclass(frozen=True, slots=True)
class SpillLimits:
    """The room that messages have, and the words of their stubs."""

    most_tokens: int
    """The tokens that the messages may have together, by the counter."""
    counter: MessageCounter
    reader: str = ""
    """The tool by which the model reads a whole message, page by page; empty if it has none."""
    newest_only: bool = False
    """True to look only at the messages after the model's last answer, and to leave all others alone."""


def spill_oversized(messages: Sequence[Message], limits: SpillLimits, ident: Ident) -> list[Message]:
    """Return the messages with stubs in the place of the largest texts, if they are more than the room holds.

    Messages that stay as they were are the very same objects. System messages, summaries, pictures and calls are never
    touched, so the result may still be too large.
    """
    shown = list(messages)
    newest = _newest_start(shown)
    start = newest if limits.newest_only else 0
    sizes = {place: _size(shown[place], limits) for place in range(start, len(shown))}
    if sum(sizes.values()) <= limits.most_tokens:
        return shown
    filled = int(limits.most_tokens * _FILLED)
    room = filled if limits.newest_only else limits.most_tokens
    names = {place: name for place in sizes if _may_spill(shown[place]) and (name := ident(shown[place]))}
    largest = sorted((place for place in names if sizes[place] > LEAST_SHOWN + _FRAME), key=lambda at: (-sizes[at], at))
    count, each = _shares([sizes[place] for place in largest], sum(sizes.values()), room)
    for place in largest[:count]:
        is_asked = place >= newest and shown[place]["role"] == "user"
        most = min(each, filled if is_asked else MOST_SHOWN)
        shown[place] = _with_stub(shown[place], _describe(shown, place), names[place], limits, most)
    return shown


def make_stub(text: str, what: str, ident: str, limits: SpillLimits, most_shown: int = MOST_SHOWN) -> str:
    """Return the stub of a text: a line that describes it, and its first and last lines."""
    first, last = _ends(text, most_shown, limits.counter.count_text)
    lines = text.count("\n") + (not text.endswith("\n"))
    size = f"{len(text):,} characters, {lines:,} line{'' if lines == 1 else 's'}"
    name, reader = f"message {ident}", limits.reader
    if reader and (capped := _CAPPED.search(text)) is not None:  # the message itself is only a part of the output
        size, reader, ident = f"{capped[1]} characters", capped[2], capped[3]
        name = f"output {ident}"
    where = f'; {reader}(id="{ident}", page=1) gives it page by page' if reader else " in Everlong's store"
    heading = f"[{what}: {size}; shown: {_shown(first, last)}. The whole is {name}{where}.]"
    return _UNREADABLE.sub(_REPLACED, "\n".join([heading, first.text, _GAP, last.text]))


def is_stub(message: Message) -> bool:
    """Return whether a message, or a part of it, reads like a stub; anybody could have written it."""
    return any(_STUB.match(part_text(part)) for part in parts_of(message))


class Spilling(ContextEngine):
    """The host's own last resort as an engine, for `everlong.store`: it only puts stubs in the place of texts."""

    summarizes_covered_only = True
    """A stub tells nothing of other messages."""

    def __init__(self, limits: SpillLimits, ident: Ident) -> None:
        self._limits = limits
        self._ident = ident

    @property
    def name(self) -> str:
        """The name in the history of compactions."""
        return "spill"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Ignore usage."""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return False: the host decides."""
        del prompt_tokens
        return False

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        """Return the messages with stubs where they do not fit; the input is not changed."""
        del current_tokens, focus_topic
        return spill_oversized(messages, self._limits, self._ident)

    def estimate_tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of messages; those of a huge text are guessed."""
        return sum(_size(message, self._limits) for message in messages)


def newest_tokens(messages: Sequence[Message], limits: SpillLimits) -> int:
    """Return the tokens of the messages after the model's last answer."""
    return sum(_size(message, limits) for message in messages[_newest_start(messages) :])


# -- which messages, and how much of each ------------------------------------------------------------------------------


def _newest_start(messages: Sequence[Message]) -> int:
    start = len(messages)
    while start and messages[start - 1]["role"] != "assistant" and not is_system(messages[start - 1]):
        start -= 1
    return start


def _size(message: Message, limits: SpillLimits) -> int:
    length = len(text_of(message))
    if length > _SURELY_LONG * max(1, limits.most_tokens):
        return length // _CHARS_PER_TOKEN
    return limits.counter.count(message)


def _may_spill(message: Message) -> bool:
    if is_system(message) or is_summary(message) or is_stub(message):
        return False
    return not any(map(is_reasoning, parts_of(message)))  # a signed thought binds the words beside it


def _shares(sizes: Sequence[int], total: int, room: int) -> tuple[int, int]:
    """Return how many of the largest texts to spill, and the tokens that each stub may show: as few and as much."""
    rest = total
    for count, size in enumerate(sizes, 1):
        rest -= size
        each = (room - rest) // count - _FRAME
        if each >= LEAST_SHOWN:
            return count, each
    return len(sizes), LEAST_SHOWN


def _with_stub(message: Message, what: str, ident: str, limits: SpillLimits, each: int) -> Message:
    """Return a message with a stub in the place of its text; pictures stay, and so do short parts beside a long one.

    A question that a client sends beside a file, each as a part of its own, is so kept whole.
    """
    if isinstance(message.get("content"), str):
        return with_content(message, make_stub(text_of(message), what, ident, limits, each))
    parts = parts_of(message)
    texts = [part_text(part) for part in parts]
    long = {place for place, text in enumerate(texts) if len(text) > _SHORT_PART}
    spare = each - sum(limits.counter.count_text(text) for place, text in enumerate(texts) if place not in long)
    if not long or spare < LEAST_SHOWN:
        long, spare = {place for place, text in enumerate(texts) if text}, each
    stub = make_stub("\n".join(texts[place] for place in sorted(long)), what, ident, limits, spare)
    parts[min(long)] = {"type": "text", "text": stub}
    return with_content(message, [part for place, part in enumerate(parts) if place == min(long) or place not in long])


# -- the words of a stub -----------------------------------------------------------------------------------------------


def _describe(messages: Sequence[Message], place: int) -> str:
    message = messages[place]
    if message["role"] != "tool":
        return f"Message of the {'assistant' if message['role'] == 'assistant' else 'user'}"
    wanted = message.get("tool_call_id")
    for before in reversed(messages[:place]):
        for call in calls_of(before):
            if call.id == wanted:
                return f"Tool output of {_name(call)}"
    return "Tool output"


def _name(call: ToolCall) -> str:
    """Return a call on one line, such as ``read_file("x.log")``."""
    try:
        given = json.loads(call.arguments) if call.arguments.strip() else {}
    except (ValueError, RecursionError):
        given = call.arguments
    if isinstance(given, dict):
        values = [json.dumps(value, ensure_ascii=False) for value in given.values()]
        told = ", ".join(
            values if len(values) == 1 else [f"{key}={said}" for key, said in zip(given, values, strict=True)]
        )
    else:
        told = str(given)
    return f"{one_line(call.name)}({clip(one_line(told), _LONGEST_CALL)})"


class _End(NamedTuple):
    """The beginning or the end of a text, and its number of lines; 0 if it is cut inside of a line."""

    text: str
    lines: int


def _ends(text: str, most_tokens: int, count: Callable[[str], int]) -> tuple[_End, _End]:
    """Return the beginning and the end of a text that together have at most a number of tokens."""
    chars = min(most_tokens * _CHARS_PER_TOKEN, len(text))
    for _ in range(12):
        first, last = _first(text, chars * 2 // 3), _last(text, chars // 3)
        tokens = count(_UNREADABLE.sub(_REPLACED, f"{first.text}\n{last.text}"))
        if tokens <= most_tokens:
            return first, last
        chars = int(min(chars * 0.8, chars * most_tokens / tokens))
    return _End("", 0), _End("", 0)


def _first(text: str, chars: int) -> _End:
    """Return the first whole lines of a text; characters, if a line is longer than half of the room."""
    end = text.rfind("\n", chars // 2, chars)
    return _End(text[:end], text.count("\n", 0, end) + 1) if end >= 0 else _End(text[:chars], 0)


def _last(text: str, chars: int) -> _End:
    """Return the last whole lines of a text; characters, if a line is longer than half of the room."""
    low = max(0, len(text) - chars)
    start = text.find("\n", low, low + chars // 2) + 1
    if not start:
        return _End(text[low:], 0)
    return _End(text[start:], text.count("\n", start) + (not text.endswith("\n")))


def _shown(first: _End, last: _End) -> str:
    if first.lines and last.lines:
        return f"first {first.lines:,} and last {last.lines:,} lines"
    return f"first {len(first.text):,} and last {len(last.text):,} characters"
