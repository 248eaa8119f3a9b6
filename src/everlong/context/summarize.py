"""Third stage: the middle becomes one document, whatever happens to the summarizer.

A summarizer is anything with a name and one method. Its answer is judged, mended once if it is weak and can be, and
given the facts that it lacks. If it fails, is cooling down after a failure, or gives something that
is no summary, the extractive one takes its place and the reason is kept. No network here: a summarizer that needs one
brings it along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

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
from everlong.context.summary.judge import Judged, UnusableSummary, judged
from everlong.context.summary.language import Phrases, changes_file, is_closing, newest_label, phrases_for
from everlong.context.summary.newest_request import inherited_newest, restated
from everlong.context.summary.trace import NO_TRACE, SummaryTrace
from everlong.context.text import TextCount, one_line
from everlong.context.verify import Yardstick
from everlong.model import Message, is_system, text_of, typed_words

ADDED_SHARE = 0.18
"""What may be added to a summary of a model, as a share of it: with headings and line breaks at most a fifth."""
_FILES_SHARE = 0.5
"""What of that files may take."""
_THIN = 40
"""A summary of fewer tokens stands for nothing: it is put in front of the built-in one."""
_HEADING_TOKENS = 6
_WHOLE_CHARACTERS = 2_000_000
"""Up to this size, more than half a million tokens, the extract beside a model's summary reads every turn."""
_EVERY = 96
_NEWEST = 8
_MOST_MISSING = 24
_CONTEXT = "Critical Context"


def readable(turns: Sequence[Message]) -> Sequence[Message]:
    """The turns that the extract beside a model's summary reads: all, or of a huge stretch an even choice."""
    characters = 0
    for message in turns:
        characters += len(text_of(message))
        if characters > _WHOLE_CHARACTERS:
            return [*turns[:-_NEWEST:_EVERY], *turns[-_NEWEST:]]
    return turns


def completed(
    prose: SummaryDocument,
    extract: str,
    yardstick: Yardstick,
    budget: int,
    count: Callable[[str], int],
    *,
    quotes_newest: bool = False,
) -> str:
    """The prose as it is, with what it lacks of the extract's facts; within the budget.

    With ``quotes_newest`` the extract's line on the newest request replaces the prose's, because it is word for word.
    """
    made = SummaryDocument.parse(extract)
    document = SummaryDocument({section: list(prose.items[section]) for section in SECTIONS})
    document = restated(document, made, yardstick.newest, quotes=quotes_newest)
    if count(prose.render()) < _THIN:
        return _in_front(document, made).fit(budget, count, newest_label)
    text = document.fit(budget, count, newest_label)
    room = min(budget - count(text), int(count(text) * ADDED_SHARE))
    room -= _add_closings(document, made, room, count)
    room -= _add_files(document, made, int(room * _FILES_SHARE), count)
    _add_lines(document, made, yardstick, room, count)
    return document.fit(budget, count, newest_label)


def _in_front(prose: SummaryDocument, extract: SummaryDocument) -> SummaryDocument:
    """The few words of a model in front of those of the built-in summary; the model's goal is the goal."""
    known = {_plain(item) for items in prose.items.values() for item in items}
    merged = {
        section: [*prose.items[section], *(item for item in extract.items[section] if _plain(item) not in known)]
        for section in SECTIONS
    }
    for section in ("Goal", "Pending User Asks"):
        merged[section] = prose.items[section] or extract.items[section]
    return SummaryDocument(merged)


def _add_closings(document: SummaryDocument, made: SummaryDocument, room: int, count: Callable[[str], int]) -> int:
    """Say what the user took back, or it would be taken up again; returns the tokens that it takes."""
    said = document.render()
    closed = [item for item in made.items["Key Decisions"] if is_closing(item) and item not in said]
    return _append(document, _CONTEXT, closed, room, count)


