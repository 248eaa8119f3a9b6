"""How many tokens each part of a compacted conversation may take, computed from settings and the window.

All arithmetic of thresholds and budgets is here, so that there is one place to hold against the contract. Nothing here
looks at a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from everlong.config import CompressionValues
from everlong.context.literals import is_summary
from everlong.errors import ConfigError
from everlong.model import Message, is_system, text_of
from everlong.tokens import Prices, ThresholdSums, Workload, threshold_sums

__all__ = [
    "AutomaticThreshold",
    "Habits",
    "HeldBack",
    "LeftAlone",
    "Pace",
    "Reason",
    "ThresholdGrounds",
    "Waiting",
    "pace_of",
    "room_in",
]


@dataclass(frozen=True, slots=True)
class AutomaticThreshold:
    """What was measured for an automatic threshold, and the sum that it led to."""

    work: Workload
    prices: Prices
    sums: ThresholdSums
    calls: int
    """So many calls were measured."""
    tool_share: float | None = None
    """The share of what was said that tools have put out, where that was looked at."""
    summaries: int = 0
    """By so many summaries it is known how much one takes."""
    summary_cap: int = 0

    def explain(self) -> list[str]:
        """The arithmetic, a step per line."""
        work, prices, sums = self.work, self.prices, self.sums
        lines = [
            f"measured over {self.calls} calls: {work.prefix:,} tokens that always stand there, "
            f"{work.growth:,.0f} more per call, {100 * prices.cold_share:.1f} % of calls after a pause",
            f"a token costs {prices.cache_read:g} to read, {prices.cache_write:g} to write and {prices.output:g} as "
            f"output (a fresh one is 1), so {sums.read:.3f} in each prompt; a summary takes {work.summary:,}",
            f"cheapest at ({sums.base:,.0f} + {sums.root:,.0f}) / (1 − {sums.tail_share:g}), at most {sums.ceiling:,}: "
            f"{sums.best:,}, where a call costs {sums.best_cost:,.0f}",
        ]
        if sums.usual is not None and sums.usual_cost is not None:
            kept = "hardly more, so it stays" if sums.threshold == sums.usual else "more"
            lines.append(f"at the usual {sums.usual:,} it costs {sums.usual_cost:,.0f}: {kept}")
        if self.tool_share is not None:
            mix = f"{100 * self.tool_share:.0f} % of what was said is tool output, the rest is talk"
            why = f"as the last {self.summaries} did" if self.summaries else "because tool output is told in a digest"
            lines.insert(1, f"{mix}; a summary takes {work.summary:,} of at most {self.summary_cap:,} tokens, {why}")
        return lines


@dataclass(frozen=True, slots=True)
class ThresholdGrounds:
    """Where a threshold comes from."""

    threshold_tokens: int
    context_length: int
    share: float
    """The share of the window that is set, or that is usual."""
    share_tokens: int
    is_set: bool = False
    """Whether the user set the share; then it is obeyed as it is."""
    floor_tokens: int | None = None
    """What the usual share is lifted to; None where there is no floor."""
    is_auto: bool = False
    automatic: AutomaticThreshold | None = None
    """None where the threshold is not automatic, or nothing was measured yet."""

    def explain(self) -> list[str]:
        """The threshold with its arithmetic, a step per line."""
        share = f"{100 * self.share:g} % of {self.context_length:,}"
        if self.automatic is not None:
            return [
                f"threshold {self.threshold_tokens:,} tokens (compression.threshold: auto)",
                *self.automatic.explain(),
            ]
        told = f"threshold {self.threshold_tokens:,} tokens: "
        if self.is_set:
            return [f"{told}{share} (compression.threshold)"]
        wait = "auto has measured nothing yet; until then " if self.is_auto else ""
        if self.floor_tokens is not None and self.floor_tokens > self.share_tokens:
            floor = "compression.minimum_context_length, at most 75 % of the window"
            return [f"{told}{wait}{share} is {self.share_tokens:,}, lifted to the floor ({floor})"]
        return [f"{told}{wait}{share} (the usual share)"]


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A compaction that was due and was not made."""

    tokens: int
    """What the request had."""
    threshold_tokens: int
    saved: tuple[float, ...] = ()
    """The shares that the compactions before had saved, each too little to go on like that."""
    tokens_then: int = 0
    """What was left after the last of them."""
    tail_tokens: int = 0
    """By so much the conversation must have grown for the next one."""
    step: int = 0
    """The same where the last compaction is only too recent."""
    cost: float = 0.0
    """What it would cost, in fresh input tokens, where waiting is cheaper; and what waiting has cost so far."""
    paid: float = 0.0
    room: int = 0
    """The tokens at which it is made whatever it costs."""

    @property
    def next_at(self) -> int:
        """The tokens at which it is made after all."""
        return self.tokens_then + (self.step or self.tail_tokens)

    def explain(self) -> str:
        """Why it was held back, with the arithmetic."""
        due = f"held back at {self.tokens:,} tokens (threshold {self.threshold_tokens:,}): "
        if self.step:
            return f"{due}the last compaction left {self.tokens_then:,}; the next is at {self.next_at:,} or later"
        if self.cost:
            return (
                f"{due}it would cost as much as {self.cost:,.0f} fresh tokens, and waiting has cost {self.paid:,.0f}; "
                f"it is made when that is clearly more, or at {self.room:,}"
            )
        if not self.saved:
            return f"{due}there was nothing to compact, all of it is recent or protected"
        saved = " and ".join(f"{100 * share:.1f} %" for share in self.saved)
        return (
            f"{due}the last {len(self.saved)} compactions saved {saved}, less than 10 %; "
            f"the next is at {self.tokens_then:,} + {self.tail_tokens:,} = {self.next_at:,}"
        )


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A summarizer that failed and is not asked for a while."""

    name: str
    reason: str
    seconds_left: float
    cooldown_seconds: float

    def explain(self) -> str:
        """Who is not asked, why, and for how long."""
        return (
            f"held back: {self.name} is asked for no summary for another {self.seconds_left:.0f} of "
            f"{self.cooldown_seconds:g} seconds, because it failed: {self.reason}"
        )


ROOM_SHARE = 0.85
"""At this share of the window a conversation is compacted whatever it costs."""
MARGIN = 0.02
LEAST_ROOM = 0.125
"""An answer may ask for the whole window; the prompt keeps this share of it all the same."""
NEED_SHARE = 0.6
"""What a compaction leaves takes no more than this share of the threshold, and of the room."""
NEAR = 0.7
"""From this share of the threshold on, a compaction makes room for a while; a shorter conversation keeps more."""
USUAL_SUMMARY = 3_000
"""What a summary takes as a rule; its cap is a limit that few reach."""
PATIENCE = 1.4
"""A compaction costs words besides money, so waiting may cost this much more than it; near the best that is little."""
APART = 0.5
"""For the same reason a conversation whose prices are known grows by this share of the window between two of them."""
STEP_OF_WINDOW = 0.15
STEP_OF_THRESHOLD = 0.3

Reason = Literal["recent", "cheaper"]
"""Why a compaction waits: the last one is too recent, or so far it would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The figures for one conversation in one window."""

    room: int
    need: int
    threshold: int
    step: int
    apart: int
    """By how much it grows where waiting is known to cost little."""
    tail: int
    """The tail's budget, which shrinks where a compaction would otherwise leave too much."""
    summary: int
    """The most that a summary takes."""
    is_set: bool = False
    """Whether the user set the threshold, which is then obeyed as it stands."""
    is_priced: bool = False
    """Whether prices were reckoned with when the threshold was chosen."""

    def explain(self, usual: int) -> list[str]:
        """Say why the threshold is another one than usual; nothing where it is the usual one."""
        if self.threshold == usual:
            return []
        why = f"after a compaction {self.need:,} tokens stand there, and the room is {self.room:,}"
        return [f"for this conversation {self.threshold:,} instead of {usual:,}: {why}"]

    @property
    def usual_summary(self) -> int:
        """The tokens that a summary takes as a rule."""
        return min(self.summary, USUAL_SUMMARY)

    @property
    def usual_need(self) -> int:
        """The tokens that a compaction leaves as a rule."""
        return self.need - self.summary + self.usual_summary

    def compaction_cost(self, tokens: int, prices: Prices, *, asks_model: bool) -> float:
        """Return what compacting so many tokens costs, in fresh input tokens."""
        rewritten = (prices.cache_write - prices.cache_read) * (self.usual_summary + self.tail)
        asked = prices.cache_read * tokens + prices.output * self.usual_summary if asks_model else 0.0
        return rewritten + asked


