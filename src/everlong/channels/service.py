"""The service: events come in and are stored, turns run in threads, answers go out.

A `Channel` is one platform. Each place has a lane of its own, which does one thing after the other: it delivers what is
ready, goes on with what a restart cut short, then answers what waits. Lanes do not know each other, so a slow model or
a chat that cannot be reached holds up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import Field

from everlong.agent import Agent, open_agent
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.history import HITS, show_passages
from everlong.agent.tools.tool import tool
from everlong.agent.watch import Interrupted
from everlong.channels import channel_settings
from everlong.channels.access import Access
from everlong.channels.attachments import Attachments
from everlong.channels.commands import CHANNEL_COMMANDS, CommandReply, CommandRunner, command_of, may_repeat
from everlong.channels.conversations import (
    STOPPED,
    ChatConversations,
    ChatTurns,
    PromptFile,
    Seat,
    conversation_of,
    failure_text,
)
from everlong.channels.delivery import Delivery, Sleep
from everlong.channels.inbox import KEPT_SECONDS, Inbox
from everlong.channels.outbox import Outbox, OutboxAnswer
from everlong.channels.places import ChatPlaces
from everlong.channels.platform import Inbound, Place, Platform, PlatformError
from everlong.channels.questions import Questions
from everlong.errors import EverlongError, NotStored, StoreError
from everlong.store import leases
from everlong.store.recall import Passage, find_passages
from everlong.store.search import Filters

if TYPE_CHECKING:
    from everlong.agent import Tool
    from everlong.config import Settings
    from everlong.config.settings import ChannelSettings
    from everlong.store import Store

__all__ = ["Channel", "ChannelClock", "ChannelService", "lease_key"]

T = TypeVar("T")
_log = logging.getLogger("everlong.channels")

QUEUE_MESSAGES = 30
"""Messages of one chat that wait for an answer: more than a person writes meanwhile, fewer than a flood."""
COMPACTION_SECONDS = 180.0
"""Seconds of a compaction before a message; then the conversation stays as it was, and the message is answered."""
TURNS_AT_ONCE = 8
"""Turns that run at once, on all platforms together: each has a thread, which mostly waits for its model."""
_APPROVAL_SECONDS = 600.0
"""Seconds that a question for approval waits for a press."""
_TICK_SECONDS = 1.0
_LEASE_SECONDS = 60.0
_STORE_WAIT = 5.0
"""Seconds before something is tried again that the database refused."""
_BUG_WAIT = 60.0
"""Seconds before something is tried again that failed in the program itself."""
_PRUNE_SECONDS = 86_400.0
_DRAIN_SECONDS = 10.0
"""Seconds that turns under way get when the service stops; the next start goes on with those that take longer."""
_CUT_SHORT = "I was restarted while I did this, and do not know how far it came. Look, and say it again if needed."
_FLOODED = "That is more than I can take in at once: I answer {most} messages. Please send the rest again later."
_WELCOME = "You are in. Write to me, or see /help."


@dataclass(frozen=True)
class ChannelClock:
    """Time as channels know it; tests hand in another one."""

    now: Callable[[], float] = time.time
    sleep: Sleep = asyncio.sleep


@dataclass
class _Lane:
    """The work of one place."""

    task: asyncio.Task[None] | None = None
    is_woken: bool = False
    is_stopping: bool = False
    """True once somebody said /stop to the turn that is about to run."""
    has_declined: bool = False
    """True once a flood was answered; a word that is said again with each message is one too many."""


class Channel:
    """One platform: its places, their lanes, and everything that they need.

    Args:
        platform: the platform.
        store: keeps everything.
        settings: the configuration.
        channel: the platform's section of it.
        turns: the turns that may run at once, on all platforms together.
        clock: the time.
        opener: opens an agent.
    """

    def __init__(
        self,
        platform: Platform,
        store: Store,
        settings: Settings,
        channel: ChannelSettings,
        turns: asyncio.Semaphore,
        clock: ChannelClock | None = None,
        opener: Callable[..., Agent] = open_agent,
    ) -> None:
        self.platform, self._section = platform, settings.channels
        self._clock, self._threads = clock or ChannelClock(), turns
        self.places, self.outbox = ChatPlaces(store), Outbox(store, platform.name, self._clock.now)
        self.access = Access(store, platform.name, channel, self._clock.now)
        self.delivery = Delivery(platform, self.outbox, self.places, self._clock.sleep)
        self.questions = Questions(platform, self.delivery, self.access, _APPROVAL_SECONDS, self._clock.now)
        self.conversations = ChatConversations(
            store, settings, self.questions.ask, lambda place: [search_tool(store, self.places, place)], opener=opener
        )
        self._attachments = Attachments(store, platform, self.delivery, self.conversations.folder)
        self._commands = CommandRunner(self.conversations, self.places, self.access, settings, self._clock.now)
        self._turns = ChatTurns(self.outbox, self.places, self._clock.now, COMPACTION_SECONDS)
        self._lanes: dict[Place, _Lane] = {}
        self._inbox = Inbox(store, platform.name, clock=self._clock.now)
        self._prune_at = 0.0
        self.is_connected = False
        """True once the channel has started."""

    # -- the life of a channel -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and go on with what an earlier process left."""
        identity = await self.delivery.persist(self.platform.identify)
        self._inbox.bot = identity.id
        _log.info("%s: connected as %s", self.platform.name, identity.name)
        for place in await asyncio.to_thread(self._unfinished_places):
            self.wake(place)
        self.is_connected = True

    async def run(self) -> None:
        """Take in events until cancelled."""
        with suppress(PlatformError):  # completion of commands is a comfort
            await self.delivery.persist(lambda: self.platform.register_commands(CHANNEL_COMMANDS), tries=3)
        await self.platform.run(self.receive)

    async def tick(self) -> None:
        """Do what is due: questions that ran out, answers that wait for a chat, and once a day old rows."""
        self.questions.expire()
        if (now := self._clock.now()) >= self._prune_at:
            self._prune_at = now + _PRUNE_SECONDS
            for prune in (self._inbox.prune, self.outbox.prune):
                await asyncio.to_thread(prune, now - KEPT_SECONDS)
        for place in await asyncio.to_thread(self.outbox.places):
            self.wake(place)

    async def settle(self) -> None:
        """Wait until no lane has anything to do."""
        while running := [lane.task for lane in self._lanes.values() if lane.task is not None and not lane.task.done()]:
            await asyncio.wait(running)

    async def stop(self, seconds: float = _DRAIN_SECONDS) -> None:
        """Let turns under way end for some seconds, then leave them to the next start."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.settle(), seconds)
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self.conversations.close)
        with suppress(PlatformError):
            await self.platform.close()

    # -- coming in -----------------------------------------------------------------------------------------------------

    async def receive(self, event: Inbound) -> None:
        """Store an event; it may be acknowledged once this returns."""
        if not await asyncio.to_thread(self.access.allows, event):
            if await asyncio.to_thread(self.access.admit, event):
                await asyncio.to_thread(self.outbox.add, event.place, "notice", _WELCOME)
                self.wake(event.place)
        elif event.kind == "button":
            await self.questions.press(event)
        elif event.is_addressed or self._section.groups == "all":
            await self._keep(event)

    async def _keep(self, event: Inbound) -> None:
        most = QUEUE_MESSAGES
        if command_of(event) == "stop":
            if await asyncio.to_thread(self._inbox.keep, event, most, is_done=True) != "known":
                await self._stop_turn(event)
            return
        kept = await asyncio.to_thread(self._inbox.keep, event, most)
        lane = self._lane(event.place)
        flooded = _FLOODED.format(most=most) if kept == "full" else ""
        if flooded and not lane.has_declined:
            lane.has_declined = True
            await asyncio.to_thread(self.outbox.add, event.place, "notice", flooded)
        if kept in {"new", "full"}:
            if event.callback:  # without words the platform shows that an answer is on its way
                with suppress(PlatformError):
                    await self.platform.acknowledge(event, flooded)
            self.wake(event.place)

    async def _stop_turn(self, event: Inbound) -> None:
        lane = self._lane(event.place)
        self.questions.cancel(event.place)
        is_running = lane.task is not None and not lane.task.done()
        if is_running:
            lane.is_stopping = True
            self.conversations.interrupt(event.place)
        with suppress(PlatformError):
            if event.callback:
                await self.platform.acknowledge(event, "Stopping." if is_running else "Nothing is running.")
        if not is_running:
            await asyncio.to_thread(self.outbox.add, event.place, "notice", "Nothing is running.")
            self.wake(event.place)

    # -- lanes ---------------------------------------------------------------------------------------------------------

    def wake(self, place: Place) -> None:
        """Let the lane of a place look for work."""
        lane = self._lane(place)
        lane.is_woken = True
        if lane.task is None or lane.task.done():
            lane.task = asyncio.get_running_loop().create_task(self._work(place, lane))

    def _lane(self, place: Place) -> _Lane:
        return self._lanes.setdefault(place, _Lane())

    async def _work(self, place: Place, lane: _Lane) -> None:
        while lane.is_woken:
            lane.is_woken = False
            try:
                while await self._step(place, lane):
                    pass
            except StoreError as error:
                _log.warning("the database refused something of a chat; it is tried again: %s", error)
                await self._clock.sleep(_STORE_WAIT)
                lane.is_woken = True
            except Exception:  # noqa: BLE001 - a bug in one chat must not end its lane without a word
                _log.exception("something went wrong in a chat of %s; it is tried again", place.platform)
                await self._clock.sleep(_BUG_WAIT)
                lane.is_woken = True
        lane.has_declined = False

    async def _step(self, place: Place, lane: _Lane) -> bool:
        """Do one thing in a place; return False if there is nothing to do."""
        unfinished = await asyncio.to_thread(self.outbox.open, place)
        ready = next((answer for answer in unfinished if answer.state == "ready"), None)
        if ready is not None:
            await self.delivery.deliver(ready)
            return True
        was_begun = bool(unfinished)
        if was_begun:
            answer = unfinished[0]
            claim = await asyncio.to_thread(self._inbox.claim_of, answer.id)
        else:
            found = await asyncio.to_thread(
                self._inbox.claim, place, _together, lambda event: "command" if command_of(event) else "turn"
            )
            if found is None:
                return False
            claim, answer = found, await asyncio.to_thread(self.outbox.get, found.answer)
        events = [one.event for one in claim.events]
        if not events or (was_begun and answer.kind == "command" and not may_repeat(events[-1])):
            reply = CommandReply(_CUT_SHORT)
        else:
            reply = await self._reply(answer, events, lane)
        finish = self.outbox.finish
        ready = await asyncio.to_thread(finish, answer.id, reply.text, starts_anew=reply.starts_anew)
        await self.delivery.deliver(ready)
        return True

    async def _reply(self, answer: OutboxAnswer, events: Sequence[Inbound], lane: _Lane) -> CommandReply:
        """Return what is said to a command or to messages, whatever happens."""
        try:
            if answer.kind == "command":
                return await self._run_in_thread(lambda: self._commands.run(events[-1]))
            return CommandReply(await self._answer(answer, events, lane))
        except NotStored as error:
            return CommandReply(failure_text(error))
        except StoreError:
            raise
        except EverlongError as error:
            return CommandReply(failure_text(error))
        except Exception as error:  # noqa: BLE001 - a bug in one chat must not hold up its messages for ever
            _log.exception("a turn in %s failed", answer.place.platform)
            return CommandReply(
                f"Something went wrong in the program itself ({type(error).__name__}); your messages are kept."
            )

    async def _answer(self, answer: OutboxAnswer, events: Sequence[Inbound], lane: _Lane) -> str:
        """Return the reply to messages."""
        is_over = asyncio.Event()
        streaming: list[asyncio.Future[None]] = []
        typing: list[asyncio.Future[None]] = []
        loop = asyncio.get_running_loop()

        def begin_stream(seat: Seat) -> None:
            live = seat.begin_turn(events[-1])
            # Only now: hundreds of chats that wait for a thread would use up what the platform takes from a bot.
            show = self.delivery.show_typing(answer.place)
            loop.call_soon_threadsafe(lambda: typing.append(asyncio.ensure_future(show)))
            if self._section.stream:
                stream = self.delivery.stream(answer, live, is_over)
                loop.call_soon_threadsafe(lambda: streaming.append(asyncio.ensure_future(stream)))

        try:
            fetched = await self._attachments.fetch(events)
            if fetched.refusal:
                return fetched.refusal
            if lane.is_stopping:
                return STOPPED
            return await self._run_in_thread(lambda: self._run_turn(answer, events, fetched.files, begin_stream))
        finally:
            lane.is_stopping = False
            is_over.set()
            await asyncio.sleep(0)  # what the thread has begun stands in the lists now
            for one in typing:
                one.cancel()
            await asyncio.gather(*typing, *streaming, return_exceptions=True)

    # -- in threads ----------------------------------------------------------------------------------------------------

    def _run_turn(
        self,
        answer: OutboxAnswer,
        events: Sequence[Inbound],
        files: Sequence[PromptFile],
        begin: Callable[[Seat], None],
    ) -> str:
        seat = self.conversations.take(answer.place)
        try:
            begin(seat)
            return self._turns.run(seat, answer, events, files)
        except Interrupted:  # in a compaction, before anything was said
            return STOPPED
        finally:
            self._attachments.assign(events, conversation_of(seat.agent))
            self.conversations.give_back(seat)

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run work in a thread of its own, as soon as fewer turns run than may."""
        async with self._threads:
            return await run_in_thread(work)

    def _unfinished_places(self) -> set[Place]:
        return {*self._inbox.places(), *self.outbox.places()}


