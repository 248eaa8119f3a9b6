"""Summarizers that ask a model, through any function ``complete(messages, max_tokens) -> str``.

`CompletionSummarizer` reads the middle in as many parts as the model's window needs and folds their summaries into one.
`WarmPrefixSummarizer` asks the main model while its cache is warm. `SummarizerChain` asks several in order. None of
them knows a client library.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Literal, NamedTuple, Protocol

from everlong.arguments import check_callable, refuse
from everlong.context.digest import DigestPiece, pack, split, turn_pieces
from everlong.context.document import SummaryDocument
from everlong.context.policy import Cooldown, LeftAlone
from everlong.context.report import check_summary
from everlong.context.summarizers import Summarizer, SummaryRequest, check_summarizer, clean_answer
from everlong.context.summary_prompts import known_document, transcript_prompt, warm_prompt
from everlong.context.text import shorten_text
from everlong.errors import ConfigError, ContextOverflow, SummarizerError
from everlong.model import Message, text_of

LEAST_WINDOW = 1_024
_LEAST_ROOM = 128
_BUDGET_SHARE = 5
"""A summary takes at most one in this many tokens of the window, to leave room to read."""
_PROMPT_SHARE = 0.6
"""The share of the window that a prompt takes at most, because its model may count more tokens than we do."""


class Complete(Protocol):
    """A function that completes a chat and raises on failure.

    >>> from everlong import CompletionSummarizer
    >>> def complete(messages: list[Message], max_tokens: int) -> str:
    ...     return "## Goal: keep the harbour's book"
    >>> asking: Complete = complete
    >>> CompletionSummarizer(asking, name="a model of mine").name
    'a model of mine'
    """

    def __call__(self, messages: list[Message], max_tokens: int) -> str:
        """Return the model's answer, at most ``max_tokens`` long."""
        ...