def _add_files(document: SummaryDocument, made: SummaryDocument, room: int, count: Callable[[str], int]) -> int:
    """Name the changed files that the prose does not; returns the tokens that they take."""
    said = set(entities(document.render()))
    unsaid = [
        item for item in made.items["Relevant Files"] if changes_file(item) and not said.intersection(_file_names(item))
    ]
    return _append(document, "Relevant Files", unsaid, room, count)


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
    """A file's path and its last part."""
    path = item.removeprefix("- ").lstrip("`").split("`")[0].split(" ")[0]
    return {path, path.rsplit("/", 1)[-1]}


class _SummaryEntry(NamedTuple):
    source: str
    text: str
    names: frozenset[str]


def _add_lines(
    document: SummaryDocument, made: SummaryDocument, yardstick: Yardstick, room: int, count: Callable[[str], int]
) -> None:
    """Add the lines with the weightiest facts that stand nowhere yet, each under its source."""
    lost = set(yardstick.missing(document.render()))
    lines = [line for item in made.items[_CONTEXT] for line in _lines_of(item) if line.names & lost]
    chosen: dict[str, list[str]] = {}
    room -= 0 if document.items[_CONTEXT] else _HEADING_TOKENS
    while lines and room > 0:
        best = max(lines, key=lambda line: _worth(line, lost, yardstick.wanted, chosen))
        lines.remove(best)
        cost = count(best.text) + 1 + (count(best.source) + 1 if best.source not in chosen else 0)
        if cost <= room and best.names & lost:
            chosen.setdefault(best.source, []).append(best.text)
            lost -= best.names
            room -= cost
    document.items[_CONTEXT] += [
        "\n".join([source, *(f"  {text}" for text in texts)]) for source, texts in chosen.items()
    ]


def _worth(line: _SummaryEntry, lost: set[str], wanted: Mapping[str, float], chosen: Mapping[str, object]) -> float:
    length = len(line.text) + (0 if line.source in chosen else len(line.source)) + 16
    return sum(wanted[name] for name in line.names & lost) / length


def _lines_of(item: str) -> Iterator[_SummaryEntry]:
    """The lines that an item groups under a source."""
    source, *lines = item.split("\n")
    for line in lines:
        yield _SummaryEntry(source, line.strip(), frozenset(entities(line)))


def missing_lines(prose: SummaryDocument, extract: str, yardstick: Yardstick) -> tuple[str, ...]:
    """The lines of the extract with the weightiest names that the prose lacks."""
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


def _pieces(item: str) -> Iterator[str]:
    """An item, or each of its lines with the source that they stand under."""
    if "\n" not in item:
        yield item
    for line in _lines_of(item):
        yield f"- {line.source} {line.text}"


def _plain(item: str) -> str:
    return item.lstrip("-*• ").strip().lower()