def room_in(window: int, answer_tokens: int = 0) -> int:
    """Return what a prompt may have at most, beside an answer of so many tokens."""
    room = min(int(ROOM_SHARE * window), int((1 - MARGIN) * window) - answer_tokens)
    return max(room, int(LEAST_ROOM * window), 1)


def pace_of(
    budgets: Budgets, *, fixed: int = 0, head: int = 0, answer_tokens: int = 0, dearer_above: int | None = None
) -> Pace:
    """Return the figures for a window.

    Args:
        budgets: what the settings make of the window.
        fixed: tokens that every request carries and no compaction touches.
        head: tokens of the first exchange.
        answer_tokens: the most that an answer may take.
        dearer_above: a prompt of more tokens than this is charged at a higher rate.
    """
    window, threshold = budgets.context_length, budgets.threshold_tokens
    room = room_in(window, answer_tokens)
    base = fixed + head + budgets.summary_cap
    tail = max(0, min(budgets.tail_tokens, int(NEED_SHARE * room) - base))
    need = base + tail
    if dearer_above is not None and need < NEED_SHARE * dearer_above:
        room = min(room, dearer_above)
    is_set = budgets.grounds.is_set
    if not is_set:
        threshold = min(room, max(threshold, int(need / NEED_SHARE)))
    step = min(int(STEP_OF_WINDOW * window), int(STEP_OF_THRESHOLD * threshold))
    is_priced = budgets.grounds.automatic is not None
    return Pace(room, need, threshold, step, int(APART * window), tail, budgets.summary_cap, is_set, is_priced)


