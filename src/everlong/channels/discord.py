"""Discord as a platform of the channels, on the library discord.py.

A slash command is answered in place of Discord's own "is thinking…": its event has the interaction as message id, and
`DiscordPlatform.send` with that id as ``replies_to`` fills the waiting reply. Filling twice changes nothing, so a
command has one answer also if the program was killed in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from everlong.channels.discord_gateway import NO_INTENT, BotClient, Feed, split_interaction, translate_errors
from everlong.channels.markup import discord_pieces
from everlong.channels.platform import (
    Attachment,
    Button,
    Identity,
    Inbound,
    Place,
    PlatformBusy,
    PlatformCommand,
    PlatformLimits,
    PlatformRefused,
    PlatformUnreachable,
    Receive,
)
from everlong.config.settings import DiscordSettings

__all__ = ["DISCORD_API", "DiscordPlatform"]

_log = logging.getLogger(__name__)

DISCORD_API = "https://discord.com/api/v10"

_DEFAULT_GATEWAY = DiscordWebSocket.DEFAULT_GATEWAY
_LONGEST_PAUSE = 300.0
"""Seconds between two attempts to connect."""
_EPHEMERAL = 1 << 6
_NO_PREVIEWS = 1 << 2
_REPLY, _DEFER_REPLY, _DEFER_UPDATE = 4, 5, 6
"""Kinds of an answer to an interaction."""


class DiscordPlatform:
    """One Discord bot.

    Discord's library has one API address for the whole process, so all bots of a process must have the same one.

    Args:
        token: The bot's token.
        settings: The settings of the channel; ``api_base`` is the base of the REST API with its version.
    """

    name = "discord"
    limits = PlatformLimits(text=2000, upload=10 * 1024**2, download=25 * 1024**2, edit_seconds=1.5)

    def __init__(self, token: str, settings: DiscordSettings) -> None:
        self._token = token
        self._api = (settings.api_base or DISCORD_API).rstrip("/")
        self._client: BotClient | None = None
        self._login_lock = asyncio.Lock()
        self._private_chats: dict[str, int] = {}

    async def identify(self) -> Identity:
        """Return who the bot is; `PlatformRefused` for a wrong token, and for a bot that may not read messages."""
        client = await self._log_in()
        assert client.user is not None  # noqa: S101 - a login sets it
        flags = client.application_flags
        if not (flags.gateway_message_content or flags.gateway_message_content_limited):
            raise PlatformRefused(NO_INTENT)
        return Identity(str(client.user.id), client.user.name)

    async def run(
        self,
        receive: Receive,
    ) -> None:
        """Hand every event to ``receive``, in order per channel, until cancelled; reconnect as often as it takes."""
        pause = 1.0
        while True:
            try:
                client = await self._log_in()
                pause = 1.0
                await self._listen(client, Feed(client, receive))
            except (PlatformUnreachable, PlatformBusy) as error:
                wait = max(pause, error.retry_after) if isinstance(error, PlatformBusy) else pause
                _log.warning("%s; the next attempt is in %.0f s", error, wait)
                await asyncio.sleep(wait)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def pieces(self, markdown: str) -> list[str]:
        """Return Markdown in Discord's dialect, split into messages that it takes."""
        return discord_pieces(markdown, self.limits.text)

    async def send(
        self,
        place: Place,
        text: str,
        *,
        buttons: Sequence[Button] = (),
        replies_to: str = "",
        nonce: str,
    ) -> str:
        """Send one piece, and return the id of the message. The answer to a command fills the waiting reply."""
        if (interaction := split_interaction(replies_to)) and (filled := await self._fill_reply(interaction[1], text)):
            return filled
        channel = await self._channel(place)
        with translate_errors():
            message = await channel.send(
                text,
                view=_view(buttons),
                nonce=nonce,
                reference=_reference(channel, replies_to),
                mention_author=False,
                suppress_embeds=True,  # or Discord fetches every link that a model writes; an edit keeps it so
            )
        return str(message.id)

    async def edit(self, place: Place, message: str, text: str, *, buttons: Sequence[Button] = ()) -> None:
        """Replace the text and the buttons of a message of the bot."""
        channel = await self._channel(place)
        with translate_errors():
            await channel.get_partial_message(_number(message)).edit(content=text, view=_view(buttons))

    async def send_file(self, place: Place, name: str, data: bytes, *, caption: str = "", nonce: str) -> str:
        """Send a file, and return the id of the message."""
        if len(data) > self.limits.upload:
            raise PlatformRefused(
                f"{name} has {len(data)} bytes; Discord takes files of at most {self.limits.upload} bytes from a bot"
            )
        channel = await self._channel(place)
        with translate_errors():
            message = await channel.send(
                caption or None,
                file=discord.File(BytesIO(data), filename=name),
                nonce=nonce,
                suppress_embeds=True,
            )
        return str(message.id)

    async def show_typing(self, place: Place) -> None:
        """Show for ten seconds that the bot is busy."""
        channel = await self._channel(place)
        with translate_errors():
            await channel.typing()

    async def acknowledge(self, event: Inbound, text: str = "") -> None:
        """Tell Discord that a button or command arrived; ``text`` is shown to that person only."""
        interaction = split_interaction(event.callback)
        if interaction is None:
            return
        answer: dict[str, Any] = {"type": _DEFER_UPDATE if event.kind == "button" else _DEFER_REPLY}
        if text:
            shown = {"content": text[: self.limits.text], "allowed_mentions": {"parse": []}}
            answer = {"type": _REPLY, "data": {**shown, "flags": _EPHEMERAL | _NO_PREVIEWS}}
        number, token = interaction
        path = "/interactions/{webhook_id}/{webhook_token}/callback"
        await self._request(Route("POST", path, webhook_id=number, webhook_token=token), json=answer)

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """Return the bytes of a file; `PlatformRefused` beyond ``limit`` bytes, without reading them all."""
        client = await self._log_in()
        size = attachment.size
        if size <= limit:
            with translate_errors():
                data = await client.http.get_from_cdn(attachment.reference)
            size = len(data)
        if size > limit:
            raise PlatformRefused(f"{attachment.name} is larger than {limit} bytes")
        return data

    async def register_commands(self, commands: Sequence[PlatformCommand]) -> None:
        """Tell Discord which commands there are."""
        client = await self._log_in()
        shown = [_command(command) for command in commands]
        with translate_errors():
            await client.http.bulk_upsert_global_commands(client.application_id or 0, payload=shown)

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.feed = None
            await client.close()

    async def _log_in(self) -> BotClient:
        """Return a client that may send requests; log in if there is none."""
        async with self._login_lock:
            if self._client is not None and not self._client.is_closed():
                return self._client
            Route.BASE = self._api
            client = BotClient()
            try:
                with translate_errors():
                    await client.login(self._token)
                    gateway = _DEFAULT_GATEWAY
                    if self._api != DISCORD_API:
                        gateway = URL((await client.http.get_bot_gateway())[1])
                    DiscordWebSocket.DEFAULT_GATEWAY = gateway
            except BaseException:
                await client.close()
                raise
            self._client = client
            return client

    async def _listen(self, client: BotClient, feed: Feed) -> None:
        """Pass events to a feed until the connection cannot be mended by a resume."""
        client.feed = feed
        try:
            with translate_errors():
                await client.connect(reconnect=True)
            raise PlatformUnreachable("Discord closed the connection")
        except AttributeError as error:
            # The library reads the state of a connection that was never made.
            if _socket(client) is not None:
                raise
            raise PlatformUnreachable("Discord's gateway cannot be reached") from error
        finally:
            client.feed = None
            await feed.close()
            socket = _socket(client)
            if socket is not None and socket.open:
                await socket.close(code=1000)

    async def _channel(self, place: Place) -> discord.PartialMessageable:
        """Return the channel or thread of a place; ``@ID`` is the private chat with a person."""
        client = await self._log_in()
        target = place.topic or place.chat
        if target.startswith("@") and target not in self._private_chats:
            with translate_errors():
                chat = await client.create_dm(discord.Object(_number(target[1:])))
            self._private_chats[target] = chat.id
        return client.get_partial_messageable(self._private_chats.get(target) or _number(target))

    async def _request(self, route: Route, **options: Any) -> Any:
        client = await self._log_in()
        with translate_errors():
            return await client.http.request(route, **options)

    async def _fill_reply(self, token: str, text: str) -> str | None:
        """Answer in the waiting reply of a command, and return its id; None if there is no such reply any more."""
        client = await self._log_in()
        path = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
        route = Route("PATCH", path, webhook_id=client.application_id, webhook_token=token)
        body = {"content": text, "allowed_mentions": {"parse": []}, "flags": _NO_PREVIEWS}
        try:
            return str((await self._request(route, json=body))["id"])
        except PlatformRefused as error:
            _log.info("discord: the reply to a command is sent as a message of its own: %s", error)
            return None


