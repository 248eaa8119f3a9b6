"""The policy of compaction: how large each part may be, when a compaction is due, and what follows an overflow.

Agent, gateway and adapters all decide by it. It reads from top to bottom: the budgets of a window, the threshold that
a conversation's habits make cheapest, the pace (how far one compaction goes), the reasons to wait, and the cuts after
a provider has refused a request as too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from everlong.config import CompressionValues
from everlong.context.literals import is_summary
from everlong.errors import ConfigError
from everlong.model import Message, is_system, text_of
from everlong.tokens import Prices, ThresholdSums, Workload, threshold_sums

__all__ = [
    "CACHE_SECONDS",
    "HYGIENE_MESSAGES",
    "HYGIENE_SHARE",
    "LEAST_LEFT",
    "MOST_LEFT",
    "NEAR_THRESHOLD",
    "OVERFLOW_MARGIN",
    "OVERFLOW_TRIES",
    "AutomaticThreshold",
    "Budgets",
    "Cooldown",
    "Habits",
    "HeldBack",
    "LeftAlone",
    "Pace",
    "ThresholdGrounds",
    "WaitReason",
    "Waiting",
    "adapt_budgets",
    "automatic_budgets",
    "compute_budgets",
    "compute_pace",
    "overflow_target",
    "room_in",
]

# -- the budgets of a window -------------------------------------------------------------------------------------------

_SUMMARY_SHARE_OF_WINDOW = 0.05
_FLOOR_SHARE_OF_WINDOW = 0.75
"""The threshold's floor never lifts it above this share, so that small local models work too."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The computed numbers for one window."""

    context_length: int
    threshold_tokens: int
    tail_tokens: int
    """The threshold times ``compression.target_ratio``; a `Pace` may lower it."""
    summary_cap: int
    summary_floor: int
    summary_ratio: float
    grounds: ThresholdGrounds
    """The origin of the threshold."""

    def summary_tokens(self, content_tokens: int) -> int:
        """Return the most tokens that a summary of ``content_tokens`` may take."""
        return max(self.summary_floor, min(self.summary_cap, int(content_tokens * self.summary_ratio)))


@dataclass(frozen=True, slots=True)
class ThresholdGrounds:
    """The origin of a threshold: the user's share, the usual share, its floor, or a measurement."""

    threshold_tokens: int
    context_length: int
    share: float
    """The share of the window that the user set, or the usual one."""
    share_tokens: int
    is_set: bool = False
    """True if the user set the share; it is then obeyed without a floor."""
    floor_tokens: int | None = None
    """The tokens that the usual share is lifted to; None if there is no floor."""
    is_auto: bool = False
    automatic: AutomaticThreshold | None = None
    """The measurement behind an automatic threshold; None as long as there is none."""

    def explain(self) -> list[str]:
        """Return the threshold with its arithmetic, a step per line."""
        share = f"{100 * self.share:g} % of {self.context_length:,}"
        if self.automatic is not None:
            return [
                f"threshold {self.threshold_tokens:,} tokens (compression.threshold: auto)",
                *self.automatic.explain(),
            ]
        threshold = f"threshold {self.threshold_tokens:,} tokens: "
        if self.is_set:
            return [f"{threshold}{share} (compression.threshold)"]
        wait = "auto has measured nothing yet; until then " if self.is_auto else ""
        if self.floor_tokens is not None and self.floor_tokens > self.share_tokens:
            floor = "compression.minimum_context_length, at most 75 % of the window"
            return [f"{threshold}{wait}{share} is {self.share_tokens:,}, lifted to the floor ({floor})"]
        return [f"{threshold}{wait}{share} (the usual share)"]


