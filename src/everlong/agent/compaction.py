"""Compactions of an agent's conversation: when they are due, and all that belongs to one.

Every trigger ends in `Compactor.compress_context`. The engine shortens the messages and the store keeps them; the
compactor decides when, and tells everybody. It never runs between a call and its results. ``context/compaction.py``
decides what stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.agent.events import (
    AgentEvent,
    CompactionFinished,
    CompactionReason,
    CompactionStarted,
    Notice,
)
from everlong.caching import estimate_messages_tokens_rough
from everlong.context.oversized import SpillLimits, newest_tokens
from everlong.context.policy import (
    HYGIENE_MESSAGES,
    HYGIENE_SHARE,
    OVERFLOW_MARGIN,
    overflow_target,
    room_in,
)
from everlong.errors import ContextOverflow, ProviderError, StoreError, TargetUnreachable
from everlong.lossless import LosslessEngine
from everlong.model import leading_system_count
from everlong.plugins.guard import compressors_in, report_of
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.agent.conversation import AgentConversation
    from everlong.context import ContextEngine
    from everlong.model import Message
    from everlong.store import Compacted

__all__ = ["CompactionHooks", "Compactor"]

_log = logging.getLogger("everlong.agent")


@dataclass(frozen=True)
class CompactionHooks:
    """Calls around a compaction."""

    prepare: Callable[[], str | None]
    """Prepares a compaction, while everything still stands; returns what the summary should keep."""
    take_cost: Callable[[], float | None]
    """Returns the US dollars that summaries have cost since the last call."""
    session_facts: Callable[[], dict[str, Any]]
    """Returns what else an engine is told of the session that goes on."""
    after_roll_over: Callable[[str, str], None]
    """Takes in that the conversation goes on in another session; takes the old and the new id."""


class Compactor:
    """Keeps one conversation inside a window with one engine.

    Args:
        conversation: the conversation.
        engine: shortens it.
        tell: told what happens.
        hooks: called around each compaction.
        is_enabled: False to ignore thresholds; overflows, another model and the user's wish always count.
        log_folder: where the JSON log of each session goes; None for nowhere.
    """

    def __init__(
        self,
        conversation: AgentConversation,
        engine: ContextEngine,
        tell: Callable[[AgentEvent], None],
        hooks: CompactionHooks,
        *,
        is_enabled: bool,
        log_folder: Path | None,
    ) -> None:
        self.conversation = conversation
        self.engine = engine
        self.reader = ""
        """The tool by which the model reads a whole message; empty if it has none."""
        self.count = 0
        """Compactions that shortened the conversation."""
        self._is_enabled = is_enabled
        self._tell = tell
        self._log_folder = log_folder
        self._hooks = hooks

    # -- triggers ------------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """The prompt tokens of the conversation now, as well as the engine knows them."""
        return self._estimate(self.conversation.messages)

    def _estimate(self, messages: Sequence[Message]) -> int:
        estimate = getattr(self.engine, "estimate_tokens", None)
        return int(estimate(messages)) if estimate is not None else estimate_messages_tokens_rough(messages)

    def before_request(self) -> None:
        """Compact if the request that is about to be sent is too large."""
        # Asked even if compaction is disabled: some engines take in the conversation here.
        is_due = self.engine.should_compress_preflight(self.conversation.messages)
        if not self._is_enabled:
            return
        tokens, room = self.tokens, room_in(self.engine.context_length)
        if tokens >= room and self._spill_newest():
            is_due, tokens = self.engine.should_compress_preflight(self.conversation.messages), self.tokens
        # An engine may ignore the messages, but it always judges a number of tokens.
        if is_due or self.engine.should_compress(tokens):
            self._compact_if_possible("preflight")
        if tokens >= room and self.tokens >= room:
            self._spill(room - self._estimate(self._system))

    def after_answer(self) -> None:
        """Compact if the tokens that the provider reported are over the threshold, else let `lcm` work ahead."""
        if self._is_enabled and self.engine.should_compress():
            self._compact_if_possible("threshold")
        elif self._is_enabled and isinstance(self.engine, LosslessEngine) and self.conversation.branch is not None:
            try:
                self.engine.work_ahead()
            except StoreError as error:  # the compaction does it then, or says why it cannot
                self._tell(Notice(f"no summary was written ahead: {error}"))

    def on_resume(self, reported: int | None) -> None:
        """Compact a resumed conversation that almost fills the window, before the model sees it."""
        said = [message for message in self.conversation.messages if message.get("role") != "system"]
        tokens = reported or self.tokens
        full = tokens >= HYGIENE_SHARE * self.engine.context_length
        if self._is_enabled and full and len(said) >= HYGIENE_MESSAGES:
            _log.info("Session hygiene: auto-compress at %d tokens, %d messages", tokens, len(said))
            self.compress_context("hygiene", force=True)

    def on_smaller_window(self) -> None:
        """Compact for a model with a smaller window, which the engine knows already."""
        if self.tokens >= self.engine.threshold_tokens:
            self.compress_context("model switch", force=True)

    def after_overflow(self, error: ProviderError, attempt: int, answer_tokens: int) -> bool:
        """Make a request shorter that was refused as too long; return False if nothing helps.

        Args:
            error: the refusal.
            attempt: how often this request was refused before.
            answer_tokens: the room that its answer needs.
        """
        before = self.tokens
        target = self._target(error, attempt, before, answer_tokens)
        if self._spill_newest(target):
            return True
        if attempt == 0 and before >= self.engine.threshold_tokens // 2:
            self.compress_context("overflow", force=True)
            if self.tokens < OVERFLOW_MARGIN * before:
                return True
        try:
            self.compress_context("overflow", force=True, target_tokens=target)
        except TargetUnreachable as unreachable:
            if unreachable.least < before - self._estimate([]):
                self.compress_context("overflow", force=True, target_tokens=unreachable.least)
            self._spill(target - self._estimate(self._system) + self._estimate([]))
        return self.tokens < before

    def _target(self, error: ProviderError, attempt: int, tokens: int, answer_tokens: int) -> int:
        """Return the tokens to cut the messages to, as the engine counts, which may differ from the provider."""
        limit, reported = (error.limit, error.prompt_tokens) if isinstance(error, ContextOverflow) else (None, None)
        fixed = self._estimate([])  # tools and the like, which cannot be cut
        return overflow_target(
            tokens, attempt, fixed=fixed, limit=limit, reported=reported, answer_tokens=answer_tokens
        )

    def _compact_if_possible(self, reason: CompactionReason) -> None:
        if self.engine.has_content_to_compress(self.conversation.messages):
            self.compress_context(reason)

    # -- messages that no window holds ---------------------------------------------------------------------------------

    @property
    def _system(self) -> list[Message]:
        messages = self.conversation.messages
        return messages[: leading_system_count(messages)]

    def _spill_newest(self, target: int | None = None) -> bool:
        """Put stubs in the place of new messages if no compaction of the others would make room for them.

        Args:
            target: the tokens that all messages may have; by default as many as the window holds.

        Returns:
            True if that made the conversation shorter.
        """
        fixed, system = self._estimate([]), self._estimate(self._system)
        compressors = compressors_in(self.engine)
        left = max(system, compressors[-1].pace.need - compressors[-1].pace.tail) if compressors else system
        room = room_in(self.engine.context_length) if target is None else target + fixed
        return self._spill(room - left, newest_only=True)

    def _spill(self, most_tokens: int, *, newest_only: bool = False) -> bool:
        """Put stubs in the place of the largest messages until they fit; return whether that made them shorter."""
        messages, counter = self.conversation.messages, MessageCounter(counter_for(self.conversation.model))
        scale = self.tokens / max(1, counter.total(messages)) if newest_only else 1.0
        limits = SpillLimits(max(1, int(most_tokens / max(1.0, scale))), counter, self.reader, newest_only)
        if newest_only and newest_tokens(messages, limits) <= limits.most_tokens:
            return False
        before = self.tokens
        number = self.conversation.spill(limits, str(self.engine.context_length))
        if number:
            one = number == 1
            self._tell(
                Notice(
                    f"{number} message{'' if one else 's'} did not fit the window; the model sees beginning and end of "
                    f"{'it' if one else 'each'}, and the store has the whole"
                )
            )
        return self.tokens < before

    # -- compacting ----------------------------------------------------------------------------------------------------

    def compress_context(
        self,
        reason: CompactionReason,
        *,
        focus_topic: str | None = None,
        force: bool = False,
        target_tokens: int | None = None,
    ) -> Compacted:
        """Compact, go on in a child session, and tell everybody.

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
        # Nobody pays for notes before a compaction that can change nothing.
        if engine.has_content_to_compress(conversation.messages) and (context := self._hooks.prepare()):
            options["memory_context"] = context
        done = conversation.compact(engine, reason, str(engine.context_length), spent=self._hooks.take_cost, **options)
        if done.outcome == "compacted":
            self.count += 1
        if conversation.session_id != parent:
            self._follow_roll_over(parent)
        report = report_of(engine) if done.outcome == "compacted" else None
        quality = report.quality.in_words() if report is not None and report.quality is not None else None
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
                *((report.summarizer, report.fallback_reason, quality) if report is not None else ()),
            )
        )
        if report is not None and report.rules_by_id:
            many = report.rules_by_id
            self._tell(
                Notice(
                    f"{many} older rule{'' if many == 1 else 's'} had no room after the summary and stand"
                    f"{'s' if many == 1 else ''} there by id only; /rules lists and removes rules"
                )
            )
        return done

    def _follow_roll_over(self, parent: str) -> None:
        child = self.conversation.session_id
        facts = {"parent_session_id": parent, "reason": "compression"}
        elsewhere = {"old_session_id": parent, "boundary_reason": "compression"}  # the names of other hosts
        self.engine.on_session_start(child, **facts, **elsewhere, **self._hooks.session_facts())
        self._hooks.after_roll_over(parent, child)
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
