"""One compaction, stage by stage: from a request to a result and its report.

Holds the state of a single run, so that the engine keeps only what lasts. All planning is in the counter's own units;
what a provider's tokens are worth in them is one factor, applied to the budgets on the way in and to the figures on
the way out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from everlong.config import CompressionValues
from everlong.context.assemble import assemble, summary_message, with_note
from everlong.context.boundary import LEAST_SUMMARY, Layout, Limits, Plan, plan_boundaries, protected_start, survey
from everlong.context.budget import Budgets
from everlong.context.invariants import LatestUserTurn, check_all, is_plain, latest_user_index, repair_all
from everlong.context.literals import ACKNOWLEDGEMENT, is_summary, summary_body, summary_indices
from everlong.context.prune import Pruned, clear_results, shorten_results, shorten_texts
from everlong.context.report import Boundaries, CompactionReport, Outcome, Quality, SummarizerInput
from everlong.context.summarize import SummaryRequest, SummaryWriter, Written
from everlong.context.verify import measure
from everlong.errors import TargetUnreachable
from everlong.model import Message, text_of
from everlong.tokens import MessageCounter

TAIL_SHARE_OF_TARGET = 0.6
"""Under a target, what the tail takes of the room that head and latest request leave; the summary has the rest."""
EXCHANGE_SHARE_OF_TARGET = 0.15

_OPENING_REACH = 50
_TELLING = 12
"""Characters from which on a user's words can say what a conversation is about."""


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that one compaction depends on."""

    messages: list[Message]
    settings: CompressionValues
    budgets: Budgets
    limit_tokens: int
    scale: float
    counter: MessageCounter
    writer: SummaryWriter
    focus_topic: str | None = None
    force: bool = False
    memory_context: str | None = None
    target_tokens: int | None = None


@dataclass(slots=True)
class _Result:
    """A finished list with what is known about how it came to be."""

    pruned: Pruned
    outcome: Outcome
    shortened: int = 0
    written: Written | None = None
    summary_tokens: int = 0
    quality: Quality | None = None


@dataclass
class Compaction:
    """Runs the stages over one request."""

    request: Request
    stages: dict[str, float] = field(default_factory=dict)
    summaries: tuple[int, ...] = ()
    """Where earlier compactions left their summaries; known once the input is repaired."""

    def run(self, current_tokens: int | None = None) -> tuple[list[Message], CompactionReport]:
        """The compacted list and the report about it."""
        request = self.request
        before = sum(self.counts)
        if request.target_tokens is not None and before <= self._units(request.target_tokens):
            return self._finish(_Result(Pruned(self.repaired, self.counts, 0), "unchanged"), current_tokens)
        result = self._summarized() if self.has_new_turns or self._summary_is_too_long() else self._cleared()
        if result.pruned.tokens > min(before - 1, self.limits.total):
            result = min(result, self._cleared(), key=lambda candidate: candidate.pruned.tokens)
        if request.target_tokens is not None and result.pruned.tokens > self.limits.total:
            least = min(self._least_tokens(), result.pruned.tokens)
            raise TargetUnreachable(request.target_tokens, self._tokens(least))
        return self._finish(result, current_tokens)

    # -- what the stages share -------------------------------------------------------------------------------------

    @cached_property
    def repaired(self) -> list[Message]:
        """The input, mended where it broke the protocol."""
        with self._timed("repair"):
            if is_plain(self.request.messages):
                return self.request.messages
            mended = repair_all(self.request.messages)
            summaries, latest = summary_indices(mended), latest_user_index(mended)
            if not summaries or latest is None or latest > summaries[-1]:
                self.summaries = summaries
                return mended
            mended = repair_all(LatestUserTurn(mended).repair(mended))
            self.summaries = summary_indices(mended)
            return mended

    @cached_property
    def counts(self) -> list[int]:
        """The tokens of each message, in the counter's units."""
        repaired = self.repaired
        with self._timed("count"):
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
        if request.target_tokens is None:
            return Limits(
                total=self._units(request.limit_tokens),
                tail=self._units(budgets.tail_tokens),
                keep_last=request.settings.protect_last_n,
                frame=frame,
                summary=lambda content: self._units(budgets.summary_tokens(self._tokens(content))),
            )
        total = self._units(request.target_tokens)
        fixed = sum(self.counts[: self.layout.system_end]) + frame + self.exchange.tokens
        latest = self.layout.latest_user
        room = max(0, total - fixed - (0 if latest is None else self.counts[latest]))
        tail = int(room * TAIL_SHARE_OF_TARGET)
        return Limits(
            total=total,
            tail=tail,
            keep_last=0,
            frame=frame,
            summary=lambda content: min(content, room - tail),
            summary_takes_rest=True,
        )

    @cached_property
    def exchange(self) -> Pruned:
        """The first exchange as it will stand in the head: results cleared, oversized texts shortened."""
        counter, target = self.request.counter, self.request.target_tokens
        allowed = self.request.budgets.tail_tokens if target is None else int(target * EXCHANGE_SHARE_OF_TARGET)
        cleared = self._clear(self.layout.system_end, self.layout.exchange_end)
        return shorten_texts(cleared, self._units(allowed), counter.count, counter.count_text)

    @cached_property
    def plan(self) -> Plan:
        """Where head and tail are cut."""
        layout, limits, exchange = self.layout, self.limits, self.exchange
        with self._timed("boundary"):
            return plan_boundaries(self.repaired, self.counts, layout, limits, exchange.tokens)

    @cached_property
    def turns(self) -> list[Message]:
        """The messages that the summary will stand for, without what an earlier compaction put in."""
        turns = self.repaired[self.plan.head_end : self.plan.tail_start]
        for index in sorted(self.layout.inserted, reverse=True):
            if self.plan.head_end <= index < self.plan.tail_start:
                del turns[index - self.plan.head_end]
        return turns

    @property
    def has_new_turns(self) -> bool:
        """Whether there is anything to summarize besides a request that would be repeated anyway."""
        latest = self._repeated_latest()
        return any(message is not latest for message in self.turns)

    def _summary_is_too_long(self) -> bool:
        """Whether an earlier summary must shrink, as after a switch to a smaller window."""
        if not self.summaries or sum(self.counts) <= self.limits.total:
            return False
        return self.request.counter.count_text(self._previous() or "") > self.plan.summary_tokens

    def assembled(self, summary: str) -> list[Message]:
        """The compacted list around a summary that is already written, not yet checked."""
        return assemble(self._head(), summary, self._repeated_latest(), self.tail.messages)

    # -- the stages ------------------------------------------------------------------------------------------------

    def _cleared(self) -> _Result:
        """The list with old results cleared and nothing summarized."""
        start, counter = self.layout.system_end, self.request.counter
        with self._timed("prune"):
            cleared = self._clear(start, len(self.repaired))
            room = self.limits.total - sum(self.counts[:start])
            fitting = shorten_results(cleared, room, counter.count, counter.count_text)
            if fitting.tokens > room:
                latest = self.layout.latest_user
                spared = {index - start for index in self.layout.inserted}
                if latest is not None:
                    spared.add(latest - start)
                fitting = shorten_texts(fitting, room, counter.count, counter.count_text, spared)
        messages, counts = [*self.repaired[:start], *fitting.messages], [*self.counts[:start], *fitting.counts]
        is_changed = fitting.changed > 0 or self.repaired is not self.request.messages
        return _Result(
            Pruned(messages, counts, cleared.changed),
            "cleared" if is_changed else "unchanged",
            shortened=fitting.changed - cleared.changed,
        )

    def _clear(self, start: int, stop: int) -> Pruned:
        """The messages of a range, with results cleared as far as they are older than the protected tail."""
        until = max(start, min(stop, self.protected_start))
        count = self.request.counter.count
        old = clear_results(
            self.repaired[start:until], self.counts[start:until], self.request.settings.prune_min_chars, count
        )
        messages, counts = [*old.messages, *self.repaired[until:stop]], [*old.counts, *self.counts[until:stop]]
        return Pruned(messages, counts, old.changed)

    @cached_property
    def protected_start(self) -> int:
        """From here on no result is cleared; what cannot fit otherwise is shortened."""
        if self.request.target_tokens is not None:  # a target has no protected count; the newest group is never old
            return protected_start(self.repaired, self.counts, 0, 1)
        tail = self._units(self.request.budgets.tail_tokens)
        return protected_start(self.repaired, self.counts, tail, self.request.settings.protect_last_n)

    def _summarized(self) -> _Result:
        """Head, summary and tail."""
        plan, counter = self.plan, self.request.counter
        with self._timed("summarize"):
            written = self.request.writer.write(self._summary_request(), ignore_cooldown=self.request.force)
        with self._timed("assemble"):
            result = self.assembled(written.text)
        with self._timed("verify"):
            if check_all(result, self.repaired):
                return self._cleared()
            quality = measure(self.turns, self._previous(), written, result, self.repaired)
            counts = counter.counts(result)
        cleared = self.exchange.changed if plan.head_end > self.layout.system_end else 0
        return _Result(
            Pruned(result, counts, cleared),
            "summarized",
            shortened=self.tail.changed,
            written=written,
            summary_tokens=counter.count_text(written.text),
            quality=quality,
        )

    def _head(self) -> list[Message]:
        """The system prompt, and the first exchange where there is room for it."""
        kept = self.plan.head_end > self.layout.system_end
        return [*self.repaired[: self.layout.system_end], *(self.exchange.messages if kept else [])]

    @cached_property
    def tail(self) -> Pruned:
        """The newest messages as they will stand at the end; results shortened only where they must be."""
        start = self.plan.tail_start
        messages, counts = self.repaired[start:], self.counts[start:]
        tail, counter = Pruned(messages, counts, 0), self.request.counter
        if self.plan.tail_room is None:
            return tail
        return shorten_results(tail, self.plan.tail_room, counter.count, counter.count_text)

    def _summary_request(self) -> SummaryRequest:
        latest = self.layout.latest_user
        return SummaryRequest(
            turns=self.turns,
            previous=self._previous(),
            budget_tokens=self.plan.summary_tokens,
            count=self.request.counter.count_text,
            opening=self._opening(),
            latest_user=None if latest is None else self.repaired[latest],
            focus_topic=self.request.focus_topic,
            memory_context=self.request.memory_context,
        )

    def _opening(self) -> Message | None:
        """The first user message that says something: not a command to the client, not a summary."""
        asked = [m for m in self.repaired[:_OPENING_REACH] if m["role"] == "user" and not is_summary(m)]
        telling = (m for m in asked if len(text_of(m)) >= _TELLING and not text_of(m).startswith("/"))
        return next(telling, asked[0] if asked else None)

    def _previous(self) -> str | None:
        """The text of the summaries that earlier compactions left in the conversation."""
        bodies = [summary_body(self.repaired[index]) for index in self.layout.summaries]
        return "\n\n".join(bodies) if bodies else None

    def _repeated_latest(self) -> Message | None:
        latest = self.layout.latest_user
        return self.repaired[latest] if latest is not None and self.plan.repeat_latest else None

    # -- figures ---------------------------------------------------------------------------------------------------

    def _frame_tokens(self) -> int:
        """What a summary costs besides its own words: prefix, note, acknowledgement."""
        count = self.request.counter.counts
        system: Sequence[Message] = self.repaired[: self.layout.system_end]
        note = sum(count(with_note(system))) - sum(count(system))
        added: list[Message] = [summary_message("", "user"), {"role": "assistant", "content": ACKNOWLEDGEMENT}]
        return note + sum(count(added)) + 2  # where texts join, a token or two may be added

    def _least_tokens(self) -> int:
        """The least that any compaction of this conversation can be."""
        latest, end = self.layout.latest_user, len(self.repaired)
        pending = sum(self.counts[self.layout.pending_start : end])
        repeated = 0 if latest is None or latest >= self.layout.pending_start else self.counts[latest]
        return sum(self.counts[: self.layout.system_end]) + self._frame_tokens() + LEAST_SUMMARY + repeated + pending

    def _units(self, tokens: int) -> int:
        return int(tokens / self.request.scale)

    def _tokens(self, units: int) -> int:
        return round(units * self.request.scale)

    def _finish(self, result: _Result, current_tokens: int | None) -> tuple[list[Message], CompactionReport]:
        request, plan = self.request, self.plan
        summarizer_input = None
        if result.written is not None:
            summarizer_input = SummarizerInput(
                messages=len(self.turns),
                tokens=self._tokens(request.counter.total(self.turns)),
                previous_summary=bool(self.layout.summaries),
                budget_tokens=self._tokens(plan.summary_tokens),
                focus_topic=request.focus_topic,
            )
        report = CompactionReport(
            outcome=result.outcome,
            tokens_before=current_tokens or self._tokens(sum(self.counts)),
            tokens_after=self._tokens(result.pruned.tokens),
            messages_before=len(request.messages),
            messages_after=len(result.pruned.messages),
            results_cleared=result.pruned.changed,
            results_shortened=result.shortened,
            latest_user_repeated=result.written is not None and plan.repeat_latest,
            boundaries=Boundaries(plan.head_end, plan.tail_start, (plan.head_end, plan.tail_start)),
            counter=request.counter.counter.name,
            summarizer=result.written.summarizer if result.written else None,
            summarizer_input=summarizer_input,
            summary_tokens=self._tokens(result.summary_tokens),
            fallback_reason=result.written.fallback_reason if result.written else None,
            quality=result.quality,
            repaired=self.repaired is not request.messages,
            stages={name: round(seconds, 6) for name, seconds in self.stages.items()},
        )
        return result.pruned.messages, report

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + time.perf_counter() - start