class CompletionSummarizer:
    """A summarizer that asks a model behind a plain function.

    ``window`` is the model's context window in tokens. Turns that do not fit are summarized in parts, ``concurrency``
    of them at a time, and folded. After a failure the finished parts are kept, so
    the same request continues from there.

    >>> def complete(messages: list[Message], max_tokens: int) -> str:
    ...     raise ConnectionError("no network")
    >>> engine = ContextCompressor(16_000, summarizer=CompletionSummarizer(complete))
    >>> _ = engine.compress(messages)
    >>> engine.last_report.summarizer  # a failure falls back to the built-in summary
    'built-in rules'
    """

    def __init__(
        self,
        complete: Complete,
        *,
        window: int = 128_000,
        name: str = "model",
        concurrency: int = 4,
    ) -> None:
        check_callable("complete", complete, "a function of messages and max_tokens that returns the answer")
        check_window(window)
        if concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, got {concurrency}", key="concurrency")
        self._complete = complete
        self._window = window
        self._name = name
        self._runner = PartsRunner(_check_part, concurrency)

    @property
    def name(self) -> str:
        """The name in reports."""
        return self._name

    def summarize(self, request: SummaryRequest) -> str:
        """Return the model's summary of all turns, in one call if they fit, else in parts.

        A model that refuses a prompt as too long has a smaller window: the one that it names, else half; that is kept.
        """
        while True:
            try:
                return self._summarize(request)
            except Exception as error:
                overflow = _find_overflow(error)
                if overflow is None:
                    raise
                limit = overflow.limit or self._window
                self._window = limit if limit < self._window else self._window // 2

    def _summarize(self, request: SummaryRequest) -> str:
        budget = min(request.budget_tokens, self._window // _BUDGET_SHARE)
        previous = known_document(request.previous) if request.previous else ""
        room = self._room(request, budget)
        previous_tokens = request.count(previous) + 32 if previous else 0
        parts = deque(pack(turn_pieces(request.turns, room, request.count), room))
        if len(parts) <= 1:
            pieces = parts[0] if parts else []
            if sum(piece.tokens for piece in pieces) + previous_tokens <= room:
                return self._complete(transcript_prompt(request, pieces, budget, previous=previous), budget)
        summary = self._summarize_parts(request, parts, previous, budget, room)
        self._runner.forget()
        return summary

    def complete(self, messages: list[Message], max_tokens: int) -> str:
        """Return the model's answer to any prompt."""
        return self._complete(messages, max_tokens)

    def _room(self, request: SummaryRequest, budget: int) -> int:
        """Return the tokens left for material in one prompt."""
        fixed = _count_tokens(transcript_prompt(request, [], budget, previous="-", fold=True), request)
        room = self._window - fixed - budget - self._window // 16
        room = min(room, max(_LEAST_ROOM, int(_PROMPT_SHARE * self._window) - fixed))
        if room < _LEAST_ROOM:
            raise SummarizerError(
                f"a window of {self._window} tokens leaves no room to read the conversation; use a larger window"
            )
        return room

    def _summarize_parts(
        self, request: SummaryRequest, parts: deque[list[DigestPiece]], previous: str, budget: int, room: int
    ) -> str:
        """Summarize each part, then fold neighbours level by level until one summary is left; return it.

        The parts are used up, so that no more than the prompts stay in memory.
        """
        # At least three summaries fit one fold, so each level is at most half as long as the one before.
        share = min(budget, room // 4)
        tasks = [CompletionTask(transcript_prompt(request, parts.popleft(), share), share) for _ in range(len(parts))]
        texts = [_fit(text, share, request) for text in self._runner.run(tasks, self._complete)]
        if previous:
            texts = [*split(previous, share, request.count), *texts]
        while len(texts) > 1:
            groups = list(pack(_summaries(texts, request), room))
            allowed = budget if len(groups) == 1 else share
            tasks = [CompletionTask(transcript_prompt(request, group, allowed, fold=True), allowed) for group in groups]
            texts = [_fit(text, allowed, request) for text in self._runner.run(tasks, self._complete)]
        return texts[0]


def _find_overflow(error: BaseException | None) -> ContextOverflow | None:
    """Return the error, of this one and those behind it, that says that a prompt was too long."""
    return error if error is None or isinstance(error, ContextOverflow) else _find_overflow(error.__cause__)


def _summaries(texts: Sequence[str], request: SummaryRequest) -> Iterator[DigestPiece]:
    for number, text in enumerate(texts, 1):
        body = known_document(text)
        yield DigestPiece(f"stretch {number}", body, request.count(body) + 14)


def _check_part(answer: object) -> str:
    text, problem = clean_answer(answer, 1, len)
    if problem:
        raise SummarizerError(problem)
    return text


def _fit(text: str, budget: int, request: SummaryRequest) -> str:
    """Return a part's summary within its share, whatever the model made of it."""
    fitting = SummaryDocument.parse(text).fit(budget, request.count)
    return fitting or shorten_text(text, budget, request.count, otherwise="## Critical Context\n- …")


def _count_tokens(prompt: Sequence[Message], request: SummaryRequest) -> int:
    return sum(request.count(text_of(message)) + 8 for message in prompt)


def check_window(window: object) -> None:
    """Raise if a window is too small to write a summary in."""
    if isinstance(window, bool) or not isinstance(window, int) or window < LEAST_WINDOW:
        raise ConfigError(f"a summarizer's window must be at least {LEAST_WINDOW} tokens, got {window!r}", key="window")


class WarmPrefixSummarizer:
    """A summarizer that asks the main model itself, behind a plain function.

    ``complete`` must send the same model, tools and settings as the conversation's own requests, or the cache is cold.

    >>> def complete(messages: list[Message], max_tokens: int) -> str:
    ...     return "## Goal: keep the harbour's book"
    >>> WarmPrefixSummarizer(complete).needs_prefix
    True
    """

    needs_prefix = True
    """A chain leaves it out where the request has no prefix, as for a part of a conversation."""

    def __init__(self, complete: Complete, *, window: int = 200_000, name: str = "main model") -> None:
        check_callable("complete", complete, "a function of messages and max_tokens that returns the answer")
        check_window(window)
        self._complete = complete
        self._window = window
        self._name = name

    @property
    def name(self) -> str:
        """The name in reports."""
        return self._name

    def summarize(self, request: SummaryRequest) -> str:
        """Return the main model's summary of everything up to the cut."""
        return self._ask(request, warm_prompt(request, request.budget_tokens))

    def _ask(self, request: SummaryRequest, prompt: list[Message]) -> str:
        if not request.prefix:
            raise SummarizerError(
                "the request has no prefix, the conversation as it was sent; set SummaryRequest.prefix"
            )
        sent = request.prefix_tokens or sum(request.count(text_of(message)) + 8 for message in request.prefix)
        needed = sent + request.count(text_of(prompt[-1])[-20_000:]) + request.budget_tokens
        if needed > self._window:
            raise SummarizerError(
                f"the conversation and a summary need {needed:,} tokens of a window of {self._window:,}; "
                "a CompletionSummarizer reads in parts"
            )
        return self._complete(prompt, request.budget_tokens)


Choice = Literal["first_good", "best"]


class SummarizerChain:
    """Several summarizers, asked in order.

    ``first_good`` takes the first summary without problems, else the best one; ``best`` asks all and takes the best. A
    member that raised is not asked for ``cooldown_seconds`` while others are available.

    >>> fast = CompletionSummarizer(lambda messages, max_tokens: "…", name="fast")
    >>> careful = CompletionSummarizer(lambda messages, max_tokens: "…", name="careful")
    >>> chain = SummarizerChain([fast, careful], choose="best")
    >>> engine = ContextCompressor(200_000, summarizer=chain)
    >>> "fast" in chain.name
    True
    """

    def __init__(
        self,
        members: Sequence[Summarizer],
        choose: Choice = "first_good",
        *,
        cooldown_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(members, Sequence):
            refuse("members", members, "a list of summarizers")
        for member in members:
            check_summarizer(member, "a member of the chain")
        if not members:
            raise ConfigError("members is empty; give the chain at least one summarizer", key="members")
        if choose not in ("first_good", "best"):
            raise ConfigError(f'choose must be "first_good" or "best", got {choose!r}', key="choose")
        self._members = list(members)
        self._choose = choose
        self._cooldowns = [Cooldown(cooldown_seconds, clock) for _ in members]
        self._winner: Summarizer | None = None

    @property
    def name(self) -> str:
        """The name of the member that wrote the last summary; before the first, the names of all."""
        names = dict.fromkeys(member.name for member in self._members)
        return self._winner.name if self._winner else ", else ".join(names)

    def complete(self, messages: list[Message], max_tokens: int) -> str:
        """Return the answer of the first member that can complete any prompt; raise if none can."""
        complaints: list[str] = []
        for place in self._awake():
            complete = getattr(self._members[place], "complete", None)
            if complete is None:
                continue
            try:
                return str(complete(messages, max_tokens))
            except Exception as error:  # noqa: BLE001 - a member is foreign code; the next one is asked
                complaints.append(f"{self._members[place].name}: {type(error).__name__}: {error}")
        raise SummarizerError("; ".join(complaints) or "no summarizer of the chain can complete a prompt")

    def summarize(self, request: SummaryRequest) -> str:
        """Return the chosen summary; raise with each member's reason if none has one."""
        self._winner = None
        complaints: list[str] = []
        best: tuple[float, str, Summarizer] | None = None
        for place in self._awake():
            member = self._members[place]
            if not request.prefix and len(self._members) > 1 and getattr(member, "needs_prefix", False):
                continue
            try:
                text = member.summarize(request)
            except SummarizerError as error:
                complaints.append(f"{member.name}: {error}")
                continue
            except Exception as error:  # noqa: BLE001 - foreign code; the next member is asked and the reason kept
                self._cooldowns[place].start(f"{type(error).__name__}: {error}")
                complaints.append(f"{member.name}: {self._cooldowns[place].failure}")
                continue
            prose, problem = clean_answer(text, request.budget_tokens, request.count)
            if problem:
                complaints.append(f"{member.name}: {problem}")
                continue
            quality = check_summary(prose, request)
            if best is None or quality.score > best[0]:
                best = (quality.score, text, member)
            if self._choose == "first_good" and not quality.problems:
                break
        if best is None:
            told = "; ".join(dict.fromkeys(complaints))
            raise SummarizerError(told or "no member of the chain reads a request without a prefix")
        self._winner = best[2]
        return best[1]

    @property
    def left_alone(self) -> list[LeftAlone]:
        """The members that failed and are not asked now."""
        pairs = zip(self._members, self._cooldowns, strict=True)
        own = [one for member, cooldown in pairs for one in cooldown.left_alone(member.name)]
        within = [one for member in self._members if isinstance(member, SummarizerChain) for one in member.left_alone]
        return own + within

    def _awake(self) -> list[int]:
        """Return the members to ask: those that did not fail lately, or all if every one did."""
        everybody = range(len(self._members))
        return [place for place in everybody if not self._cooldowns[place].is_on] or list(everybody)


# -- parts of a long conversation --------------------------------------------------------------------------------------


class CompletionTask(NamedTuple):
    """One prompt, and the room for its answer."""

    messages: list[Message]
    max_tokens: int

    @property
    def key(self) -> str:
        """A hash of everything that the answer depends on."""
        told = json.dumps([self.messages, self.max_tokens], sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()


class PartsRunner:
    """The tasks of one summary, run over a completion function; finished answers are kept for a retry."""

    def __init__(
        self,
        check: Callable[[object], str],
        concurrency: int,
    ) -> None:
        self._check = check
        self._concurrency = concurrency
        self._kept: dict[str, str] = {}

    def run(self, tasks: Sequence[CompletionTask], complete: Complete) -> list[str]:
        """Return the answer to each task; raise once one has failed twice."""
        keys = [task.key for task in tasks]
        waiting = [place for place, key in enumerate(keys) if key not in self._kept]
        failure = None
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="everlong-summary") as pool:
            running = {pool.submit(self._answer, complete, tasks[place]): place for place in waiting}
            for future in as_completed(running):
                if future.cancelled():
                    continue
                if error := future.exception():
                    failure = failure or (running[future], error)
                    for other in running:
                        other.cancel()
                    continue
                self._kept[keys[running[future]]] = future.result()
        if failure is not None:
            raise self._name_failure(len(tasks), *failure) from failure[1]
        return [self._kept[key] for key in keys]

    def forget(self) -> None:
        """Drop the kept answers: their summary is written."""
        self._kept.clear()

    def _answer(self, complete: Complete, task: CompletionTask) -> str:
        try:
            return self._check(complete(task.messages, task.max_tokens))
        except Exception as error:  # whatever else it was, once more; the second failure is raised
            if _find_overflow(error):
                raise
            return self._check(complete(task.messages, task.max_tokens))

    def _name_failure(self, parts: int, place: int, error: BaseException) -> BaseException:
        """Return an error that says which part failed."""
        if parts == 1:
            return error
        return SummarizerError(
            f"part {place + 1} of {parts} failed twice, and {len(self._kept)} finished ones are kept for the "
            f"next attempt: {type(error).__name__}: {error}"
        )
