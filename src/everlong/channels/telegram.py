"""Telegram as a platform, through python-telegram-bot.

Updates are fetched with an offset of our own. The library's updater acknowledges an update when it has read it; here
an update is acknowledged once it is stored, so that a kill in between loses nothing. Loading this module loads the
library, which takes half a second: import it where a bot is started.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from telegram import (
    Bot,
    BotCommand,
    CallbackQuery,
    Chat,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    LinkPreviewOptions,
    Message,
    ReplyParameters,
    Update,
)
from telegram.constants import ChatType, ParseMode
from telegram.error import (
    BadRequest,
    Conflict,
    Forbidden,
    InvalidToken,
    RetryAfter,
    TelegramError,
)
from telegram.request import HTTPXRequest

from everlong.agent.text import outside_name
from everlong.channels.markup import telegram_pieces
from everlong.channels.platform import (
    Attachment,
    Button,
    Identity,
    Inbound,
    Person,
    Place,
    PlatformBusy,
    PlatformCommand,
    PlatformError,
    PlatformLimits,
    PlatformRefused,
    PlatformUnreachable,
    Receive,
)
from everlong.config.settings import TelegramSettings

__all__ = ["API_BASE", "TelegramPlatform"]

API_BASE = "https://api.telegram.org"
_MOST_ANSWER = 200
_MOST_COMMANDS = 100
ALLOWED_UPDATES = ("message", "callback_query")
"""The kinds of updates that Telegram is asked for."""
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@([A-Za-z0-9_]+))?(?=\s|$)")
_POLL_SECONDS = 30
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")
_EXPIRED = ("query is too old", "query id is invalid", "query_id_invalid")
_log = logging.getLogger("everlong.channels")

# Retry times come as timedelta; the other form is deprecated, and warns at each use.
os.environ.setdefault("PTB_TIMEDELTA", "true")
# These write addresses with the bot's token, or words of people, to the log. Failures are logged here.
logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("telegram").setLevel(logging.CRITICAL + 1)


class TelegramPlatform:
    """One bot of Telegram; the contract is `everlong.channels.platform.Platform`.

    Args:
        token: The bot's token.
        settings: ``api_base`` is read here.
        poll_seconds: How long Telegram may hold a request for updates.
    """

    name = "telegram"
    limits = PlatformLimits(text=4096, upload=50_000_000, download=20_000_000, edit_seconds=3.0)

    def __init__(
        self, token: str, settings: TelegramSettings | None = None, *, poll_seconds: float = _POLL_SECONDS
    ) -> None:
        self._token = token
        self._settings = settings or TelegramSettings()
        self._poll_seconds = poll_seconds
        self._opened: tuple[Bot, HTTPXRequest, _UpdatesRequest] | None = None
        self._identity: Identity | None = None
        self._offset = 0
        self._has_webhook = True

    @property
    def _bot(self) -> Bot:
        return self._open()[0]

    def _open(self) -> tuple[Bot, HTTPXRequest, _UpdatesRequest]:
        if self._opened is None:
            if not _TOKEN.fullmatch(self._token):
                raise PlatformRefused(
                    "this is no token of a Telegram bot: it has the form 123456789:letters-and-digits; "
                    "@BotFather shows it"
                )
            base = (self._settings.api_base or API_BASE).rstrip("/")
            request = HTTPXRequest(
                connection_pool_size=64,
                pool_timeout=30.0,
                connect_timeout=10.0,
                read_timeout=20.0,
                write_timeout=20.0,
                media_write_timeout=120.0,
            )
            updates = _UpdatesRequest(
                connection_pool_size=1, connect_timeout=10.0, read_timeout=10.0, pool_timeout=10.0
            )
            bot = Bot(
                self._token,
                base_url=f"{base}/bot",
                base_file_url=f"{base}/file/bot",
                request=request,
                get_updates_request=updates,
            )
            self._opened = bot, request, updates
        return self._opened

    # -- receiving -----------------------------------------------------------------------------------------------------
    async def identify(self) -> Identity:
        """Return who the bot is; `PlatformRefused` for a wrong token."""
        with self._translate_errors("asking who the bot is"):
            me = await self._bot.get_me()
        self._identity = Identity(str(me.id), me.username or "")
        return self._identity

    async def run(
        self,
        receive: Receive,
    ) -> None:
        """Hand every event to ``receive``, in order, until cancelled; `PlatformRefused` for a wrong token.

        The offset moves on when an update is stored. After a failure comes a pause of one second, then twice as long
        each time up to a minute.
        """
        failures = 0
        while True:
            try:
                await self._take_updates(receive)
            except PlatformBusy as error:
                await asyncio.sleep(error.retry_after)
            except PlatformRefused:
                raise
            except Exception as error:  # noqa: BLE001 - an event that could not be stored comes again, whatever the reason
                if failures == 0 or not isinstance(error, PlatformError):
                    _log.warning("telegram: %s; trying again", error)
                await asyncio.sleep(min(_FIRST_PAUSE * 2**failures, _LONGEST_PAUSE))
                failures = min(failures + 1, 10)
            else:
                if failures:
                    _log.info("telegram: works again")
                failures = 0

    async def _take_updates(self, receive: Receive) -> None:
        me = self._identity or await self.identify()
        if self._has_webhook:
            with self._translate_errors("ending an earlier webhook"):
                await self._bot.delete_webhook()
            self._has_webhook = False
        for raw in await self._fetch_updates():
            try:
                update = Update.de_json(raw, self._bot)
                event = read_update(update, int(me.id), me.name)
            except Exception as error:  # noqa: BLE001 - whatever it is, others wait behind it
                number = raw["update_id"]
                _log.warning("telegram: update %s cannot be read, and is left out (%s)", number, type(error).__name__)
                event = None
            if event is not None:
                await receive(event)
            self._offset = raw["update_id"] + 1

    async def _fetch_updates(self) -> list[dict[str, Any]]:
        """Return the updates from the offset on, as Telegram sends them; wait for some if there are none."""
        bot, _, request = self._open()
        with self._translate_errors("asking for updates"):
            try:
                await bot.get_updates(
                    offset=self._offset or None,
                    timeout=timedelta(seconds=self._poll_seconds),
                    read_timeout=10.0,
                    allowed_updates=list(ALLOWED_UPDATES),
                )
            except (TelegramError, asyncio.CancelledError):
                raise
            except Exception:  # noqa: BLE001 - one update that the library cannot read must not stop all others
                _log.debug("telegram: an update cannot be read", exc_info=True)
        return list(json.loads(request.last_payload)["result"])

    # -- sending -------------------------------------------------------------------------------------------------------
    def pieces(self, markdown: str) -> list[str]:
        """Return Markdown as messages of Telegram; none where there is nothing to see."""
        return telegram_pieces(markdown, self.limits.text)

    async def send(
        self,
        place: Place,
        text: str,
        *,
        buttons: Sequence[Button] = (),
        replies_to: str = "",
        nonce: str,  # noqa: ARG002 - Telegram has no such key
    ) -> str:
        """Send one piece, and return the id of the message."""
        with self._translate_errors("sending a message"):
            message = await self._bot.send_message(
                place.chat,
                text,
                parse_mode=ParseMode.HTML,
                message_thread_id=_topic(place),
                reply_parameters=_reply_to(replies_to),
                reply_markup=_keyboard(buttons),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
            )
        return str(message.message_id)

    async def edit(self, place: Place, message: str, text: str, *, buttons: Sequence[Button] = ()) -> None:
        """Replace the text and the buttons of a message of the bot."""
        with self._translate_errors("editing a message", no_error=("message is not modified",)):
            await self._bot.edit_message_text(
                text,
                place.chat,
                int(message),
                parse_mode=ParseMode.HTML,
                reply_markup=_keyboard(buttons),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
            )

    async def send_file(
        self,
        place: Place,
        name: str,
        data: bytes,
        *,
        caption: str = "",
        nonce: str,  # noqa: ARG002 - Telegram has no such key
    ) -> str:
        """Send a file, and return the id of the message."""
        if len(data) > self.limits.upload:
            raise PlatformRefused(f"{name} has {len(data):,} bytes; Telegram takes {self.limits.upload:,}")
        if not data:
            raise PlatformRefused(f"{name} is empty; Telegram takes no empty file")
        with self._translate_errors("sending a file"):
            message = await self._bot.send_document(
                place.chat,
                InputFile(data, filename=name),
                caption=caption or None,
                message_thread_id=_topic(place),
            )
        return str(message.message_id)

    async def show_typing(self, place: Place) -> None:
        """Show for five seconds that the bot is busy."""
        with self._translate_errors("showing that the bot is busy"):
            await self._bot.send_chat_action(place.chat, "typing", message_thread_id=_topic(place))

    async def acknowledge(self, event: Inbound, text: str = "") -> None:
        """Tell Telegram that a button arrived. One that was pressed long ago cannot be answered, which is no error."""
        if not event.callback:
            return
        with self._translate_errors("answering a button", no_error=_EXPIRED):
            await self._bot.answer_callback_query(event.callback, text[:_MOST_ANSWER] or None)

    async def register_commands(self, commands: Sequence[PlatformCommand]) -> None:
        """Tell Telegram which commands there are."""
        shown = [
            BotCommand(one.name, (f"{one.description} [{one.argument}]" if one.argument else one.description)[:256])
            for one in commands[:_MOST_COMMANDS]
        ]
        with self._translate_errors("registering the commands"):
            await self._bot.set_my_commands(shown)

    # -- files ---------------------------------------------------------------------------------------------------------
    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """Return the bytes of a file; `PlatformRefused` beyond ``limit`` bytes or what Telegram gives to bots."""
        most = min(limit, self.limits.download)
        if attachment.size > most:
            raise _too_large(attachment.name, attachment.size, most)
        with self._translate_errors(f"fetching {attachment.name}"):
            file = await self._bot.get_file(attachment.reference)
        if (file.file_size or 0) > most:
            raise _too_large(attachment.name, file.file_size or 0, most)
        with self._translate_errors(f"fetching {attachment.name}"):
            try:
                data = bytes(await file.download_as_bytearray())
            except InvalidToken:  # what the library makes of any 404
                raise PlatformRefused(f"fetching {attachment.name}: Telegram has no such file") from None
        if len(data) > most:
            raise _too_large(attachment.name, len(data), most)
        return data

    async def close(self) -> None:
        """Close the connections."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[1].shutdown()
            await opened[2].shutdown()

    # -- failures ------------------------------------------------------------------------------------------------------
    @contextmanager
    def _translate_errors(self, action: str, no_error: Sequence[str] = ()) -> Iterator[None]:
        """Raise the library's errors as those of the contract; leave out some refusals, named by their words."""
        try:
            yield
        except RetryAfter as error:
            wait = error.retry_after
            seconds = wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
            raise PlatformBusy(f"{action}: Telegram asks to wait for {seconds:g} seconds", seconds) from None
        except InvalidToken:
            raise PlatformRefused(
                f"{action}: Telegram does not know this token; get a valid one from @BotFather, and "
                "set TELEGRAM_BOT_TOKEN to it"
            ) from None
        except Conflict:
            raise PlatformUnreachable(
                f"{action}: another program fetches the bot's updates, and only one can. Stop the other one, or make a "
                "second bot with @BotFather"
            ) from None
        except (BadRequest, Forbidden) as error:
            said = self._hide_token(error.message)
            if not any(words in said.casefold() for words in no_error):
                raise PlatformRefused(f"{action}: Telegram answered: {said}") from None
        except TelegramError as error:
            said = self._hide_token(error.message)
            if "(413)" in said or "too large" in said.casefold():
                raise PlatformRefused(f"{action}: Telegram answered: {said}") from None
            raise PlatformUnreachable(f"{action}: {said}") from None

    def _hide_token(self, text: str) -> str:
        return text.replace(self._token, "<token>")


