"""The summary stage: `SummaryWriter` turns the middle of a conversation into one document, whatever happens.

A summarizer is anything with a name and a ``summarize`` method. Its answer is judged, mended once if it is weak, and
completed with facts that it lacks. If the summarizer fails, is cooling down after a failure, or returns no usable
summary, the extractive one replaces it and the reason is kept. There is no network here; a summarizer brings its own.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

from everlong.arguments import refuse
from everlong.context.checks import GOOD
from everlong.context.frontier import (
    Frontier,
    fit_frontier,
    inherited_frontier,
    place_frontier,
    read_frontier,
    without_frontier,
)
from everlong.context.policy import LeftAlone
from everlong.context.summary.digest import without_control_words
from everlong.context.summary.document import SECTIONS, SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.exchanges import SummaryExchange, SummaryExchanges
from everlong.context.summary.judge import JudgedSummary, UnusableSummary, judge_answer
from everlong.context.summary.language import Phrases, changes_file, is_closing, newest_label, phrases_for
from everlong.context.summary.message_digest import MessageDigests
from everlong.context.summary.newest_request import inherited_newest, restate_newest
from everlong.context.summary.trace import NO_TRACE, SummaryTrace
from everlong.context.text import TextCount, one_line
from everlong.context.verify import Yardstick
from everlong.model import Message, is_system, text_of, typed_words

_REQUEST_BEGINNING = 200
"""Characters by which a request is recognized."""
_SLACK = 0.15
"""Key lines close a gap this wide; a draft that scores further below the extract is worth another call."""
_LARGER_BUDGET = 1.5
"""The factor by which the budget grows after two poor summaries, as far as the cap allows."""
_POOR_IN_A_ROW = 2
_MOST_UNUSABLE = 3
"""The number of unusable answers in a row after which the summarizer cools down as after a failure."""
_ADDED_SHARE = 0.18
"""The share by which a model's summary may grow through added facts; with headings and line breaks, a fifth."""
_FILES_SHARE = 0.5
"""The share of the added facts that files may take."""
_THIN = 40
"""A summary of fewer tokens says too little: it is put in front of the built-in one."""
_HEADING_TOKENS = 6
WHOLE_CHARACTERS = 2_000_000
"""Up to this size, more than half a million tokens, the extract beside a model's summary reads every turn."""
_EVERY = 96
_NEWEST = 8
_MOST_MISSING = 24
_CONTEXT = "Critical Context"


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
    """The messages that stay after the summary, with the request in force; here the user may have retracted things."""
    focus_topic: str | None = None
    memory_context: str | None = None
    """Text that a memory provider wants kept."""
    rules: Sequence[str] = ()
    """The user's standing rules, which stay beside the summary word for word; the summary need not repeat them."""
    errors_stated: bool = False
    """True if the frontier states the open errors, so that the summary need not name them."""
    prefix: Sequence[Message] = ()
    """Everything up to the cut as it was sent to the main model, for a summarizer that reuses its cached prefix."""
    prefix_tokens: int = 0
    """The size of the prefix; 0 if it is unknown."""
    digests: MessageDigests = field(default_factory=MessageDigests, repr=False, compare=False)
    """The readings of the turns; an engine keeps them from one compaction to the next."""
    trace: SummaryTrace = NO_TRACE
    """Receives which lines are chosen and which are passed over; most summarizers ignore it."""
    exchanges: SummaryExchanges = field(default_factory=SummaryExchanges, repr=False, compare=False)
    """Receives what a model is asked and answers; `SummaryExchanges.listen` does it for a completion function."""

    @cached_property
    def frontier(self) -> Frontier:
        """The state of the work after the turns and the messages behind them; ``previous`` tells of the time before."""
        carried = inherited_frontier(self.previous)
        is_repeated = any(message is self.latest_user for message in self.turns)
        after = [message for message in self.after if not (is_repeated and message is self.latest_user)]
        before = self._original_head() if carried is None else ()
        newest = one_line(self.newest_words)
        found = read_frontier([*before, *self.turns, *after], carried, newest, known=self.digests.steps)
        return fit_frontier(found, self.budget_tokens, self.count, self.phrases)

    def _original_head(self) -> Sequence[Message]:
        """Return the messages before the turns with their results, which ``before`` has cleared."""
        first = next((place for place, message in enumerate(self.prefix) if self.turns and message is self.turns[0]), 0)
        return [message for message in self.prefix[:first] if not is_system(message)] if first else self.before

    @property
    def phrases(self) -> Phrases:
        """The phrases for our own sentences, in the person's language."""
        return phrases_for([self.newest_words, self.opening_words, (self.previous or "")[:2_000]])

    @property
    def opening_words(self) -> str:
        """The person's first words, without the text that their client wrapped around them."""
        return typed_words(self.opening) if self.opening is not None else ""

    @property
    def newest_words(self) -> str:
        """The request in force, without the client's wrapping; the one that ``previous`` names if there is no newer."""
        return typed_words(self.latest_user) if self.latest_user is not None else inherited_newest(self.previous)

    @property
    def newest_stands(self) -> bool:
        """True if the request in force stays beside the summary, so that the summary need not quote it whole."""
        around = [message for message in (*self.before, *self.after) if message["role"] == "user"]
        if not (self.before or self.after) or any(message is self.latest_user for message in around):
            return True
        beginning = self.newest_words[:_REQUEST_BEGINNING]  # a request that was too long is shortened there
        return bool(beginning) and any(typed_words(message).startswith(beginning) for message in around)


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


