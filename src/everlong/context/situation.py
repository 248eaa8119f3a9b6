"""What one compaction starts from: the repaired list, its token counts, its parts, and what the result may spend.

All planning is in the counter's own units; what a provider's tokens are worth in them is one factor, applied to the
budgets on the way in and to the figures on the way out. Everything is derived when first asked for, and only then.
Decides nothing: that is the compaction's business.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from everlong.config import CompressionValues
from everlong.context.assemble import summary_message, with_note
from everlong.context.boundary import Layout, Limits, least_tokens, protected_start, survey
from everlong.context.budget import Budgets
from everlong.context.invariants import LatestUserTurn, is_plain, latest_user_index, repair_all
from everlong.context.literals import ACKNOWLEDGEMENT
from everlong.context.prune import Pruned, clear_results, shorten_texts
from everlong.context.recognise import parted, summary_indices
from everlong.context.recorder import Recorder
from everlong.context.rules import StandingRules, standing_rules
from everlong.context.summarize import SummaryWriter, Written
from everlong.model import Message, newest_request
from everlong.tokens import MessageCounter

TAIL_SHARE_OF_TARGET = 0.45
NEWEST_SHARE_OF_TARGET = 0.6
"""The newest group, which nobody has answered yet, stays whole where it takes no more of the room than this."""
EXCHANGE_SHARE_OF_TARGET = 0.15
RULES_SHARE = 0.5
"""The most that standing rules may take of the summary's budget."""


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that one compaction depends on."""

    messages: list[Message]
    settings: CompressionValues
    budgets: Budgets
    limit_tokens: int
    """What the messages are brought down to."""
    most_tokens: int
    """What they may have where the newest group, which nobody has answered yet, is larger than a tail."""
    scale: float
    counter: MessageCounter
    writer: SummaryWriter
    focus_topic: str | None = None
    force: bool = False
    memory_context: str | None = None
    target_tokens: int | None = None
    emitted: frozenset[str] = frozenset()
    """The digests of the summaries that this engine put out before."""
    tail_share: float = TAIL_SHARE_OF_TARGET
    """Under a target, what the tail takes of the room that head and latest request leave; the summary has the rest."""
    recorder: Recorder | None = None
    """Is given what an explanation needs, where one is asked for."""
    written: Written | None = None
    """A summary that a first try at the target already has; nobody is asked again."""


@dataclass
class Situation:
    """Everything that is known about a request before anything is decided."""

    request: Request
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds spent in each stage so far."""
    summaries: tuple[int, ...] = ()
    """Where earlier compactions left their summaries; known once the input is repaired."""

    @cached_property
    def repaired(self) -> list[Message]:
        """The input, mended where it broke the protocol."""
        with self.timed("repair"):
            if is_plain(self.request.messages):
                return self.request.messages
            given = parted(self.request.messages, self.request.settings.protect_first_n, self.request.emitted)
            mended = repair_all(given)
            self.summaries = self._summaries_in(mended)
            latest = latest_user_index(mended, self.summaries)
            if not self.summaries or latest is None or latest > self.summaries[-1]:
                return mended
            mended = repair_all(LatestUserTurn(mended, self.summaries).repair(mended))
            self.summaries = self._summaries_in(mended)
            return mended

    def _summaries_in(self, messages: list[Message]) -> tuple[int, ...]:
        return summary_indices(messages, self.request.settings.protect_first_n, self.request.emitted)

    @cached_property
    def counts(self) -> list[int]:
        """The tokens of each message, in the counter's units."""
        repaired = self.repaired
        with self.timed("count"):
            return self.request.counter.counts(repaired)

    @cached_property
    def layout(self) -> Layout:
        """What stands where."""
        repaired = self.repaired
        return survey(repaired, self.summaries, self.request.settings.protect_first_n)

    @cached_property
    def limits(self) -> Limits:
        """What the result may spend."""
        request, budgets = self.request, self.request.budgets
        frame = self._frame_tokens()
        acknowledgement = request.counter.count({"role": "assistant", "content": ACKNOWLEDGEMENT})
        if request.target_tokens is None:
            total, tail = self.units(request.limit_tokens), self.units(budgets.tail_tokens)
            reserve = self._reserve(self.units(budgets.summary_cap))
            more = max(0, sum(self.counts[self.newest_start :]) - tail)
            return Limits(
                total=max(total, min(total + more, self.units(request.most_tokens))),
                tail=tail,
                keep_last=request.settings.protect_last_n,
                frame=frame + reserve,
                acknowledgement=acknowledgement,
                summary=lambda content: (
                    self.units(budgets.summary_tokens(round(self.tokens(content) * request.writer.budget_factor)))
                    - reserve
                ),
                rules=reserve,
            )
        total = self.units(request.target_tokens)
        fixed = sum(self.counts[: self.layout.system_end]) + frame + acknowledgement + self.exchange.tokens
        latest = self.layout.latest_user
        room = max(0, total - fixed - (0 if latest is None else self.counts[latest]))
        tail = int(room * request.tail_share)
        newest = sum(self.counts[self.newest_start :])
        if newest <= room * NEWEST_SHARE_OF_TARGET:
            tail = max(tail, newest)
        return Limits(
            total=total,
            tail=tail,
            keep_last=0,
            frame=frame,
            acknowledgement=acknowledgement,
            summary=lambda content: min(content, room - tail),
            summary_takes_rest=True,
        )

    @cached_property
    def rules(self) -> StandingRules:
        """The user's standing rules at the end of the conversation, wherever they stand in it."""
        repaired = self.repaired
        with self.timed("rules"):
            return standing_rules(repaired, self.summaries)

    def _reserve(self, summary: int) -> int:
        """What the block of standing rules may take of a summary's largest budget, whatever else has to yield."""
        block = self.rules.render()
        return min(self.request.counter.count_text(block), int(summary * RULES_SHARE)) if block else 0

    @cached_property
    def exchange(self) -> Pruned:
        """The first exchange as it will stand in the head: results cleared, oversized texts shortened."""
        counter, target, latest = self.request.counter, self.request.target_tokens, self.layout.latest_user
        if target is not None and latest is not None and latest < self.layout.exchange_end:
            return Pruned([], [], 0)  # the request is repeated after the summary; a target has no room for it twice
        allowed = self.request.budgets.tail_tokens if target is None else int(target * EXCHANGE_SHARE_OF_TARGET)
        start, stop = self.layout.system_end, self.layout.exchange_end
        cleared, room = self.clear(start, stop), self.units(allowed)
        asked = newest_request(self.repaired, self.summaries) if target is None else None
        spared: set[int] = set()
        if asked is not None and start <= asked < stop and self.counts[asked] <= self._room_for_request:
            # Nobody has asked for anything since: the request in force stands here, whole, however little is kept.
            spared, room = {asked - start}, max(room, self.counts[asked])
        return shorten_texts(cleared, room, counter.count, counter.count_text, spared)

    @property
    def _room_for_request(self) -> int:
        """What a request in force may take of the context to stand whole."""
        return self.units(int(self.request.limit_tokens * EXCHANGE_SHARE_OF_TARGET))

    def clear(self, start: int, stop: int, protected: int | None = None) -> Pruned:
        """The messages of a range, with results cleared as far as they are older than what is protected."""
        until = max(start, min(stop, self.protected_start if protected is None else protected))
        min_chars, count = self.request.settings.prune_min_chars, self.request.counter.count
        old = clear_results(self.repaired[start:until], self.counts[start:until], min_chars, count)
        messages, counts = [*old.messages, *self.repaired[until:stop]], [*old.counts, *self.counts[until:stop]]
        return Pruned(messages, counts, old.changed)

    @cached_property
    def protected_start(self) -> int:
        """From here on no result is cleared while there is room."""
        if self.request.target_tokens is not None:  # a target has no protected count
            return self.newest_start
        tail = self.units(self.request.budgets.tail_tokens)
        return protected_start(self.repaired, self.counts, tail, self.request.settings.protect_last_n)

    @cached_property
    def newest_start(self) -> int:
        """Where the newest group starts, whose results are never old."""
        return protected_start(self.repaired, self.counts, 0, 1)

    @property
    def untouchable(self) -> set[int]:
        """What is never shortened: the latest request, a pending call, and what an earlier compaction put in."""
        latest = self.layout.latest_user
        pending = range(self.layout.pending_start, len(self.repaired))
        return {*self.layout.inserted, *pending, *(() if latest is None else (latest,))}

    def _frame_tokens(self) -> int:
        """What a summary costs besides its own words: prefix and note."""
        count = self.request.counter.counts
        system: Sequence[Message] = self.repaired[: self.layout.system_end]
        note = sum(count(with_note(system))) - sum(count(system))
        return note + sum(count([summary_message("", "user")])) + 2  # where texts join, a token or two may be added

    def least_tokens(self) -> int:
        """The least that any compaction of this conversation can be, in the counter's units."""
        return least_tokens(self.repaired, self.counts, self.layout, self.limits)

    def units(self, tokens: int) -> int:
        """A provider's tokens in the counter's own."""
        return int(tokens / self.request.scale + 1e-9)  # so that rounding up and back gives the same number

    def tokens(self, units: int) -> int:
        """The counter's tokens as the provider would count them."""
        return round(units * self.request.scale)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of what is done inside to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + time.perf_counter() - start
