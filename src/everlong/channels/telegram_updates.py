"""Updates of Telegram as events of a channel.

Telegram's fields have traps, and this is the one place that knows them: replies in plain groups carry a thread id that
is no topic, every message of a topic seems to reply to the message that opened it, and a group that becomes a
supergroup goes on under another id.
"""

from __future__ import annotations

import re
from datetime import datetime

from telegram import CallbackQuery, Chat, Message, Update
from telegram.constants import ChatType

from everlong.agent.text import outside_name
from everlong.channels.platform import Attachment, Inbound, Person, Place

__all__ = ["ALLOWED_UPDATES", "PLATFORM", "read_update"]

PLATFORM = "telegram"
ALLOWED_UPDATES = ("message", "edited_message", "callback_query")
"""The kinds of updates that Telegram is asked for."""
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@([A-Za-z0-9_]+))?(?=\s|$)")


def read_update(update: Update, bot_id: int, bot_name: str) -> Inbound | None:
    """Return the event of an update; None for one that says nothing: somebody joined, a message was pinned.

    Args:
        update: as the library reads it.
        bot_id: the bot's own id.
        bot_name: the bot's user name, without ``@``.
    """
    if update.callback_query is not None:
        return _read_button(update.update_id, update.callback_query)
    message = update.message or update.edited_message
    if message is None:
        return None
    if message.migrate_to_chat_id or message.migrate_from_chat_id:
        return _read_move(update.update_id, message)
    return _read_message(update.update_id, message, update.edited_message is not None, (bot_id, bot_name))


def _read_button(update: int, query: CallbackQuery) -> Inbound | None:
    message = query.message
    if message is None or not query.data:
        return None  # a button of an inline message or a game: this bot makes neither
    return Inbound(
        kind="button",
        update=f"{update}:{message.chat.id}:{message.message_id}",
        place=_place(message.chat, message if isinstance(message, Message) else None),
        person=Person(str(query.from_user.id), query.from_user.full_name, query.from_user.is_bot),
        message=str(message.message_id),
        guild=_guild(message.chat),
        is_private=message.chat.type == ChatType.PRIVATE,
        button=query.data,
        callback=query.id,
        sent_at=_seconds(message.date) if isinstance(message, Message) else 0.0,
    )


def _read_move(update: int, message: Message) -> Inbound:
    """Return the move of a group. Telegram tells it twice: in the old chat, and in the new one."""
    old = message.chat.id if message.migrate_to_chat_id else message.migrate_from_chat_id
    new = message.migrate_to_chat_id or message.chat.id
    return Inbound(
        kind="move",
        update=f"{update}:{message.chat.id}:{message.message_id}",
        place=Place(PLATFORM, str(old)),
        person=_person(message),
        message=str(message.message_id),
        guild=str(old),
        is_addressed=False,
        moved_to=str(new),
        sent_at=_seconds(message.date),
    )


def _read_message(update: int, message: Message, is_edit: bool, bot: tuple[int, str]) -> Inbound | None:
    text = (message.text or message.caption or "").replace("\x00", "")
    attachments = tuple(_attachments(message))
    is_forwarded = message.forward_origin is not None or message.via_bot is not None
    if not text and not attachments:
        text, is_forwarded = _describe(message), True  # the name of a contact or place is nobody's sentence
        if not text:
            return None
    is_private = message.chat.type == ChatType.PRIVATE
    text, is_addressed = _read_address(message, text, bot)
    reply = _reply(message)
    return Inbound(
        kind="edit" if is_edit else "message",
        update=f"{update}:{message.chat.id}:{message.message_id}",
        place=_place(message.chat, message),
        person=_person(message),
        message=str(message.message_id),
        text=text,
        attachments=attachments,
        guild=_guild(message.chat),
        is_private=is_private,
        is_addressed=is_private or is_addressed,
        is_forwarded=is_forwarded,
        replies_to="" if reply is None else str(reply.message_id),
        sent_at=_seconds(message.edit_date if is_edit and message.edit_date else message.date),
    )