class _UpdatesRequest(HTTPXRequest):
    """The connection for updates. It keeps the last answer, for updates that the library cannot read."""

    last_payload = b""

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        code, self.last_payload = await super().do_request(*args, **kwargs)
        return code, self.last_payload


def _too_large(name: str, size: int, most: int) -> PlatformRefused:
    return PlatformRefused(f"{name} is too large: {size:,} bytes, and {most:,} are allowed")


def _topic(place: Place) -> int | None:
    return int(place.topic) if place.topic else None


def _reply_to(message: str) -> ReplyParameters | None:
    return ReplyParameters(int(message), allow_sending_without_reply=True) if message else None


def _keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    row = [InlineKeyboardButton(button.label, callback_data=button.value) for button in buttons]
    return InlineKeyboardMarkup([row]) if row else None


# -- updates as events -------------------------------------------------------------------------------------------------

# Telegram's fields have traps: replies in plain groups carry a thread id that is no topic, every message of a topic
# seems to reply to the message that opened it, and a group that becomes a supergroup goes on under another id.


def read_update(update: Update, bot_id: int, bot_name: str) -> Inbound | None:
    """Return the event of an update; None for one that says nothing: somebody joined, a message was pinned.

    Args:
        update: as the library reads it.
        bot_id: the bot's own id.
        bot_name: the bot's user name, without ``@``.
    """
    if update.callback_query is not None:
        return _read_button(update.update_id, update.callback_query)
    return None if update.message is None else _read_message(update.update_id, update.message, (bot_id, bot_name))


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


def _read_message(update: int, message: Message, bot: tuple[int, str]) -> Inbound | None:
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
        kind="message",
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
        sent_at=_seconds(message.date),
    )


def _place(chat: Chat, message: Message | None) -> Place:
    # A reply in a group without topics has a thread id too; only a message of a topic is marked as one.
    is_topic = message is not None and message.is_topic_message and message.message_thread_id is not None
    return Place("telegram", str(chat.id), str(message.message_thread_id) if message is not None and is_topic else "")


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