@dataclass(frozen=True, slots=True)
class Weakness:
    """The shortcomings of a summary.

    >>> weakness = Weakness(problems=("no goal",), missing=("port 8437",))
    >>> weakness.missing
    ('port 8437',)
    """

    problems: tuple[str, ...]
    missing: tuple[str, ...]
    """Lines of the conversation with names that the summary lacks."""


@runtime_checkable
class MendingSummarizer(Summarizer, Protocol):
    """A summarizer that can improve a draft: any with a ``mend`` method.

    >>> isinstance(CompletionSummarizer(lambda messages, max_tokens: ""), MendingSummarizer)
    True
    >>> isinstance(ExtractiveSummarizer(), MendingSummarizer)
    False
    """

    def mend(self, request: SummaryRequest, draft: str, weakness: Weakness) -> str:
        """Return a better summary; ``draft`` is empty if nothing of the first one was usable."""
        ...


@runtime_checkable
class Reordering(Protocol):
    """A summarizer of several members that can change their order."""

    def ask_last(self) -> str | None:
        """Put the writer of the last summary last; return the member that is asked first then, None for nobody."""
        ...


class WrittenSummary(NamedTuple):
    """A finished summary, its writer, and how it was made."""

    text: str
    summarizer: str
    fallback_reason: str | None
    """Why the chosen summarizer did not write it; None if it did."""
    problems: tuple[str, ...] = ()
    """The problems of the chosen summarizer's first draft."""
    extract_score: float | None = None
    """The score of the fallback's summary, if one was made beside the model's."""
    invented: tuple[str, ...] = ()
    """Names that the summarizer made up; they were cut out."""
    prose: str = ""
    """The usable part of the chosen summarizer's answer; empty if there is none."""
    strategy: str | None = None
    """The change that two poor summaries in a row led to."""
    exchanges: tuple[SummaryExchange, ...] = ()
    """The questions to models and their answers, oldest first; of many, the last ones."""
    asked: int = 0
    """The number of all questions."""