def compute_budgets(settings: CompressionValues, context_length: int) -> Budgets:
    """Return the budgets of a window under the given settings."""
    if type(context_length) is not int or context_length < 1:  # a bool is an int, but no number of tokens
        raise ConfigError(
            f"context_length must be a whole number of tokens, at least 1, got {context_length!r}; "
            "give the size of the model's window, for example 200000",
            key="context_length",
        )
    is_auto = settings.threshold == "auto"
    share = float(CompressionValues().threshold if settings.threshold == "auto" else settings.threshold)
    tokens = int(context_length * share)
    if settings.threshold_is_explicit and not is_auto:
        grounds = ThresholdGrounds(tokens, context_length, share, tokens, is_set=True)
    else:  # the usual share, with a floor for small windows
        floor = min(settings.minimum_context_length, int(context_length * _FLOOR_SHARE_OF_WINDOW))
        lifted = max(tokens, floor)
        grounds = ThresholdGrounds(lifted, context_length, share, tokens, floor_tokens=floor, is_auto=is_auto)
    cap = max(1, min(int(context_length * _SUMMARY_SHARE_OF_WINDOW), settings.summary_max_tokens))
    return Budgets(
        context_length=context_length,
        threshold_tokens=grounds.threshold_tokens,
        tail_tokens=int(grounds.threshold_tokens * settings.target_ratio),
        summary_cap=cap,
        summary_floor=min(settings.summary_min_tokens, cap),
        summary_ratio=settings.summary_ratio,
        grounds=grounds,
    )


# -- the automatic threshold: the cheapest one for a conversation's habits ---------------------------------------------

_REPLY_RESERVE = 10_000
_RESERVED_SHARE = 0.15
"""An automatic threshold leaves this many tokens for the reply, or this share of a small window."""
_MOST_GROWTHS = 128
"""Calls whose growth is averaged. Large steps are rare, so a few calls say little."""
_MOST_SUMMARIES = 4
_PRIOR_CALLS = 48
_USUAL_COLD_SHARE = 0.04
"""The share of calls after a pause, assumed for this many calls before the first one."""
_DIGESTED_SHARE = 0.7
"""The share of its budget that a first summary of tool output alone is expected to take.
A lower guess saves more if it is right, and costs one compaction too many if it is wrong."""
CACHE_SECONDS = 300.0
"""After a pause of this length the provider's cache of the prompt is usually gone."""


@dataclass
class Habits:
    """The measured behaviour of one conversation: how fast it grows, how often it pauses, how much tools put out."""

    first_prompt: int = 0
    """The size of the first prompt: system prompt, tools and the first request, which compaction leaves alone."""
    growth: list[int] = field(default_factory=list)
    calls: int = 0
    pauses: int = 0
    tool_output: int = 0
    """Characters that tools put out."""
    talk: int = 0
    """Characters that people and the model wrote."""
    summaries: list[int] = field(default_factory=list)
    """The tokens of the last summaries."""
    _last_call: float | None = None
    _messages_heard: int = 0

    def note(self, prompt: int, before: int, now: float) -> None:
        """Take in a call: its prompt's tokens, those of the call before, and the time."""
        self.calls += 1
        self.first_prompt = self.first_prompt or prompt
        if before and prompt > before:
            self.growth = [*self.growth[1 - _MOST_GROWTHS :], prompt - before]
        self.pauses += self.is_cold(now)
        self._last_call = now

    def look_at(self, messages: Sequence[Message]) -> None:
        """Take in the messages that a request has more than the one before."""
        self.hear(messages[self._messages_heard :])
        self._messages_heard = len(messages)

    def hear(self, messages: Sequence[Message]) -> None:
        """Take in new messages."""
        for message in messages:
            if message.get("role") == "tool":
                self.tool_output += len(text_of(message))
            elif not is_system(message) and not is_summary(message):
                self.talk += len(text_of(message))

    def summarized(self, tokens: int) -> None:
        """Take in the size of a summary."""
        self.summaries = [*self.summaries[1 - _MOST_SUMMARIES :], tokens]

    def is_cold(self, now: float) -> bool:
        """Return whether the last call is so long ago that the provider's cache of the prompt is gone."""
        return self._last_call is not None and now - self._last_call > CACHE_SECONDS

    @property
    def mean_growth(self) -> float:
        """The tokens that a call adds on average."""
        return sum(self.growth) / len(self.growth)

    @property
    def cold_share(self) -> float:
        """The share of calls that come after a pause, weighed with the usual share while calls are few."""
        return (self.pauses + _USUAL_COLD_SHARE * _PRIOR_CALLS) / (max(0, self.calls - 1) + _PRIOR_CALLS)

    @property
    def tool_share(self) -> float | None:
        """The share of all text that tools put out; None before any text."""
        total = self.tool_output + self.talk
        return self.tool_output / total if total else None

    def expected_summary(self, cap: int) -> int:
        """Return the tokens that the next summary will take, at most ``cap``.

        The mean of the last summaries, if there are any. The first one is guessed: talk fills its budget, tool output
        shrinks to a digest.
        """
        if self.summaries:
            return min(cap, round(sum(self.summaries) / len(self.summaries)))
        return round(cap * (1 - (1 - _DIGESTED_SHARE) * (self.tool_share or 0.0)))


