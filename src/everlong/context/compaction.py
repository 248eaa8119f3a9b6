"""One compaction: from a `CompactionRequest` to the compacted list and its report.

`CompactionRun` decides and acts: it cuts head and tail, has the middle summarized, assembles the list and checks it.
`CompactionSituation` holds the facts that are known before any decision. Neither outlives the compaction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from everlong.config import CompressionValues
from everlong.context.boundary import (
    LEAST_SUMMARY,
    BoundaryLimits,
    BoundaryPlanner,
    HeadTokens,
    ListLayout,
    Plan,
    least_tokens,
    protected_start,
    survey,
)
from everlong.context.chronicle import Chronicle
from everlong.context.engine import MESSAGE_TAG
from everlong.context.invariants import LatestUserTurn, check_all, is_plain, latest_user_index, repair_all
from everlong.context.literals import (
    ACKNOWLEDGEMENT,
    COMPACTION_NOTE,
    SUMMARY_PREFIX,
    digest_of,
    has_note,
    split_merged_summary,
    summary_body,
    summary_indices,
)
from everlong.context.oversized import SpillLimits, make_stub
from everlong.context.policy import Budgets
from everlong.context.pruning import Pruned, clear_results, shorten_results, shorten_texts
from everlong.context.report import Boundaries, CompactionReport, Outcome, Quality, SummarizerInput, check_summary
from everlong.context.rules import StandingRules, standing_rules
from everlong.context.summarizers import ExtractiveSummarizer, SummaryRequest, SummaryWriter, WrittenSummary
from everlong.context.text import shorten_message
from everlong.errors import TargetUnreachable
from everlong.model import Message, leading_system_count, text_of, typed_words, with_content, with_part_appended
from everlong.tokens import MessageCounter

_TAIL_SHARE_OF_TARGET = 0.36
_LEAST_TAIL_SHARE = 0.01
_SHORTER_SUMMARY = 0.95
_REQUEST_SHARE = 3
"""The first request stays whole unless it takes more than one in this many tokens of the result."""
_REPEATED_SHARE = 10
"""The same for a first request that is repeated after the summary anyway: it need not stand there twice."""
_LEAST_REQUEST = 120
"""Tokens in which the two ends of a first request still tell what it was; only a small target takes more from it."""
_RULES_SHARE = 0.5
"""The largest share of the summary's budget that standing rules may take."""
_WORTH_OF_SUMMARY = 0.8
"""Where nothing fits, a summary may cost a fifth more than clearing results, which tells nothing of them."""
_WELL_USED = 0.96
"""A result that uses less than this share of its target is tried again with a longer tail."""


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """Everything that one compaction depends on."""

    messages: list[Message]
    settings: CompressionValues
    budgets: Budgets
    limit_tokens: int
    """The size that the messages are brought down to."""
    least_tokens: int
    """The size that they keep, if the history has that much; 0 for a tail of the usual size."""
    most_tokens: int
    """The size they may have where what is never lost leaves no room for a summary otherwise."""
    scale: float
    counter: MessageCounter
    writer: SummaryWriter
    focus_topic: str | None = None
    force: bool = False
    memory_context: str | None = None
    target_tokens: int | None = None
    emitted: Mapping[str, Chronicle | None] = field(default_factory=dict)
    """The digests of the summaries that this engine wrote before, with the chronicles behind them."""
    originals: Callable[[], Sequence[Message]] | None = None
    """Returns the messages that the summary in the list stands for, with the head; None if nobody has them."""
    is_priced: bool = False
    """True if what is left costs something in each later request; then no more than the least is left."""
    tail_share: float = _TAIL_SHARE_OF_TARGET
    """Under a target, the tail's share of the room that head and latest request leave; the summary gets the rest."""
    written: WrittenSummary | None = None
    """A summary from a first try or from `ContextCompressor.prepare`; then no summarizer is asked again."""
    summary_tokens: int | None = None
    """The size of that summary, if a first try has shown it; the tail then takes the room that it left."""


