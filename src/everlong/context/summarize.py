"""Third stage: the middle becomes one document, whatever happens to the summarizer.

A summarizer is anything with a name and one method. Its answer is judged, mended once if it is weak and can be, and
filled up with lines of the conversation itself. If it fails, is cooling down after a failure, or gives something that
is no summary, the extractive one takes its place and the reason is kept. No network here: a summarizer that needs one
brings it along.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

from everlong.context.grounds import LeftAlone
from everlong.context.shorten import TextCount
from everlong.context.summary.digest import without_control_words
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.judge import Judged, UnusableSummary, judged
from everlong.context.summary.mend import filled, missing_lines, readable
from everlong.context.summary.newest import inherited_newest
from everlong.context.summary.trace import NO_TRACE, Trace
from everlong.context.verify import Yardstick
from everlong.model import Message, typed_words


@dataclass(frozen=True, slots=True)
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
    prefix: Sequence[Message] = ()
    """Everything up to the cut as it was sent to the main model, for a summarizer that rides its warm prefix."""
    prefix_tokens: int = 0
    """What the prefix costs; 0 where that is not known."""
    trace: Trace = NO_TRACE
    """Is told of what is chosen and what is passed over; most summarizers have no use for it."""

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


_BEGUN = 200
"""Characters by which a request is known again."""
_SLACK = 0.15
"""Key lines close a gap this wide; a draft that scores further below the extract is worth another call."""
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
        """A summary within the request's budget, never measured below the fallback's; never raises for its sake."""
        written = self._asked(request, yardstick or yardstick_for(request), ignore_cooldown=ignore_cooldown)
        self.last = written._replace(text=without_control_words(written.text))
        return self.last

    def rewrite(self, written: Written, request: SummaryRequest, yardstick: Yardstick) -> Written:
        """A summary for another request on the same conversation from an answer that is there; nobody is asked."""
        if written.prose:
            kept = Judged(SummaryDocument.parse(written.prose), written.problems, written.invented)
            extract = self._fallback.summarize(replace(request, turns=readable(request.turns)))
            again = self._filled(written.summarizer, kept, extract, request, yardstick)
        else:
            again = self._extract(request, written.fallback_reason, written.problems)._replace(
                invented=written.invented
            )
        return again._replace(text=without_control_words(again.text))

    def _asked(self, request: SummaryRequest, yardstick: Yardstick, *, ignore_cooldown: bool) -> Written:
        chosen = self._chosen
        if chosen is None or type(chosen) is type(self._fallback):  # choosing the fallback is not choosing a model
            return self._extract(request, None)
        if self._cooling_until is not None and self._clock() < self._cooling_until and not ignore_cooldown:
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
        """The answer mended if it is weak, and filled up with the fallback's lines."""
        extract = self._fallback.summarize(replace(request, turns=readable(request.turns)))
        extract_score = yardstick.score(extract)
        draft = _judged(answer, request, yardstick)
        problems, invented = draft.problems, draft.invented
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
        """A draft with the fallback's lines, or the fallback's summary where that alone is better."""
        prose, score, problems = draft.document.render(), yardstick.score(extract), draft.problems
        whole = filled(
            draft.document,
            extract,
            yardstick,
            request.budget_tokens,
            request.count,
            quotes_newest=not request.newest_stands,
        )
        if whole.prose_share == 0.0:
            problems += (f"the built-in summary alone scores {score:.2f}, and with any of it less",)
            reason = f"{name}: {problems[-1]}"
            return Written(extract, self._fallback.name, reason, problems, score, draft.invented)
        return Written(whole.text, name, None, problems, score, draft.invented, prose)

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

    def reset(self) -> None:
        """Forget earlier failures."""
        self._cooling_until = None
        self._unusable = 0


def yardstick_for(request: SummaryRequest) -> Yardstick:
    """Measures summaries by themselves, against what a request gives to work with."""
    source = [m for m in (request.opening, *request.prefix, *request.turns, request.latest_user) if m is not None]
    more = (request.previous, request.memory_context, request.focus_topic)
    return Yardstick(request.turns, (), source, more, newest=request.newest_words)


def _judged(answer: object, request: SummaryRequest, yardstick: Yardstick) -> Judged:
    """What of an answer can stand; an empty document where nothing can."""
    try:
        return judged(answer, yardstick, request.budget_tokens, request.count)
    except UnusableSummary as error:
        return Judged(SummaryDocument(), (str(error),), error.invented)
