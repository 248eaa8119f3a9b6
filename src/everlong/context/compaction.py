"""One compaction: from a `CompactionRequest` to the compacted list and its report.

`CompactionRun` decides and acts: it cuts head and tail, has the middle summarized, assembles the list and verifies it.
`CompactionSituation` holds the facts that are known before any decision. Neither outlives the compaction. Given a
`CompactionRecord`, the run fills it with everything that `everlong.context.explanation` needs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from everlong.config import CompressionValues
from everlong.context.boundary import (
    LEAST_SUMMARY,
    BoundaryLimits,
    ListLayout,
    Plan,
    least_tokens,
    plan_boundaries,
    protected_start,
    survey,
)
from everlong.context.invariants import LatestUserTurn, check_all, is_plain, latest_user_index, repair_all
from everlong.context.literals import (
    ACKNOWLEDGEMENT,
    COMPACTION_NOTE,
    SUMMARY_PREFIX,
    has_note,
    is_summary,
    split_merged_summary,
    summary_body,
    summary_indices,
)
from everlong.context.policy import Budgets
from everlong.context.pruning import Pruned, clear_results, shorten_results, shorten_texts
from everlong.context.report import Boundaries, CompactionReport, Outcome, Quality, SummarizerInput
from everlong.context.rules import StandingRules, standing_rules
from everlong.context.summarize import SummaryRequest, SummaryWriter, WrittenSummary
from everlong.context.summary.extractive import ExtractiveSummarizer
from everlong.context.summary.message_digest import MessageDigests
from everlong.context.summary.newest_request import inherited_newest
from everlong.context.summary.trace import NO_TRACE, TraceRecording
from everlong.context.text import one_line
from everlong.context.verify import Yardstick
from everlong.errors import TargetUnreachable
from everlong.model import Message, leading_system_count, newest_request, typed_words, with_part_appended
from everlong.tokens import MessageCounter

_TAIL_SHARE_OF_TARGET = 0.45
_NEWEST_SHARE_OF_TARGET = 0.6
"""The newest group, which nobody has answered yet, stays whole if it takes at most this share of the room."""
_EXCHANGE_SHARE_OF_TARGET = 0.15
_RULES_SHARE = 0.5
"""The largest share of the summary's budget that standing rules may take."""
_WELL_USED = 0.9
"""A result that uses less than this share of its target is tried again with a longer tail."""
_OPENING_REACH = 50
_LEAST_OPENING = 12
"""Characters that a user's message must have to open a conversation."""


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """Everything that one compaction depends on."""

    messages: list[Message]
    settings: CompressionValues
    budgets: Budgets
    limit_tokens: int
    """The size that the messages are brought down to."""
    most_tokens: int
    """The size they may have if the newest group, which nobody has answered yet, is larger than a tail."""
    scale: float
    counter: MessageCounter
    writer: SummaryWriter
    focus_topic: str | None = None
    force: bool = False
    memory_context: str | None = None
    target_tokens: int | None = None
    emitted: frozenset[str] = frozenset()
    """The digests of the summaries that this engine wrote before."""
    tail_share: float = _TAIL_SHARE_OF_TARGET
    """Under a target, the tail's share of the room that head and latest request leave; the summary gets the rest."""
    recorder: CompactionRecord | None = None
    """The record to fill in, if an explanation is wanted."""
    digests: MessageDigests = field(default_factory=MessageDigests)
    """The readings of messages, which the engine keeps."""
    written: WrittenSummary | None = None
    """A summary from a first try or from `ContextCompressor.prepare`; then no summarizer is asked again."""


@dataclass(slots=True)
class CompactionRecord:
    """The notes that a run takes for an explanation of its result."""

    trace: TraceRecording = field(default_factory=TraceRecording)
    ended: CompactionEnd | None = None
    """None until the run is finished."""


@dataclass(frozen=True, slots=True)
class CompactionEnd:
    """The lists and the plan of a finished compaction."""

    repaired: list[Message]
    """The input after repair, which the plan's indices refer to."""
    counts: list[int]
    messages: list[Message]
    """The result."""
    layout: ListLayout
    limits: BoundaryLimits
    plan: Plan
    outcome: Outcome
    written: WrittenSummary | None
    """The summary, if there is one."""
    prune_min_chars: int


@dataclass(slots=True)
class _Result:
    """A compacted list and how it was made."""

    pruned: Pruned
    outcome: Outcome
    shortened: int = 0
    written: WrittenSummary | None = None
    summary_tokens: int = 0
    quality: Quality | None = None


