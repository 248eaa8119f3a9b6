"""Discord's gateway: events in order as `Inbound` values, and its errors.

Discord repeats what a client missed if the client resumes its session. A new session (a restart, or a session that
Discord gave up) starts with nothing. Update ids begin with the kind of the event: ``m`` message, ``i`` interaction.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import aiohttp
import discord

from everlong.agent.text import outside_name
from everlong.channels.platform import (
    Attachment,
    Inbound,
    Person,
    Place,
    PlatformBusy,
    PlatformRefused,
    PlatformUnreachable,
    Receive,
)

__all__ = ["NO_INTENT", "BotClient", "Feed", "split_interaction", "translate_errors"]

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 60.0
"""Seconds between two attempts to store an event."""
_BAD_LOGIN = (
    "Discord refuses the bot's token; copy a fresh one from the page Bot of your application "
    "(https://discord.com/developers/applications) and set DISCORD_BOT_TOKEN to it"
)
NO_INTENT = (
    "Discord does not let this bot read messages; switch on MESSAGE CONTENT INTENT on the page Bot of your application "
    "(https://discord.com/developers/applications), then start again"
)
_BANNED_FOR = 60.0
"""Seconds to wait where Discord's front refuses all requests and does not say for how long."""
_CLOSED_FOR_GOOD = {4004: _BAD_LOGIN, 4014: NO_INTENT}
_MENTION = re.compile(r"<@!?(\d+)>")
_TALK = (discord.MessageType.default, discord.MessageType.reply)
_VOICE = 1 << 13
"""Discord's flag of a voice message."""

Job = Callable[[], Awaitable[None]]


# -- errors ------------------------------------------------------------------------------------------------------------


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the library's errors as `PlatformBusy`, `PlatformRefused` or `PlatformUnreachable`."""
    try:
        yield
    except discord.LoginFailure as error:
        raise PlatformRefused(_BAD_LOGIN) from error
    except discord.PrivilegedIntentsRequired as error:
        raise PlatformRefused(NO_INTENT) from error
    except discord.RateLimited as error:
        raise PlatformBusy("Discord asks to wait", error.retry_after) from error
    except discord.ConnectionClosed as error:
        if error.code in _CLOSED_FOR_GOOD:
            raise PlatformRefused(_CLOSED_FOR_GOOD[error.code]) from error
        raise PlatformUnreachable(f"Discord closed the connection with code {error.code}") from error
    except discord.HTTPException as error:
        raise _translate(error) from error
    except (discord.GatewayNotFound, aiohttp.ClientError, TimeoutError, OSError) as error:
        raise PlatformUnreachable(f"Discord cannot be reached: {str(error) or type(error).__name__}") from error


def _translate(error: discord.HTTPException) -> PlatformBusy | PlatformRefused | PlatformUnreachable:
    if error.status == 401:
        return PlatformRefused(_BAD_LOGIN)
    if error.status == 429:
        return PlatformBusy("Discord asks to wait", _retry_after(error))
    if error.status >= 500:
        return PlatformUnreachable(f"Discord answered with status {error.status}")
    reason = error.text or "no reason given"
    return PlatformRefused(f"Discord refuses: {reason} (status {error.status}, code {error.code})")


def _retry_after(error: discord.HTTPException) -> float:
    try:
        return max(1.0, float(error.response.headers.get("Retry-After", _BANNED_FOR)))
    except ValueError:
        return _BANNED_FOR


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Location:
    """A channel: the place it is for us, and the server it belongs to."""

    place: Place
    guild: str = ""

    @property
    def is_private(self) -> bool:
        """True in a private chat with the bot."""
        return not self.guild


def locate_channel(channel: object, guild: int | None = None) -> Location | None:
    """Return where a channel is; None if the object does not tell a thread from a channel."""
    if isinstance(channel, discord.Thread):
        return Location(Place("discord", str(channel.parent_id), str(channel.id)), str(channel.guild.id))
    if isinstance(channel, discord.DMChannel):
        return Location(Place("discord", str(channel.id)))
    if isinstance(channel, discord.abc.GuildChannel):
        return Location(Place("discord", str(channel.id)), str(guild or channel.guild.id))
    return None


def message_event(message: discord.Message, where: Location, me: int) -> Inbound | None:
    """Return what a person wrote; None for the bot's own words and for notices such as pins and joins."""
    if message.author.id == me or message.type not in _TALK:
        return None
    snapshots = message.message_snapshots
    words = "\n".join(snapshot.content for snapshot in snapshots) if snapshots else message.content
    files = [file for snapshot in snapshots for file in snapshot.attachments] if snapshots else message.attachments
    reference = message.reference
    return Inbound(
        kind="message",
        update=f"m:{message.id}",
        place=where.place,
        person=_person(message.author, is_bot=message.webhook_id is not None),
        message=str(message.id),
        text=_read_words(words, message, me),
        attachments=tuple(_attachment(file, message) for file in files),
        guild=where.guild,
        is_private=where.is_private,
        is_addressed=where.is_private or _is_addressed(message, me),
        is_forwarded=bool(snapshots),
        replies_to=str(reference.message_id or "") if reference is not None and not snapshots else "",
        sent_at=message.created_at.timestamp(),
    )


