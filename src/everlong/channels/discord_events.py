"""Translation of Discord's messages, edits, deletions and interactions into `Inbound` values.

Update ids begin with the kind of the event: ``m`` message, ``e`` edit, ``d`` deletion, ``i`` interaction. A message has
the same id whether it came live or was fetched later, so a message that comes both ways is one event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import discord

from everlong.agent.text import outside_name
from everlong.channels.platform import Attachment, Inbound, Person, Place

__all__ = [
    "Location",
    "deletion_event",
    "edit_event",
    "interaction_event",
    "locate_channel",
    "message_event",
    "split_interaction",
]

_MENTION = re.compile(r"<@!?(\d+)>")
_TALK = (discord.MessageType.default, discord.MessageType.reply)
_VOICE = 1 << 13
"""Discord's flag of a voice message."""


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


def message_event(
    message: discord.Message, where: Location, me: int, kind: Literal["message", "edit"] = "message"
) -> Inbound | None:
    """Return what a person wrote; None for the bot's own words and for notices such as pins and joins."""
    if message.author.id == me or message.type not in _TALK:
        return None
    snapshots = message.message_snapshots
    words = "\n".join(snapshot.content for snapshot in snapshots) if snapshots else message.content
    files = [file for snapshot in snapshots for file in snapshot.attachments] if snapshots else message.attachments
    reference = message.reference
    return Inbound(
        kind=kind,
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


def edit_event(message: discord.Message, where: Location, me: int) -> Inbound | None:
    """Return an edit; None where Discord only added a preview of a link."""
    if message.edited_at is None:
        return None
    event = message_event(message, where, me, "edit")
    if event is None:
        return None
    return replace(event, update=f"e:{message.id}:{message.edited_at.timestamp():.3f}")


def deletion_event(message: int, where: Location) -> Inbound:
    """Return a deletion. Discord does not say who deleted the message, nor whose it was."""
    return Inbound(
        kind="deletion",
        update=f"d:{message}",
        place=where.place,
        person=Person(""),
        message=str(message),
        guild=where.guild,
        is_private=where.is_private,
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
    reference = f"{message.channel.id}/{message.id}/{file.id} {file.url}"
    return Attachment(kind, file.filename, media_type, file.size, reference)