def _socket(client: BotClient) -> DiscordWebSocket | None:
    """Return the connection to the gateway; None before the first one, which the library's types do not say."""
    return client.ws


def _number(text: str) -> int:
    if not text.isdecimal():
        raise PlatformRefused(f"{text!r} is not an id of Discord; ids are numbers")
    return int(text)


def _reference(channel: discord.PartialMessageable, message: str) -> Any:
    """Return what makes a message a reply; nothing for the answer to a command, which has no message."""
    if not message.isdigit():
        return None
    return discord.MessageReference(message_id=int(message), channel_id=channel.id, fail_if_not_exists=False)


def _view(buttons: Sequence[Button]) -> Any:
    """Return buttons as the library wants them."""
    if not buttons:
        return None
    view = discord.ui.View(timeout=None)
    for button in buttons:
        view.add_item(discord.ui.Button(label=button.label, custom_id=button.value))
    view.stop()  # the library need not wait for presses: they arrive as events
    return view


def _command(command: PlatformCommand) -> dict[str, Any]:
    """Return a command as Discord wants it: for servers that installed the bot and for private chats with it."""
    shown: dict[str, Any] = {
        "name": command.name,
        "description": command.description[:100],
        "type": 1,
        "integration_types": [0],
        "contexts": [0, 1],
    }
    if command.argument:
        option = {"type": 3, "name": command.argument, "description": command.argument, "required": False}
        shown["options"] = [option]
    return shown