class SummaryWriter:
    """The writer of an engine's summaries: asks the chosen summarizer, has weak answers mended, or falls back."""

    def __init__(
        self,
        chosen: Summarizer | None,
        fallback: Summarizer,
        cooldown_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chosen = chosen
        self._fallback = fallback
        self._cooldown = cooldown_seconds
        self._clock = clock
        self._cooling_until: float | None = None
        self._failure = ""
        self._unusable = 0
        self.last: WrittenSummary | None = None
        """The last summary."""
        self._poor = 0
        self._is_reordered = False
        self._strategy: str | None = None
        self.budget_factor = 1.0
        """The factor by which summaries may be longer than usual, within the cap."""

    @property
    def left_alone(self) -> list[LeftAlone]:
        """The summarizers that failed and are not asked now: the chosen one, or members of it."""
        inner: list[LeftAlone] = list(getattr(self._chosen, "left_alone", ()))
        left = 0.0 if self._cooling_until is None else self._cooling_until - self._clock()
        if self._chosen is None or left <= 0:
            return inner
        return [LeftAlone(self._chosen.name, self._failure, left, self._cooldown), *inner]

    @property
    def chosen(self) -> Summarizer | None:
        """The summarizer that is asked first; a new one starts without the failures of the old."""
        return self._chosen

    @chosen.setter
    def chosen(self, summarizer: Summarizer | None) -> None:
        if summarizer is not self._chosen:
            self._chosen = summarizer
            self.reset()

    def write(
        self, request: SummaryRequest, yardstick: Yardstick | None = None, *, ignore_cooldown: bool = False
    ) -> WrittenSummary:
        """Return a summary within the request's budget; a failing summarizer never makes this raise."""
        rest = _request_without_frontier(request)
        written = self._ask(rest, yardstick or yardstick_for(request), ignore_cooldown=ignore_cooldown)
        heard = request.exchanges
        told = written._replace(strategy=self._strategy, exchanges=heard.kept(), asked=heard.count)
        self.last = _add_frontier(told, request)
        return self.last

    def rewrite(self, written: WrittenSummary, request: SummaryRequest, yardstick: Yardstick) -> WrittenSummary:
        """Return the summary for another request on the same conversation from an answer that is already there."""
        rest = _request_without_frontier(request)
        if written.prose:
            kept = JudgedSummary(SummaryDocument.parse(written.prose), written.problems, written.invented)
            again = self._complete(written.summarizer, kept, self._extract_beside(rest), rest, yardstick)
        else:
            again = self._extract(rest, written.fallback_reason, written.problems)._replace(invented=written.invented)
        told = again._replace(strategy=written.strategy, exchanges=written.exchanges, asked=written.asked)
        return _add_frontier(told, request)

    def _ask(self, request: SummaryRequest, yardstick: Yardstick, *, ignore_cooldown: bool) -> WrittenSummary:
        """Ask the chosen summarizer, or the fallback if there is none or it fails."""
        chosen = self._chosen
        if chosen is None or type(chosen) is type(self._fallback):  # choosing the fallback is not choosing a model
            return self._extract(request, None)
        if self._is_cooling() and not ignore_cooldown:
            reason = f"{chosen.name} failed before and is left alone for {self._cooldown:g} seconds"
            return self._extract(request, reason)
        noted = request.exchanges.count
        try:
            answer: object = chosen.summarize(request)
            if request.exchanges.count == noted:  # one of somebody else, whose prompt is not known
                request.exchanges.note(chosen.name, "", answer if isinstance(answer, str) else repr(answer))
        except Exception as error:  # noqa: BLE001 - a summarizer is foreign code; its failure is reported, not hidden
            self._cool_down(f"{type(error).__name__}: {error}")
            return self._extract(request, f"{chosen.name}: {self._failure}")
        return self._improve(chosen, answer, request, yardstick)

    def _improve(
        self, chosen: Summarizer, answer: object, request: SummaryRequest, yardstick: Yardstick
    ) -> WrittenSummary:
        """Return the answer, mended if it is weak, with the facts that it lacks."""
        extract = self._extract_beside(request)
        extract_score = yardstick.score(extract, is_trusted=True)
        draft = _judge(answer, request, yardstick)
        problems, invented = draft.problems + yardstick.draft_faults(draft.document.render()), draft.invented
        weak = bool(problems) or yardstick.score(draft.document.render()) < extract_score - _SLACK
        if weak and isinstance(chosen, MendingSummarizer):
            weakness = Weakness(problems, missing_lines(draft.document, extract, yardstick))
            draft, failure = self._mend(chosen, draft, weakness, request, yardstick)
            problems, invented = problems + failure, tuple(dict.fromkeys(invented + draft.invented))
        if draft.document.is_empty():
            self._unusable += 1
            if self._unusable >= _MOST_UNUSABLE:
                self._cool_down("; ".join(problems))
            unusable = self._extract(request, f"{chosen.name}: {'; '.join(problems)}", problems)
            return unusable._replace(invented=invented)
        self._unusable, self._cooling_until = 0, None
        kept = JudgedSummary(draft.document, problems, invented)
        return self._complete(chosen.name, kept, extract, request, yardstick)

    @staticmethod
    def _complete(
        name: str, draft: JudgedSummary, extract: str, request: SummaryRequest, yardstick: Yardstick
    ) -> WrittenSummary:
        """Return a draft with the facts that it lacks."""
        text = complete_prose(
            draft.document,
            extract,
            yardstick,
            request.budget_tokens,
            request.count,
            quotes_newest=not request.newest_stands,
        )
        score = yardstick.score(extract, is_trusted=True)
        return WrittenSummary(text, name, None, draft.problems, score, draft.invented, draft.document.render())

    @staticmethod
    def _mend(
        chosen: MendingSummarizer,
        draft: JudgedSummary,
        weakness: Weakness,
        request: SummaryRequest,
        yardstick: Yardstick,
    ) -> tuple[JudgedSummary, tuple[str, ...]]:
        """Return the better of a draft and the mended one, and the problem of mending, if any."""
        try:
            second = _judge(chosen.mend(request, draft.document.render(), weakness), request, yardstick)
        except Exception as error:  # noqa: BLE001 - as above, and the first draft is still there
            return draft, (f"asked to mend it: {type(error).__name__}: {error}",)
        scores = [yardstick.score(judge_answer.document.render()) for judge_answer in (draft, second)]
        is_better = scores[1] > scores[0] or draft.document.is_empty()
        return (second if is_better else draft), ()

    def _extract_beside(self, request: SummaryRequest) -> str:
        """Return the fallback's summary, which a model's summary is compared with and completed from."""
        return self._fallback.summarize(replace(request, turns=sample_turns(request.turns)))

    def _extract(self, request: SummaryRequest, reason: str | None, problems: tuple[str, ...] = ()) -> WrittenSummary:
        """Return the fallback's summary in place of a model's."""
        if reason is not None and not problems:
            problems = (reason,)
        return WrittenSummary(self._fallback.summarize(request), self._fallback.name, reason, problems)

    def note_quality(self, score: float) -> None:
        """Take in the score of the chosen summarizer's last summary; two poor ones in a row change the strategy.

        First the budget grows, then the next model is asked first, then no model for as long as after a failure.
        """
        chosen = self._chosen
        if chosen is None or type(chosen) is type(self._fallback) or self._is_cooling():
            return
        self._poor = self._poor + 1 if score < GOOD else 0
        if self._poor < _POOR_IN_A_ROW:
            return
        self._poor = 0
        asked_next = None
        if self.budget_factor == 1.0:
            self.budget_factor = _LARGER_BUDGET
            self._strategy = "two poor summaries in a row: a larger budget"
        elif isinstance(chosen, Reordering) and not self._is_reordered and (asked_next := chosen.ask_last()):
            self._is_reordered = True
            self._strategy = f"two poor summaries in a row with a larger budget: {asked_next} is asked first"
        else:
            self._cool_down("its summaries were poor")
            self._strategy = "poor summaries in a row: made of the conversation's own lines for a while"

    def _cool_down(self, failure: str) -> None:
        self._cooling_until = self._clock() + self._cooldown
        self._failure = failure

    def _is_cooling(self) -> bool:
        return self._cooling_until is not None and self._clock() < self._cooling_until

    def reset(self) -> None:
        """Forget earlier failures."""
        self._cooling_until = None
        self._unusable = 0
        self._poor = 0
        self._is_reordered = False
        self._strategy = None
        self.budget_factor = 1.0


def _request_without_frontier(request: SummaryRequest) -> SummaryRequest:
    """Return the request for a summary without the frontier's lines, with the budget that they leave."""
    items = request.frontier.items(request.phrases)
    if not items and request.previous is None:
        return replace(request, errors_stated=True)
    lines = [item for section in items.values() for item in section]
    taken = request.count("\n".join(lines)) + _HEADING_TOKENS * len(items) if items else 0
    previous = without_frontier(request.previous) if request.previous else request.previous
    room = max(1, request.budget_tokens - taken)
    return replace(request, previous=previous, budget_tokens=room, errors_stated=True)


def _add_frontier(written: WrittenSummary, request: SummaryRequest) -> WrittenSummary:
    """Return a summary with the frontier's lines in its sections."""
    text = place_frontier(written.text, request.frontier, request.budget_tokens, request.count, request.phrases)
    return written._replace(text=without_control_words(text))


def yardstick_for(request: SummaryRequest) -> Yardstick:
    """Return a yardstick that measures a summary by itself, against the contents of its request."""
    source = [m for m in (request.opening, *request.prefix, *request.turns, request.latest_user) if m is not None]
    more = (request.previous, request.memory_context, request.focus_topic)
    return Yardstick(request.turns, (), source, more, newest=request.newest_words, frontier=request.frontier)


def _judge(answer: object, request: SummaryRequest, yardstick: Yardstick) -> JudgedSummary:
    """Return the usable part of an answer, an empty document if there is none."""
    try:
        return judge_answer(answer, yardstick, request.budget_tokens, request.count)
    except UnusableSummary as error:
        return JudgedSummary(SummaryDocument(), (str(error),), error.invented)


def sample_turns(turns: Sequence[Message]) -> Sequence[Message]:
    """Return the turns that the extract beside a model's summary reads: all, or a sample of a huge stretch."""
    whole = sum(len(text_of(message)) for message in turns) <= WHOLE_CHARACTERS
    return turns if whole else [*turns[:-_NEWEST:_EVERY], *turns[-_NEWEST:]]


def missing_lines(prose: SummaryDocument, extract: str, yardstick: Yardstick) -> tuple[str, ...]:
    """Return the lines of the extract with the weightiest names that the prose lacks."""
    lost = set(yardstick.missing(prose.render()))
    found: list[str] = []
    items = [item for items in SummaryDocument.parse(extract).items.values() for item in items]
    pieces = [piece for item in items for piece in _pieces(item)]
    worth = {piece: sum(yardstick.wanted[name] for name in lost & set(entities(piece))) for piece in pieces}
    for piece in sorted(worth, key=lambda piece: -worth[piece])[:_MOST_MISSING]:
        names = lost & set(entities(piece))
        if names:
            found.append(piece)
            lost -= names
    return tuple(found)


def complete_prose(
    prose: SummaryDocument,
    extract: str,
    yardstick: Yardstick,
    budget: int,
    count: Callable[[str], int],
    *,
    quotes_newest: bool = False,
) -> str:
    """Return a model's prose with the facts that it lacks from the extract, within the budget.

    With ``quotes_newest`` the extract's line on the newest request replaces the prose's, because it is word for word.
    """
    made = SummaryDocument.parse(extract)
    document = SummaryDocument({section: list(prose.items[section]) for section in SECTIONS})
    document = restate_newest(document, made, yardstick.newest, quotes=quotes_newest)
    if count(prose.render()) < _THIN:
        return _put_in_front(document, made).fit(budget, count, newest_label)
    text = document.fit(budget, count, newest_label)
    room = min(budget - count(text), int(count(text) * _ADDED_SHARE))
    room -= _add_closings(document, made, room, count)
    room -= _add_files(document, made, int(room * _FILES_SHARE), count)
    _add_lines(document, made, yardstick, room, count)
    return document.fit(budget, count, newest_label)


def _put_in_front(prose: SummaryDocument, extract: SummaryDocument) -> SummaryDocument:
    """Put the few words of a model in front of those of the built-in summary; the model's goal is the goal."""
    known = {_plain(item) for items in prose.items.values() for item in items}
    merged = {
        section: [*prose.items[section], *(item for item in extract.items[section] if _plain(item) not in known)]
        for section in SECTIONS
    }
    for section in ("Goal", "Pending User Asks"):
        merged[section] = prose.items[section] or extract.items[section]
    return SummaryDocument(merged)


def _add_closings(document: SummaryDocument, made: SummaryDocument, room: int, count: Callable[[str], int]) -> int:
    """Add the requests that the user took back, so that nobody takes them up again; return the tokens that takes."""
    said = document.render()
    closed = [item for item in made.items["Key Decisions"] if is_closing(item) and item not in said]
    return _append(document, _CONTEXT, closed, room, count)


def _add_files(document: SummaryDocument, made: SummaryDocument, room: int, count: Callable[[str], int]) -> int:
    """Add the changed files that the prose does not name; return the tokens that takes."""
    named = set(entities(document.render()))
    missing = [
        item
        for item in made.items["Relevant Files"]
        if changes_file(item) and not named.intersection(_file_names(item))
    ]
    return _append(document, "Relevant Files", missing, room, count)


def _append(
    document: SummaryDocument, section: str, items: Sequence[str], room: int, count: Callable[[str], int]
) -> int:
    spent = 0
    for item in items:
        cost = count(item) + 1 + (0 if document.items[section] else _HEADING_TOKENS)
        if spent + cost <= room:
            document.items[section].append(item)
            spent += cost
    return spent


def _file_names(item: str) -> set[str]:
    """Return a file's path and its last part."""
    path = item.removeprefix("- ").lstrip("`").split("`")[0].split(" ")[0]
    return {path, path.rsplit("/", 1)[-1]}


class _SummaryEntry(NamedTuple):
    source: str
    text: str
    names: frozenset[str]


def _add_lines(
    document: SummaryDocument, made: SummaryDocument, yardstick: Yardstick, room: int, count: Callable[[str], int]
) -> None:
    """Add the lines with the weightiest missing facts, each under its source."""
    lost = set(yardstick.missing(document.render()))
    lines = [line for item in made.items[_CONTEXT] for line in _lines_of(item) if line.names & lost]
    chosen: dict[str, list[str]] = {}
    room -= 0 if document.items[_CONTEXT] else _HEADING_TOKENS
    by_source: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        by_source.setdefault(line.source, []).append(place)
    waiting = [(-_worth(line, lost, yardstick.wanted, chosen), place) for place, line in enumerate(lines)]
    heapq.heapify(waiting)
    done: set[int] = set()
    while waiting and room > 0:
        negative, place = heapq.heappop(waiting)
        line = lines[place]
        worth = 0.0 if place in done else _worth(line, lost, yardstick.wanted, chosen)
        if worth < -negative:  # a line chosen since then has some of its names
            if worth > 0:
                heapq.heappush(waiting, (-worth, place))
            continue
        if worth <= 0:
            break
        done.add(place)
        is_first = line.source not in chosen
        cost = count(line.text) + 1 + (count(line.source) + 1 if is_first else 0)
        if cost > room:
            continue
        chosen.setdefault(line.source, []).append(line.text)
        lost -= line.names
        room -= cost
        if is_first:  # the others of this source cost less now, so each is worth more
            others = [other for other in by_source[line.source] if other not in done]
            for other in others:
                heapq.heappush(waiting, (-_worth(lines[other], lost, yardstick.wanted, chosen), other))
    document.items[_CONTEXT] += [
        "\n".join([source, *(f"  {text}" for text in texts)]) for source, texts in chosen.items()
    ]


def _worth(line: _SummaryEntry, lost: set[str], wanted: Mapping[str, float], chosen: Mapping[str, object]) -> float:
    length = len(line.text) + (0 if line.source in chosen else len(line.source)) + 16
    return sum(wanted[name] for name in line.names & lost) / length


def _lines_of(item: str) -> Iterator[_SummaryEntry]:
    """Yield the lines that an item groups under a source."""
    source, *lines = item.split("\n")
    for line in lines:
        yield _SummaryEntry(source, line.strip(), frozenset(entities(line)))


def _pieces(item: str) -> Iterator[str]:
    """Yield an item, or each of its lines together with its source."""
    if "\n" not in item:
        yield item
    for line in _lines_of(item):
        yield f"- {line.source} {line.text}"


def _plain(item: str) -> str:
    return item.lstrip("-*• ").strip().lower()
