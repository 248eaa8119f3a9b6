"""A summarizer over any function that completes a chat: ``complete(messages, max_tokens) -> str``.

Reads the middle in as many parts as the model's window needs, several at a time, and folds their summaries level by
level into one, so that nothing is dropped unread. Knows no client library; the function brings its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from everlong.context.shorten import shorten_text
from everlong.context.summarize import SummaryRequest, Weakness
from everlong.context.summary.digest import Piece, packed, split, turn_pieces
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.judge import answer_document
from everlong.context.summary.parts import Complete, PartsRunner, SummaryProgress, Task
from everlong.context.summary.prompt import known_document, mending_prompt, transcript_prompt
from everlong.errors import ConfigError, SummarizerError
from everlong.model import Message, text_of

LEAST_WINDOW = 1_024
_LEAST_ROOM = 128
_BUDGET_SHARE = 5
"""A summary takes at most one in so many tokens of the window, since it must leave room to read."""


class CompletionSummarizer:
    """Summarizes with a model behind a plain function.

    ``window`` is the model's context window in tokens; what does not fit is summarized in parts, ``concurrency`` of
    them at a time, and folded. ``progress`` is told after each. After a failure the finished parts are kept, and the
    same request goes on from there.
    """

    def __init__(
        self,
        complete: Complete,
        *,
        window: int = 128_000,
        name: str = "model",
        concurrency: int = 4,
        progress: Callable[[SummaryProgress], None] | None = None,
    ) -> None:
        checked_window(window)
        if concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, got {concurrency}", key="concurrency")
        self._complete = complete
        self._window = window
        self._name = name
        self._runner = PartsRunner(complete, _checked_part, concurrency, progress)

    @property
    def name(self) -> str:
        """How reports call this summarizer."""
        return self._name

    def summarize(self, request: SummaryRequest) -> str:
        """The model's summary of all turns, in one call where they fit."""
        budget = min(request.budget_tokens, self._window // _BUDGET_SHARE)
        previous = known_document(request.previous) if request.previous else ""
        room = self._room(request, budget)
        previous_tokens = request.count(previous) + 32 if previous else 0
        parts = list(packed(turn_pieces(request.turns, room, request.count), room))
        if len(parts) <= 1:
            pieces = parts[0] if parts else []
            if sum(piece.tokens for piece in pieces) + previous_tokens <= room:
                return self._complete(transcript_prompt(request, pieces, budget, previous=previous), budget)
        summary = self._folded(request, parts, previous, budget, room)
        self._runner.forget()
        return summary

    def mend(self, request: SummaryRequest, draft: str, weakness: Weakness) -> str:
        """A second draft of a weak summary; the model is given what was wrong with it and what is missing."""
        budget = min(request.budget_tokens, self._window // _BUDGET_SHARE)
        within = shorten_text(draft, budget, request.count, otherwise="")
        room = self._room(request, budget) - request.count(within)
        missing: list[str] = []
        for line in weakness.missing:
            room -= request.count(line) + 1
            if room < _LEAST_ROOM:
                break
            missing.append(line)
        bounded = Weakness(weakness.problems, tuple(missing))
        return self._complete(mending_prompt(request, within, bounded, budget), budget)

    def _room(self, request: SummaryRequest, budget: int) -> int:
        """Tokens left for material in one prompt."""
        fixed = _tokens(transcript_prompt(request, [], budget, previous="-", fold=True), request)
        room = self._window - fixed - budget - self._window // 16
        if room < _LEAST_ROOM:
            raise SummarizerError(f"a window of {self._window} tokens leaves no room to read the conversation")
        return room

    def _folded(
        self, request: SummaryRequest, parts: Sequence[Sequence[Piece]], previous: str, budget: int, room: int
    ) -> str:
        """Each part by itself, then neighbours together, level by level, until one summary is left."""
        # Three summaries at least fit one fold, so that each level is at most half as long as the one before.
        share = min(budget, room // 4)
        tasks = [Task(transcript_prompt(request, part, share), share) for part in parts]
        texts = [_within(text, share, request) for text in self._runner.run(tasks, 0)]
        if previous:
            texts = [*split(previous, share, request.count), *texts]
        level = 0
        while len(texts) > 1:
            level += 1
            groups = list(packed(_summaries(texts, request), room))
            allowed = budget if len(groups) == 1 else share
            tasks = [Task(transcript_prompt(request, group, allowed, fold=True), allowed) for group in groups]
            texts = [_within(text, allowed, request) for text in self._runner.run(tasks, level)]
        return texts[0]


def _summaries(texts: Sequence[str], request: SummaryRequest) -> Iterator[Piece]:
    for number, text in enumerate(texts, 1):
        body = known_document(text)
        yield Piece(f"stretch {number}", body, request.count(body) + 14)


def _checked_part(answer: object) -> str:
    return answer_document(answer).render()


def _within(text: str, budget: int, request: SummaryRequest) -> str:
    """A part's summary within its share, whatever the model made of it."""
    fitting = SummaryDocument.parse(text).fit(budget, request.count)
    return fitting or shorten_text(text, budget, request.count, otherwise="## Critical Context\n- …")


def _tokens(prompt: Sequence[Message], request: SummaryRequest) -> int:
    return sum(request.count(text_of(message)) + 8 for message in prompt)


def checked_window(window: int) -> None:
    """Refuse a window in which no summary can be written."""
    if window < LEAST_WINDOW:
        raise ConfigError(f"a summarizer's window must be at least {LEAST_WINDOW} tokens, got {window}", key="window")