@dataclass(frozen=True, slots=True)
class AutomaticThreshold:
    """The measurements behind an automatic threshold, and the sums made of them."""

    work: Workload
    prices: Prices
    sums: ThresholdSums
    calls: int
    """The number of calls that were measured."""
    tool_share: float | None = None
    summaries: int = 0
    """The number of summaries that the expected size comes from."""
    summary_cap: int = 0

    def explain(self) -> list[str]:
        """Return the arithmetic, a step per line."""
        work, prices, sums = self.work, self.prices, self.sums
        lines = [
            f"measured over {self.calls} calls: {work.prefix:,} tokens in every prompt, "
            f"{work.growth:,.0f} more per call, {100 * prices.cold_share:.1f} % of calls after a pause",
            f"compared with a fresh token, one costs {prices.cache_read:g} to read from the cache, "
            f"{prices.cache_write:g} to write and {prices.output:g} as output, so {sums.read:.3f} in each prompt; "
            f"a summary takes {work.summary:,}",
            f"cheapest at ({sums.base:,.0f} + {sums.root:,.0f}) / (1 − {sums.tail_share:g}), at most {sums.ceiling:,}: "
            f"{sums.best:,}, where a call costs {sums.best_cost:,.0f}",
        ]
        if sums.usual is not None and sums.usual_cost is not None:
            kept = "hardly more, so it stays" if sums.threshold == sums.usual else "more"
            lines.append(f"at the usual {sums.usual:,} it costs {sums.usual_cost:,.0f}: {kept}")
        if self.tool_share is not None:
            mix = f"{100 * self.tool_share:.0f} % of the text is tool output, the rest is talk"
            why = f"as the last {self.summaries} did" if self.summaries else "because tool output shrinks to a digest"
            lines.insert(1, f"{mix}; a summary takes {work.summary:,} of at most {self.summary_cap:,} tokens, {why}")
        return lines


def adapt_budgets(
    settings: CompressionValues, context_length: int, prefix_tokens: int, habits: Habits, prices: Prices
) -> Budgets:
    """Return the budgets of a conversation with these habits; those of its window before it has grown."""
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
    """Return the budgets with the threshold at which a conversation of this growth costs least.

    With ``habits``, the sums assume the expected size of a summary, else the largest.
    """
    usual = compute_budgets(settings, context_length)
    summary = usual.summary_cap if habits is None else habits.expected_summary(usual.summary_cap)
    work = Workload(prefix_tokens, summary, growth_per_call, tail_share=settings.target_ratio)
    ceiling = context_length - int(min(_REPLY_RESERVE, context_length * _RESERVED_SHARE))
    sums = threshold_sums(work, prices, ceiling, usual=usual.threshold_tokens)
    threshold = sums.threshold
    tool_share, summaries = (None, 0) if habits is None else (habits.tool_share, len(habits.summaries))
    automatic = AutomaticThreshold(work, prices, sums, calls, tool_share, summaries, usual.summary_cap)
    return replace(
        usual,
        threshold_tokens=threshold,
        tail_tokens=int(threshold * settings.target_ratio),
        grounds=replace(usual.grounds, threshold_tokens=threshold, automatic=automatic),
    )


