"""Calibration of token counts by an API's reports, per model.

A reported figure covers exactly the messages that were sent. If the next request begins with the same messages, that
figure is used as it is; only the messages after them are counted, times the ratio of reported to counted tokens so
far. Reports are kept as fingerprints and numbers, never as messages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import Any, NamedTuple

from everlong.model.content import part_text
from everlong.model.message import Message
from everlong.tokens.messages import REPLY_PRIMING, MessageCounter

__all__ = ["Calibration"]

LEAST_SCALE = 0.3
GREATEST_SCALE = 3.5
"""The limits of the ratio of reported to counted tokens; beyond them a report is wrong, whatever the vocabulary."""

_REPORTS_KEPT = 512  # per model: enough for the conversations that are open at the same time
_FADE = 0.8  # the weight of earlier reports after a new one
_ENOUGH_TOKENS = 200  # fewer say nothing about the ratio; short turns are added up to this many
_HIDDEN_TOKENS = 5_000  # instructions that a provider may add in front and count


class _Report(NamedTuple):
    reported: int
    counted: int


@dataclass
class _Learned:
    reported: float = 0.0
    counted: float = 0.0
    short_reported: int = 0
    short_counted: int = 0
    """The sum of turns that are each too short to learn from."""
    reports: OrderedDict[int, _Report] = field(default_factory=OrderedDict)

    def scale(self) -> float:
        if self.counted <= 0:
            return 1.0
        return min(GREATEST_SCALE, max(LEAST_SCALE, self.reported / self.counted))


class Calibration:
    """Learns from reported usage, per model, and estimates the prompt tokens of the next request; safe for threads."""

    def __init__(self, counter: MessageCounter | None = None) -> None:
        self.counter = counter if counter is not None else MessageCounter()
        self._models: dict[str, _Learned] = {}
        self._last = _KeptCounts([], [], [], _Beginnings([], [], 0))
        self._lock = Lock()

    def observe(self, messages: Sequence[Message], prompt_tokens: int | None, model: str = "") -> None:
        """Learn from the prompt tokens that an API reported for a request; ignore impossible figures."""
        if isinstance(prompt_tokens, bool) or not isinstance(prompt_tokens, int | float):
            return
        walk = self._walk(messages)
        counted = walk.tokens + REPLY_PRIMING
        if not LEAST_SCALE * counted <= prompt_tokens <= GREATEST_SCALE * counted + _HIDDEN_TOKENS:
            return
        report = _Report(int(prompt_tokens), counted)
        prints = walk.prints
        with self._lock:
            learned = self._models.setdefault(model, _Learned())
            self._learn(learned, _latest(learned, prints[:-1])[1], report)
            if prints:
                learned.reports[prints[-1]] = report
                learned.reports.move_to_end(prints[-1])
                if len(learned.reports) > _REPORTS_KEPT:
                    learned.reports.popitem(last=False)

    @staticmethod
    def _learn(learned: _Learned, before: _Report | None, now: _Report) -> None:
        reported, counted = now.reported, now.counted
        if before is not None:
            # The added messages resemble the next ones, and leave out the provider's own instructions.
            reported -= before.reported
            counted -= before.counted
            if 0 <= counted < _ENOUGH_TOKENS and reported >= 0:
                reported += learned.short_reported
                counted += learned.short_counted
                is_enough = counted >= _ENOUGH_TOKENS
                learned.short_reported, learned.short_counted = (0, 0) if is_enough else (reported, counted)
        if counted < _ENOUGH_TOKENS or not LEAST_SCALE * counted <= reported <= GREATEST_SCALE * counted:
            return
        learned.reported = learned.reported * _FADE + reported
        learned.counted = learned.counted * _FADE + counted

    def scale(self, model: str = "") -> float:
        """Return a model's reported tokens per counted token; 1.0 before the first report."""
        with self._lock:
            learned = self._models.get(model)
            return learned.scale() if learned else 1.0

    def estimate(self, messages: Sequence[Message], model: str = "") -> int:
        """Return the best estimate of a request's prompt tokens: the last report, plus a count of newer messages."""
        walk = self._walk(messages)
        with self._lock:
            learned = self._models.get(model)
            scale = learned.scale() if learned else 1.0
            length, report = _latest(learned, walk.prints) if learned else (0, None)
        if report is None:
            return round((walk.tokens + REPLY_PRIMING) * scale)
        added = walk.tokens - walk.counted[length - 1]
        return max(1, report.reported + round(added * scale))

    def _walk(self, messages: Sequence[Message]) -> _Beginnings:
        """Return the beginnings of a list; the last walk is remembered, and goes on where the list has grown."""
        contents = [message.get("content") if type(message) is dict else None for message in messages]
        kept = self._last  # read once: another thread may replace it
        size = _count_same(kept, messages, contents)
        if size == len(messages) == len(kept.messages):
            return kept.walk
        prints, counted = kept.walk.prints[:size], kept.walk.counted[:size]
        added = messages[size:]
        prints += _fingerprints(added, prints[-1] if prints else 0)
        counted += list(accumulate(self.counter.counts(added), initial=counted[-1] if counted else 0))[1:]
        parts = [(at, says) for at, says in kept.parts if at < size]
        parts += [(at, _words(held)) for at, held in enumerate(contents[size:], size) if type(held) is not str]
        walk = _Beginnings(prints, counted, counted[-1] if counted else 0)
        self._last = _KeptCounts(list(messages), contents, parts, walk)
        return walk


