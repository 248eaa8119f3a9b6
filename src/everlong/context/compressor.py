"""The default context engine: when to compact a conversation, and the call that does it.

`ContextCompressor.compress` hands a request to `everlong.context.compaction.CompactionRun`, which finds the
boundaries, prunes, summarizes, assembles and checks. This class keeps what outlasts one compaction. It is synchronous
and uses no network; a summarizer that asks a model is handed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from everlong.arguments import check_callable, check_count, refuse
from everlong.config import compression_values
from everlong.context.chronicle import Chronicle
from everlong.context.compaction import CompactionRequest, CompactionRun, summary_message
from everlong.context.engine import ContextEngine
from everlong.context.literals import ACKNOWLEDGEMENT, COMPACTION_NOTE, digest_of, is_summary
from everlong.context.policy import (
    LEAST_LEFT,
    MOST_LEFT,
    NEAR_THRESHOLD,
    Budgets,
    Habits,
    HeldBack,
    LeftAlone,
    Pace,
    Waiting,
    adapt_budgets,
    compute_budgets,
    compute_pace,
)
from everlong.context.report import CompactionReport
from everlong.context.summarizers import Summarizer, SummaryWriter, WrittenSummary, check_summarizer
from everlong.model import Message, checked_messages, leading_system_count, list_messages
from everlong.tokens import REPLY_PRIMING, Calibration, MessageCounter, Prices, counter_for

if TYPE_CHECKING:
    from everlong.config import CompressionSettings  # slow to import; only users of settings load it

DEFAULT_CONTEXT_LENGTH = 200_000
_MOST_HELD_BACK = 5
"""The number of compactions that were not made which an engine remembers."""
_MOST_SUMMARIES = 1_000
"""The number of its own summaries that an engine recognizes by their digests."""


class ContextCompressor(ContextEngine):
    """An engine that keeps a conversation inside a window by summarizing its middle.

    Without a ``summarizer`` it makes the summary itself, from the conversation's own words. ``settings`` are those of
    the ``compression`` section of the configuration, as a mapping or as `CompressionSettings`; ``model`` chooses how
    tokens are counted.

    >>> engine = ContextCompressor(16_000)
    >>> if engine.should_compress_preflight(messages):
    ...     shorter = engine.compress(messages)
    >>> len(shorter) < len(messages)
    True
    """

    _budgets: Budgets
    _checked: list[Message] | None
    """The messages of the last pre-flight check, until the response to them comes."""
    _frame: int
    """The tokens that every summary adds besides its own words, in the counter's units."""

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
        check_count("overhead_tokens", overhead_tokens, "tokens")
        check_callable("clock", clock, "a function that returns seconds")
        if summarizer is not None:
            check_summarizer(summarizer)
        self.settings = compression_values(settings)
        self.overhead_tokens = overhead_tokens
        """Tokens that every request carries besides its messages, such as the schemas of tools."""
        self.answer_tokens = 0
        """The most tokens that an answer may take; the sender of requests sets it."""
        self.coming_tokens = 0
        """The tokens that the next request adds to what a compaction ahead leaves; the host sets it."""
        self.prices = Prices()
        """The prices of tokens, by which a compaction that costs more than it saves waits. The host sets them."""
        self.last_report: CompactionReport | None = None
        self.protect_first_n = self.settings.protect_first_n
        self.protect_last_n = self.settings.protect_last_n
        self._writer = SummaryWriter(summarizer, self.settings.failure_cooldown_seconds, clock)
        self._use_model("" if model is None else model)
        self._clock = clock
        self.habits = Habits()
        """The measured behaviour that an automatic threshold follows; a host may set its own measurements."""
        self.held_back: list[HeldBack] = []
        """The last compactions that were due and not made, oldest first."""
        self._summaries: dict[str, Chronicle | None] = {}
        """The digests of this engine's own summaries; the newest with the chronicle of everything behind it."""
        self._waiting = Waiting()
        self._fixed_and_head = (0, 0)
        """The tokens that every request of this conversation carries: its fixed part, and the first exchange."""
        self.prepared: WrittenSummary | None = None
        """A summary that `prepare` has written; the next `compress` takes it."""
        self._set_window(context_length)

    @property
    def name(self) -> str:
        """The engine's name in ``context.engine``."""
        return "compressor"

    @property
    def budgets(self) -> Budgets:
        """The budgets of the current window."""
        return self._budgets

    @property
    def counter(self) -> MessageCounter:
        """The counter of this engine's tokens."""
        return self._counter

    @property
    def summarizer(self) -> Summarizer | None:
        """The writer of summaries, None for the engine itself; a new one starts without the old one's failures."""
        return self._writer.chosen

    @summarizer.setter
    def summarizer(self, summarizer: Summarizer | None) -> None:
        if summarizer is not None:
            check_summarizer(summarizer)
        self._writer.chosen = summarizer

    @contextmanager
    def keeping(self, messages: int) -> Iterator[None]:
        """Keep exactly this number of newest messages inside a ``with`` block, whatever the settings say."""
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
        """The current figures of when this conversation is compacted, and how far."""
        fixed, head = self._fixed_and_head
        return compute_pace(
            self._budgets,
            fixed=fixed,
            head=head,
            answer_tokens=self.answer_tokens,
            dearer_above=self.prices.dearer_above if self.prices.are_known else None,
        )

    def _use_model(self, model: str) -> None:
        """Count tokens with a model's vocabulary; nothing is calibrated yet."""
        self._model = model
        self._counter = MessageCounter(counter_for(model) if model else None)
        self._calibration = Calibration(self._counter)
        self._checked = None
        note: Message = {"role": "system", "content": COMPACTION_NOTE}
        acknowledgement: Message = {"role": "assistant", "content": ACKNOWLEDGEMENT}
        self._frame = sum(self._counter.counts([summary_message("", "user"), acknowledgement, note]))

    def _measure_fixed_parts(self, messages: Sequence[Message]) -> None:
        """Measure the parts that every request of this conversation carries, and adjust the threshold to them."""
        system = leading_system_count(messages)
        counts = self._counter.counts(messages[: system + max(0, self.settings.protect_first_n - 1)])
        scale = self._calibration.scale(self._model)
        fixed = self.overhead_tokens + REPLY_PRIMING + round(scale * (sum(counts[:system]) + self._frame))
        head = min(self._budgets.tail_tokens, round(scale * sum(counts[system:])))
        self._fixed_and_head = (fixed, head)
        self._use(self._budgets)

    # -- watching the conversation ---------------------------------------------------------------------------------

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take in reported usage; after a pre-flight check, it also calibrates the token counter."""
        if not isinstance(usage, Mapping):
            refuse("usage", usage, "a mapping of token counts", "a response's usage has model_dump() or to_dict()")
        prompt = _tokens(usage, "prompt_tokens")
        if prompt:
            self.habits.note(prompt, self.last_prompt_tokens, self._clock())
        self.last_prompt_tokens = prompt
        self.last_completion_tokens = _tokens(usage, "completion_tokens")
        self.last_total_tokens = _tokens(usage, "total_tokens") or prompt + self.last_completion_tokens
        if prompt:
            self._waiting.sent(prompt, self.pace, self.prices)
        if self._checked is not None and prompt:
            self._calibration.observe(self._checked, max(1, prompt - self.overhead_tokens), self._model)
            self._checked = None
        self.adapt_threshold()

    def adapt_threshold(self) -> None:
        """Choose the threshold by the conversation's habits, if it is automatic and they are known."""
        if self.settings.threshold == "auto" and self.habits.growth:
            prefix, prices = self.overhead_tokens, self.prices
            self._use(adapt_budgets(self.settings, self.context_length, prefix, self.habits, prices))

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return whether the threshold is reached and no reason to wait is known."""
        if not self.settings.enabled:
            return False
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        if tokens < self.threshold_tokens:
            return False
        asks_model, is_cold = self.summarizer is not None, self.habits.is_cold(self._clock())
        held = self._waiting.hold_back(
            self._due(tokens), self.pace, self.prices, asks_model=asks_model, is_cold=is_cold
        )
        if held is not None:
            self._remember_held_back(held)
        return held is None

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Return whether a request about to be sent is over the threshold, by the best estimate of its tokens."""
        self._checked = list_messages(messages)
        if self.settings.threshold == "auto":
            self.habits.look_at(messages)
        self._measure_fixed_parts(messages)
        return self.should_compress(self.estimate_tokens(messages))

    def estimate_tokens(self, messages: Sequence[Message]) -> int:
        """Return the prompt tokens of a request with these messages, by the best estimate."""
        return self._calibration.estimate(messages, self._model) + self.overhead_tokens

    def calibrate(
        self, messages: Sequence[Message], prompt_tokens: int, tools: Sequence[dict[str, Any]] | None = None
    ) -> None:
        """Learn from a provider's count of a request with these messages and tools."""
        schema = self._counter.count_tools(tools)
        counted = self._counter.total(messages) + schema
        self.overhead_tokens = round(schema * prompt_tokens / max(1, counted))
        self._calibration.observe(messages, max(1, prompt_tokens - self.overhead_tokens), self._model)

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Return whether there is anything between head and tail that is not already a summary."""
        has_some = self._run_for(self.request_for(checked_messages(messages))).has_new_turns
        if not has_some:
            self._remember_held_back(self._due(self.estimate_tokens(messages)))
        return has_some

    def _due(self, tokens: int) -> HeldBack:
        return HeldBack(tokens, self.threshold_tokens, self._waiting.stuck_at, self._budgets.tail_tokens)

    def _remember_held_back(self, held: HeldBack) -> None:
        """Remember a compaction that is not made; it replaces the last one if that waits for the same thing."""
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
        """Write the summary of a conversation now, which may take a while.

        The next `compress` of that conversation, which will have grown, then asks no model. So the summary covers all
        but the newest answer: what is new now need not be in the tail then.
        """
        self._writer.last = None
        with self.keeping(1):
            self._run_for(replace(self.request_for(checked_messages(messages)), least_tokens=0)).run()
        self.prepared = self._writer.last

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        *,
        force: bool = False,
        memory_context: str | None = None,
        target_tokens: int | None = None,
        originals: Callable[[], Sequence[Message]] | None = None,
    ) -> list[Message]:
        """Compact a conversation; messages that stay as they were are the very same objects.

        Args:
            messages: the whole conversation; it is not changed.
            current_tokens: the provider's count of it, if known; used for reports.
            focus_topic: the topic that the summary puts first.
            force: ask the summarizer even while it is cooling down after a failure.
            memory_context: text that a memory provider wants the summary to keep.
            target_tokens: make the result fit this many tokens, whatever the settings say.
            originals: returns the messages that an earlier summary in the list stands for, if the host keeps them; the
                built-in summary is then made from them.

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
            originals=originals,
            written=self.prepared,
        )
        self.prepared = None
        return self._compact(request, current_tokens)

    def _compact(self, request: CompactionRequest, current_tokens: int | None) -> list[Message]:
        """Run a compaction and take in its outcome."""
        self._writer.last = request.written
        result, report, chronicle = self._run_for(request).run(current_tokens)
        if report.outcome == "summarized":
            digest = next(digest_of(message) for message in result if is_summary(message))
            older = list(self._summaries)[1 - _MOST_SUMMARIES :]
            self._summaries = {**dict.fromkeys(older), digest: chronicle}
            self.habits.summarized(report.summary_tokens)
        self.last_report = report
        self.last_prompt_tokens = self.estimate_tokens(result)
        self._waiting.compacted(self.last_prompt_tokens, report.saved_share)
        self._checked = None
        if report.outcome != "unchanged":
            self.compression_count += 1
        return result

    def _run_for(self, request: CompactionRequest) -> CompactionRun:
        """Return the run of one compaction; an engine with another kind of summary has another one."""
        return CompactionRun(request)

    def request_for(self, messages: list[Message], **wishes: Any) -> CompactionRequest:
        """Return everything that a compaction of these messages depends on, as this engine stands now.

        A compaction that is forced or early leaves a tail of the usual size. Every other one leaves between 45 and 60
        % of the threshold, so that room is used and the next one is far.
        """
        self._measure_fixed_parts(messages)
        pace, budgets, besides = self.pace, self._budgets, self.overhead_tokens + REPLY_PRIMING
        most = self.threshold_tokens
        limit, least = int(MOST_LEFT * most), 0
        if not wishes.get("force") and self.estimate_tokens(messages) >= NEAR_THRESHOLD * most:
            budgets = replace(budgets, tail_tokens=min(budgets.tail_tokens, pace.tail))
            least = int(LEAST_LEFT * most) - besides - self.coming_tokens
        return CompactionRequest(
            messages=messages,
            settings=self.settings,
            budgets=budgets,
            limit_tokens=max(0, limit - besides),
            least_tokens=max(0, least),
            most_tokens=max(0, most - besides),
            scale=self._calibration.scale(self._model),
            counter=self._counter,
            writer=self._writer,
            emitted=self._summaries,
            is_priced=self.prices.are_known,
            **wishes,
        )

    # -- life cycle ------------------------------------------------------------------------------------------------

    def on_session_reset(self) -> None:
        """Forget the conversation: counters, failures and growth."""
        super().on_session_reset()
        self._writer.reset()
        self._checked = None
        self.habits = Habits()
        self._waiting = Waiting()
        self._fixed_and_head = (0, 0)
        self.held_back = []
        self._summaries = {}
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
        """Switch to another model with its window, vocabulary and calibration."""
        super().update_model(model, context_length, base_url, api_key, provider, **kwargs)
        if model != self._model:
            self._use_model(model)
        self._waiting = Waiting()
        self._set_window(context_length)


def _tokens(usage: dict[str, Any], key: str) -> int:
    value = usage.get(key)
    return int(value) if isinstance(value, int | float) and value > 0 else 0