# -- the pace: how far one compaction goes, and how much later the next one comes --------------------------------------

_ROOM_SHARE = 0.85
"""At this share of the window a conversation is compacted whatever it costs."""
_WINDOW_MARGIN = 0.02
_LEAST_ROOM_SHARE = 0.125
"""The share of the window that a prompt keeps even if the answer asks for the whole window."""
LEAST_LEFT, MOST_LEFT = 0.47, 0.6
"""A compaction at the threshold leaves between these shares of it; 0.45 by any counter, so a little more by ours."""
NEAR_THRESHOLD = 0.7
"""From this share of the threshold on, a compaction makes room for a while; a shorter conversation keeps more."""
_USUAL_SUMMARY = 3_000
"""The usual size of a summary; few reach their cap."""
_STEP_OF_WINDOW = 0.15
_STEP_OF_THRESHOLD = 0.3
_PATIENCE = 1.4
"""Waiting may cost this many times as much as a compaction, because a compaction also loses words."""
HYGIENE_SHARE = _ROOM_SHARE
HYGIENE_MESSAGES = 4
"""The share of the window, and the messages, from which on a conversation is compacted before it is resumed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The figures for one conversation in one window."""

    room: int
    """The most tokens that a prompt may have."""
    need: int
    """The tokens that a compaction leaves at most."""
    threshold: int
    step: int
    """The tokens by which the conversation grows before the next compaction."""
    tail: int
    """The tail's budget, smaller than usual if a compaction would otherwise leave too much."""
    usual_summary: int
    """The tokens that a summary usually takes."""
    usual_need: int
    """The tokens that a compaction usually leaves."""
    is_set: bool = False
    """True if the user set the threshold; it is then obeyed as it stands."""
    is_priced: bool = False
    """True if prices went into the choice of the threshold."""
    is_dearer_above: bool = False
    """True if the room ends where the provider begins to charge a higher rate."""

    def explain(self, usual: int) -> list[str]:
        """Return a line on why the threshold is not the usual one; none if it is."""
        if self.threshold == usual:
            return []
        why = f"a compaction leaves up to {self.need:,} tokens"
        if self.threshold < usual:
            why = "longer prompts are dearer" if self.is_dearer_above else "the answer needs the rest"
        return [f"for this conversation {self.threshold:,} instead of {usual:,}: {why}"]

    def compaction_cost(self, tokens: int, prices: Prices, *, asks_model: bool) -> float:
        """Return the cost of compacting a prompt of ``tokens``, in fresh input tokens."""
        rewritten = (prices.cache_write - prices.cache_read) * (self.usual_summary + self.tail)
        asked = prices.cache_read * tokens + prices.output * self.usual_summary if asks_model else 0.0
        return rewritten + asked


def room_in(window: int, answer_tokens: int = 0) -> int:
    """Return the most tokens that a prompt may have beside an answer of ``answer_tokens``."""
    room = min(int(_ROOM_SHARE * window), int((1 - _WINDOW_MARGIN) * window) - answer_tokens)
    return max(room, int(_LEAST_ROOM_SHARE * window), 1)


def compute_pace(
    budgets: Budgets, *, fixed: int = 0, head: int = 0, answer_tokens: int = 0, dearer_above: int | None = None
) -> Pace:
    """Return the pace of a conversation.

    Args:
        budgets: the budgets of its window.
        fixed: tokens that every request carries and no compaction touches.
        head: tokens of the first exchange.
        answer_tokens: the most that an answer may take.
        dearer_above: the size from which on the provider charges a higher rate for a prompt.
    """
    window, threshold = budgets.context_length, budgets.threshold_tokens
    room = room_in(window, answer_tokens)
    base = fixed + head + budgets.summary_cap
    tail = max(0, min(budgets.tail_tokens, int(MOST_LEFT * room) - base))
    need = base + tail
    is_dearer_above = dearer_above is not None and need < MOST_LEFT * dearer_above and dearer_above < room
    if dearer_above is not None and is_dearer_above:
        room = dearer_above
    is_set = budgets.grounds.is_set
    if not is_set:
        threshold = min(room, max(threshold, int(need / MOST_LEFT)))
    step = min(int(_STEP_OF_WINDOW * window), int(_STEP_OF_THRESHOLD * threshold))
    is_priced = budgets.grounds.automatic is not None
    usual = min(budgets.summary_cap, _USUAL_SUMMARY)
    left = need - budgets.summary_cap + usual
    return Pace(room, need, threshold, step, tail, usual, left, is_set, is_priced, is_dearer_above)


