"""The summary stage: what a summarizer is given, what one is, and the writer that always ends with a summary.

A model's summary stays as it was written: no line is deleted, moved or added inside its sections. If the answer is
empty, broken off or without headings, the model is asked once more. If it fails, is cooling down after a failure, or
has no usable answer, the built-in chronicle takes its place and the reason is kept. There is no network here; a
summarizer brings its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from everlong.arguments import refuse
from everlong.context.chronicle import Chronicle
from everlong.context.document import SummaryDocument
from everlong.context.policy import Cooldown, LeftAlone
from everlong.context.text import TextCount, cut_at_clause, one_line, unwrap_fence
from everlong.errors import SummarizerError
from everlong.model import Message, text_of, typed_words

__all__ = [
    "ExtractiveSummarizer",
    "Summarizer",
    "SummaryRequest",
    "SummaryWriter",
    "WrittenSummary",
    "check_summarizer",
    "clean_answer",
]

ADDED_HEADING = "Added from the conversation itself:"
"""The line between a model's summary and what was added after it."""
_TOLD_SINCE = ("Done", "Critical Context")
SINCE_HEADING = "After that, before the messages below:"
"""The heading of what came between the time when a model wrote its summary and the first message that is kept."""
_ADDED_SHARE = 0.2
"""A model's summary grows at most by this share."""
_MOST_UNUSABLE = 3
"""The number of unusable answers in a row after which the summarizer cools down as after a failure."""
_LONGEST_NEWEST = 400
_NEWEST = 1_000
"""Messages that tell the state which a model's summary may lack: files in hand and open errors are recent."""
_LONGEST_ANSWER = 600_000
"""Characters of an answer that is read: as many as the longest answers have with all their thoughts."""
_CUT_OFF = re.compile(r"(?:[,;:(\[{/\\=&+<—–，、；：]|(?:^|\s)[-*•]|\b(?:the|an?|and|or|of|to|in|with|for|by|from))$")
_THOUGHT = re.compile(r"</?(?:think|thinking|reasoning)>", re.IGNORECASE)


@dataclass(frozen=True)
class SummaryRequest:
    """Everything that a summarizer gets to work with.

    >>> request = SummaryRequest(messages[:40], previous=None, budget_tokens=500, count=counter_for().count_text)
    >>> ExtractiveSummarizer().summarize(request).startswith("## ")
    True
    """

    turns: Sequence[Message]
    """The messages to summarize, with whole tool outputs."""
    previous: str | None
    """The summary of everything before, to be updated."""
    budget_tokens: int
    count: TextCount
    """The counter of a text's tokens."""
    opening: Message | None = None
    """The message in which a person opens the conversation."""
    latest_user: Message | None = None
    """The request in force: the newest message in which a person asked for something."""
    before: Sequence[Message] = ()
    """The messages that stay before the summary, besides the system prompt; the summary need not repeat them."""
    after: Sequence[Message] = ()
    """The messages that stay after the summary."""
    rules: str = ""
    """The block of standing rules that follows the summary."""
    focus_topic: str | None = None
    memory_context: str | None = None
    """Text that a memory provider wants kept."""
    prefix: Sequence[Message] = ()
    """Everything up to the cut as it was sent to the main model, for a summarizer that reuses its cached prefix."""
    prefix_tokens: int = 0
    """The size of the prefix; 0 if it is unknown."""
    known: Callable[[], Chronicle] | None = None
    """Returns the chronicle of everything up to the cut, if an engine keeps one; else it is read from the turns."""

    @cached_property
    def chronicle(self) -> Chronicle:
        """The chronicle of everything up to the cut."""
        if self.known is not None:
            return self.known()
        return Chronicle.carried_on(self.previous).extended([*self.before, *self.turns])

    @cached_property
    def state(self) -> Chronicle:
        """The plan, files and errors as the newest messages tell them, without lines to quote."""
        before = Chronicle.carried_on(self.previous, reads_lines=False)
        return before.extended([*self.before, *self.turns, *self.following][-_NEWEST:])

    @property
    def following(self) -> list[Message]:
        """The messages that stay after the summary, without the request in force."""
        return [message for message in self.after if message is not self.latest_user]

    @property
    def opening_words(self) -> str:
        """The person's first words, without the text that their client wrapped around them."""
        return typed_words(self.opening) if self.opening is not None else ""

    @property
    def newest_words(self) -> str:
        """The request in force, without the client's wrapping."""
        return typed_words(self.latest_user) if self.latest_user is not None else ""


