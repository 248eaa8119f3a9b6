"""When a conversation is compacted, and all that belongs to it: memories, the view, the child session, the log.

Every trigger ends in `compress_context`. The engine decides what becomes of the messages and the store keeps them; this
module knows when to ask, what to do first, and whom to tell. It never runs between a call and its results.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.agent.events import (
    AgentEvent,
    CompactionFinished,
    CompactionProgress,
    CompactionReason,
    CompactionStarted,
    Notice,
)
from everlong.caching import estimate_messages_tokens_rough
from everlong.context import CompactionReport
from everlong.context.policy import HYGIENE_MESSAGES, HYGIENE_SHARE, OVERFLOW_MARGIN, overflow_target
from everlong.errors import ContextOverflow, ProviderError, StoreError, TargetUnreachable
from everlong.providers.base import Done, TextDelta
from everlong.tokens import counter_for

if TYPE_CHECKING:
    from everlong.agent.conversation import AgentConversation
    from everlong.agent.watch import Watch
    from everlong.context import ContextEngine, SummaryProgress
    from everlong.memory import MemoryManager
    from everlong.memory.flush import Approve, Ask
    from everlong.model import Message
    from everlong.providers.base import CallOptions, Provider, Reply
    from everlong.store import Compacted

__all__ = ["Compactor", "SummaryMeter"]

_IDLE_SHARE = 0.7
"""In a pause a conversation is compacted if it has filled this much of its threshold."""


class Compactor:
    """Keeps one conversation inside a window with one engine."""

    def __init__(
        self,
        conversation: AgentConversation,
        engine: ContextEngine,
        tell: Callable[[AgentEvent], None],
        *,
        memory: MemoryManager | None = None,
        ask: Ask | None = None,
        log_folder: Path | None = None,
    ) -> None:
        self.conversation = conversation
        self.engine = engine
        self.memory = memory
        self.approve_notes: Approve | None = None
        """Asked before notes are kept that a model wants to keep; set by `open_agent`."""
        self.count = 0
        """Compactions that shortened the conversation."""
        self.is_enabled = True
        """Whether thresholds count; an overflow, another model and the user's wish count always."""
        self.before: Callable[[], None] = lambda: None
        """Called before each compaction, while everything still stands."""
        self.spent: Callable[[], float | None] = lambda: None
        """What the summarizer has cost since this was last asked."""
        self.session_facts: Callable[[], dict[str, Any]] = dict
        """What else an engine is told of the session that goes on."""
        self.went_on: Callable[[str], None] = lambda _: None
        """Told the session that goes on after a compaction."""
        self.wait: Callable[[Callable[[], str | None]], str | None] = lambda work: work()
        """Does work that may take long; whoever can be interrupted hands in how."""
        self.ask = ask
        self._tell = tell
        self._log_folder = log_folder

    # -- triggers ------------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """The prompt tokens of the conversation as it stands, as well as the engine knows them."""
        return self._estimate(self.conversation.messages)

    def _estimate(self, messages: Sequence[Message]) -> int:
        estimate = getattr(self.engine, "estimate_tokens", None)
        return int(estimate(messages)) if estimate is not None else estimate_messages_tokens_rough(messages)

    def before_request(self) -> None:
        """Compact if the request that is about to be sent is too large."""
        # Asked whether or not anything follows from it: some engines take in the conversation here.
        is_due = self.engine.should_compress_preflight(self.conversation.messages)
        if not self.is_enabled:
            return
        # An engine need not look at messages; what it thinks of their number it can always tell.
        if is_due or self.engine.should_compress(self.tokens):
            self._if_there_is_something("preflight")

    def after_answer(self) -> None:
        """Compact if what the provider reported is over the threshold."""
        if self.is_enabled and self.engine.should_compress():
            self._if_there_is_something("threshold")

    def on_resume(self, reported: int | None) -> None:
        """Compact a stored conversation that has come close to the end of the window, before the model sees it."""
        said = [message for message in self.conversation.messages if message.get("role") != "system"]
        tokens = reported or self.tokens
        full = tokens >= HYGIENE_SHARE * self.engine.context_length
        if self.is_enabled and full and len(said) >= HYGIENE_MESSAGES:
            self.compress_context("hygiene", force=True)

    def on_smaller_window(self) -> None:
        """Compact for a model with a smaller window, which the engine has been told about already."""
        if self.tokens >= self.engine.threshold_tokens:
            self.compress_context("model switch", force=True)

    def in_a_pause(self) -> bool:
        """Compact now, while the provider still holds the conversation, if it would soon be due; whether it was."""
        if not self.is_enabled or self.tokens < _IDLE_SHARE * self.engine.threshold_tokens:
            return False
        if not self.engine.has_content_to_compress(self.conversation.messages):
            return False
        return self.compress_context("idle").outcome == "compacted"

    def after_overflow(self, error: ProviderError, attempt: int, answer_tokens: int) -> bool:
        """Make a request that was refused as too long shorter; False where nothing does.

        Args:
            error: what the provider said.
            attempt: how often this request was refused before.
            answer_tokens: the room that its answer needs.
        """
        before = self.tokens
        if attempt == 0 and before >= self.engine.threshold_tokens // 2:
            self.compress_context("overflow", force=True)
            if self.tokens < OVERFLOW_MARGIN * before:
                return True
        target = self._target(error, attempt, before, answer_tokens)
        try:
            self.compress_context("overflow", force=True, target_tokens=target)
        except TargetUnreachable as unreachable:
            if unreachable.least < before - self._estimate([]):
                self.compress_context("overflow", force=True, target_tokens=unreachable.least)
        return self.tokens < before

    def _target(self, error: ProviderError, attempt: int, tokens: int, answer_tokens: int) -> int:
        """What to cut the messages to, in the engine's own count, which may differ from the provider's."""
        limit, reported = (error.limit, error.prompt_tokens) if isinstance(error, ContextOverflow) else (None, None)
        fixed = self._estimate([])  # tools and the like, which cannot be cut
        return overflow_target(
            tokens, attempt, fixed=fixed, limit=limit, reported=reported, answer_tokens=answer_tokens
        )

    def _if_there_is_something(self, reason: CompactionReason) -> None:
        if self.engine.has_content_to_compress(self.conversation.messages):
            self.compress_context(reason)

    # -- the one way ---------------------------------------------------------------------------------------------------

    def compress_context(
        self,
        reason: CompactionReason,
        *,
        focus_topic: str | None = None,
        force: bool = False,
        target_tokens: int | None = None,
    ) -> Compacted:
        """Flush memories, compact, go on in a child session, and tell everybody.

        Raises:
            StoreError: the conversation is not stored, so it must not be compacted.
            TargetUnreachable: ``target_tokens`` is less than the least possible.
        """
        conversation, engine = self.conversation, self.engine
        tokens, parent = self.tokens, conversation.session_id
        messages = len(conversation.messages)
        self._tell(CompactionStarted(reason, tokens))
        started = time.perf_counter()
        options: dict[str, Any] = {"focus_topic": focus_topic, "force": force, "current_tokens": tokens}
        if target_tokens is not None:
            options["target_tokens"] = target_tokens
        if context := self.wait(self._memories):
            options["memory_context"] = context
        self.before()
        done = conversation.compact(engine, reason, str(engine.context_length), spent=self.spent, **options)
        if done.outcome == "compacted":
            self.count += 1
        if conversation.session_id != parent:
            self._went_on(parent)
        report = getattr(engine, "last_report", None) if done.outcome == "compacted" else None
        self._tell(
            CompactionFinished(
                reason,
                done.outcome,
                conversation.session_id,
                tokens,
                self.tokens,
                messages,
                len(conversation.messages),
                time.perf_counter() - started,
                **(_told(report) if isinstance(report, CompactionReport) else {}),
            )
        )
        if isinstance(report, CompactionReport) and report.rules_by_id:
            many = report.rules_by_id
            self._tell(
                Notice(
                    f"{many} older rule{'' if many == 1 else 's'} had no room after the summary and stand"
                    f"{'s' if many == 1 else ''} there by id only; /rules lists and removes rules"
                )
            )
        return done

    def _memories(self) -> str | None:
        """Have memories flushed and hear what should be kept; whatever goes wrong there cannot stop a compaction."""
        if self.memory is None:
            return None
        self.memory.flush(self.conversation.messages, self.ask, min_turns=0, approve=self.approve_notes)
        return self.memory.before_compaction(self.conversation.messages)

    def _went_on(self, parent: str) -> None:
        child = self.conversation.session_id
        self.went_on(child)
        facts = {"parent_session_id": parent, "reason": "compression"}
        elsewhere = {"old_session_id": parent, "boundary_reason": "compression"}  # what other hosts call the same
        self.engine.on_session_start(child, **facts, **elsewhere, **self.session_facts())
        if self.memory is not None:
            self.memory.switch(child, parent_session_id=parent, reason="compression")
        self.write_log(parent)

    def write_log(self, session_id: str) -> None:
        """Write the JSON log of a session, where a folder for logs is set."""
        if self._log_folder is None or not session_id:
            return
        from everlong.store.session_log import write_session_log  # noqa: PLC0415 - once per session

        try:
            write_session_log(self.conversation.store, session_id, self._log_folder)
        except (OSError, StoreError) as error:
            self._tell(Notice(f"the log of session {session_id} could not be written: {error}"))