# -- waiting: why a compaction that is due is not made yet -------------------------------------------------------------

_LEAST_SAVED = 0.10
"""A compaction that saves a smaller share did not help."""
_UNHELPFUL_IN_A_ROW = 2
"""The number of unhelpful compactions after which the next one waits until the conversation has grown by a tail."""

WaitReason = Literal["recent", "cheaper"]
"""Why a compaction waits: the last one is too recent, or it would still cost more than it saves."""


@dataclass(slots=True)
class Waiting:
    """The state of one conversation since its last compaction.

    Every request pays for tokens that a compaction would have removed. Once they have cost somewhat more than the
    compaction itself, it is made. So waiting never costs much more than twice the best that was possible, and in a
    conversation that grows evenly it is nearly the best.
    """

    left: int | None = None
    """The tokens that the last compaction left; None before the first one."""
    paid: float = 0.0
    """The cost of all tokens above `Pace.usual_need` since the last compaction, in fresh input tokens."""
    unhelpful: tuple[float, ...] = ()
    """The shares that the last compactions saved, as far as each saved too little."""
    stuck_at: int = 0
    """The tokens that the last unhelpful compaction left."""

    def sent(self, tokens: int, pace: Pace, prices: Prices, requests: float = 1) -> None:
        """Take in a request of ``tokens`` that was sent, or several of that size."""
        self.paid += requests * prices.cache_read * max(0, tokens - pace.usual_need)

    def compacted(self, tokens: int, saved_share: float = 1.0) -> None:
        """Take in a compaction that left ``tokens`` and saved a share of them."""
        self.left, self.paid = tokens, 0.0
        if saved_share >= _LEAST_SAVED:
            self.unhelpful = ()
        else:
            self.unhelpful, self.stuck_at = (*self.unhelpful, saved_share)[-_UNHELPFUL_IN_A_ROW:], tokens

    def reason(
        self,
        tokens: int,
        pace: Pace,
        prices: Prices,
        *,
        asks_model: bool = False,
        is_cold: bool = False,
        ahead: int = 0,
    ) -> WaitReason | None:
        """Return why a compaction waits; None if it is to be made now.

        Args:
            tokens: the size of the next request.
            pace: the figures of the conversation.
            prices: the prices of tokens; only known ones can make it wait.
            asks_model: whether a model writes the summary.
            is_cold: whether the provider's cache of the prompt is gone, so that it is written anew in any case.
            ahead: tokens before the room from which on it no longer waits, because it takes a while itself.
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
        cost = pace.compaction_cost(tokens, prices, asks_model=asks_model)
        return "cheaper" if self.paid < _PATIENCE * cost else None

    def hold_back(
        self, due: HeldBack, pace: Pace, prices: Prices, *, asks_model: bool, is_cold: bool
    ) -> HeldBack | None:
        """Return a compaction that is due with the figures of why it waits; None if it is to be made now."""
        if len(self.unhelpful) >= _UNHELPFUL_IN_A_ROW:
            held = replace(due, saved=self.unhelpful)
            return held if due.tokens < held.next_at else None
        reason = self.reason(due.tokens, pace, prices, asks_model=asks_model, is_cold=is_cold)
        if reason == "recent":
            return replace(due, tokens_then=self.left or 0, step=pace.step)
        if reason == "cheaper":
            cost = pace.compaction_cost(due.tokens, prices, asks_model=asks_model)
            return replace(due, cost=cost, paid=self.paid, room=pace.room)
        return None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A compaction that was due and was not made."""

    tokens: int
    """The size of the request."""
    threshold_tokens: int
    tokens_then: int = 0
    """The tokens that the last compaction, or the last unhelpful one, left."""
    tail_tokens: int = 0
    """The growth after which the next compaction is made, if the last ones did not help."""
    saved: tuple[float, ...] = ()
    """The shares that the last compactions saved, each too little."""
    step: int = 0
    """The growth after which the next compaction is made, if the last one is only too recent."""
    cost: float = 0.0
    """The cost of the compaction in fresh input tokens, if waiting is cheaper."""
    paid: float = 0.0
    """The cost of waiting so far."""
    room: int = 0
    """The size at which it is made whatever it costs."""

    @property
    def next_at(self) -> int:
        """The size at which it is made after all."""
        return self.tokens_then + (self.step or self.tail_tokens)

    def explain(self) -> str:
        """Return the reason with its arithmetic."""
        due = f"held back at {self.tokens:,} tokens (threshold {self.threshold_tokens:,}): "
        if self.step:
            return f"{due}the last compaction left {self.tokens_then:,}; the next is at {self.next_at:,} or later"
        if self.cost:
            return (
                f"{due}it would cost as much as {self.cost:,.0f} fresh tokens, and waiting has cost {self.paid:,.0f}; "
                f"it is made once waiting has clearly cost more, or at {self.room:,}"
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
        """Return the summarizer's name, why it is not asked, and for how long."""
        return (
            f"held back: {self.name} is asked for no summary for another {self.seconds_left:.0f} of "
            f"{self.cooldown_seconds:g} seconds, because it failed: {self.reason}"
        )


@dataclass
class Cooldown:
    """The rest of a summarizer that has failed."""

    seconds: float
    clock: Callable[[], float]
    failure: str = ""
    """The reason of the last failure."""
    _until: float | None = None

    @property
    def is_on(self) -> bool:
        """True if the summarizer is not asked now."""
        return self._until is not None and self.clock() < self._until

    def start(self, failure: str) -> None:
        """Begin a rest after a failure."""
        self._until, self.failure = self.clock() + self.seconds, failure

    def end(self) -> None:
        """Forget the failure."""
        self._until = None

    def left_alone(self, name: str) -> list[LeftAlone]:
        """Return the summarizer of this name with the rest that is left; nothing while it may be asked."""
        left = 0.0 if self._until is None else self._until - self.clock()
        return [LeftAlone(name, self.failure, left, self.seconds)] if left > 0 else []


# -- after an overflow: the provider refused a request as too long -----------------------------------------------------

OVERFLOW_TRIES = 3
"""The number of times that a refused request is made shorter and sent again."""
OVERFLOW_MARGIN = 0.9
"""The share of a refused request, or of the window that a refusal names, that the next try stays below."""
_OVERFLOW_SHARES = (0.7, 0.45, 0.25)
"""The share that each cut leaves of a refused request."""


def overflow_target(
    tokens: int,
    cut: int,
    *,
    fixed: int = 0,
    limit: int | None = None,
    reported: int | None = None,
    answer_tokens: int = 0,
) -> int:
    """Return the tokens to cut a refused request to, if compacting it as usual did not help.

    Args:
        tokens: the size of the request by our own count, which may differ from the provider's.
        cut: the number of cuts before this one; each goes further.
        fixed: tokens of the request that cannot be cut, such as tools; the target is for the others.
        limit: the window, if the refusal named it.
        reported: the size of the request, if the refusal named it.
        answer_tokens: the room that the answer needs.
    """
    target = (tokens - fixed) * _OVERFLOW_SHARES[min(cut, len(_OVERFLOW_SHARES) - 1)]
    if limit and reported:
        room = max(1, limit - answer_tokens)
        target = min(target, OVERFLOW_MARGIN * room * tokens / reported - fixed)
    return max(1, int(target))
