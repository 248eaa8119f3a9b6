"""The boundaries of a compaction: the end of the head and the start of the tail.

The head is the system prompt and the first exchange. The tail is walked back from the end in whole groups until its
budget is spent. The middle is summarized. If the result is still too large, parts yield in this order: the count of
protected messages, the first exchange, the summary's size, the tail's tool results, the tail itself. The system
prompt, the latest user message and a pending call never yield. All of this is arithmetic over token counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from everlong.context.invariants import allows_cut, latest_user_index
from everlong.context.literals import is_acknowledgement, is_summary
from everlong.context.pruning import least_tail_tokens
from everlong.model import Message, calls_of, leading_system_count

LEAST_SUMMARY = 40
"""The least tokens that a summary's text gets."""

_LEAST_SHARED = 1_000
"""Below this limit the result is made as small as possible."""
_CUTS_LOOKED_AT = 6
_WITH_EXCHANGE = 3
"""The value of ``protect_first_n`` from which on it means the system prompt and a whole first exchange."""


@dataclass(frozen=True, slots=True)
class ListLayout:
    """The positions of the parts of a list that satisfies the invariants."""

    system_end: int
    exchange_end: int
    summaries: tuple[int, ...]
    inserted: frozenset[int]
    """The indices of messages that earlier compactions inserted: summaries and acknowledgements."""
    body_start: int
    latest_user: int | None
    pending_start: int


class BoundaryLimits(NamedTuple):
    """The limits of a plan, in tokens and messages."""

    total: int
    tail: int
    """The tokens of the tail, from `policy.compute_budgets`; ``keep_last`` may lengthen it."""
    keep_last: int
    """The number of last messages that stay, if they fit."""
    frame: int
    """The tokens that a summary adds besides its own words and an acknowledgement."""
    acknowledgement: int
    summary: Callable[[int], int]
    summary_takes_rest: bool = False
    rules: int = 0
    """The tokens of the frame for the user's standing rules; 0 if they share the summary's budget."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen cuts, and the tokens that the summary may take."""

    head_end: int
    tail_start: int
    repeat_latest: bool
    summary_tokens: int
    tail_room: int | None = None
    """The size that the tail must be shortened to; None if it fits as it is."""


class Cut(NamedTuple):
    """A possible start of the tail, and the tail's size."""

    start: int
    tokens: int


class _Tail(NamedTuple):
    """The tail's possible cuts from newest to oldest; the last one is the one that budget and count ask for."""

    cuts: list[Cut]
    budget_place: int


def survey(messages: Sequence[Message], summaries: tuple[int, ...], protect_first_n: int) -> ListLayout:
    """Find the parts of a list: system prompt, first exchange, body and latest request."""
    system_end = leading_system_count(messages)
    # The system prompt is the first of the protected messages, whether or not the client sends one.
    natural_end = min(len(messages), system_end + max(0, protect_first_n - 1))
    beside = {index for summary in summaries for index in (summary - 1, summary + 1) if 0 <= index < len(messages)}
    acknowledgements = (index for index in beside if is_acknowledgement(messages[index]))
    pending_start = _pending_start(messages)
    exchange_end = _exchange_end(messages, natural_end, min(pending_start, *summaries, len(messages)), protect_first_n)
    exchange_end = max(system_end, exchange_end)
    if any(is_summary(message) for message in messages[system_end:exchange_end]):
        # It only reads like a summary; left in the head, the next compaction would take it for one.
        exchange_end = system_end
    body_start = exchange_end
    if summaries:
        body_start = summaries[-1] + 1
        if body_start < len(messages) and is_acknowledgement(messages[body_start]):
            body_start += 1
    return ListLayout(
        system_end=system_end,
        exchange_end=exchange_end,
        summaries=summaries,
        inserted=frozenset((*summaries, *acknowledgements)),
        body_start=body_start,
        latest_user=latest_user_index(messages, summaries),
        pending_start=pending_start,
    )


def _exchange_end(messages: Sequence[Message], natural_end: int, stop: int, protect_first_n: int) -> int:
    """Return the end of the first exchange: after the answer to the first request and the results of its calls."""
    end = min(natural_end, stop)
    if protect_first_n >= _WITH_EXCHANGE:  # people send two messages in a row; an exchange has an answer
        while 0 < end < stop and messages[end - 1]["role"] == "user":
            end += 1
    while end < stop and messages[end]["role"] in ("tool", "function"):
        end += 1
    return end