def _told(report: CompactionReport) -> dict[str, Any]:
    quality = report.quality.score if report.quality is not None else None
    return {"summarizer": report.summarizer, "fallback": report.fallback_reason, "quality": quality}


class SummaryMeter:
    """Watches models write summaries, several parts at a time, and tells whenever another hundredth is done."""

    def __init__(self, tell: Callable[[AgentEvent], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._under_way: dict[object, tuple[int, int]] = {}
        self._parts = (0, 1)
        self._told = -1

    def parts_done(self, progress: SummaryProgress) -> None:
        """Take in that so many parts are done."""
        with self._lock:
            # After the last part of a level comes another level, or one call that puts things right.
            self._parts = (progress.done, progress.total) if progress.done < progress.total else (0, 1)
            self._told = -1 if progress.done == 0 else self._told
            if progress.total > 1:
                self._say()

    def ask(self, watch: Watch, provider: Provider, messages: Sequence[Message], call: CallOptions) -> Reply:
        """The model's answer; how much of it has come is told.

        Raises:
            ProviderError: there is no answer.
            Interrupted: whoever watches was told to stop.
            OutOfTime: as above, because the time is up.
        """
        counter, budget = counter_for(provider.model), call.get("max_tokens") or 0
        one, tokens, has_begun = object(), 0, False
        self._has(one, 0, budget)
        try:
            for event in watch.each(lambda: provider.stream(messages, **call)):
                has_begun = True
                if isinstance(event, Done):
                    return event.reply
                if isinstance(event, TextDelta):
                    tokens += counter.count_text(event.text)
                    self._has(one, tokens, budget)
            raise AssertionError("a stream ends with Done or an error")
        except ProviderError as error:
            if not (has_begun and error.may_retry):
                raise
            return watch.call(lambda: provider.complete(messages, **call))
        finally:
            with self._lock:
                del self._under_way[one]
                self._told = -1 if not self._under_way and self._parts == (0, 1) else self._told

    def _has(self, one: object, tokens: int, budget: int) -> None:
        with self._lock:
            self._under_way[one] = (min(tokens, budget), budget)
            self._say()

    def _say(self) -> None:
        done, parts = self._parts
        tokens = sum(came for came, _ in self._under_way.values())
        budget = sum(most for _, most in self._under_way.values())
        written = sum(came / most for came, most in self._under_way.values() if most)
        share = min(1.0, (done + written) / parts)
        if int(100 * share) > self._told:
            self._told = int(100 * share)
            self._tell(CompactionProgress(share, tokens, budget, done, parts))
