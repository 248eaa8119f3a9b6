"""One compaction, stage by stage: from a request to a result and its report.

Holds the state of a single run, so that the engine keeps only what lasts. What is known before anything is decided
comes from the situation; what is decided, and the list that follows from it, is here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from everlong.context.assemble import assemble
from everlong.context.boundary import LEAST_SUMMARY, Plan, plan_boundaries
from everlong.context.invariants import check_all
from everlong.context.literals import is_summary, summary_body
from everlong.context.prune import Pruned, shorten_results, shorten_texts
from everlong.context.recorder import Ended
from everlong.context.report import Boundaries, CompactionReport, Outcome, Quality, SummarizerInput
from everlong.context.rules import StandingRules, without_lifted
from everlong.context.situation import RULES_SHARE, TAIL_SHARE_OF_TARGET, Request, Situation
from everlong.context.summarize import SummaryRequest, Written
from everlong.context.summary.extractive import ExtractiveSummarizer
from everlong.context.summary.newest import inherited_newest
from everlong.context.summary.text import one_line
from everlong.context.summary.trace import NO_TRACE
from everlong.context.verify import Yardstick
from everlong.errors import TargetUnreachable
from everlong.model import Message, newest_request, typed_words

_WELL_USED = 0.9
"""The share of a target from which on it counts as used."""
_OPENING_REACH = 50
_TELLING = 12
"""Characters from which on a user's words can say what a conversation is about."""


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

    @cached_property
    def known(self) -> Situation:
        """What the request amounts to."""
        return Situation(self.request)

    def run(self, current_tokens: int | None = None) -> tuple[list[Message], CompactionReport]:
        """The compacted list and the report about it."""
        request = self.request
        before = sum(self.known.counts)
        fits = request.target_tokens is not None and before <= self.known.units(request.target_tokens)
        if fits:
            return self._finish(_Result(Pruned(self.known.repaired, self.known.counts, 0), "unchanged"), current_tokens)
        result = self._summarized() if self.has_new_turns or self._summary_is_too_long() else self._cleared()
        share = self._better_tail_share(result)
        if share is not None:
            return Compaction(replace(request, tail_share=share, written=result.written)).run(current_tokens)
        if result.pruned.tokens > min(before - 1, self.known.limits.total):
            result = self._smallest(result)
        if request.target_tokens is not None and result.pruned.tokens > self.known.limits.total:
            least = min(self.known.least_tokens(), result.pruned.tokens)
            raise TargetUnreachable(request.target_tokens, math.ceil(least * request.scale))
        return self._finish(result, current_tokens)

    def _smallest(self, result: _Result) -> _Result:
        """Where nothing fits, the least there is: with a summary, with old results cleared, or with both.

        Looking at both now, rather than when the same list comes again, makes the outcome one that stays.
        """
        cleared = self._cleared()
        found = [cleared, result]  # of equal ones the one that says more
        by_itself = result.written is not None and result.written.summarizer == ExtractiveSummarizer.name
        if by_itself and cleared.outcome == "cleared":  # a model is not asked twice for this
            again = Compaction(replace(self.request, messages=cleared.pruned.messages))
            if again.has_new_turns:
                found.append(again._summarized())
        return min(found, key=lambda candidate: candidate.pruned.tokens)

    def _better_tail_share(self, result: _Result) -> float | None:
        """Under a target, the share that gives the tail what the summary had no use for; None where that is little."""
        room = self.known.limits.tail / self.request.tail_share
        used = result.summary_tokens + self.known.limits.tail
        is_first_try = self.request.tail_share == TAIL_SHARE_OF_TARGET
        wasteful = result.pruned.tokens < self.known.limits.total * _WELL_USED
        if self.request.target_tokens is None or result.written is None or not (is_first_try and wasteful and room):
            return None
        return min(0.95, self.request.tail_share + (room - used) / room)

    # -- what the stages share -------------------------------------------------------------------------------------

    @cached_property
    def plan(self) -> Plan:
        """Where head and tail are cut."""
        layout, limits, exchange = self.known.layout, self.known.limits, self.known.exchange
        with self.known.timed("boundary"):
            return plan_boundaries(self.known.repaired, self.known.counts, layout, limits, exchange.tokens)

    @cached_property
    def turns(self) -> list[Message]:
        """The messages that the summary will stand for, without what an earlier compaction put in."""
        turns = self.known.repaired[self.plan.head_end : self.plan.tail_start]
        for index in sorted(self.known.layout.inserted, reverse=True):
            if self.plan.head_end <= index < self.plan.tail_start:
                del turns[index - self.plan.head_end]
        return turns

    @property
    def has_new_turns(self) -> bool:
        """Whether there is anything to summarize besides a request that would be repeated anyway."""
        own = self.known.layout.inserted
        latest = self.known.layout.latest_user if self.plan.repeat_latest else None
        covered = range(self.plan.head_end, self.plan.tail_start)
        return any(index not in own and index != latest for index in covered)

    def _summary_is_too_long(self) -> bool:
        """Whether an earlier summary must shrink, as after a switch to a smaller window."""
        if not self.known.summaries or sum(self.known.counts) <= self.known.limits.total:
            return False
        return self.request.counter.count_text(self._previous() or "") > self.plan.summary_tokens

    def assembled(self, summary: str) -> list[Message]:
        """The compacted list around a summary that is already written, not yet checked."""
        return assemble(self._head(), summary, self._after(), self.rules.render())

    @cached_property
    def rules(self) -> StandingRules:
        """The standing rules that neither head nor tail says, as far as their share of the summary's room goes."""
        unsaid = self.known.rules.beside(self._head(), self._after())
        shared = min(int(self.plan.summary_tokens * RULES_SHARE), self.plan.summary_tokens - LEAST_SUMMARY)
        room = shared if self.request.target_tokens is not None else self.known.limits.rules
        return unsaid.fitted(room, self.request.counter.count_text)

    @property
    def summary_budget(self) -> int:
        """What the summary may take besides the rules: its room, and what was kept free for rules in vain."""
        return self.plan.summary_tokens + self.known.limits.rules - self.rules_tokens

    @cached_property
    def rules_tokens(self) -> int:
        """What the block of standing rules takes of the summary's budget."""
        return self.request.counter.count_text(self.rules.render()) if self.rules.render() else 0

    # -- the stages ------------------------------------------------------------------------------------------------

    def _cleared(self) -> _Result:
        """The list with old results cleared and nothing summarized; over the limit, all that can be is shortened."""
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

    def _summarized(self) -> _Result:
        """Head, summary and tail."""
        plan, counter = self.plan, self.request.counter
        with self.known.timed("summarize"):
            request = self._summary_request()
            yardstick = self._yardstick(request)
            written = self._written(request, yardstick)
            kept = [rule.text for rule in self.known.rules.lines]
            written = written._replace(text=without_lifted(written.text, self.known.rules.lifted, kept))
        with self.known.timed("assemble"):
            result = self.assembled(written.text)
        with self.known.timed("verify"):
            if check_all(result, self.known.repaired, self.known.summaries):
                return self._cleared()
            quality = yardstick.measure(
                written.text,
                invented=written.invented,
                problems=written.problems,
                extract_score=written.extract_score,
                is_trusted=written.summarizer == ExtractiveSummarizer.name,
            )
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

    def _written(self, request: SummaryRequest, yardstick: Yardstick) -> Written:
        """The summary: asked for, or made of one that an earlier try already has."""
        writer = self.request.writer
        if self.request.written is not None:
            return writer.rewrite(self.request.written, request, yardstick)
        return writer.write(request, yardstick, ignore_cooldown=self.request.force)

    def _yardstick(self, request: SummaryRequest) -> Yardstick:
        """Measures any summary of the covered turns, together with what will stand around it."""
        more = (self._previous(), self.request.memory_context, self.request.focus_topic)
        latest = self.known.layout.latest_user
        last = None if latest is None else self.known.repaired[latest]
        return Yardstick(
            self.turns,
            self.assembled(""),
            self.known.repaired,
            more,
            last,
            request.newest_words,
            frontier=request.frontier,
            rules=[rule.text for rule in self.known.rules.lines],
        )

    def _head(self) -> list[Message]:
        """The system prompt, and the first exchange where there is room for it."""
        kept = self.plan.head_end > self.known.layout.system_end
        return [*self.known.repaired[: self.known.layout.system_end], *(self.known.exchange.messages if kept else [])]

    @cached_property
    def tail(self) -> Pruned:
        """The newest messages as they will stand at the end; results shortened only where they must be."""
        start = self.plan.tail_start
        messages, counts = self.known.repaired[start:], self.known.counts[start:]
        tail, counter = Pruned(messages, counts, 0), self.request.counter
        if self.plan.tail_room is None:
            return tail
        return shorten_results(tail, self.plan.tail_room, counter.count, counter.count_text)

    def _summary_request(self) -> SummaryRequest:
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
            trace=NO_TRACE if self.request.recorder is None else self.request.recorder.trace,
        )

    def _opening(self) -> Message | None:
        """The first message in which a person says something: not a command to the client, nothing like a summary."""
        first, own = self.known.repaired[:_OPENING_REACH], self.known.layout.summaries
        asked = [m for index, m in enumerate(first) if m["role"] == "user" and index not in own and not is_summary(m)]
        typed = [(message, words) for message in asked if (words := typed_words(message))]
        telling = (message for message, words in typed if len(words) >= _TELLING and not words.startswith("/"))
        return next(telling, typed[0][0] if typed else None)

    def _newest_request(self) -> Message | None:
        """The newest message in which a person asked for something; a client's reminder after it is none."""
        summaries = self.known.layout.summaries
        index = newest_request(self.known.repaired, summaries)
        if index is None:
            return None
        named = inherited_newest(self._previous()) if summaries and index < summaries[-1] else ""
        begun = named.removesuffix(" ...")
        if named and not one_line(typed_words(self.known.repaired[index])).startswith(begun):
            return None  # what the earlier summary names is newer than the head
        return self.known.repaired[index]

    def _previous(self) -> str | None:
        """The text of the summaries that earlier compactions left in the conversation."""
        bodies = [summary_body(self.known.repaired[index]) for index in self.known.layout.summaries]
        return "\n\n".join(bodies) if bodies else None

    def _after(self) -> list[Message]:
        """What follows the summary: the latest request, where it is older than the tail, and the tail."""
        latest = self.known.layout.latest_user
        repeated = [self.known.repaired[latest]] if latest is not None and self.plan.repeat_latest else []
        return [*repeated, *self.tail.messages]

    def _finish(self, result: _Result, current_tokens: int | None) -> tuple[list[Message], CompactionReport]:
        request, plan = self.request, self.plan
        if request.recorder is not None:
            request.recorder.ended = self._ended(result)
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

    def _ended(self, result: _Result) -> Ended:
        """What an explanation needs to know."""
        known = self.known
        return Ended(
            repaired=known.repaired,
            counts=known.counts,
            messages=result.pruned.messages,
            layout=known.layout,
            limits=known.limits,
            plan=self.plan,
            outcome=result.outcome,
            written=result.written,
            prune_min_chars=self.request.settings.prune_min_chars,
        )