@dataclass(slots=True)
class Waiting:
    """What has happened in one conversation since its last compaction.

    Every request pays for tokens that a compaction would have taken away. Once they have cost somewhat more than the
    compaction itself, it is made: so, however the conversation goes on, waiting never costs much more than twice what
    would have been best, and in one that grows evenly it is nearly the best.
    """

    left: int | None = None
    """What the last compaction left; None where there was none."""
    paid: float = 0.0
    """What the tokens above `Pace.usual_need` have cost since the last compaction, in fresh input tokens."""

    def sent(self, tokens: int, pace: Pace, prices: Prices) -> None:
        """Note a request that was sent with so many tokens."""
        self.paid += prices.cache_read * max(0, tokens - pace.usual_need)

    def compacted(self, tokens: int) -> None:
        """Note a compaction that left so many tokens."""
        self.left, self.paid = tokens, 0.0

    def reason(
        self,
        tokens: int,
        pace: Pace,
        prices: Prices,
        *,
        asks_model: bool = False,
        is_cold: bool = False,
        ahead: int = 0,
    ) -> Reason | None:
        """Return why a compaction that is considered waits; None where it is to be made now.

        Args:
            tokens: what the next request has.
            pace: the figures of the conversation.
            prices: what tokens cost; only known ones can make it wait.
            asks_model: whether a model writes the summary.
            is_cold: whether the provider has let go of the prompt, so that it is written anew in any case.
            ahead: so many tokens before the room it does not wait, because it takes a while itself.
        """
        if tokens >= pace.room - ahead:
            return None
        if pace.is_set:  # obeyed, unless the last compaction could not get below it
            is_stuck = self.left is not None and self.left >= pace.threshold
            return "recent" if is_stuck and tokens < (self.left or 0) + pace.step else None
        if self.left is not None and tokens < self.left + pace.step:
            return "recent"
        if pace.is_priced or is_cold or not prices.are_known:
            return None
        is_soon = self.left is not None and tokens < self.left + pace.apart
        cost = pace.compaction_cost(tokens, prices, asks_model=asks_model)
        return "cheaper" if is_soon or self.paid < PATIENCE * cost else None


