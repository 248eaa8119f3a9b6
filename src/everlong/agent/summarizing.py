"""How far a model has come with a summary, told while it writes: words that came, and parts that are done.

Asks with a stream, because only a stream shows progress, and asks again where it breaks off. Knows no prices and no
conversation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from everlong.agent.events import AgentEvent, CompactionProgress
from everlong.errors import ProviderError
from everlong.providers.base import Done, TextDelta
from everlong.tokens import counter_for

if TYPE_CHECKING:
    from everlong.agent.watch import Watch
    from everlong.context import SummaryProgress
    from everlong.model import Message
    from everlong.providers.base import CallOptions, Provider, Reply

__all__ = ["SummaryMeter"]


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
