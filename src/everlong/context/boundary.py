"""The boundaries of a compaction: what stays before the summary, what stays after it, and what is summarized.

Never lost, whatever the limits: the system prompt, the first request, the newest request, and the newest assistant
message with its calls and results. Everything else is arithmetic over token counts: the tail is walked back from the
end in whole groups as far as there is room. If the result is still too large, parts yield in this order: the answer to
the first request, the summary's size, the tail's tool results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from everlong.context.invariants import allows_cut, latest_user_index
from everlong.context.literals import is_acknowledgement, is_summary
from everlong.context.pruning import least_tail_tokens
from everlong.model import Message, leading_system_count, part_text, parts_of, read_message, typed_words

LEAST_SUMMARY = 40
"""The least tokens that a summary's text gets."""
_WITH_EXCHANGE = 3
"""The value of ``protect_first_n`` from which on it means the system prompt and a whole first exchange."""


@dataclass(frozen=True, slots=True)
class ListLayout:
    """The positions of the parts of a list that satisfies the invariants."""

    system_end: int
    request: tuple[int, ...]
    """The indices of the first request: the user messages that open the conversation."""
    request_end: int
    """The end of the head without an answer."""
    exchange_end: int
    """The end of the answer to it, with the results of its calls."""
    summaries: tuple[int, ...]
    inserted: frozenset[int]
    """The indices of messages that earlier compactions inserted: summaries and acknowledgements."""
    body_start: int
    latest_user: int | None
    """The index of the newest request."""
    in_doubt: int | None
    """The index of a newer user message of which nobody knows who wrote it; it is kept as a request is."""
    newest_start: int
    """The start of the newest assistant message, or of the user messages right before a first one."""

    def repeated(self, cut: int) -> list[int]:
        """Return the user messages that are repeated after the summary, because a tail from ``cut`` on lacks them."""
        return [index for index in (self.latest_user, self.in_doubt) if index is not None and index < cut]


class BoundaryLimits(NamedTuple):
    """The limits of a plan, in tokens and messages."""

    total: int
    """The size that the result is brought down to."""
    most: int
    """The size that it may have where what is never lost leaves no room for a summary otherwise."""
    least: int
    """The size that the tail is lengthened to reach, if the history has that much."""
    tail: int
    """The tail's budget; ``keep_last`` may lengthen it."""
    keep_last: int
    """The number of last messages that stay, if they fit."""
    frame: int
    """The tokens that a summary adds besides its own words and an acknowledgement."""
    acknowledgement: int
    summary: Callable[[int], int]
    """The tokens that the summary of so much content may take."""
    fill: int = 0
    """The size up to which the tail takes the room that is left; 0 for none."""
    summary_takes_rest: bool = False
    rules: int = 0
    """The tokens of the frame for the user's standing rules."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen cuts, and the tokens that the summary may take."""

    head_end: int
    tail_start: int
    summary_tokens: int
    tail_room: int | None = None
    """The size that the tail must be shortened to; None if it fits as it is."""
    whole_from: int | None = None
    """The index from which on nothing of the tail is shortened; None if all of it may be."""


class HeadTokens(NamedTuple):
    """The sizes of the parts of the head, as the result will show them."""

    request: int
    exchange: int
    """The answer to the first request, which yields where room is short."""


def survey(messages: Sequence[Message], summaries: tuple[int, ...], protect_first_n: int) -> ListLayout:
    """Find the parts of a list: system prompt, first exchange, body, newest request and newest answer."""
    system_end = leading_system_count(messages)
    beside = {index for summary in summaries for index in (summary - 1, summary + 1) if 0 <= index < len(messages)}
    acknowledgements = (index for index in beside if is_acknowledgement(messages[index]))
    newest_start = _newest_start(messages, system_end)
    stop = min(newest_start, *summaries, len(messages))
    request = _first_request(messages, system_end, newest_start, summaries)
    is_leading = bool(request) and request[0] == system_end and request[-1] < stop
    request_end = request[-1] + 1 if is_leading else system_end
    body_start = exchange_end = _exchange_end(messages, request_end, stop, system_end, protect_first_n)
    if summaries:
        body_start = summaries[-1] + 1
        if body_start < len(messages) and is_acknowledgement(messages[body_start]):
            body_start += 1
    latest = latest_user_index(messages, summaries)
    return ListLayout(
        system_end=system_end,
        request=request,
        request_end=request_end,
        exchange_end=exchange_end,
        summaries=summaries,
        inserted=frozenset((*summaries, *acknowledgements)),
        body_start=body_start,
        latest_user=latest,
        in_doubt=_in_doubt(messages, latest),
        newest_start=_newest_start(messages, body_start),
    )