class Summarizer(Protocol):
    """A writer of summaries: turns a request into a summary, or raises.

    >>> class Brief:
    ...     name = "brief"
    ...
    ...     def summarize(self, request: SummaryRequest) -> str:
    ...         return f"## Goal: sum up {len(request.turns)} messages"
    >>> brief: Summarizer = Brief()
    >>> ContextCompressor(16_000, summarizer=brief).summarizer.name
    'brief'
    """

    @property
    def name(self) -> str:
        """The name in reports."""
        ...

    def summarize(self, request: SummaryRequest) -> str:
        """Return the summary as Markdown with the headings of the template."""
        ...


def check_summarizer(value: object, name: str = "summarizer") -> None:
    """Raise `ConfigError` unless a value is a summarizer."""
    if not callable(getattr(value, "summarize", None)):
        advice = "CompletionSummarizer makes one of a function that asks a model" if callable(value) else ""
        refuse(name, value, "an object with a method summarize(request)", advice)


class ExtractiveSummarizer:
    """A summarizer that quotes and never invents: it writes the chronicle.

    >>> engine = ContextCompressor(16_000, summarizer=ExtractiveSummarizer())  # as without one
    >>> _ = engine.compress(messages)
    >>> engine.last_report.summarizer
    'built-in rules'
    """

    name = "built-in rules"

    def summarize(self, request: SummaryRequest) -> str:
        """Return the chronicle within the budget."""
        beside = "\n".join([*map(text_of, (*request.before, *request.after)), request.rules])
        return request.chronicle.write(
            request.budget_tokens,
            request.count,
            now=request.chronicle.extended(request.following, reads_lines=False),
            beside=beside,
            newest=request.newest_words,
            focus=request.focus_topic or "",
            memory=request.memory_context or "",
        )


class WrittenSummary(NamedTuple):
    """A finished summary, its writer, and how it was made."""

    text: str
    summarizer: str
    fallback_reason: str | None = None
    """Why the chosen summarizer did not write it; None if it did."""
    problems: tuple[str, ...] = ()
    """What was wrong with answers that could not be used."""
    prose: str = ""
    """The model's own text; empty if the chronicle was written."""
    reaches: int = 0
    """The number of the conversation's messages that it covers."""