@dataclass(slots=True)
class _Result:
    """A compacted list and how it was made."""

    pruned: Pruned
    outcome: Outcome
    shortened: int = 0
    written: WrittenSummary | None = None
    summary_tokens: int = 0
    chronicle: Chronicle | None = None
    quality: Quality | None = None


class Compacted(NamedTuple):
    """The compacted list, its report, and the chronicle of everything before the tail if there is a summary."""

    messages: list[Message]
    report: CompactionReport
    chronicle: Chronicle | None


@dataclass
class CompactionRun:
    """The stages of one compaction, each computed when it is first needed."""

    request: CompactionRequest

    @cached_property
    def known(self) -> CompactionSituation:
        """The facts about the request."""
        return CompactionSituation(self.request)

    def run(self, current_tokens: int | None = None) -> Compacted:
        """Return the compacted list with the report about it.

        Raises:
            TargetUnreachable: the request's target is less than the least possible.
        """
        request = self.request
        before = sum(self.known.counts)
        fits = request.target_tokens is not None and before <= self.known.units(request.target_tokens)
        if fits:
            return self._finish(_Result(Pruned(self.known.repaired, self.known.counts, 0), "unchanged"), current_tokens)
        result = self.summarize() if self.has_new_turns or self._summary_is_too_long() else self._clear_results()
        again = self._better_request(result)
        if again is not None:
            try:
                return replace(self, request=again).run(current_tokens)
            except TargetUnreachable:
                if result.pruned.tokens > self.known.limits.most:
                    raise
        if result.pruned.tokens > min(before - 1, self.known.limits.most):
            result = self._choose_smallest(result)
        if request.target_tokens is not None and result.pruned.tokens > self.known.limits.most:
            least = min(result.pruned.tokens, self.known.least_tokens() if self.has_new_turns else math.inf)
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
                both = again.summarize()
                both.shortened += cleared.shortened
                both.pruned = replace(both.pruned, changed=both.pruned.changed + cleared.pruned.changed)
                found.append(both)
        before = sum(self.known.counts)

        def size(candidate: _Result) -> float:
            is_wished = self.request.target_tokens is None and candidate.written is not None
            tells = is_wished and candidate.pruned.tokens < before
            return candidate.pruned.tokens * (_WORTH_OF_SUMMARY if tells else 1.0)

        return min(found, key=size)

    def _better_request(self, result: _Result) -> CompactionRequest | None:
        """Return the request for a second try; None if the first is good.

        The tail takes the room that the summary left, or gives room to a model's summary that is longer than asked for.
        If that does not fit either, the built-in summary takes its place.
        """
        request, limits, written = self.request, self.known.limits, result.written
        if written is None:
            return None
        is_over = bool(written.prose) and result.pruned.tokens > limits.most
        if request.summary_tokens is not None or self.plan.tail_start <= self.known.layout.body_start:
            reason = f"{written.summarizer}: its summary leaves no room"
            short = written._replace(summarizer=ExtractiveSummarizer.name, fallback_reason=reason, prose="")
            return replace(request, written=short) if is_over else None
        if request.target_tokens is None:
            is_short = limits.least > 0 and result.pruned.tokens < limits.least
            # The built-in summary gives way a little, where that lets another group into the tail.
            share = 1 if written.prose else _SHORTER_SUMMARY
            more = replace(
                request, written=written, summary_tokens=int(share * result.summary_tokens) - self.rules_tokens
            )
            return more if is_short or is_over else None
        room = limits.tail / request.tail_share
        used = result.summary_tokens + limits.tail
        if not room or (result.pruned.tokens >= limits.total * _WELL_USED and not is_over):
            return None
        share = min(0.95, max(_LEAST_TAIL_SHARE, request.tail_share + (room - used) / room))
        return replace(request, written=written, summary_tokens=result.summary_tokens, tail_share=share)

    # -- decisions that the stages share ---------------------------------------------------------------------------

    @cached_property
    def plan(self) -> Plan:
        """The cuts between head, middle and tail."""
        layout, limits, head = self.known.layout, self.known.limits, self.known.head_tokens
        with self.known.timed("boundary"):
            return BoundaryPlanner(self.known.repaired, self.known.counts, layout, limits, head).plan()

    @cached_property
    def covered(self) -> list[int]:
        """The indices of the messages that the summary replaces, without those that an earlier compaction inserted."""
        kept = {*self.known.layout.inserted, *(index for index in self.known.layout.request if self._shows_request)}
        return [index for index in range(self.plan.head_end, self.plan.tail_start) if index not in kept]

    @property
    def _shows_request(self) -> bool:
        """True if the head shows the first request, because it stands before the tail."""
        request = self.known.layout.request
        return bool(request) and request[-1] < self.plan.tail_start

    @cached_property
    def turns(self) -> list[Message]:
        """The messages that the summary replaces."""
        return [self.known.repaired[index] for index in self.covered]

    @property
    def has_new_turns(self) -> bool:
        """True if there is anything to summarize besides a request that is repeated anyway."""
        repeated = self.known.layout.repeated(self.plan.tail_start)
        return any(index not in repeated for index in self.covered)

    def _summary_is_too_long(self) -> bool:
        """Return whether an earlier summary must shrink, as after a switch to a smaller window."""
        if not self.known.summaries or sum(self.known.counts) <= self.known.limits.total:
            return False
        return self.request.counter.count_text(self._previous() or "") > self.plan.summary_tokens

    def assembled(self, summary: str) -> list[Message]:
        """Return the compacted list, not yet checked: head, summary with its rules, and what stays after it."""
        head, after = self._head(), self._after()
        acknowledgement: Message = {"role": "assistant", "content": ACKNOWLEDGEMENT}
        body = [summary_message(summary, "user", self.rules.render())]
        if head and head[-1]["role"] == "user":
            body.insert(0, acknowledgement)
        if after and after[0]["role"] == "user":
            body.append(acknowledgement)
        return [*with_note(head), *body, *after]

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
        return max(LEAST_SUMMARY, self.plan.summary_tokens + self.known.limits.rules - self.rules_tokens)

    @cached_property
    def rules_tokens(self) -> int:
        """The size of the standing rules, besides the block around them."""
        return self.known.size_of(self.rules)

    # -- the stages ------------------------------------------------------------------------------------------------

    def _clear_results(self) -> _Result:
        """Clear old results and summarize nothing; if even that does not fit, shorten everything that may be."""
        known, count, count_text = self.known, self.request.counter.count, self.request.counter.count_text
        start = known.layout.system_end
        room = known.limits.total - sum(known.counts[:start])
        with known.timed("prune"):
            cleared = known.clear(start, len(known.repaired))
            if cleared.tokens > room:  # the tail's protection yields; the newest group is never old
                cleared = known.clear(start, len(known.repaired), known.layout.newest_start)
            fits = cleared.tokens <= known.limits.most - sum(known.counts[:start])
            fitting = cleared if fits else shorten_results(cleared, room, count, count_text)
            for spared in () if fits else (known.untouchable, known.untouchable - known.newest_answers):
                if fitting.tokens > room:
                    fitting = shorten_texts(fitting, room, count, count_text, {index - start for index in spared})
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
            counts = counter.counts(result)
        cleared = self.known.exchange.changed if plan.head_end == self.known.layout.exchange_end else 0
        tail = self.known.repaired[plan.tail_start :]
        return _Result(
            Pruned(result, counts, cleared),
            "summarized",
            shortened=self.tail.changed,
            written=written,
            summary_tokens=counter.count_text(written.text) + self.rules_tokens,
            chronicle=None if written.prose else self.chronicle.remembering(tail, self.tail.messages),
        )

    def _write_summary(self) -> WrittenSummary:
        """Return the summary of the turns, which the writer makes."""
        if self.request.written is None:
            return self.request.writer.write(self.summary_request, ignore_cooldown=self.request.force)
        return self.request.writer.write_again(self.request.written, self.summary_request)

    def _measure_quality(self, written: WrittenSummary) -> Quality:
        """Return the quality of the finished summary."""
        total = len(self.known.rules.lines)
        missing = len(self.rules.older) - len(self.known.rules.older)
        rules, problems = (total - missing, total), written.problems
        return check_summary(written.text, self.summary_request, rules=rules, problems=problems, prose=written.prose)

    def _head(self) -> list[Message]:
        """Return the system prompt, the first request, and the answer to it if there is room for it."""
        known, layout = self.known, self.known.layout
        answer = known.exchange.messages if self.plan.head_end > layout.request_end else []
        request = known.shown_request if self._shows_request else []
        return [*known.repaired[: layout.system_end], *request, *answer]

    def _after(self) -> list[Message]:
        """Return the messages after the summary: the tail, and before it the newest request if that is older."""
        repeated = self.known.layout.repeated(self.plan.tail_start)
        return [*(self.known.repaired[index] for index in repeated), *self.tail.messages]

    @cached_property
    def tail(self) -> Pruned:
        """The newest messages as the result will end with them; results are shortened only if they must be."""
        start, room, counter = self.plan.tail_start, self.plan.tail_room, self.request.counter
        stop = len(self.known.repaired) if self.plan.whole_from is None else self.plan.whole_from
        messages, counts = self.known.repaired[start:stop], self.known.counts[start:stop]
        whole, whole_counts = self.known.repaired[stop:], self.known.counts[stop:]
        if room is None:
            return Pruned([*messages, *whole], [*counts, *whole_counts], 0)
        room -= sum(whole_counts)
        fitting = shorten_results(Pruned(messages, counts, 0), room, counter.count, counter.count_text)
        if fitting.tokens > room:
            asked = {index for index, message in enumerate(messages) if message["role"] == "user"}
            fitting = shorten_texts(fitting, room, counter.count, counter.count_text, asked)
        changed = sum(was is not now for was, now in zip(messages, fitting.messages, strict=True))
        return Pruned([*fitting.messages, *whole], [*fitting.counts, *whole_counts], changed)

    @cached_property
    def summary_request(self) -> SummaryRequest:
        """The request for the summary of the turns."""
        latest = self.known.layout.latest_user
        asked = [self.known.repaired[index] for index in self.known.layout.request]
        opening = next((message for message in asked if message["role"] == "user" and typed_words(message)), None)
        return SummaryRequest(
            turns=self.turns,
            previous=self._previous(),
            budget_tokens=self.summary_budget,
            count=self.request.counter.count_text,
            opening=opening,
            latest_user=None if latest is None else self.known.repaired[latest],
            before=self._head()[self.known.layout.system_end :],
            after=self._after(),
            rules=self.rules.render(),
            focus_topic=self.request.focus_topic,
            memory_context=self.request.memory_context,
            prefix=self.known.repaired[: self.plan.tail_start],
            prefix_tokens=self.known.tokens(sum(self.known.counts[: self.plan.tail_start])),
            known=lambda: self.chronicle,
        )

    @cached_property
    def chronicle(self) -> Chronicle:
        """The chronicle of everything up to the tail."""
        known = self.known
        if not known.summaries:
            return Chronicle().extended(known.repaired[known.layout.system_end : self.plan.tail_start])
        behind = self.request.emitted.get(digest_of(known.repaired[known.summaries[-1]]))
        if behind is None:
            originals = self.request.originals() if self.request.originals is not None else ()
            behind = Chronicle().extended(originals) if originals else Chronicle.carried_on(self._previous())
        return behind.extended(self.turns, repeats=True)

    def _previous(self) -> str | None:
        """Return the text of the summaries that earlier compactions left; None if there are none."""
        bodies = [summary_body(self.known.repaired[index]) for index in self.known.layout.summaries]
        return "\n\n".join(bodies) if bodies else None

    # -- the report ------------------------------------------------------------------------------------------------

    def _finish(self, result: _Result, current_tokens: int | None) -> Compacted:
        """Return the list with its report."""
        request, plan = self.request, self.plan
        summarizer_input = None
        if result.written is not None:
            with self.known.timed("verify"):
                result.quality = self._measure_quality(result.written)
            summarizer_input = SummarizerInput(
                messages=len(self.turns),
                tokens=self.known.tokens(sum(self.known.counts[index] for index in self.covered)),
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
            latest_user_repeated=result.written is not None and bool(self.known.layout.repeated(plan.tail_start)),
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
            repaired=self.known.repaired is not request.messages,
            stages={name: round(seconds, 6) for name, seconds in self.known.stages.items()},
        )
        return Compacted(result.pruned.messages, report, result.chronicle)


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
        """The positions of system prompt, first exchange, latest request and newest answer."""
        repaired = self.repaired
        return survey(repaired, self.summaries, self.request.settings.protect_first_n)

    @cached_property
    def limits(self) -> BoundaryLimits:
        """The tokens that each part of the result may take."""
        request, budgets = self.request, self.request.budgets
        frame, acknowledgement = self._frame
        if request.target_tokens is None:
            total, tail = self.units(request.limit_tokens), self.units(budgets.tail_tokens)
            # Of the summary's largest budget, so much is kept free for the standing rules.
            reserve = min(self.size_of(self.rules), int(self.units(budgets.summary_cap) * _RULES_SHARE))

            def summary(content: int) -> int:
                if request.summary_tokens is not None:
                    return request.summary_tokens
                return self.units(budgets.summary_tokens(self.tokens(content))) - reserve

            return BoundaryLimits(
                total=total,
                most=max(total, self.units(request.most_tokens)),
                least=self.units(request.least_tokens),
                tail=tail,
                keep_last=request.settings.protect_last_n,
                frame=frame + reserve,
                acknowledgement=acknowledgement,
                summary=summary,
                fill=self.units(request.least_tokens if request.is_priced else request.limit_tokens)
                if request.least_tokens
                else 0,
                rules=reserve,
            )
        total = self.units(request.target_tokens)
        fixed = sum(self.counts[: self.layout.system_end]) + frame + acknowledgement + sum(self.head_tokens)
        latest = self.layout.latest_user
        room = max(0, total - fixed - (0 if latest is None else self.counts[latest]))
        tail = max(int(room * request.tail_share), 0)
        return BoundaryLimits(
            total=total,
            most=total,
            least=0,
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

    def size_of(self, rules: StandingRules) -> int:
        """Return the size of standing rules, besides the block around them."""
        return max(0, self.request.counter.count_text(rules.render()) - self.block_tokens)

    @cached_property
    def block_tokens(self) -> int:
        """The size of a block without rules, which follows every summary."""
        return self.request.counter.count_text(StandingRules().render())

    @cached_property
    def shown_request(self) -> list[Message]:
        """The first request as the head will show it: whole, or its beginning and its end where it is too long.

        A long message that is repeated after the summary anyway need not stand here too.
        """
        target = self.request.target_tokens
        result = self.units(self.request.limit_tokens if target is None else target)
        most = self.units(self.request.most_tokens if target is None else target)
        room = max(0 if target is not None else _LEAST_REQUEST, most - self._least_tokens(0))
        return self._show_request(min(room, result // _REQUEST_SHARE), min(room, result // _REPEATED_SHARE))

    def _show_request(self, most: int, most_repeated: int) -> list[Message]:
        """Return the first request in so many tokens, if it can be that short."""
        layout, counter = self.layout, self.request.counter
        left = sum(self.counts[index] for index in layout.request)
        is_long = left > most_repeated
        shown: list[Message] = []
        for index in layout.request:
            message, tokens = self.repaired[index], self.counts[index]
            if is_long and index == layout.latest_user:
                left -= tokens
                continue
            if left > most:
                message = self._stub(message, most - (left - tokens))
                left -= tokens - counter.count(message)
            shown.append(message)
        return shown

    def _stub(self, message: Message, tokens: int) -> Message:
        """Return a request without its middle; it names the id of the whole, if the host keeps it under one."""
        count_text = self.request.counter.count_text
        most = max(LEAST_SUMMARY, tokens - self.request.counter.count(with_content(message, "")))
        ident = message.get(MESSAGE_TAG)
        if isinstance(ident, str) and most > 2 * LEAST_SUMMARY:
            limits = SpillLimits(most, self.request.counter)
            return with_content(message, make_stub(text_of(message), "Message of the user", ident, limits, most // 2))
        return shorten_message(message, most, count_text)

    @cached_property
    def exchange(self) -> Pruned:
        """The answer to the first request as the head will show it: results cleared, oversized texts shortened."""
        counter, target = self.request.counter, self.request.target_tokens
        start, stop = self.layout.request_end, self.layout.exchange_end
        if target is not None or start == stop or not self.shown_request:
            return Pruned([], [], 0)  # a target has no room for it, and an answer without its request says little
        room = max(0, self.units(self.request.budgets.tail_tokens) - sum(counter.counts(self.shown_request)))
        cleared = self.clear(start, stop)
        return cleared if cleared.tokens <= room else shorten_texts(cleared, room, counter.count, counter.count_text)

    @cached_property
    def head_tokens(self) -> HeadTokens:
        """The sizes of the head's parts, as the result will show them."""
        return HeadTokens(sum(self.request.counter.counts(self.shown_request)), self.exchange.tokens)

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
            return self.layout.newest_start
        tail = self.units(self.request.budgets.tail_tokens)
        return protected_start(self.repaired, self.counts, tail, self.request.settings.protect_last_n)

    @property
    def untouchable(self) -> set[int]:
        """The messages that are shortened last: the newest requests and the newest answer, earlier summaries."""
        asked = {index for index in (self.layout.latest_user, self.layout.in_doubt) if index is not None}
        said = [i for i, m in enumerate(self.repaired) if m["role"] == "user" and m.get("content")]
        asked.update(said[-1:])  # also one in which nobody asks for anything, such as a picture
        return {*self.layout.inserted, *asked, *range(self.layout.newest_start, len(self.repaired))}

    @property
    def newest_answers(self) -> set[int]:
        """The newest assistant messages, which are shortened only where nothing else helps."""
        newest = range(self.layout.newest_start, len(self.repaired))
        return {index for index in newest if self.repaired[index]["role"] == "assistant"}

    @cached_property
    def _frame(self) -> tuple[int, int]:
        """The tokens that a summary adds besides its own words, and those of a message that parts two user messages.

        These are its prefix, the note and an empty block of rules.
        """
        count = self.request.counter.counts
        system: Sequence[Message] = self.repaired[: self.layout.system_end]
        note = sum(count(with_note(system))) - sum(count(system))
        acknowledgement: Message = {"role": "assistant", "content": ACKNOWLEDGEMENT}
        empty, parting = count([summary_message("", "user", StandingRules().render()), acknowledgement])
        return note + empty + 2, parting  # joining texts may add a token or two

    def least_tokens(self) -> int:
        """Return the smallest size that any compaction of this conversation can have, in the counter's units."""
        return self._least_tokens(sum(self.request.counter.counts(self._show_request(0, 0))))

    def _least_tokens(self, request: int) -> int:
        """Return the same for a first request of so many tokens."""
        frame, acknowledgement = self._frame
        return least_tokens(self.repaired, self.counts, self.layout, request + frame, acknowledgement)

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
