"""The default engine: prune, find boundaries, summarize, assemble, verify.

Wires the stages together and keeps what must be remembered between them: reported usage, how well earlier compactions
helped, the last report. Synchronous and without network; a summarizer that uses a model is handed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from everlong.config import compression_values
from everlong.context.compaction import CompactionRequest, CompactionRun, summary_message
from everlong.context.engine import ContextEngine
from everlong.context.explanation import Explanation
from everlong.context.literals import ACKNOWLEDGEMENT, COMPACTION_NOTE, digest_of, is_summary
from everlong.context.policy import (
    NEAR,
    Budgets,
    Habits,
    HeldBack,
    LeftAlone,
    Pace,
    Waiting,
    adapted_budgets,
    compute_budgets,
    pace_of,
)
from everlong.context.report import CompactionReport
from everlong.context.summarize import Summarizer, SummaryWriter, Written
from everlong.context.summary.extractive import ExtractiveSummarizer
from everlong.model import Message, checked_messages, leading_system_count
from everlong.tokens import REPLY_PRIMING, Calibration, MessageCounter, Prices, counter_for

if TYPE_CHECKING:
    from everlong.config import CompressionSettings  # checks what users write; loaded only by those who use it

DEFAULT_CONTEXT_LENGTH = 200_000
_WORTHWHILE = 0.10
"""A compaction that saves less than this share did not help."""
_PATIENCE = 2
"""So many unhelpful compactions in a row, and the next waits until the conversation has grown."""

_MOST_HELD_BACK = 5
"""So many compactions that were not made an engine remembers."""
_MOST_EMITTED = 1_000
"""So many summaries of its own an engine knows again by their digest."""


class ContextCompressor(ContextEngine):
    """Keeps a conversation inside a window by summarizing its middle.

    Without a ``summarizer`` it summarizes by itself, from the conversation's own words. ``settings`` are those of the
    ``compression`` section of the configuration, as a mapping or as `CompressionSettings`; ``model`` chooses how
    tokens are counted.
    """

    _budgets: Budgets

    def __init__(
        self,
        context_length: int = DEFAULT_CONTEXT_LENGTH,
        *,
        settings: CompressionSettings | Mapping[str, Any] | None = None,
        summarizer: Summarizer | None = None,
        model: str | None = None,
        overhead_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = compression_values(settings)
        self.overhead_tokens = overhead_tokens
        """Tokens that every request carries besides its messages, such as the schemas of tools."""
        self.answer_tokens = 0
        """The most tokens that an answer may take; whoever sends requests sets it."""
        self.prices = Prices()
        """What tokens cost: a compaction that costs more than it saves waits. Whoever knows the provider sets it."""
        self.last_report: CompactionReport | None = None
        self.protect_first_n = self.settings.protect_first_n
        self.protect_last_n = self.settings.protect_last_n
        self._writer = SummaryWriter(summarizer, ExtractiveSummarizer(), self.settings.failure_cooldown_seconds, clock)
        self._model = model or ""
        self._counter = MessageCounter(counter_for(model))
        self._calibration = Calibration(self._counter)
        self._sent: list[Message] | None = None
        self._clock = clock
        self.habits = Habits()
        """How the conversation behaves, by which an automatic threshold is chosen; a host may hand in what it knows."""
        self.held_back: list[HeldBack] = []
        """The last compactions that were due and not made, oldest first."""
        self._unhelpful: list[float] = []
        self._tokens_when_unhelpful = 0
        self._emitted: list[str] = []
        self._waiting = Waiting()
        self._always = (0, 0)
        self._prepared: Written | None = None
        self._set_window(context_length)

    @property
    def name(self) -> str:
        """The engine's name in ``context.engine``."""
        return "compressor"

    @property
    def budgets(self) -> Budgets:
        """The computed numbers of SPEC 3.3 for the window in force."""
        return self._budgets

    @property
    def counter(self) -> MessageCounter:
        """Counts tokens for this engine."""
        return self._counter

    @property
    def summarizer(self) -> Summarizer | None:
        """Who writes summaries, None for the engine itself; a new one starts without the old one's failures."""
        return self._writer.chosen

    @summarizer.setter
    def summarizer(self, summarizer: Summarizer | None) -> None:
        self._writer.chosen = summarizer

    @contextmanager
    def keeping(self, messages: int) -> Iterator[None]:
        """In a ``with`` block, keep so many of the newest messages and no more, whatever the settings say."""
        settings, budgets = self.settings, self.budgets
        self.settings = replace(self.settings, protect_last_n=max(1, messages))
        self._budgets = replace(budgets, tail_tokens=1)
        try:
            yield
        finally:
            self.settings, self._budgets = settings, budgets

    def _set_window(self, context_length: int) -> None:
        self.context_length = context_length
        self._use(compute_budgets(self.settings, context_length))

    def _use(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self.threshold_tokens = self.pace.threshold
        self.threshold_percent = self.threshold_tokens / budgets.context_length

    @property
    def pace(self) -> Pace:
        """When this conversation is compacted and how far, by what is known of it so far."""
        fixed, head = self._always
        return pace_of(
            self._budgets,
            fixed=fixed,
            head=head,
            answer_tokens=self.answer_tokens,
            dearer_above=self.prices.dearer_above if self.prices.are_known else None,
        )

    @cached_property
    def _frame(self) -> int:
        """What every summary carries besides its own words, in the counter's units."""
        note: Message = {"role": "system", "content": COMPACTION_NOTE}
        acknowledgement: Message = {"role": "assistant", "content": ACKNOWLEDGEMENT}
        return sum(self._counter.counts([summary_message("", "user"), acknowledgement, note]))

    def _look_at(self, messages: Sequence[Message]) -> None:
        """Note what every request of this conversation carries: its fixed part, and the first exchange."""
        system = leading_system_count(messages)
        counts = self._counter.counts(messages[: system + max(0, self.settings.protect_first_n - 1)])
        scale = self._calibration.scale(self._model)
        fixed = self.overhead_tokens + REPLY_PRIMING + round(scale * (sum(counts[:system]) + self._frame))
        head = min(self._budgets.tail_tokens, round(scale * sum(counts[system:])))
        self._always = (fixed, head)
        self._use(self._budgets)

    # -- watching the conversation ---------------------------------------------------------------------------------

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take in reported usage; with the list of the preceding pre-flight check it also calibrates the counter."""
        prompt = _tokens(usage, "prompt_tokens")
        if prompt:
            self.habits.note(prompt, self.last_prompt_tokens, self._clock())
        self.last_prompt_tokens = prompt
        self.last_completion_tokens = _tokens(usage, "completion_tokens")
        self.last_total_tokens = _tokens(usage, "total_tokens") or prompt + self.last_completion_tokens
        if prompt:
            self._waiting.sent(prompt, self.pace, self.prices)
        if self._sent is not None and prompt:
            self._calibration.observe(self._sent, max(1, prompt - self.overhead_tokens), self._model)
            self._sent = None
        self.adapt_threshold()

    def adapt_threshold(self) -> None:
        """Choose the threshold by the conversation's habits, where it is automatic and they are known."""
        if self.settings.threshold == "auto" and self.habits.growth:
            prefix, prices = self.overhead_tokens, self.prices
            self._use(adapted_budgets(self.settings, self.context_length, prefix, self.habits, prices))

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether the threshold is reached, and compacting is not known to be in vain."""
        if not self.settings.enabled:
            return False
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        if tokens < self.threshold_tokens:
            return False
        held = self._waits(tokens)
        if held is not None:
            self._hold_back(held)
        return held is None

    def _waits(self, tokens: int) -> HeldBack | None:
        """Return why a compaction at so many tokens has to wait; None where it is to be made."""
        if len(self._unhelpful) >= _PATIENCE:
            held = self._held(tokens, tuple(self._unhelpful))
            return held if tokens < held.next_at else None
        pace, asks_model = self.pace, self.summarizer is not None
        is_cold = self.habits.is_cold(self._clock())
        reason = self._waiting.reason(tokens, pace, self.prices, asks_model=asks_model, is_cold=is_cold)
        if reason is None:
            return None
        held = self._held(tokens)
        if reason == "recent":
            return replace(held, tokens_then=self._waiting.left or 0, step=pace.step)
        cost = pace.compaction_cost(tokens, self.prices, asks_model=asks_model)
        return replace(held, cost=cost, paid=self._waiting.paid, room=pace.room)

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Whether a request about to be sent is over the threshold, by what is known of its tokens."""
        self._sent = list(messages)
        if self.settings.threshold == "auto":
            self.habits.look_at(messages)
        self._look_at(messages)
        return self.should_compress(self.estimate_tokens(messages))

    def estimate_tokens(self, messages: Sequence[Message]) -> int:
        """The prompt tokens of a request with these messages, as well as they can be known."""
        return self._calibration.estimate(messages, self._model) + self.overhead_tokens

    def calibrate(
        self, messages: Sequence[Message], prompt_tokens: int, tools: Sequence[dict[str, Any]] | None = None
    ) -> None:
        """Learn what a provider counted in a request with these messages and tools."""
        schema = self._counter.count_tools(tools)
        counted = self._counter.total(messages) + schema
        self.overhead_tokens = round(schema * prompt_tokens / max(1, counted))
        self._calibration.observe(messages, max(1, prompt_tokens - self.overhead_tokens), self._model)

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Whether there is anything between head and tail that is not already a summary."""
        has_some = CompactionRun(self.request_for(checked_messages(messages))).has_new_turns
        if not has_some:
            self._hold_back(self._held(self.estimate_tokens(messages)))
        return has_some

    def _held(self, tokens: int, saved: tuple[float, ...] = ()) -> HeldBack:
        return HeldBack(tokens, self.threshold_tokens, saved, self._tokens_when_unhelpful, self._budgets.tail_tokens)

    def _hold_back(self, held: HeldBack) -> None:
        """Note a compaction that is not made; while it waits for the same thing, its newest figures count."""
        if held.tokens < held.threshold_tokens:
            return  # it was not due
        last = self.held_back[-1] if self.held_back else None
        same = last is not None and (last.saved, last.tokens_then) == (held.saved, held.tokens_then)
        self.held_back = [*(self.held_back[:-1] if same else self.held_back), held][-_MOST_HELD_BACK:]

    @property
    def left_alone(self) -> list[LeftAlone]:
        """The summarizers that failed and are not asked now."""
        return self._writer.left_alone

    # -- compacting ------------------------------------------------------------------------------------------------

    def prepare(self, messages: list[Message]) -> None:
        """Have the summary of a conversation written now, which may take a while.

        The next `compress` of that conversation, which has gone on meanwhile, then asks no model.
        """
        self._writer.last = None
        CompactionRun(self.request_for(checked_messages(messages))).run()
        self._prepared = self._writer.last

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        *,
        force: bool = False,
        memory_context: str | None = None,
        target_tokens: int | None = None,
    ) -> list[Message]:
        """Compact a conversation; messages that stay as they were are the very same objects.

        Args:
            messages: the whole conversation; it is left as it is.
            current_tokens: what the provider reported for it, if known; used for reports.
            focus_topic: what the summary should put first.
            force: ask the summarizer even while it is cooling down after a failure.
            memory_context: what a memory provider wants the summary to keep.
            target_tokens: make the result fit this many tokens, whatever the settings say.

        Raises:
            MessageError: ``messages`` is not a list of messages.
            TargetUnreachable: ``target_tokens`` is less than the least possible.
        """
        request = self.request_for(
            checked_messages(messages),
            focus_topic=focus_topic,
            force=force,
            memory_context=memory_context,
            target_tokens=target_tokens,
            written=self._prepared,
        )
        self._prepared = None
        return self._compacted(request, current_tokens)

    def explain(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        *,
        force: bool = False,
        memory_context: str | None = None,
        target_tokens: int | None = None,
    ) -> Explanation:
        """Compact a conversation just as `compress` does, and say for every line why it was kept or dropped.

        Takes what `compress` takes and raises what it raises; the compacted list is the explanation's ``messages``.
        """
        from everlong.context.compaction import CompactionRecord  # noqa: PLC0415 - for those who ask
        from everlong.context.explanation import explained_lines  # noqa: PLC0415 - as above

        recorder, checked = CompactionRecord(), checked_messages(messages)
        request = self.request_for(
            checked,
            focus_topic=focus_topic,
            force=force,
            memory_context=memory_context,
            target_tokens=target_tokens,
            recorder=recorder,
        )
        result = self._compacted(request, current_tokens)
        assert self.last_report is not None  # noqa: S101 - every compaction leaves one
        return Explanation(result, self.last_report, explained_lines(checked, recorder))

    def _compacted(self, request: CompactionRequest, current_tokens: int | None) -> list[Message]:
        result, report = CompactionRun(request).run(current_tokens)
        if report.outcome == "summarized":
            own = (digest_of(message) for message in result if is_summary(message))
            self._emitted = [*self._emitted, next(own)][-_MOST_EMITTED:]
            self.habits.summarized(report.summary_tokens)
        self.last_report = report
        if report.quality is not None and report.fallback_reason is None:
            self._writer.note_quality(report.quality.score)
        self.last_prompt_tokens = self.estimate_tokens(result)
        self._waiting.compacted(self.last_prompt_tokens)
        self._sent = None
        if report.outcome != "unchanged":
            self.compression_count += 1
        self._remember_help(report)
        return result

    def request_for(self, messages: list[Message], **wishes: Any) -> CompactionRequest:
        """What a compaction of these messages depends on, as this engine stands now.

        One that is forced, comes early or follows a threshold of the user keeps what the threshold allows; every
        other one makes room for a while.
        """
        self._look_at(messages)
        pace, budgets, besides = self.pace, self._budgets, self.overhead_tokens + REPLY_PRIMING
        limit = most = self.threshold_tokens
        is_calm = not wishes.get("force") and not pace.is_set
        if is_calm and self.estimate_tokens(messages) >= NEAR * most:
            budgets, limit = replace(budgets, tail_tokens=min(budgets.tail_tokens, pace.tail)), min(limit, pace.need)
        return CompactionRequest(
            messages=messages,
            settings=self.settings,
            budgets=budgets,
            limit_tokens=max(0, limit - besides),
            most_tokens=max(0, most - besides),
            scale=self._calibration.scale(self._model),
            counter=self._counter,
            writer=self._writer,
            emitted=frozenset(self._emitted),
            **wishes,
        )

    def _remember_help(self, report: CompactionReport) -> None:
        if report.saved_share >= _WORTHWHILE:
            self._unhelpful = []
            return
        self._unhelpful = [*self._unhelpful, report.saved_share][-_PATIENCE:]
        self._tokens_when_unhelpful = self.last_prompt_tokens

    # -- life cycle ------------------------------------------------------------------------------------------------

    def on_session_reset(self) -> None:
        """Forget the conversation: counters, failures, growth."""
        super().on_session_reset()
        self._writer.reset()
        self._sent = None
        self.habits = Habits()
        self._unhelpful = []
        self._waiting = Waiting()
        self._always = (0, 0)
        self.held_back = []
        self._emitted = []
        self.last_report = None
        self._set_window(self.context_length)

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        **kwargs: Any,
    ) -> None:
        """Go on with another model: its window, its vocabulary, its calibration."""
        super().update_model(model, context_length, base_url, api_key, provider, **kwargs)
        if model != self._model:
            self._model = model
            self._counter = MessageCounter(counter_for(model))
            self._calibration = Calibration(self._counter)
            self._sent = None
        self._unhelpful = []
        self._waiting = Waiting()
        self._set_window(context_length)


def _tokens(usage: dict[str, Any], key: str) -> int:
    value = usage.get(key)
    return int(value) if isinstance(value, int | float) and value > 0 else 0