_REMEMBERED = 128
"""Calls whose growth is averaged: wide steps are rare and large, so few calls tell little."""
_PRIOR_CALLS = 48
_USUAL_COLD_SHARE = 0.04
_REMEMBERED_SUMMARIES = 4
_DIGESTED = 0.7
"""What a first summary of nothing but tool output is taken to need of its room: calls, outcomes, a few lines of each.
A bolder guess saves more where it is right, and costs a compaction too many where it is not."""
_KEPT_SECONDS = 300.0
"""After a pause of this length a provider's cache is usually gone."""


@dataclass
class Habits:
    """What is known of one conversation so far."""

    first_prompt: int = 0
    """The first prompt's size: system prompt, tools and the first request, which compaction does not touch."""
    growth: list[int] = field(default_factory=list)
    calls: int = 0
    pauses: int = 0
    tool_output: int = 0
    """Characters that tools have put out, and that people and the model have said."""
    talk: int = 0
    summaries: list[int] = field(default_factory=list)
    """The tokens that the summaries so far have taken."""
    _last: float | None = None
    _seen: int = 0

    def note(self, prompt: int, before: int, now: float) -> None:
        """Take in a call: its prompt's tokens, those of the call before, and when it was."""
        self.calls += 1
        self.first_prompt = self.first_prompt or prompt
        if before and prompt > before:
            self.growth = [*self.growth[1 - _REMEMBERED :], prompt - before]
        if self._last is not None:
            self.pauses += now - self._last > _KEPT_SECONDS
        self._last = now

    def look_at(self, messages: Sequence[Message]) -> None:
        """Take in what a request says more than the one before: how much of it tools have put out."""
        self.hear(messages[self._seen :])
        self._seen = len(messages)

    def hear(self, messages: Sequence[Message]) -> None:
        """Take in new messages."""
        for message in messages:
            if message.get("role") == "tool":
                self.tool_output += len(text_of(message))
            elif not is_system(message) and not is_summary(message):
                self.talk += len(text_of(message))

    def summarized(self, tokens: int) -> None:
        """Take in what a summary has taken."""
        self.summaries = [*self.summaries[1 - _REMEMBERED_SUMMARIES :], tokens]

    @property
    def tool_share(self) -> float | None:
        """The share of what was said that tools have put out; None where nothing was looked at."""
        said = self.tool_output + self.talk
        return self.tool_output / said if said else None

    def expected_summary(self, cap: int) -> int:
        """Return what the next summary takes, of at most so many tokens.

        By those before it, where there were any. Before the first one, by what it has to tell of: talk takes the room
        that there is, tool output is told in a digest.
        """
        if self.summaries:
            return min(cap, round(sum(self.summaries) / len(self.summaries)))
        return round(cap * (1 - (1 - _DIGESTED) * (self.tool_share or 0.0)))

    def is_cold(self, now: float) -> bool:
        """Return whether the last call is so long ago that the provider has let go of the prompt."""
        return self._last is not None and now - self._last > _KEPT_SECONDS

    @property
    def mean_growth(self) -> float:
        """The tokens that a call adds on average."""
        return sum(self.growth) / len(self.growth)

    @property
    def cold_share(self) -> float:
        """The share of calls that come after a pause; few calls tell little, so the usual share is weighed in."""
        return (self.pauses + _USUAL_COLD_SHARE * _PRIOR_CALLS) / (max(0, self.calls - 1) + _PRIOR_CALLS)