@dataclass
class CompactionRun:
    """The stages of one compaction, each computed when it is first needed."""

    request: CompactionRequest

    @cached_property
    def known(self) -> CompactionSituation:
        """The facts about the request."""
        return CompactionSituation(self.request)

    def run(self, current_tokens: int | None = None) -> tuple[list[Message], CompactionReport]:
        """Return the compacted list and the report about it.

        Raises:
            TargetUnreachable: the request's target is less than the least possible.
        """
        request = self.request
        before = sum(self.known.counts)
        fits = request.target_tokens is not None and before <= self.known.units(request.target_tokens)
        if fits:
            return self._finish(_Result(Pruned(self.known.repaired, self.known.counts, 0), "unchanged"), current_tokens)
        result = self.summarize() if self.has_new_turns or self._summary_is_too_long() else self._clear_results()
        share = self._better_tail_share(result)
        if share is not None:
            again = replace(request, tail_share=share, written=result.written)
            return replace(self, request=again).run(current_tokens)
        if result.pruned.tokens > min(before - 1, self.known.limits.total):
            result = self._choose_smallest(result)
        if request.target_tokens is not None and result.pruned.tokens > self.known.limits.total:
            least = min(self.known.least_tokens(), result.pruned.tokens)
            raise TargetUnreachable(request.target_tokens, math.ceil(least * request.scale))
        return self._finish(result, current_tokens)

    def _choose_smallest(self, result: _Result) -> _Result:
        """Return the smallest result if none fits: with a summary, with old results cleared, or with both.

        Trying both now, rather than when the same list comes again, makes the outcome stable.
        """
        cleared = self._clear_results()
        found = [cleared, result]  # of equal ones the one that says more
        is_extract = result.written is not None and result.written.summarizer == ExtractiveSummarizer.name
        if is_extract and cleared.outcome == "cleared":  # a model is not asked twice for this
            again = replace(self, request=replace(self.request, messages=cleared.pruned.messages))
            if again.has_new_turns:
                found.append(again.summarize())
        return min(found, key=lambda candidate: candidate.pruned.tokens)

    def _better_tail_share(self, result: _Result) -> float | None:
        """Return the tail share that uses up the tokens that the summary left unused; None if they are few."""
        room = self.known.limits.tail / self.request.tail_share
        used = result.summary_tokens + self.known.limits.tail
        is_first_try = self.request.tail_share == _TAIL_SHARE_OF_TARGET
        wasteful = result.pruned.tokens < self.known.limits.total * _WELL_USED
        if self.request.target_tokens is None or result.written is None or not (is_first_try and wasteful and room):
            return None
        return min(0.95, self.request.tail_share + (room - used) / room)

    # -- decisions that the stages share ---------------------------------------------------------------------------

    @cached_property
    def plan(self) -> Plan:
        """The cuts between head, middle and tail."""
        layout, limits, exchange = self.known.layout, self.known.limits, self.known.exchange
        with self.known.timed("boundary"):
            return plan_boundaries(self.known.repaired, self.known.counts, layout, limits, exchange.tokens)

    @cached_property
    def turns(self) -> list[Message]:
        """The messages that the summary replaces, without those that an earlier compaction inserted."""
        turns = self.known.repaired[self.plan.head_end : self.plan.tail_start]
        for index in sorted(self.known.layout.inserted, reverse=True):
            if self.plan.head_end <= index < self.plan.tail_start:
                del turns[index - self.plan.head_end]
        return turns

    @property
    def has_new_turns(self) -> bool:
        """True if there is anything to summarize besides a request that is repeated anyway."""
        own = self.known.layout.inserted
        latest = self.known.layout.latest_user if self.plan.repeat_latest else None
        covered = range(self.plan.head_end, self.plan.tail_start)
        return any(index not in own and index != latest for index in covered)

    def _summary_is_too_long(self) -> bool:
        """Return whether an earlier summary must shrink, as after a switch to a smaller window."""
        if not self.known.summaries or sum(self.known.counts) <= self.known.limits.total:
            return False
        return self.request.counter.count_text(self._previous() or "") > self.plan.summary_tokens

    def assembled(self, summary: str) -> list[Message]:
        """Return the compacted list around a summary, not yet checked."""
        return assemble(self._head(), summary, self._after(), self.rules.render())

    @cached_property
    def rules(self) -> StandingRules:
        """The standing rules that the messages after the summary do not state, as far as they fit their share."""
        unsaid = self.known.rules.beside(self._after())
        shared = min(int(self.plan.summary_tokens * _RULES_SHARE), self.plan.summary_tokens - LEAST_SUMMARY)
        room = shared if self.request.target_tokens is not None else self.known.limits.rules
        return unsaid.fit(room + self.known.block_tokens, self.request.counter.count_text)

    @property
    def summary_budget(self) -> int:
        """The tokens that the summary may take: its budget and the unused reserve for rules."""
        return self.plan.summary_tokens + self.known.limits.rules - self.rules_tokens

    @cached_property
    def rules_tokens(self) -> int:
        """The size of the standing rules, besides the block around them."""
        return self.known.size_of(self.rules)

    # -- the stages ------------------------------------------------------------------------------------------------

    def _clear_results(self) -> _Result:
        """Clear old results and summarize nothing; if that is over the limit, shorten everything that may be."""
        known, count, count_text = self.known, self.request.counter.count, self.request.counter.count_text
        start = known.layout.system_end
        room = known.limits.total - sum(known.counts[:start])
        with known.timed("prune"):
            cleared = known.clear(start, len(known.repaired))
            if cleared.tokens > room:  # the tail's protection yields; the newest group is never old
                cleared = known.clear(start, len(known.repaired), known.newest_start)
            fitting = shorten_results(cleared, room, count, count_text)
            if fitting.tokens > room:
                fitting = shorten_texts(
                    fitting, room, count, count_text, {index - start for index in known.untouchable}
                )
        is_changed = fitting.changed > 0 or known.repaired is not self.request.messages
        messages = [*known.repaired[:start], *fitting.messages]
        return _Result(
            Pruned(messages, [*known.counts[:start], *fitting.counts], cleared.changed),
            "cleared" if is_changed else "unchanged",
            shortened=fitting.changed - cleared.changed,
        )

    def summarize(self) -> _Result:
        """Build head, summary and tail; fall back to clearing results if the list would break the protocol."""
        plan, counter = self.plan, self.request.counter
        with self.known.timed("summarize"):
            written = self._write_summary()
        with self.known.timed("assemble"):
            result = self.assembled(written.text)
        with self.known.timed("verify"):
            if check_all(result, self.known.repaired, self.known.summaries):
                return self._clear_results()
            quality = self._measure_quality(written)
            counts = counter.counts(result)
        cleared = self.known.exchange.changed if plan.head_end > self.known.layout.system_end else 0
        return _Result(
            Pruned(result, counts, cleared),
            "summarized",
            shortened=self.tail.changed,
            written=written,
            summary_tokens=counter.count_text(written.text) + self.rules_tokens,
            quality=quality,
        )

    def _write_summary(self) -> WrittenSummary:
        """Return the summary of the turns, which the writer makes."""
        writer, request = self.request.writer, self.summary_request
        if self.request.written is None:
            return writer.write(request, self._yardstick, ignore_cooldown=self.request.force)
        return writer.rewrite(self.request.written, request, self._yardstick)

    def _measure_quality(self, written: WrittenSummary) -> Quality:
        """Return the quality of the finished summary."""
        return self._yardstick.measure(
            written.text,
            invented=written.invented,
            problems=written.problems,
            extract_score=written.extract_score,
            is_trusted=written.summarizer == ExtractiveSummarizer.name,
        )

    @cached_property
    def _yardstick(self) -> Yardstick:
        """The yardstick for any summary of the covered turns, together with the messages around it."""
        more = (self._previous(), self.request.memory_context, self.request.focus_topic)
        latest = self.known.layout.latest_user
        last = None if latest is None else self.known.repaired[latest]
        return Yardstick(
            self.turns,
            self.assembled(""),
            self.known.repaired,
            more,
            last,
            self.summary_request.newest_words,
            frontier=self.summary_request.frontier,
            rules=[rule.text for rule in self.known.rules.lines],
        )

    def _head(self) -> list[Message]:
        """Return the system prompt, and the first exchange if there is room for it."""
        kept = self.plan.head_end > self.known.layout.system_end
        return [*self.known.repaired[: self.known.layout.system_end], *(self.known.exchange.messages if kept else [])]

    @cached_property
    def tail(self) -> Pruned:
        """The newest messages as the result will end with them; results are shortened only if they must be."""
        start = self.plan.tail_start
        messages, counts = self.known.repaired[start:], self.known.counts[start:]
        tail, counter = Pruned(messages, counts, 0), self.request.counter
        if self.plan.tail_room is None:
            return tail
        return shorten_results(tail, self.plan.tail_room, counter.count, counter.count_text)

    @cached_property
    def summary_request(self) -> SummaryRequest:
        """The request for the summary of the turns."""
        return SummaryRequest(
            turns=self.turns,
            previous=self._previous(),
            budget_tokens=self.summary_budget,
            count=self.request.counter.count_text,
            opening=self._opening(),
            latest_user=self._newest_request(),
            before=self._head()[self.known.layout.system_end :],
            after=self._after(),
            focus_topic=self.request.focus_topic,
            memory_context=self.request.memory_context,
            rules=[rule.text for rule in self.rules.lines],
            prefix=self.known.repaired[: self.plan.tail_start],
            prefix_tokens=self.known.tokens(sum(self.known.counts[: self.plan.tail_start])),
            digests=self.request.digests,
            trace=NO_TRACE if self.request.recorder is None else self.request.recorder.trace,
        )

    def _opening(self) -> Message | None:
        """Return the first message in which a person says something: no command to the client, no summary."""
        first, own = self.known.repaired[:_OPENING_REACH], self.known.layout.summaries
        asked = [m for index, m in enumerate(first) if m["role"] == "user" and index not in own and not is_summary(m)]
        typed = [(message, words) for message in asked if (words := typed_words(message))]
        telling = (message for message, words in typed if len(words) >= _LEAST_OPENING and not words.startswith("/"))
        return next(telling, typed[0][0] if typed else None)

    def _newest_request(self) -> Message | None:
        """Return the newest message in which a person asked for something; a client's reminder is no request."""
        summaries = self.known.layout.summaries
        index = newest_request(self.known.repaired, summaries)
        if index is None:
            return None
        named = inherited_newest(self._previous()) if summaries and index < summaries[-1] else ""
        begun = named.removesuffix(" ...")
        if named and not one_line(typed_words(self.known.repaired[index])).startswith(begun):
            return None  # the request that the earlier summary names is newer than this one
        return self.known.repaired[index]

    def _previous(self) -> str | None:
        """Return the text of the summaries that earlier compactions left; None if there are none."""
        bodies = [summary_body(self.known.repaired[index]) for index in self.known.layout.summaries]
        return "\n\n".join(bodies) if bodies else None

    def _after(self) -> list[Message]:
        """Return the messages after the summary: the tail, and before it the latest request if that is older."""
        latest = self.known.layout.latest_user
        repeated = [self.known.repaired[latest]] if latest is not None and self.plan.repeat_latest else []
        return [*repeated, *self.tail.messages]

    # -- the report ------------------------------------------------------------------------------------------------

    def _finish(self, result: _Result, current_tokens: int | None) -> tuple[list[Message], CompactionReport]:
        """Fill in the record, if there is one, and return the list with its report."""
        request, plan = self.request, self.plan
        if request.recorder is not None:
            request.recorder.ended = CompactionEnd(
                repaired=self.known.repaired,
                counts=self.known.counts,
                messages=result.pruned.messages,
                layout=self.known.layout,
                limits=self.known.limits,
                plan=plan,
                outcome=result.outcome,
                written=result.written,
                prune_min_chars=request.settings.prune_min_chars,
            )
        summarizer_input = None
        if result.written is not None:
            summarizer_input = SummarizerInput(
                messages=len(self.turns),
                tokens=self.known.tokens(request.counter.total(self.turns)),
                previous_summary=bool(self.known.layout.summaries),
                budget_tokens=self.known.tokens(self.summary_budget + self.rules_tokens),
                focus_topic=request.focus_topic,
            )
        report = CompactionReport(
            outcome=result.outcome,
            tokens_before=self.known.tokens(sum(self.known.counts)),
            reported_tokens=current_tokens,
            tokens_after=self.known.tokens(result.pruned.tokens),
            messages_before=len(request.messages),
            messages_after=len(result.pruned.messages),
            results_cleared=result.pruned.changed,
            results_shortened=result.shortened,
            latest_user_repeated=result.written is not None and plan.repeat_latest,
            boundaries=Boundaries(plan.head_end, plan.tail_start, (plan.head_end, plan.tail_start)),
            counter=request.counter.counter.name,
            summarizer=result.written.summarizer if result.written else None,
            summarizer_input=summarizer_input,
            summary_tokens=self.known.tokens(result.summary_tokens),
            fallback_reason=result.written.fallback_reason if result.written else None,
            quality=result.quality,
            rules=len(self.rules.lines) if result.written else 0,
            rules_tokens=self.known.tokens(self.rules_tokens) if result.written else 0,
            rules_by_id=len(self.rules.older) if result.written else 0,
            strategy=result.written.strategy if result.written else None,
            repaired=self.known.repaired is not request.messages,
            stages={name: round(seconds, 6) for name, seconds in self.known.stages.items()},
        )
        return result.pruned.messages, report


