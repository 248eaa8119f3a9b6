"""The connection to Discord's gateway: every event in order per channel, and the messages missed while it was down.

Discord repeats what a client missed if the client resumes its session. A new session (a restart, or a session that
Discord gave up) starts with nothing: `Feed` then asks each known channel for the messages after the newest one that was
read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any

import discord

from everlong.channels.discord_errors import translate_errors
from everlong.channels.discord_events import (
    Location,
    deletion_event,
    edit_event,
    interaction_event,
    locate_channel,
    message_event,
    split_interaction,
)
from everlong.channels.platform import Inbound, Place, PlatformRefused, Receive

__all__ = ["BotClient", "Feed"]

_log = logging.getLogger(__name__)

_KNOWN_CHANNELS = 10_000
"""Locations kept in memory; others are asked for again."""
_FETCHES = 8
"""Channels whose missed messages are fetched at the same time."""
_LONGEST_PAUSE = 60.0
"""Seconds between two attempts to store an event."""

Job = Callable[[], Awaitable[None]]


class BotClient(discord.Client):
    """The library's client, with only what this bot needs switched on. Events go to ``feed`` while it is set."""

    def __init__(self) -> None:
        intents = discord.Intents.none()
        intents.guilds = True
        intents.guild_messages = True
        intents.dm_messages = True
        intents.message_content = True
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # nobody calls this bot
        super().__init__(
            intents=intents,
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            allowed_mentions=discord.AllowedMentions.none(),
            max_ratelimit_timeout=30.0,
        )
        self.feed: Feed | None = None

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Hand an event to the method of the feed that is called like it; a feed that fails is logged."""
        del kwargs
        take = getattr(self.feed, f"on_{event}", None)
        try:
            if take is not None:
                take(*args)
        except Exception:  # noqa: BLE001 - the connection must live on
            _log.exception("discord: %s failed", event)


class Feed:
    """The events of one client, handed on in order per channel. A job that fails is tried again until it succeeds.

    Args:
        client: A client that is logged in.
        receive: Stores an event.
        last_seen: Gives the id of the newest message that was read in a place.
        places: Gives all places with stored messages.
    """

    def __init__(
        self,
        client: BotClient,
        receive: Receive,
        last_seen: Callable[[Place], str],
        places: Callable[[], Sequence[Place]],
    ) -> None:
        self._client = client
        self._receive = receive
        self._last_seen = last_seen
        self._places = places
        self._lanes = Lanes()
        self._locations: OrderedDict[int, Location] = OrderedDict()
        self._fetching = asyncio.Semaphore(_FETCHES)
        self._newest = 0
        """The newest stored message of all places when the session began."""
        self._is_listed = asyncio.Event()
        """Set once it is known which channels may have missed something."""
        self._behind: dict[int, tuple[Location | None, int]] = {}
        """Channels that may have missed messages: where they are, if that is known, and after which message."""
        self._looked_after: set[int] = set()

    async def close(self) -> None:
        """Stop; what is not stored yet is fetched by the next session."""
        await self._lanes.close()

    def on_connect(self) -> None:
        """Fetch the messages that known channels missed, before anything that they say in this new session."""
        self._is_listed.clear()
        self._lanes.put("catch up", self._list_channels)

    def on_ready(self) -> None:
        """Fetch what was said since the newest stored message in channels that have none, such as a new thread."""
        self._lanes.put("catch up", self._list_new_channels)

    async def _list_channels(self) -> None:
        seen = await asyncio.to_thread(self._read_last_seen)
        self._newest = max(seen.values(), default=0)
        self._behind = {channel: (None, message) for channel, message in seen.items()}
        self._looked_after = set(seen)
        self._is_listed.set()
        for channel in seen:
            self._lanes.put(channel, partial(self._fetch_missed, channel))

    def _read_last_seen(self) -> dict[int, int]:
        """Return the newest stored message of each channel; read in a thread of its own."""
        places = {_channel_id(place): place for place in self._places() if place.platform == "discord"}
        seen = {channel: _snowflake(self._last_seen(place)) for channel, place in places.items()}
        return {channel: message for channel, message in seen.items() if channel and message}

    async def _list_new_channels(self) -> None:
        if not self._newest:
            return
        for guild in self._client.guilds:
            channels: list[Any] = [*guild.text_channels, *guild.voice_channels, *guild.threads]
            for channel in channels:
                where = locate_channel(channel)
                is_new = (channel.last_message_id or 0) > self._newest and channel.id not in self._looked_after
                if where is not None and is_new:
                    self._looked_after.add(channel.id)
                    self._behind[channel.id] = (where, self._newest)
                    self._lanes.put(channel.id, partial(self._fetch_missed, channel.id))

    def on_message(self, message: discord.Message) -> None:
        """Queue a message."""

        async def hand_on() -> None:
            await self._fetch_missed(message.channel.id)
            where = await self._locate(message.channel.id, message.channel, _guild_id(message))
            await self._hand_on(lambda: message_event(message, where, self._me))

        if message.author.id != self._me:
            self._lanes.put(message.channel.id, hand_on)

    def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """Queue an edit."""
        message = payload.message

        async def hand_on() -> None:
            await self._fetch_missed(message.channel.id)
            where = await self._locate(message.channel.id, message.channel, _guild_id(message))
            await self._hand_on(lambda: edit_event(message, where, self._me))

        if message.author.id != self._me and message.edited_at is not None:
            self._lanes.put(message.channel.id, hand_on)

    def on_raw_message_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        """Queue a deletion."""
        self._put_deletions(payload.channel_id, payload.guild_id, [payload.message_id])

    def on_raw_bulk_message_delete(self, payload: discord.RawBulkMessageDeleteEvent) -> None:
        """Queue the deletion of several messages."""
        self._put_deletions(payload.channel_id, payload.guild_id, sorted(payload.message_ids))

    def _put_deletions(self, channel: int, guild: int | None, messages: Sequence[int]) -> None:
        async def hand_on() -> None:
            await self._fetch_missed(channel)
            where = await self._locate(channel, None, guild)
            for message in messages:
                await self._hand_on(partial(deletion_event, message, where))

        self._lanes.put(channel, hand_on)

    def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        """Queue a command or a button, apart from messages: Discord waits for three seconds only."""
        channel = interaction.channel
        if channel is None:
            return

        async def hand_on() -> None:
            where = await self._locate(channel.id, channel, interaction.guild_id)
            await self._hand_on(lambda: interaction_event(interaction, where))

        self._lanes.put(("interaction", channel.id), hand_on)

    @property
    def _me(self) -> int:
        return self._client.user.id if self._client.user is not None else 0

    async def _hand_on(self, read: Callable[[], Inbound | None]) -> None:
        """Read an event and hand it on; one that cannot be read is left out, because others wait behind it."""
        try:
            event = read()
        except Exception:  # noqa: BLE001 - whatever it is, it would be the same the next time
            _log.exception("discord: an event cannot be read, and is left out")
            return
        if event is not None:
            await self._receive(event)

    async def _locate(self, channel_id: int, channel: object, guild: int | None) -> Location:
        """Return where a channel is; ask Discord if neither the object nor the library's cache tells."""
        if known := self._locations.get(channel_id):
            self._locations.move_to_end(channel_id)
            return known
        where = locate_channel(channel, guild) or locate_channel(self._client.get_channel(channel_id), guild)
        if where is None and guild is None:
            where = Location(Place("discord", str(channel_id)))
        if where is None:
            with translate_errors():
                where = locate_channel(await self._client.fetch_channel(channel_id), guild)
        if where is None:
            raise PlatformRefused(f"discord: channel {channel_id} is of a kind in which nobody writes")
        self._locations[channel_id] = where
        while len(self._locations) > _KNOWN_CHANNELS:
            self._locations.popitem(last=False)
        return where

    async def _fetch_missed(self, channel_id: int) -> None:
        """Hand on the messages of a channel that came while nobody listened, oldest first, if that is not done yet."""
        await self._is_listed.wait()
        if channel_id not in self._behind:
            return
        where, seen = self._behind[channel_id]
        try:
            async with self._fetching:
                await self._fetch_after(channel_id, where, seen)
        except PlatformRefused as error:
            _log.warning("discord: missed messages of channel %d cannot be fetched: %s", channel_id, error)
        self._behind.pop(channel_id, None)

    async def _fetch_after(self, channel_id: int, where: Location | None, seen: int) -> None:
        with translate_errors():
            channel: Any = self._client.get_channel(channel_id) or await self._client.fetch_channel(channel_id)
        where = where or locate_channel(channel)
        if where is None or not hasattr(channel, "history"):
            return
        history = channel.history(limit=None, after=discord.Object(seen), oldest_first=True)
        while True:
            with translate_errors():
                message = await anext(history, None)
            if message is None:
                return
            await self._hand_on(partial(message_event, message, where, self._me))


