"""Keeping conversations inside the window: ahead of time where there is time, in line where a request would not fit.

A compaction that is made ahead runs while the answer comes and holds from the next request on, so the bytes of a
conversation change only there. Who pays for a summary is the settings' business; the client's key is never used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from everlong.context import ContextCompressor
from everlong.errors import ContextOverflow, EverlongError, ProviderError
from everlong.gateway.passing import Passing, header_text
from everlong.gateway.windows import Size, Windows
from everlong.store.history import Occasion

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.metrics import Metrics
    from everlong.gateway.visits import Visit

__all__ = ["Room"]

_log = logging.getLogger("everlong.gateway")

_SHARES = (0.7, 0.45, 0.25)
"""What a request is cut to that was refused as too long more than once."""
_PLENTY = 0.8


class Room:
    """Makes room for the requests of one gateway."""

    def __init__(
        self,
        settings: Settings,
        workers: ThreadPoolExecutor,
        summarizer: Callable[[], Summarizer | None],
        metrics: Metrics,
    ) -> None:
        self._settings = settings.compression
        self.windows = Windows(settings)
        self._workers = workers
        self._summarizer = summarizer
        self._metrics = metrics
        self._ahead: dict[int, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Wait a while for what is under way."""
        if self._ahead:
            await asyncio.wait(self._ahead.values(), timeout=10)

    async def make(self, passing: Passing, visit: Visit) -> None:
        """Compact before the request is sent, if it would not fit; soon, if it will not fit soon."""
        if not self._settings.enabled:
            return
        size = self._size(passing, visit)
        ahead = self._ahead.get(visit.line.branch.id)
        if size.is_too_large and ahead is not None:
            await asyncio.wait([ahead])
            await passing.stored(visit)  # which finds the view that was made
            size = self._size(passing, visit)
        if size.is_too_large:
            await passing.stored(visit)
            await self._compact(passing, visit, "preflight", size.window)
            if self._size(passing, visit).is_too_large:
                await self._compact(passing, visit, "preflight", size.window, int(_PLENTY * size.room))
        elif size.is_due and ahead is None:
            ident = visit.line.branch.id
            task = self._ahead[ident] = asyncio.create_task(self._made_ahead(passing, visit, size.window))
            task.add_done_callback(partial(self._over, ident))

    async def shorten(self, passing: Passing, visit: Visit, error: ProviderError, attempt: int, sent: int) -> bool:
        """Make a request that was refused as too long shorter; False where that does not help."""
        if not self._settings.enabled:
            return False
        await passing.stored(visit)
        if isinstance(error, ContextOverflow):
            self.windows.learn(visit.model, passing.route.provider, error)
            if error.prompt_tokens:
                visit.line.reported = (sent, error.prompt_tokens)
        size = self._size(passing, visit, sent)
        target = None if attempt == 0 else int(min(size.tokens, size.room) * _SHARES[attempt - 1])
        await self._compact(passing, visit, "overflow", size.window, target)
        return len(visit.sent(passing.dialect)) < sent

    def _size(self, passing: Passing, visit: Visit, sent: int | None = None) -> Size:
        dialect = passing.dialect
        size = len(visit.sent(dialect)) if sent is None else sent
        room = dialect.answer_tokens(visit.read)
        return self.windows.size(visit.line, size, visit.model, passing.route.provider, room)

    async def _made_ahead(self, passing: Passing, visit: Visit, window: int) -> None:
        await passing.stored(visit)
        await self._compact(passing, visit, "threshold", window)

    def _over(self, ident: int, task: asyncio.Task[None]) -> None:
        del task
        self._ahead.pop(ident, None)

    async def _compact(
        self, passing: Passing, visit: Visit, reason: str, window: int, target: int | None = None
    ) -> None:
        line, keeper = visit.line, passing.visits.keeper
        occasion = Occasion(reason, line.session, visit.model, str(window))

        def work() -> str:
            if keeper.catch_up(line) and target is None:
                return "unchanged"  # it was compacted while this request came
            engine = ContextCompressor(
                window, settings=self._settings, summarizer=self._summarizer(), model=visit.model
            )
            options = {"force": True} | ({} if target is None else {"target_tokens": target})
            return keeper.compacted(line, engine, occasion, **options).outcome

        passing.account.compactions.append(reason)
        outcome = "failed"
        try:
            outcome = await asyncio.get_running_loop().run_in_executor(self._workers, work)
        except EverlongError as error:
            passing.warning = header_text(f"not compacted: {error}")
        except Exception as error:  # noqa: BLE001 - the request goes on as well as it can
            passing.warning = header_text(f"not compacted: {type(error).__name__}")
            _log.error("a conversation could not be compacted: %s", type(error).__name__)
        self._metrics.compacted(reason, outcome)