@dataclass(frozen=True)
class SummaryRequest:
    """What a summarizer gets to work with."""

    turns: Sequence[Message]
    """The messages to summarize as they were, tool outputs whole."""
    previous: str | None
    """The summary of everything before, to be updated."""
    budget_tokens: int
    count: TextCount
    """Counts the tokens of a text."""
    opening: Message | None = None
    """The first message in which a person says what the conversation is all about."""
    latest_user: Message | None = None
    """The request in force: the newest message in which a person asked for something."""
    before: Sequence[Message] = ()
    """What will stand before the summary word for word, besides the system prompt; it need not be said again."""
    after: Sequence[Message] = ()
    """What will stand after it, the request in force with it; here the user may have taken something back."""
    focus_topic: str | None = None
    memory_context: str | None = None
    """What a memory provider wants kept."""
    rules: Sequence[str] = ()
    """The user's standing rules, which will stand beside the summary word for word; they need not be said again."""
    errors_stated: bool = False
    """True where the errors that are open will be stated with the frontier, so that no summary need name them."""
    prefix: Sequence[Message] = ()
    """Everything up to the cut as it was sent to the main model, for a summarizer that rides its warm prefix."""
    prefix_tokens: int = 0
    """What the prefix costs; 0 where that is not known."""
    trace: SummaryTrace = NO_TRACE
    """Is told of what is chosen and what is passed over; most summarizers have no use for it."""

    @cached_property
    def frontier(self) -> Frontier:
        """Where the work stands: after the turns and what follows them, and by what ``previous`` says of before."""
        carried = inherited_frontier(self.previous)
        said_again = any(message is self.latest_user for message in self.turns)
        after = [message for message in self.after if not (said_again and message is self.latest_user)]
        before = self._head_as_it_was() if carried is None else ()
        found = read_frontier([*before, *self.turns, *after], carried, one_line(self.newest_words))
        return fit_frontier(found, self.budget_tokens, self.count, self.phrases)

    def _head_as_it_was(self) -> Sequence[Message]:
        """What stands before the turns, with its results, which are cleared where it will stand."""
        first = next((place for place, message in enumerate(self.prefix) if self.turns and message is self.turns[0]), 0)
        return [message for message in self.prefix[:first] if not is_system(message)] if first else self.before

    @property
    def phrases(self) -> Phrases:
        """The words for what we write ourselves, in the language of the person."""
        return phrases_for([self.newest_words, self.opening_words, (self.previous or "")[:2_000]])

    @property
    def opening_words(self) -> str:
        """What the person said first, without what their client wrapped around it."""
        return typed_words(self.opening) if self.opening is not None else ""

    @property
    def newest_words(self) -> str:
        """The request in force, without what the client wrapped around it; of old, the one that ``previous`` names."""
        return typed_words(self.latest_user) if self.latest_user is not None else inherited_newest(self.previous)

    @property
    def newest_stands(self) -> bool:
        """True where the request in force stands beside the summary, so that it need not be quoted whole."""
        around = [message for message in (*self.before, *self.after) if message["role"] == "user"]
        if not (self.before or self.after) or any(message is self.latest_user for message in around):
            return True
        begun = self.newest_words[:_BEGUN]  # one that was too long for its place stands there shortened
        return bool(begun) and any(typed_words(message).startswith(begun) for message in around)


class Summarizer(Protocol):
    """Turns a request into a summary, or raises."""

    @property
    def name(self) -> str:
        """How reports call it."""
        ...

    def summarize(self, request: SummaryRequest) -> str:
        """The summary as Markdown with the headings of the template."""
        ...


@dataclass(frozen=True, slots=True)
class Weakness:
    """What a summary falls short in."""

    problems: tuple[str, ...]
    missing: tuple[str, ...]
    """Lines of the conversation with names that the summary should have and has not."""


@runtime_checkable
class MendingSummarizer(Summarizer, Protocol):
    """A summarizer that can be asked once more; any that has a ``mend`` method is."""

    def mend(self, request: SummaryRequest, draft: str, weakness: Weakness) -> str:
        """The summary again, better; ``draft`` is empty where nothing of the first one could stand."""
        ...


@runtime_checkable
class Reordering(Protocol):
    """A summarizer of several members that can be told to ask another one first."""

    def ask_last(self) -> str | None:
        """Ask whoever wrote the last summary after all others; return who is asked first then, None for nobody."""
        ...


class Written(NamedTuple):
    """A summary, who wrote it, and why it was not the one who was asked first."""

    text: str
    summarizer: str
    fallback_reason: str | None
    problems: tuple[str, ...] = ()
    """What was wrong with the first draft of whoever was asked."""
    extract_score: float | None = None
    """What the fallback's summary scores, where it was made beside another's."""
    invented: tuple[str, ...] = ()
    """Names that the summarizer made up; they were cut out."""
    prose: str = ""
    """What of the answer of whoever was asked could stand; empty where nobody was asked or nothing could."""
    strategy: str | None = None
    """What is done differently because two summaries in a row were poor."""


_BEGUN = 200
"""Characters by which a request is known again."""
_SLACK = 0.15
"""Key lines close a gap this wide; a draft that scores further below the extract is worth another call."""
_LARGER = 1.5
"""By how much the budget grows after two poor summaries, as far as the cap allows."""
_POOR_IN_A_ROW = 2
_PATIENCE = 3
"""So many answers in a row that are no summary, and the summarizer is left alone like one that cannot be reached."""