def _pending_start(messages: Sequence[Message]) -> int:
    """Return the start of a last group with unanswered calls; the list's length if there is none."""
    index = len(messages)
    while index > 0 and messages[index - 1]["role"] == "tool":
        index -= 1
    if index == 0 or messages[index - 1]["role"] != "assistant":
        return len(messages)
    calls = len(calls_of(messages[index - 1]))
    answered = len(messages) - index
    return index - 1 if calls > answered else len(messages)


def protected_start(messages: Sequence[Message], counts: Sequence[int], tail_tokens: int, keep_last: int) -> int:
    """Return the start of the newest messages that budget or count protect, wherever the head ends."""
    index, tokens = len(counts), 0
    while index > 0:
        tokens += counts[index - 1]
        if tokens > tail_tokens and len(counts) - index >= keep_last:
            break
        index -= 1
    while not allows_cut(messages, index):
        index -= 1
    return index


def plan_boundaries(
    messages: Sequence[Message], counts: Sequence[int], layout: ListLayout, limits: BoundaryLimits, exchange_tokens: int
) -> Plan:
    """Choose head and tail so that the result fits, keeping as much as the limits allow."""
    return _Planner(messages, counts, layout, limits).plan(exchange_tokens)


def least_tokens(messages: Sequence[Message], counts: Sequence[int], layout: ListLayout, limits: BoundaryLimits) -> int:
    """Return the size of the smallest result that any limits could lead to."""
    return _Planner(messages, counts, layout, limits).least_tokens()


