"""A `DiscordPlatform` that listens in a thread of its own, for tests that look on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from everlong.channels.discord import DiscordPlatform
from everlong.channels.platform import Inbound
from everlong.config.settings import DiscordSettings
from tests.channels.discord_stand_in import DiscordStandIn
from tests.waiting import PATIENCE, until

T = TypeVar("T")


class Bot:
    """A platform, and the events that it handed on."""

    def __init__(self, discord: DiscordStandIn) -> None:
        self.platform = DiscordPlatform(discord.token, DiscordSettings(api_base=discord.api))
        self.events: list[Inbound] = []
        """Every event in the order of its arrival, also those that came before."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[DiscordPlatform], Coroutine[Any, Any, T]]) -> T:
        """Run a method of the platform, and return what came of it."""
        return asyncio.run_coroutine_threadsafe(work(self.platform), self._loop).result(PATIENCE)

    def listen(self) -> None:
        """Start to take events."""
        self._task = asyncio.run_coroutine_threadsafe(self.platform.run(self._receive), self._loop)

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
        self.events.append(event)

    @property
    def texts(self) -> list[str]:
        """The words of all events."""
        return [event.text for event in self.events]


@contextmanager
def bot(discord: DiscordStandIn) -> Iterator[Bot]:
    """Make a platform without listening."""
    made = Bot(discord)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def listening(discord: DiscordStandIn) -> Iterator[Bot]:
    """Make a platform, and wait until it is connected."""
    with bot(discord) as made:
        made.listen()
        until(lambda: discord.gateway.is_connected)
        yield made