def _place(chat: Chat, message: Message | None) -> Place:
    # A reply in a group without topics has a thread id too; only a message of a topic is marked as one.
    is_topic = message is not None and message.is_topic_message and message.message_thread_id is not None
    return Place(PLATFORM, str(chat.id), str(message.message_thread_id) if message is not None and is_topic else "")


def _guild(chat: Chat) -> str:
    return "" if chat.type == ChatType.PRIVATE else str(chat.id)


def _person(message: Message) -> Person:
    """Return the author. Who speaks as a group or channel is that group or channel: nobody knows the person."""
    chat = message.sender_chat
    if chat is not None:
        return Person(str(chat.id), chat.title or chat.full_name or "")
    user = message.from_user
    return Person("") if user is None else Person(str(user.id), user.full_name, user.is_bot)


def _reply(message: Message) -> Message | None:
    """Return the message that a person chose to answer."""
    reply = message.reply_to_message
    if reply is None or reply.forum_topic_created is not None:
        return None
    if message.is_topic_message and reply.message_id == message.message_thread_id:
        return None  # it stands in the topic; nobody pressed "reply"
    return reply


def _read_address(message: Message, text: str, bot: tuple[int, str]) -> tuple[str, bool]:
    """Return the text without the bot's own name, and whether the message is for the bot."""
    bot_id, bot_name = bot
    command = _COMMAND.match(text)
    if command is not None:
        named = command[2]
        if named and named.casefold() != bot_name.casefold():
            return text, False  # a command for another bot
        return f"/{command[1]}{text[command.end() :]}", True
    reply = _reply(message)
    if reply is not None and reply.from_user is not None and reply.from_user.id == bot_id:
        return text, True
    entities = message.parse_entities() if message.text else message.parse_caption_entities()
    for entity, words in entities.items():
        is_bot = entity.type == "mention" and words.casefold() == f"@{bot_name}".casefold()
        if is_bot or (entity.type == "text_mention" and entity.user is not None and entity.user.id == bot_id):
            without = text.removeprefix(words).lstrip(" ,:") if text.startswith(words) else text
            return without or text, True
    return text, False


def _attachments(message: Message) -> list[Attachment]:
    found: list[Attachment] = []
    if message.photo:
        best = max(message.photo, key=lambda size: size.width * size.height)
        name = f"photo-{message.message_id}.jpg"
        found.append(Attachment("image", name, "image/jpeg", best.file_size or 0, best.file_id))
    sticker = message.sticker
    if sticker is not None and not (sticker.is_animated or sticker.is_video):
        name = f"sticker-{message.message_id}.webp"
        found.append(Attachment("image", name, "image/webp", sticker.file_size or 0, sticker.file_id))
    spoken = message.voice or message.audio or message.video_note
    if spoken is not None:
        media = getattr(spoken, "mime_type", None) or "video/mp4"
        name = getattr(spoken, "file_name", None) or f"voice-{message.message_id}"
        found.append(Attachment("voice", name, media, spoken.file_size or 0, spoken.file_id))
    file = message.animation or message.video or message.document  # an animation is in `document` too
    if file is not None:
        media = file.mime_type or "application/octet-stream"
        name = file.file_name or f"file-{message.message_id}"
        size = file.file_size or 0
        is_image = media.startswith("image/")
        found.append(Attachment("image" if is_image else "document", name, media, size, file.file_id))
    return found


def _describe(message: Message) -> str:
    """Return in words what was sent without any: a place or a contact."""
    if message.location is not None:
        return f"[location: {message.location.latitude}, {message.location.longitude}]"
    if message.contact is not None:
        name = " ".join(filter(None, (message.contact.first_name, message.contact.last_name)))
        return f"[contact: {outside_name(name)}, {outside_name(message.contact.phone_number)}]"
    return ""


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