def _latest(learned: _Learned, prints: Sequence[int]) -> tuple[int, _Report | None]:
    """Return the length of the longest beginning of a list with a report, and that report."""
    reports = learned.reports
    for length in range(len(prints), 0, -1):
        if (found := reports.get(prints[length - 1])) is not None:
            return length, found
    return 0, None


# -- beginnings of lists -----------------------------------------------------------------------------------------------


class _Beginnings(NamedTuple):
    """The fingerprint and the tokens of each beginning of a list."""

    prints: list[int]
    counted: list[int]
    tokens: int
    """The tokens of the whole list."""


class _KeptCounts(NamedTuple):
    messages: list[Message]
    contents: list[Any]
    """The contents at the time of the walk, because a caller may change a message in place."""
    parts: list[tuple[int, str]]
    """The indices of contents that can change in place, each with its words."""
    walk: _Beginnings


def _count_same(kept: _KeptCounts, messages: Sequence[Message], contents: list[Any]) -> int:
    """Return the number of leading messages that are the same as in the last walk."""
    size = min(len(kept.messages), len(messages))
    try:
        if list(messages[:size]) != kept.messages[:size] or contents[:size] != kept.contents[:size]:
            pairs = zip(messages, kept.messages, contents, kept.contents, strict=False)
            size = next((at for at, (one, old, held, was) in enumerate(pairs) if one != old or held != was), size)
        return next((at for at, says in kept.parts if at < size and _words(contents[at]) != says), size)
    except RecursionError:  # nested deeper than the interpreter can compare
        return 0


def _fingerprints(messages: Sequence[Message], rolling: int) -> list[int]:
    """Return a number for each beginning of a list that depends only on the words and calls in it.

    Cache markers, and plain text written as a part, do not change it: the model reads the same.
    """
    found: list[int] = []
    for message in messages:
        if type(message) is not dict:
            rolling = hash((rolling, repr(message)))
        else:
            content, calls = message.get("content"), message.get("tool_calls")
            said = content if type(content) is str else _words(content)
            rolling = hash((rolling, str(message.get("role")), said, repr(calls) if calls else None))
        found.append(rolling)
    return found


def _words(content: Any) -> str:
    if not content:
        return ""
    if not isinstance(content, list):
        return repr(content)
    texts = []
    for part in content:
        text = part_text(part) if isinstance(part, dict) else str(part)
        texts.append(text or repr(part))
    return "\n".join(texts)