def _in_doubt(messages: Sequence[Message], latest: int | None) -> int | None:
    """Return the newest user message after the newest request that is more than a client's addition."""
    for index in range(len(messages) - 1, -1 if latest is None else latest, -1):
        message = messages[index]
        if message["role"] != "user" or is_summary(message):
            continue
        if read_message(message).material or not all(map(part_text, parts_of(message))):  # an image may be all
            return index
    return None


def _first_request(messages: Sequence[Message], start: int, stop: int, summaries: tuple[int, ...]) -> tuple[int, ...]:
    """Return the first user messages in a row; none if the newest answer comes before them.

    A message that looks like a summary is none: left in the head, it would be taken for ours from then on.
    """
    asked = (at for at in range(start, stop) if messages[at]["role"] == "user" and at not in summaries)
    first = next((at for at in asked if not is_summary(messages[at])), None)
    if first is None:
        return ()
    end = first + 1
    for index in range(first + 1, stop):
        if messages[index]["role"] != "user" or is_summary(messages[index]):
            break
        end = index + 1 if typed_words(messages[index]) else end  # a harness may speak after the request
    return tuple(range(first, end))


def _exchange_end(
    messages: Sequence[Message], request_end: int, stop: int, system_end: int, protect_first_n: int
) -> int:
    """Return the end of the protected first exchange: the answer, and the results of its calls."""
    if protect_first_n < _WITH_EXCHANGE or request_end == system_end:
        return request_end
    # The system prompt is the first of the protected messages, whether or not the client sends one.
    end = min(stop, max(request_end + 1, system_end + protect_first_n - 1))
    while end < stop and messages[end]["role"] in ("tool", "function"):
        end += 1
    return end


def _newest_start(messages: Sequence[Message], start: int) -> int:
    """Return the index of the newest assistant message with which a tail may begin; the list's length without one."""
    for index in range(len(messages) - 1, start - 1, -1):
        if messages[index]["role"] == "assistant" and not is_acknowledgement(messages[index]):
            return next(at for at in range(index, start - 1, -1) if at == start or allows_cut(messages, at))
    return len(messages)


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


def least_tokens(
    messages: Sequence[Message], counts: Sequence[int], layout: ListLayout, frame: int, acknowledgement: int
) -> int:
    """Return the size of the smallest result that any limits could lead to, with a frame of so many tokens."""
    none = BoundaryLimits(0, 0, 0, 0, 0, frame, acknowledgement, summary=lambda _: 0)
    planner = BoundaryPlanner(messages, counts, layout, none, HeadTokens(0, 0))
    newest = layout.newest_start
    return planner.rest(newest, 0, LEAST_SUMMARY) + least_tail_tokens(messages[newest:], counts[newest:])