class SummaryWriter:
    """Asks the chosen summarizer, has a weak answer mended, and asks the fallback where that one fails."""

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
        self.last: Written | None = None
        """What was written last."""
        self._poor = 0
        self._is_reordered = False
        self._strategy: str | None = None
        self.budget_factor = 1.0
        """By how much summaries may be longer than usual, within the cap."""

    @property
    def left_alone(self) -> list[LeftAlone]:
        """Who failed and is not asked now: the chosen summarizer, or those of its own that it leaves alone."""
        inner: list[LeftAlone] = list(getattr(self._chosen, "left_alone", ()))
        left = (self._cooling_until or 0.0) - self._clock() if self._cooling_until is not None else 0.0
        if self._chosen is None or left <= 0:
            return inner
        return [LeftAlone(self._chosen.name, self._failure, left, self._cooldown), *inner]

    @property
    def chosen(self) -> Summarizer | None:
        """Who is asked first; another one starts without the failures of the one before."""
        return self._chosen

    @chosen.setter
    def chosen(self, summarizer: Summarizer | None) -> None:
        if summarizer is not self._chosen:
            self._chosen = summarizer
            self.reset()

    def write(
        self, request: SummaryRequest, yardstick: Yardstick | None = None, *, ignore_cooldown: bool = False
    ) -> Written:
        """A summary within the request's budget; never raises for its sake."""
        frontier, room = _parted(request)
        written = self._asked(room, yardstick or yardstick_for(request), ignore_cooldown=ignore_cooldown)
        self.last = _joined(written._replace(strategy=self._strategy), frontier, request)
        return self.last

    def rewrite(self, written: Written, request: SummaryRequest, yardstick: Yardstick) -> Written:
        """A summary for another request on the same conversation from an answer that is there; nobody is asked."""
        frontier, room = _parted(request)
        if written.prose:
            kept = Judged(SummaryDocument.parse(written.prose), written.problems, written.invented)
            extract = self._fallback.summarize(replace(room, turns=readable(room.turns)))
            again = self._filled(written.summarizer, kept, extract, room, yardstick)
        else:
            again = self._extract(room, written.fallback_reason, written.problems)._replace(invented=written.invented)
        return _joined(again._replace(strategy=written.strategy), frontier, request)

    def _asked(self, request: SummaryRequest, yardstick: Yardstick, *, ignore_cooldown: bool) -> Written:
        chosen = self._chosen
        if chosen is None or type(chosen) is type(self._fallback):  # choosing the fallback is not choosing a model
            return self._extract(request, None)
        if self._is_cooling() and not ignore_cooldown:
            reason = f"{chosen.name} failed before and is left alone for {self._cooldown:g} seconds"
            return self._extract(request, reason)
        try:
            answer: object = chosen.summarize(request)
        except Exception as error:  # noqa: BLE001 - a summarizer is foreign code; its failure is reported, not hidden
            self._cooling_until = self._clock() + self._cooldown
            self._failure = f"{type(error).__name__}: {error}"
            return self._extract(request, f"{chosen.name}: {self._failure}")
        return self._improved(chosen, answer, request, yardstick)

    def _improved(self, chosen: Summarizer, answer: object, request: SummaryRequest, yardstick: Yardstick) -> Written:
        """The answer, mended if it is weak, with the facts that it lacks."""
        extract = self._fallback.summarize(replace(request, turns=readable(request.turns)))
        extract_score = yardstick.score(extract)
        draft = _judged(answer, request, yardstick)
        problems, invented = draft.problems + yardstick.draft_faults(draft.document.render()), draft.invented
        weak = bool(problems) or yardstick.score(draft.document.render()) < extract_score - _SLACK
        if weak and isinstance(chosen, MendingSummarizer):
            weakness = Weakness(problems, missing_lines(draft.document, extract, yardstick))
            draft, failure = self._mended(chosen, draft, weakness, request, yardstick)
            problems, invented = problems + failure, tuple(dict.fromkeys(invented + draft.invented))
        if draft.document.is_empty():
            self._unusable += 1
            if self._unusable >= _PATIENCE:
                self._cooling_until = self._clock() + self._cooldown
                self._failure = "; ".join(problems)
            unusable = self._extract(request, f"{chosen.name}: {'; '.join(problems)}", problems)
            return unusable._replace(invented=invented)
        self._unusable, self._cooling_until = 0, None
        kept = Judged(draft.document, problems, invented)
        return self._filled(chosen.name, kept, extract, request, yardstick)

    def _filled(self, name: str, draft: Judged, extract: str, request: SummaryRequest, yardstick: Yardstick) -> Written:
        """A draft as it is, with the facts that it lacks."""
        text = completed(
            draft.document,
            extract,
            yardstick,
            request.budget_tokens,
            request.count,
            quotes_newest=not request.newest_stands,
        )
        score = yardstick.score(extract)
        return Written(text, name, None, draft.problems, score, draft.invented, draft.document.render())

    @staticmethod
    def _mended(
        chosen: MendingSummarizer, draft: Judged, weakness: Weakness, request: SummaryRequest, yardstick: Yardstick
    ) -> tuple[Judged, tuple[str, ...]]:
        """The better of a draft and the next one, and what went wrong in asking for it."""
        try:
            second = _judged(chosen.mend(request, draft.document.render(), weakness), request, yardstick)
        except Exception as error:  # noqa: BLE001 - as in write: foreign code, and the first draft is still there
            return draft, (f"asked to mend it: {type(error).__name__}: {error}",)
        scores = [yardstick.score(judged.document.render()) for judged in (draft, second)]
        is_better = scores[1] > scores[0] or draft.document.is_empty()
        return (second if is_better else draft), ()

    def _extract(self, request: SummaryRequest, reason: str | None, problems: tuple[str, ...] = ()) -> Written:
        if reason is not None and not problems:
            problems = (reason,)
        return Written(self._fallback.summarize(request), self._fallback.name, reason, problems)

    def note_quality(self, score: float) -> None:
        """Take in how good the last summary of whoever was asked is; two poor ones in a row change the strategy.

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
            self.budget_factor = _LARGER
            self._strategy = "two poor summaries in a row: a larger budget"
        elif isinstance(chosen, Reordering) and not self._is_reordered and (asked_next := chosen.ask_last()):
            self._is_reordered = True
            self._strategy = f"two poor summaries in a row with a larger budget: {asked_next} is asked first"
        else:
            self._cooling_until = self._clock() + self._cooldown
            self._failure = "its summaries were poor"
            self._strategy = "poor summaries in a row: made of the conversation's own lines for a while"

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


def _parted(request: SummaryRequest) -> tuple[Frontier, SummaryRequest]:
    """Where the work stands, and the request for the rest: without its lines, and with the room that they leave."""
    items = request.frontier.items(request.phrases)
    if not items and request.previous is None:
        return request.frontier, replace(request, errors_stated=True)
    lines = [item for section in items.values() for item in section]
    taken = request.count("\n".join(lines)) + _HEADING_TOKENS * len(items) if items else 0
    previous = without_frontier(request.previous) if request.previous else request.previous
    room = max(1, request.budget_tokens - taken)
    return request.frontier, replace(request, previous=previous, budget_tokens=room, errors_stated=True)


def _joined(written: Written, frontier: Frontier, request: SummaryRequest) -> Written:
    """A summary with where the work stands in its sections."""
    text = place_frontier(written.text, frontier, request.budget_tokens, request.count, request.phrases)
    return written._replace(text=without_control_words(text))


def yardstick_for(request: SummaryRequest) -> Yardstick:
    """Measures summaries by themselves, against what a request gives to work with."""
    source = [m for m in (request.opening, *request.prefix, *request.turns, request.latest_user) if m is not None]
    more = (request.previous, request.memory_context, request.focus_topic)
    return Yardstick(request.turns, (), source, more, newest=request.newest_words, frontier=request.frontier)


def _judged(answer: object, request: SummaryRequest, yardstick: Yardstick) -> Judged:
    """What of an answer can stand; an empty document where nothing can."""
    try:
        return judged(answer, yardstick, request.budget_tokens, request.count)
    except UnusableSummary as error:
        return Judged(SummaryDocument(), (str(error),), error.invented)