def interaction_event(interaction: discord.Interaction[Any], where: Location) -> Inbound | None:
    """Return a command as its text, or a pressed button; None for kinds that this bot does not offer."""
    callback = f"{interaction.id}:{interaction.token}"
    data: Any = interaction.data or {}
    common = Inbound(
        kind="message",
        update=f"i:{interaction.id}",
        place=where.place,
        person=_person(interaction.user),
        message=callback,
        guild=where.guild,
        is_private=where.is_private,
        callback=callback,
        sent_at=interaction.created_at.timestamp(),
    )
    if interaction.type is discord.InteractionType.application_command:
        words = [str(option.get("value", "")) for option in data.get("options", ())]
        return replace(common, text=" ".join([f"/{data.get('name', '')}", *words]).strip())
    if interaction.type is discord.InteractionType.component and interaction.message is not None:
        pressed = str(data.get("custom_id", ""))
        return replace(common, kind="button", message=str(interaction.message.id), button=pressed)
    return None


def split_interaction(text: str) -> tuple[int, str] | None:
    """Return the id and the token of an interaction from an event's ``message`` or ``callback``; None for other ids."""
    number, colon, token = text.partition(":")
    return (int(number), token) if colon and number.isdigit() and token else None


def _person(user: discord.User | discord.Member, *, is_bot: bool = False) -> Person:
    return Person(str(user.id), user.display_name, user.bot or is_bot)


def _is_addressed(message: discord.Message, me: int) -> bool:
    """Return True for a mention of the bot or of its own role, and for a reply to it; ``@everyone`` is no mention."""
    if any(user.id == me for user in message.mentions):
        return True
    if any(
        role.is_bot_managed() and role.tags is not None and role.tags.bot_id == me for role in message.role_mentions
    ):
        return True
    answered = message.reference.resolved if message.reference is not None else None
    return isinstance(answered, discord.Message) and answered.author.id == me


def _read_words(words: str, message: discord.Message, me: int) -> str:
    """Return the words without the mention that calls the bot, and with names where Discord has numbers."""
    names = {user.id: user.display_name for user in message.mentions}

    def name(found: re.Match[str]) -> str:
        number = int(found[1])
        if number == me:
            return ""
        return f"@{outside_name(names[number])}" if number in names else found[0]

    text = _MENTION.sub(name, words)
    for role in message.role_mentions:
        is_own = role.tags is not None and role.tags.bot_id == me
        text = text.replace(role.mention, "" if is_own else f"@{outside_name(role.name)}")
    if not text.strip() and message.stickers:
        text = " ".join(f"[sticker: {outside_name(sticker.name)}]" for sticker in message.stickers)
    return text.strip()


def _attachment(file: discord.Attachment, message: discord.Message) -> Attachment:
    media_type = (file.content_type or "application/octet-stream").partition(";")[0].strip().lower()
    kind: Literal["image", "document", "voice"] = "document"
    if message.flags.value & _VOICE or file.is_voice_message():
        kind = "voice"
    elif media_type.startswith("image/"):
        kind = "image"
    return Attachment(kind, file.filename, media_type, file.size, file.url)


# -- the connection ----------------------------------------------------------------------------------------------------


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
    """The events of one client, handed on in order. A job that fails is tried again until it succeeds.

    Interactions do not wait for messages, because Discord waits for three seconds only.

    Args:
        client: A client that is logged in.
        receive: Stores an event.
    """

    def __init__(self, client: BotClient, receive: Receive) -> None:
        self._client, self._receive = client, receive
        self._messages: asyncio.Queue[Job] = asyncio.Queue()
        self._interactions: asyncio.Queue[Job] = asyncio.Queue()
        self._workers = [asyncio.ensure_future(_work(queue)) for queue in (self._messages, self._interactions)]
        self._locations: dict[int, Location] = {}

    async def close(self) -> None:
        """Stop."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def on_message(self, message: discord.Message) -> None:
        """Queue a message."""
        if message.author.id == self._me:
            return
        guild = message.guild.id if message.guild is not None else getattr(message.channel, "guild_id", None)

        async def hand_on() -> None:
            where = await self._locate(message.channel.id, message.channel, guild)
            await self._hand_on(lambda: message_event(message, where, self._me))

        self._messages.put_nowait(hand_on)

    def on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        """Queue a command or a button."""
        channel = interaction.channel
        if channel is None:
            return

        async def hand_on() -> None:
            where = await self._locate(channel.id, channel, interaction.guild_id)
            await self._hand_on(lambda: interaction_event(interaction, where))

        self._interactions.put_nowait(hand_on)

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
        return where


async def _work(jobs: asyncio.Queue[Job]) -> None:
    while True:
        await _run_until_done(await jobs.get())


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