class BoundaryPlanner:
    """Chooses head and tail of one compaction so that the result fits, keeping as much as the limits allow."""

    def __init__(
        self,
        messages: Sequence[Message],
        counts: Sequence[int],
        layout: ListLayout,
        limits: BoundaryLimits,
        head: HeadTokens,
    ) -> None:
        self.messages, self.counts, self.layout, self.limits, self.head = messages, counts, layout, limits, head
        self.fixed = sum(counts[: layout.system_end]) + limits.frame + head.request
        self._before = [0, *accumulate(counts)]

    def plan(self) -> Plan:
        """Return the cuts and budgets."""
        layout, limits = self.layout, self.limits
        cuts = self._cuts()
        usual = cuts[-1] if limits.fill else self._usual_cut(cuts)
        if usual <= layout.body_start and self._before[-1] <= limits.total:
            return self._plan(usual, self.head.exchange, LEAST_SUMMARY)  # everything new is in the tail and fits
        content = self._before[max(usual, layout.exchange_end)] - self._before[layout.exchange_end]
        wanted = max(LEAST_SUMMARY, limits.summary(content))
        for exchange in (self.head.exchange, 0):
            fitting = [cut for cut in cuts if self._size(cut, exchange, wanted) <= limits.total]
            if fitting:
                filling = (cut for cut in cuts if self._size(cut, exchange, wanted) >= limits.fill)
                cut = max(fitting[-1], next(filling, usual) if limits.fill else usual)
                return self._lengthened(cuts, cut, exchange, wanted) or self._plan(cut, exchange, wanted)
        newest = layout.newest_start
        least = least_tail_tokens(self.messages[newest:], self.counts[newest:])
        half = max(LEAST_SUMMARY, wanted // 2)
        for summary in (wanted, half):
            if least <= limits.total - self.rest(newest, 0, summary):
                return self._squeezed(newest, summary, limits.total)
        needed = self.rest(newest, 0, half) + least
        if needed <= limits.most:
            return self._squeezed(newest, half, needed)
        return self._squeezed(newest, LEAST_SUMMARY, limits.most)

    def _squeezed(self, cut: int, summary: int, total: int) -> Plan:
        """Return a plan whose tail is shortened so that the result has so many tokens."""
        room = max(0, total - self.rest(cut, 0, summary))
        fits = self._tail_tokens(cut) <= room
        return Plan(self.layout.request_end, cut, summary, None if fits else room)

    def _cuts(self) -> list[int]:
        """Return the places where a tail may begin, from the newest on, until one is far too long."""
        start, floor = self.layout.newest_start, self.layout.body_start
        cuts = [start]
        for index in range(start - 1, floor - 1, -1):
            if self._tail_tokens(cuts[-1]) > self.limits.total:
                break
            if index == floor or allows_cut(self.messages, index):
                cuts.append(index)
        return cuts

    def _usual_cut(self, cuts: Sequence[int]) -> int:
        """Return the cut at which the tail has its budget and the protected number of messages."""
        for cut, longer in pairwise(cuts):
            if self._tail_tokens(longer) > self.limits.tail and len(self.messages) - cut >= self.limits.keep_last:
                return cut
        return cuts[-1]

    def _lengthened(self, cuts: Sequence[int], cut: int, exchange: int, summary: int) -> Plan | None:
        """Return a plan with one group more, which is shortened, if the tail would be too short without it."""
        place = cuts.index(cut) + 1
        if not self.limits.fill or place >= len(cuts) or self._size(cut, exchange, summary) >= self.limits.least:
            return None
        longer = cuts[place]
        room = self.limits.total - self.rest(longer, exchange, summary)
        if least_tail_tokens(self.messages[longer:cut], self.counts[longer:cut]) + self._tail_tokens(cut) > room:
            return None
        head_end = self.layout.exchange_end if exchange else self.layout.request_end
        return Plan(head_end, longer, summary, room, whole_from=cut)

    def rest(self, cut: int, exchange: int, summary: int) -> int:
        """Return the size of the result without its tail."""
        repeated = self.layout.repeated(cut)
        following = "user" if repeated else self.messages[cut]["role"] if cut < len(self.messages) else ""
        leading = self.messages[self.layout.exchange_end - 1]["role"] if exchange else "user"
        parted = self.limits.acknowledgement * [following, leading].count("user")
        return self.fixed + exchange + summary + parted + sum(self.counts[index] for index in repeated)

    def _tail_tokens(self, cut: int) -> int:
        return self._before[-1] - self._before[cut]

    def _size(self, cut: int, exchange: int, summary: int) -> int:
        return self.rest(cut, exchange, summary) + self._tail_tokens(cut)

    def _plan(self, cut: int, exchange: int, wanted: int) -> Plan:
        room = self.limits.total - self._size(cut, exchange, 0)
        if self.limits.summary_takes_rest:
            wanted = max(wanted, self._before[cut] - self._before[min(cut, self.layout.request_end)])
        head_end = self.layout.exchange_end if exchange else self.layout.request_end
        return Plan(head_end, cut, max(LEAST_SUMMARY, min(wanted, room)))
