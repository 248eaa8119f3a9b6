"""How much each key of the gateway may use: requests in a minute and at a time, and bytes of one.

Counted in memory, per process. What a day may cost is counted in the store, by `everlong.gateway.budget`. Knows no
request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlong.config.gateway_settings import KeySettings
    from everlong.gateway.auth import Caller

__all__ = ["Limits", "Refused"]


class Refused(Exception):  # noqa: N818 - what becomes of a request
    """A request that is not served, and what its client is told."""

    def __init__(self, status: int, message: str, retry_after: float | None = None, *, close: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.close = close
        """Whether the connection ends with the answer."""


@dataclass(slots=True)
class _Used:
    """What one tenant has used."""

    allowance: float
    """Requests that may come at once."""
    refilled: float
    under_way: int = 0


class Limits:
    """Counts what callers use, and refuses what is too much."""

    def __init__(self, most_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_bytes = most_bytes
        self._clock = clock
        self._used: dict[str, _Used] = {}

    def body_limit(self, caller: Caller) -> int:
        """The largest body, in bytes."""
        own = caller.limits.body_megabytes if caller.limits is not None else None
        return self.most_bytes if own is None else own * 1_000_000

    def enter(self, caller: Caller) -> None:
        """Let a request in; `Refused` where it is one too many. Whoever was let in has to leave."""
        limits = caller.limits
        if limits is None:
            return
        used = self._of(caller)
        if limits.concurrent_requests is not None and used.under_way >= limits.concurrent_requests:
            raise Refused(429, f"this key may have {limits.concurrent_requests:,} requests at a time; wait for one", 1)
        if limits.requests_per_minute is not None:
            self._take(used, limits.requests_per_minute)
        used.under_way += 1

    def leave(self, caller: Caller) -> None:
        """Say that a request is over."""
        if caller.limits is not None:
            self._of(caller).under_way -= 1

    def _take(self, used: _Used, per_minute: int) -> None:
        now = self._clock()
        rate = per_minute / 60
        used.allowance = min(float(per_minute), used.allowance + (now - used.refilled) * rate)
        used.refilled = now
        if used.allowance < 1:
            raise Refused(429, f"this key may send {per_minute:,} requests a minute", (1 - used.allowance) / rate)
        used.allowance -= 1

    def _of(self, caller: Caller) -> _Used:
        assert caller.limits is not None  # noqa: S101 - asked before
        return self._of_name(caller.tenant, caller.limits)

    def _of_name(self, tenant: str, limits: KeySettings) -> _Used:
        used = self._used.get(tenant)
        if used is None:
            used = self._used[tenant] = _Used(float(limits.requests_per_minute or 0), self._clock())
        return used