class Lanes:
    """Jobs that run in order per key; different keys do not wait for each other."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, deque[Job]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, key: Hashable, job: Job) -> None:
        """Queue a job behind the others of its key."""
        if key in self._jobs:
            self._jobs[key].append(job)
            return
        self._jobs[key] = deque([job])
        task = asyncio.get_running_loop().create_task(self._work(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop all jobs."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._jobs.clear()

    async def _work(self, key: Hashable) -> None:
        jobs = self._jobs[key]
        while jobs:
            await _run_until_done(jobs[0])
            jobs.popleft()
        self._jobs.pop(key, None)


async def _run_until_done(job: Job) -> None:
    """Run a job until it succeeds. A channel that the bot may not see is given up."""
    pause = 0.5
    while True:
        try:
            await job()
        except PlatformRefused as error:
            _log.warning("discord: an event is left out: %s", error)
        except Exception as error:  # noqa: BLE001 - whatever kept the event from being stored, it must not be lost
            _log.warning("discord: an event is tried again in %.1f s: %s", pause, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            continue
        return


def _guild_id(message: discord.Message) -> int | None:
    if message.guild is not None:
        return message.guild.id
    found = getattr(message.channel, "guild_id", None)
    return int(found) if found is not None else None


def _snowflake(message: str) -> int:
    """Return the number of a message id or of an interaction; 0 if there is none."""
    if interaction := split_interaction(message):
        return interaction[0]
    return int(message) if message.isdigit() else 0


def _channel_id(place: Place) -> int | None:
    found = place.topic or place.chat
    return int(found) if found.isdigit() else None