def _together(events: Sequence[Inbound]) -> int:
    """Return how many of the waiting messages are answered together: a command alone, else those of one person."""
    if command_of(events[0]):
        return 1
    first = events[0].person.id
    return next(
        (place for place, event in enumerate(events) if command_of(event) or event.person.id != first), len(events)
    )


async def run_in_thread(work: Callable[[], T]) -> T:
    """Return what work returns in a daemon thread, which nobody waits for at the end of the program."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it goes on even if nobody waits any more

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)
        else:
            future.set_result(value)

    threading.Thread(target=run, name="everlong-turn", daemon=True).start()
    return await asyncio.wrap_future(future)


@dataclass
class ChannelService:
    """All channels of one process.

    >>> service = ChannelService(store, settings, {"telegram": platform})  # doctest: +SKIP
    >>> await service.run()  # doctest: +SKIP
    """

    store: Store
    settings: Settings
    platforms: dict[str, Platform]
    clock: ChannelClock = field(default_factory=ChannelClock)
    opener: Callable[..., Agent] = open_agent
    channels: list[Channel] = field(init=False, default_factory=list)

    async def run(self, is_up: Callable[[], None] = lambda: None) -> None:
        """Serve all channels until cancelled; ``is_up`` is called once all of them are connected."""
        held: list[leases.Lease] = []
        tasks: list[asyncio.Task[None]] = []
        try:
            for name in self.platforms:
                held.append(await asyncio.to_thread(self._take_lease, name))  # noqa: PERF401 - released if the next fails
            limit = asyncio.Semaphore(TURNS_AT_ONCE)
            for name, platform in self.platforms.items():
                section = channel_settings(name, self.settings.channels)
                self.channels.append(
                    Channel(platform, self.store, self.settings, section, limit, self.clock, self.opener)
                )
            tasks = [asyncio.ensure_future(self._serve(channel, is_up)) for channel in self.channels]
            tasks.append(asyncio.ensure_future(self._tick_forever(held)))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(channel.stop() for channel in self.channels))
            for lease in held:
                with suppress(StoreError):
                    await asyncio.to_thread(leases.release, self.store.database, lease)

    async def _serve(self, channel: Channel, is_up: Callable[[], None]) -> None:
        """Connect a channel and run it; a platform that cannot be reached holds up no other."""
        await channel.start()
        if all(one.is_connected for one in self.channels):
            is_up()
        await channel.run()

    async def _tick_forever(self, held: list[leases.Lease]) -> None:
        prolong_at = time.monotonic() + _LEASE_SECONDS / 3
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                if time.monotonic() >= prolong_at:
                    await self._prolong(held)
                    prolong_at = time.monotonic() + _LEASE_SECONDS / 3
                for channel in self.channels:
                    if channel.is_connected:
                        await channel.tick()
            except StoreError as error:
                _log.warning("the database refused something; it is tried again: %s", error)

    async def _prolong(self, held: list[leases.Lease]) -> None:
        for lease in held:
            if not await asyncio.to_thread(leases.prolong, self.store.database, lease, _LEASE_SECONDS):
                raise EverlongError(f"another process has taken over {lease.key}; this one stops")

    def _take_lease(self, name: str) -> leases.Lease:
        """Take the right to run a platform: two processes would answer everything twice."""
        taken = leases.take(self.store.database, lease_key(self.store.tenant, name), _LEASE_SECONDS)
        if taken is None:
            raise EverlongError(
                f"another process runs {name} on this store already; stop it first (everlong channels run, or serve)"
            )
        return taken


def lease_key(tenant: str, name: str) -> str:
    """Return the key of the lease under which a platform is run."""
    return f"channel:{tenant}:{name}"


_MOST_CONVERSATIONS = 20
"""Conversations of a place that a search looks through, the newest."""


def search_tool(store: Store, places: ChatPlaces, place: Place) -> Tool:
    """Return the tool ``search_sessions`` of a place, which finds what was said in its own conversations."""

    def search_sessions(  # noqa: D417 - the docstring is what the model reads, and the context is handed in
        query: str,
        context: ToolContext,
        limit: Annotated[int, Field(ge=1, le=20)] = HITS,
        page: Annotated[int, Field(ge=1)] = 1,
    ) -> str:
        """Find what was said in this chat before, also in its earlier conversations.

        Args:
            query: Words of what you look for; what must be there word for word stands in double quotes.
            limit: How many hits a page has.
            page: Which page of the hits.
        """
        found: list[list[Passage]] = []
        for name in places.conversations(place)[:_MOST_CONVERSATIONS]:
            try:
                found.append(list(find_passages(store, store.searcher, query, Filters(session=name))))
            except NotStored:  # forgotten meanwhile
                continue
        best_first = (one for rank in zip_longest(*found) for one in rank if one is not None)
        return show_passages(context, query, best_first, page, limit)

    return tool(search_sessions)
