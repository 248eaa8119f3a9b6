"""What is done while nobody says anything: compacting before the provider forgets, or keeping it from forgetting.

A host calls `Pauses.rest` now and then and is told when to call again; nothing here waits or has a clock. Both are the
user's choice (``agent.idle_compaction``, ``prompt_caching.keep_alive``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everlong.caching.keepalive import KeepAlive, keep_alive
from everlong.errors import ProviderError

if TYPE_CHECKING:
    from everlong.agent.asking import Asker
    from everlong.agent.compaction import Compactor
    from everlong.providers.base import Usage

__all__ = ["Pauses"]

_MARGIN = 30.0
"""Seconds before the provider forgets the conversation in which it is compacted."""


@dataclass
class Pauses:
    """The pauses of one conversation.

    ``hold_seconds`` is how long the provider holds a prompt; ``compacts`` and ``keeps_alive`` are what the user wants.
    """

    hold_seconds: float = 300.0
    compacts: bool = False
    keeps_alive: bool = False
    pings: int = 0
    """So many were sent in this pause."""
    last_ping: Usage | None = None

    def over(self) -> None:
        """The pause is over."""
        self.pings = 0

    def rest(self, idle: float, asker: Asker, compactor: Compactor) -> float | None:
        """Use the pause so far; seconds after which to call again, None where it is of no more use.

        Args:
            idle: seconds since the last answer.
            asker: who was asked.
            compactor: keeps the conversation inside the window.
        """
        if compactor.conversation.branch is None:
            return None
        waits = [self._compacted(idle, compactor), self._kept_alive(idle, asker)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _compacted(self, idle: float, compactor: Compactor) -> float | None:
        if not self.compacts or idle >= self.hold_seconds:
            return None
        wait = self.hold_seconds - _MARGIN - idle
        if wait <= 0:
            compactor.in_a_pause()
            return None
        return wait

    def _kept_alive(self, idle: float, asker: Asker) -> float | None:
        plan = self._plan(asker) if self.keeps_alive else None
        if plan is None or self.pings >= plan.pings:
            return None
        wait = plan.interval * (self.pings + 1) - idle
        if wait > 0:
            return wait
        if idle >= plan.interval * self.pings + self.hold_seconds:
            return None  # nobody called in time: it is forgotten already
        try:
            self.last_ping = asker.ping()
        except ProviderError:  # a ping is an economy; the next prompt will tell what is wrong
            return None
        self.pings += 1
        return plan.interval * (self.pings + 1) - idle if self.pings < plan.pings else None

    def _plan(self, asker: Asker) -> KeepAlive | None:
        cache = asker.cache
        if cache is None or cache.choice.strategy != "ledger" or cache.last is None:
            return None
        ttl = "1h" if self.hold_seconds > 300 else "5m"
        return keep_alive({}, cache.last.prompt_tokens, cache.choice.model_rules, ttl)