class _Planner:
    """The planning of one compaction."""

    def __init__(
        self, messages: Sequence[Message], counts: Sequence[int], layout: ListLayout, limits: BoundaryLimits
    ) -> None:
        self.messages = messages
        self.counts = counts
        self.layout = layout
        self.limits = limits
        self.fixed = sum(counts[: layout.system_end]) + limits.frame
        self.latest_tokens = 0 if layout.latest_user is None else counts[layout.latest_user]
        self.tail = self._walk()

    def plan(self, exchange_tokens: int) -> Plan:
        oldest = self.tail.cuts[-1]
        if oldest.start <= self.layout.body_start and sum(self.counts) <= self.limits.total:
            # Everything new is in the tail and all of it fits: nothing to summarize.
            return self._plan(oldest, exchange_tokens, LEAST_SUMMARY)
        content = sum(self.counts[self.layout.exchange_end : self.tail.cuts[-1].start])
        wanted = max(LEAST_SUMMARY, self.limits.summary(content))
        attempts = [(exchange_tokens, wanted), (0, wanted), (0, LEAST_SUMMARY)]
        for exchange, summary in attempts:
            cut = self._longest_fitting(exchange, summary)
            if cut is not None:
                return self._plan(cut, exchange, wanted)
        return self._plan_shortened(wanted)

    def _walk(self) -> _Tail:
        """Return all cuts from the end back until both the tail's budget and the protected count are reached."""
        counts, end = self.counts, len(self.messages)
        cuts = [Cut(end, 0)] if self.layout.pending_start == end else []
        tokens, budget_end = 0, -1
        for index in range(end - 1, self.layout.body_start - 1, -1):
            if budget_end < 0 and tokens + counts[index] > self.limits.tail:
                budget_end = index + 1
            if cuts and cuts[-1].start <= budget_end and end - cuts[-1].start >= self.limits.keep_last:
                break
            tokens += counts[index]
            at_floor = index == self.layout.body_start
            if index <= self.layout.pending_start and (at_floor or allows_cut(self.messages, index)):
                cuts.append(Cut(index, tokens))
        if not cuts:
            cuts.append(Cut(end, 0))
        within = (place for place, cut in enumerate(cuts) if cut.start <= budget_end)
        return _Tail(cuts, next(within, len(cuts) - 1))

    def _room(self, cut: int, exchange: int, summary: int) -> int:
        """Return the tokens left for a tail that starts at ``cut``."""
        return self.limits.total - self.fixed - exchange - summary - self._beside(cut, with_exchange=exchange > 0)

    def _beside(self, cut: int, *, with_exchange: bool) -> int:
        """Return the tokens between summary and tail: a repeated request and an acknowledgement, if needed."""
        repeated = self._is_repeated(cut)
        following = "user" if repeated else self.messages[cut]["role"] if cut < len(self.messages) else ""
        leading = self.messages[self.layout.exchange_end - 1]["role"] if with_exchange else ""
        is_parted = "user" in (following, leading)
        return (self.latest_tokens if repeated else 0) + (self.limits.acknowledgement if is_parted else 0)

    def _longest_fitting(self, exchange: int, summary: int) -> Cut | None:
        """Return the longest tail that fits beside a first exchange and a summary; None if none does."""
        cuts, budget_place = self.tail
        if cuts[-1].tokens <= self._room(cuts[-1].start, exchange, summary):
            return cuts[-1]
        # Once the protected count has yielded, leave air: a result at the threshold would compact again at once.
        airy = [cut for cut in cuts if 0 < cut.tokens <= self._room(cut.start, exchange, summary) - self.limits.tail]
        within_budget = [
            cut for cut in cuts[: budget_place + 1] if 0 < cut.tokens <= self._room(cut.start, exchange, summary)
        ]
        if airy or within_budget:
            return max([*airy, *within_budget], key=lambda cut: cut.tokens)
        newest = next((cut for cut in cuts if cut.tokens > 0), None)
        fits = newest is not None and newest.tokens <= self._room(newest.start, exchange, summary)
        return newest if fits else None

    def _plan(self, cut: Cut, exchange: int, wanted: int) -> Plan:
        room = self._room(cut.start, exchange, 0) - cut.tokens
        if self.limits.summary_takes_rest:
            wanted = max(wanted, sum(self.counts[self.layout.exchange_end : cut.start]))
        return Plan(
            head_end=self.layout.exchange_end if exchange else self.layout.system_end,
            tail_start=cut.start,
            repeat_latest=self._is_repeated(cut.start),
            summary_tokens=max(LEAST_SUMMARY, min(wanted, room)),
        )

    def _plan_shortened(self, wanted: int) -> Plan:
        """Plan for the newest group with shortened results or, if even that is too large, for the least possible."""
        newest = next((cut for cut in self.tail.cuts if cut.tokens > 0), None)
        if newest is not None:
            for summary in (wanted, LEAST_SUMMARY):
                room = self._room(newest.start, 0, summary)
                if self._least_tail(newest.start) <= room:
                    return self._plan_squeezed(newest.start, summary, room)
        cut = self.cheapest_cut()
        # If the newest group has to go altogether, there is room for a summary of the usual size.
        fits = self._least_tail(cut) <= self._room(cut, 0, wanted)
        summary = wanted if fits else LEAST_SUMMARY
        if self.latest_tokens > self.limits.total >= _LEAST_SHARED:
            # The newest request stays whole and alone is too large: a tiny summary would only lose all the rest.
            summary = max(summary, min(wanted, sum(self.counts[self.layout.system_end : cut]) // 2))
        return self._plan_squeezed(cut, summary, max(0, self._room(cut, 0, summary)))

    def _plan_squeezed(self, cut: int, summary: int, room: int) -> Plan:
        fits = sum(self.counts[cut:]) <= room
        return Plan(self.layout.system_end, cut, self._is_repeated(cut), summary, None if fits else room)

    def cheapest_cut(self) -> int:
        """Return the start of the tail that makes the result as small as possible."""
        last = min(self.layout.pending_start, len(self.messages))
        best, least, looked_at = last, self._least_after(last), 0
        for cut in range(last - 1, self.layout.body_start - 1, -1):
            if not allows_cut(self.messages, cut):
                continue
            looked_at += 1
            # A message or two may be cheaper than their replacement; a longer tail never is.
            if looked_at > _CUTS_LOOKED_AT:
                break
            cost = self._least_after(cut)
            if cost < least:
                best, least = cut, cost
        return best

    def least_tokens(self) -> int:
        """Return the size of the smallest possible result."""
        return self.fixed + LEAST_SUMMARY + self._least_after(self.cheapest_cut())

    def _least_after(self, cut: int) -> int:
        return self._least_tail(cut) + self._beside(cut, with_exchange=False)

    def _least_tail(self, cut: int) -> int:
        return least_tail_tokens(self.messages[cut:], self.counts[cut:])

    def _is_repeated(self, cut: int) -> bool:
        return self.layout.latest_user is not None and self.layout.latest_user < cut