@dataclass
class CompactionSituation:
    """The facts about a request that are known before any decision."""

    request: CompactionRequest
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds spent in each stage so far."""
    summaries: tuple[int, ...] = ()
    """The indices of earlier compactions' summaries; known once the input is repaired."""

    @cached_property
    def repaired(self) -> list[Message]:
        """The input, mended where it broke the message protocol."""
        with self.timed("repair"):
            if is_plain(self.request.messages):
                return self.request.messages
            split = split_merged_summary(
                self.request.messages, self.request.settings.protect_first_n, self.request.emitted
            )
            mended = repair_all(split)
            self.summaries = self._find_summaries(mended)
            latest = latest_user_index(mended, self.summaries)
            if not self.summaries or latest is None or latest > self.summaries[-1]:
                return mended
            mended = repair_all(LatestUserTurn(mended, self.summaries).repair(mended))
            self.summaries = self._find_summaries(mended)
            return mended

    def _find_summaries(self, messages: list[Message]) -> tuple[int, ...]:
        return summary_indices(messages, self.request.settings.protect_first_n, self.request.emitted)

    @cached_property
    def counts(self) -> list[int]:
        """The tokens of each message, in the counter's units."""
        repaired = self.repaired
        with self.timed("count"):
            return self.request.counter.counts(repaired)

    @cached_property
    def layout(self) -> ListLayout:
        """The positions of system prompt, first exchange, latest request and pending calls."""
        repaired = self.repaired
        return survey(repaired, self.summaries, self.request.settings.protect_first_n)

    @cached_property
    def limits(self) -> BoundaryLimits:
        """The tokens that each part of the result may take."""
        request, budgets = self.request, self.request.budgets
        frame = self._frame_tokens()
        acknowledgement = request.counter.count({"role": "assistant", "content": ACKNOWLEDGEMENT})
        if request.target_tokens is None:
            total, tail = self.units(request.limit_tokens), self.units(budgets.tail_tokens)
            reserve = self._reserve_for_rules(self.units(budgets.summary_cap))
            more = max(0, sum(self.counts[self.newest_start :]) - tail)
            return BoundaryLimits(
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
        if newest <= room * _NEWEST_SHARE_OF_TARGET:
            tail = max(tail, newest)
        return BoundaryLimits(
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
        """The user's standing rules that are in force at the end of the conversation."""
        repaired = self.repaired
        with self.timed("rules"):
            return standing_rules(repaired, self.summaries)

    def _reserve_for_rules(self, summary: int) -> int:
        """Return the tokens of a summary's largest budget that are kept free for the standing rules."""
        return min(self.size_of(self.rules), int(summary * _RULES_SHARE))

    def size_of(self, rules: StandingRules) -> int:
        """Return the size of standing rules, besides the block around them."""
        return max(0, self.request.counter.count_text(rules.render()) - self.block_tokens)

    @cached_property
    def block_tokens(self) -> int:
        """The size of a block without rules, which follows every summary."""
        return self.request.counter.count_text(StandingRules().render())

    @cached_property
    def exchange(self) -> Pruned:
        """The first exchange as the head will show it: results cleared, oversized texts shortened."""
        counter, target, latest = self.request.counter, self.request.target_tokens, self.layout.latest_user
        if target is not None and latest is not None and latest < self.layout.exchange_end:
            return Pruned([], [], 0)  # the request is repeated after the summary; a target has no room for it twice
        allowed = self.request.budgets.tail_tokens if target is None else int(target * _EXCHANGE_SHARE_OF_TARGET)
        start, stop = self.layout.system_end, self.layout.exchange_end
        cleared, room = self.clear(start, stop), self.units(allowed)
        asked = newest_request(self.repaired, self.summaries) if target is None else None
        spared: set[int] = set()
        if asked is not None and start <= asked < stop and self.counts[asked] <= self._room_for_request:
            # Nobody has asked for anything since, so the request in force stays whole, however little is kept.
            spared, room = {asked - start}, max(room, self.counts[asked])
        return shorten_texts(cleared, room, counter.count, counter.count_text, spared)

    @property
    def _room_for_request(self) -> int:
        """The size up to which the request in force stays whole in the head."""
        return self.units(int(self.request.limit_tokens * _EXCHANGE_SHARE_OF_TARGET))

    def clear(self, start: int, stop: int, protected: int | None = None) -> Pruned:
        """Return the messages of a range with all results cleared that stand before the protected part."""
        until = max(start, min(stop, self.protected_start if protected is None else protected))
        min_chars, count = self.request.settings.prune_min_chars, self.request.counter.count
        old = clear_results(self.repaired[start:until], self.counts[start:until], min_chars, count)
        messages, counts = [*old.messages, *self.repaired[until:stop]], [*old.counts, *self.counts[until:stop]]
        return Pruned(messages, counts, old.changed)

    @cached_property
    def protected_start(self) -> int:
        """The index from which on no result is cleared while there is room."""
        if self.request.target_tokens is not None:  # a target has no protected count
            return self.newest_start
        tail = self.units(self.request.budgets.tail_tokens)
        return protected_start(self.repaired, self.counts, tail, self.request.settings.protect_last_n)

    @cached_property
    def newest_start(self) -> int:
        """The index of the newest group, whose results are never old."""
        return protected_start(self.repaired, self.counts, 0, 1)

    @property
    def untouchable(self) -> set[int]:
        """The messages that are never shortened: the latest request, pending calls, earlier summaries."""
        latest = self.layout.latest_user
        pending = range(self.layout.pending_start, len(self.repaired))
        return {*self.layout.inserted, *pending, *(() if latest is None else (latest,))}

    def _frame_tokens(self) -> int:
        """Return the tokens that a summary adds besides its own words: prefix, note and an empty block of rules."""
        count = self.request.counter.counts
        system: Sequence[Message] = self.repaired[: self.layout.system_end]
        note = sum(count(with_note(system))) - sum(count(system))
        # Joining texts may add a token or two.
        return note + sum(count([summary_message("", "user", StandingRules().render())])) + 2

    def least_tokens(self) -> int:
        """Return the smallest size that any compaction of this conversation can have, in the counter's units."""
        return least_tokens(self.repaired, self.counts, self.layout, self.limits)

    def units(self, tokens: int) -> int:
        """Convert a provider's tokens to the counter's units."""
        return int(tokens / self.request.scale + 1e-9)  # so that rounding up and back gives the same number

    def tokens(self, units: int) -> int:
        """Convert the counter's units to a provider's tokens."""
        return round(units * self.request.scale)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time that the ``with`` block takes to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + time.perf_counter() - start


def assemble(head: Sequence[Message], summary: str, after: Sequence[Message], rules: str = "") -> list[Message]:
    """Return the compacted conversation: head, summary with the block of standing rules, and the messages after it."""
    before_role = head[-1]["role"] if head else ""
    next_role = after[0]["role"] if after else ""
    acknowledgement: Message = {"role": "assistant", "content": ACKNOWLEDGEMENT}
    body: list[Message]
    if before_role != "user":
        body = [summary_message(summary, "user", rules), *([acknowledgement] if next_role == "user" else [])]
    elif next_role == "assistant":
        body = [acknowledgement, summary_message(summary, "user", rules)]
    else:
        body = [summary_message(summary, "assistant", rules)]
    return [*with_note(head), *body, *after]


def summary_message(summary: str, role: str, rules: str = "") -> Message:
    """Return the message that replaces everything summarized; rules get a text block of their own."""
    message: Message = {"role": role, "content": f"{SUMMARY_PREFIX}\n\n{summary}"}
    return with_part_appended(message, rules) if rules else message


def with_note(head: Sequence[Message]) -> list[Message]:
    """Return the head with the compaction note after its system prompt, once."""
    messages = list(head)
    prompts = leading_system_count(messages)
    if prompts and not any(map(has_note, messages[:prompts])):
        # A block of its own, so that the provider's cache of the prompt before it stays valid.
        messages[prompts - 1] = with_part_appended(messages[prompts - 1], COMPACTION_NOTE)
    return messages