SUMMARY_SHARE_OF_WINDOW = 0.05
FLOOR_SHARE_OF_WINDOW = 0.75
"""The threshold's floor never lifts it above this share, so that small local models work too."""
REPLY_RESERVE = 10_000
RESERVED_SHARE = 0.15
"""What an automatic threshold leaves for the reply: so many tokens, or of a small window this share."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The computed numbers for one window."""

    context_length: int
    threshold_tokens: int
    tail_tokens: int
    summary_cap: int
    summary_floor: int
    summary_ratio: float
    grounds: ThresholdGrounds
    """Where the threshold comes from."""

    def summary_tokens(self, content_tokens: int) -> int:
        """What a summary of so much content may take."""
        return max(self.summary_floor, min(self.summary_cap, int(content_tokens * self.summary_ratio)))


def compute_budgets(settings: CompressionValues, context_length: int) -> Budgets:
    """The budgets of a window under the given settings."""
    if type(context_length) is not int or context_length < 1:  # a bool is an int, but no number of tokens
        raise ConfigError(
            f"context_length must be a whole number of tokens, at least 1, got {context_length!r}; "
            "give the size of the model's window, for example 200000",
            key="context_length",
        )
    grounds = _grounds(settings, context_length)
    threshold = grounds.threshold_tokens
    cap = max(1, min(int(context_length * SUMMARY_SHARE_OF_WINDOW), settings.summary_max_tokens))
    return Budgets(
        context_length=context_length,
        threshold_tokens=threshold,
        tail_tokens=int(threshold * settings.target_ratio),
        summary_cap=cap,
        summary_floor=min(settings.summary_min_tokens, cap),
        summary_ratio=settings.summary_ratio,
        grounds=grounds,
    )


def threshold_tokens(settings: CompressionValues, context_length: int) -> int:
    """Where compaction starts: the user's share as it is, the default share with a floor for small windows."""
    return _grounds(settings, context_length).threshold_tokens


def _grounds(settings: CompressionValues, context_length: int) -> ThresholdGrounds:
    share = float(CompressionValues().threshold if settings.threshold == "auto" else settings.threshold)
    tokens, is_auto = int(context_length * share), settings.threshold == "auto"
    if settings.threshold_is_explicit and not is_auto:
        return ThresholdGrounds(tokens, context_length, share, tokens, is_set=True)
    floor = min(settings.minimum_context_length, int(context_length * FLOOR_SHARE_OF_WINDOW))
    return ThresholdGrounds(max(tokens, floor), context_length, share, tokens, floor_tokens=floor, is_auto=is_auto)


def adapted_budgets(
    settings: CompressionValues, context_length: int, prefix_tokens: int, habits: Habits, prices: Prices
) -> Budgets:
    """The budgets of a conversation with these habits; those of its window where it has not grown yet."""
    if not habits.growth:
        return compute_budgets(settings, context_length)
    prices = replace(prices, cold_share=max(prices.cold_share, habits.cold_share))
    prefix = max(prefix_tokens, habits.first_prompt)
    return automatic_budgets(settings, context_length, prefix, habits.mean_growth, prices, habits.calls, habits)


def automatic_budgets(
    settings: CompressionValues,
    context_length: int,
    prefix_tokens: int,
    growth_per_call: float,
    prices: Prices,
    calls: int = 0,
    habits: Habits | None = None,
) -> Budgets:
    """The budgets with the threshold at which a conversation that grows like this costs least.

    With ``habits``, a summary is reckoned with as large as it is expected to be, else as large as it may be.
    """
    usual = compute_budgets(settings, context_length)
    summary = usual.summary_cap if habits is None else habits.expected_summary(usual.summary_cap)
    work = Workload(prefix_tokens, summary, 0, growth_per_call, tail_share=settings.target_ratio)
    ceiling = context_length - int(min(REPLY_RESERVE, context_length * RESERVED_SHARE))
    sums = threshold_sums(work, prices, ceiling, usual=usual.threshold_tokens)
    threshold = sums.threshold
    share, told = (None, 0) if habits is None else (habits.tool_share, len(habits.summaries))
    automatic = AutomaticThreshold(work, prices, sums, calls, share, told, usual.summary_cap)
    return replace(
        usual,
        threshold_tokens=threshold,
        tail_tokens=int(threshold * settings.target_ratio),
        grounds=replace(usual.grounds, threshold_tokens=threshold, automatic=automatic),
    )
