"""A `DiscordPlatform` that listens in a thread of its own, for tests that look on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from everlong.channels.discord import DiscordPlatform
from everlong.channels.platform import Inbound
from everlong.config.settings import DiscordSettings
from tests.channels.discord_stand_in import DiscordStandIn
from tests.waiting import PATIENCE, until

__all__ = ["Bot", "bot", "listening"]

T = TypeVar("T")


class Bot:
    """A platform, and the events that it handed on. ``stored`` acts as the database of the service above it."""

    def __init__(self, discord: DiscordStandIn, stored: Sequence[Inbound] = ()) -> None:
        self.platform = DiscordPlatform(discord.token, DiscordSettings(api_base=discord.api))
        self.stored = {event.update: event for event in stored}
        self.events: list[Inbound] = []
        """Every event in the order of its arrival, also those that came before."""
        self.failures = 0
        """How many times storing still fails."""
        self.stopped: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[DiscordPlatform], Coroutine[Any, Any, T]]) -> T:
        """Run a method of the platform, and return what came of it."""
        return asyncio.run_coroutine_threadsafe(work(self.platform), self._loop).result(PATIENCE)

    def listen(self) -> None:
        """Start to take events."""

        async def run() -> None:
            try:
                await self.platform.run(self._receive)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.stopped = error

        self._task = asyncio.run_coroutine_threadsafe(run(), self._loop)

    def close(self) -> None:
        if hasattr(self, "_task"):
            self._task.cancel()
        self.do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    async def _close(self, platform: DiscordPlatform) -> None:
        await platform.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:  # as `asyncio.run` does at its end
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _receive(self, event: Inbound) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the disk is full")
        self.events.append(event)
        self.stored.setdefault(event.update, event)

    @property
    def texts(self) -> list[str]:
        """The words of all events."""
        return [event.text for event in self.events]


@contextmanager
def bot(discord: DiscordStandIn, stored: Sequence[Inbound] = ()) -> Iterator[Bot]:
    """Make a platform without listening."""
    made = Bot(discord, stored)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def listening(discord: DiscordStandIn, stored: Sequence[Inbound] = ()) -> Iterator[Bot]:
    """Make a platform, and wait until it is connected."""
    with bot(discord, stored) as made:
        made.listen()
        until(lambda: discord.gateway.is_connected)
        yield made