class SummaryWriter:
    """The writer of an engine's summaries: asks the chosen summarizer, or falls back to the chronicle."""

    def __init__(
        self,
        chosen: Summarizer | None,
        cooldown_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chosen = chosen
        self._fallback = ExtractiveSummarizer()
        self._cooldown = Cooldown(cooldown_seconds, clock)
        self._unusable = 0
        self.last: WrittenSummary | None = None
        """The last summary."""

    @property
    def left_alone(self) -> list[LeftAlone]:
        """The summarizers that failed and are not asked now: the chosen one, or members of it."""
        if self._chosen is None:
            return []
        return [*self._cooldown.left_alone(self._chosen.name), *getattr(self._chosen, "left_alone", ())]

    @property
    def chosen(self) -> Summarizer | None:
        """The summarizer that is asked first; a new one starts without the failures of the old."""
        return self._chosen

    @chosen.setter
    def chosen(self, summarizer: Summarizer | None) -> None:
        if summarizer is not self._chosen:
            self._chosen = summarizer
            self.reset()

    @property
    def asks_model(self) -> bool:
        """True if a summarizer was chosen that is not the built-in one."""
        return self._chosen is not None and not isinstance(self._chosen, ExtractiveSummarizer)

    def write(self, request: SummaryRequest, *, ignore_cooldown: bool = False) -> WrittenSummary:
        """Return a summary; a failing summarizer never makes this raise."""
        written = self._ask(request, ignore_cooldown=ignore_cooldown)
        self.last = written._replace(reaches=len(request.prefix))
        return self.last

    def write_again(self, written: WrittenSummary, request: SummaryRequest) -> WrittenSummary:
        """Return the summary for another cut of the same conversation; a model's own text stays."""
        if not written.prose:
            return written._replace(text=self._fallback.summarize(request))
        return written._replace(text=complete(written.prose, request) + _tell_since(written, request))

    def _ask(self, request: SummaryRequest, *, ignore_cooldown: bool) -> WrittenSummary:
        chosen = self._chosen
        if chosen is None or not self.asks_model:
            return self._fall_back(request, None)
        if self._cooldown.is_on and not ignore_cooldown:
            seconds = self._cooldown.seconds
            return self._fall_back(request, f"{chosen.name} failed before and is left alone for {seconds:g} seconds")
        problems: list[str] = []
        for _ in range(2):
            try:
                answer: object = chosen.summarize(request)
            except Exception as error:  # noqa: BLE001 - a summarizer is foreign code; its failure is reported
                told = str(error).removeprefix(f"{chosen.name}: ")
                self._cooldown.start(told if isinstance(error, SummarizerError) else f"{type(error).__name__}: {told}")
                return self._fall_back(request, f"{chosen.name}: {self._cooldown.failure}")
            prose, problem = clean_answer(answer, request.budget_tokens, request.count)
            if not problem:
                self.reset()
                return WrittenSummary(complete(prose, request), chosen.name, None, tuple(problems), prose)
            problems = list(dict.fromkeys([*problems, problem]))
        self._unusable += 1
        if self._unusable >= _MOST_UNUSABLE:
            self._cooldown.start(problems[-1])
        return self._fall_back(request, f"{chosen.name}: {problems[-1]}", tuple(problems))

    def _fall_back(self, request: SummaryRequest, reason: str | None, problems: tuple[str, ...] = ()) -> WrittenSummary:
        if reason is not None and not problems:
            problems = (reason,)
        return WrittenSummary(self._fallback.summarize(request), self._fallback.name, reason, problems)

    def reset(self) -> None:
        """Forget earlier failures."""
        self._cooldown.end()
        self._unusable = 0


def clean_answer(answer: object, budget: int, count: TextCount) -> tuple[str, str]:
    """Return a model's summary without its thoughts and what stands before the first heading, and what is wrong.

    The second value is empty for a summary that can be used.
    """
    if not isinstance(answer, str) or not answer.strip():
        return "", "the summary is empty"
    if len(answer) > _LONGEST_ANSWER:
        return "", f"the summary has more than {_LONGEST_ANSWER:,} characters"
    text = unwrap_fence(_without_thoughts(answer).strip())
    start = next((place for place in _heading_places(text)), None)
    if start is None:
        return "", "the answer has none of the summary's headings; it may be a refusal or a reply"
    text = text[start:].strip()
    if SummaryDocument.parse(text).is_empty():
        return "", "the summary has headings and nothing under them"
    last = text.splitlines()[-1].strip()
    if last.startswith("#") or (_CUT_OFF.search(last) and count(text) > budget // 2):
        return "", "the summary breaks off before its end"
    return text, ""


def _without_thoughts(answer: str) -> str:
    """Return an answer without what stands between the marks of a thought; a mark alone is a word like others."""
    kept, opened, place = list[str](), dict[str, int](), 0
    for mark in _THOUGHT.finditer(answer):
        name = mark[0].strip("</>").lower()
        if not mark[0].startswith("</"):
            opened.setdefault(name, mark.start())
        elif name in opened:
            kept.append(answer[place : opened[name]])
            opened, place = {}, mark.end()
    return "".join([*kept, answer[place:]])


def _heading_places(text: str) -> list[int]:
    return [found.start() for found in re.finditer(r"^#{2,3} +\S", text, re.MULTILINE)]


def complete(prose: str, request: SummaryRequest) -> str:
    """Return a model's summary with the newest request, the plan and the files after it, as far as it lacks them."""
    room = int(request.count(prose) * _ADDED_SHARE) - 8
    said = one_line(prose).casefold()
    added: list[str] = []
    newest = cut_at_clause(one_line(request.newest_words), _LONGEST_NEWEST)
    lacking = [f'- Newest request: "{newest}"'] if newest and newest[:60].casefold() not in said else []
    lacking += [item for item in request.state.state_items() if not _is_said(item, said)]
    for item in lacking:
        cost = request.count(item) + 1
        if cost <= room:
            added.append(item)
            room -= cost
    return "\n".join([prose, "", ADDED_HEADING, *added]) if added else prose


def _tell_since(written: WrittenSummary, request: SummaryRequest) -> str:
    """Return the chronicle of the messages that a model's summary does not reach, and that are not kept either."""
    since = request.prefix[written.reaches :]
    room = request.budget_tokens - request.count(written.prose)
    if not since or room <= 0:
        return ""
    before = request.chronicle.count - Chronicle(reads_lines=False).extended(since).count
    chronicle = Chronicle(count=before, carried={"Goal": ["- above"]}).extended(since)
    told = SummaryDocument.parse(chronicle.write(room, request.count))
    items = [item for section in _TOLD_SINCE for item in told.items[section]]
    return "\n".join(["", "", SINCE_HEADING, *items]) if items else ""


def _is_said(item: str, said: str) -> bool:
    """Return whether a text names everything that an item names."""
    return all(piece.strip().casefold() in said for piece in item.split("`")[1::2]) if "`" in item else False
