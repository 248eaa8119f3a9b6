"""``everlong setup telegram`` and ``everlong setup discord``: leads to a bot that answers, and to nobody but you.

The token is checked against the platform before anything is written. It goes into the system's keyring, never into a
file; the list of those who may talk goes into the user's config.yaml, whose comments stay.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from everlong.channels import TOKEN_VARIABLES, channel_settings, find_token, make_platform, store_token, token_source
from everlong.channels.platform import Inbound, PlatformError, PlatformRefused
from everlong.cli.output import say
from everlong.config import load_settings, set_value
from everlong.config.paths import user_config_path
from everlong.errors import AuthenticationFailed, ConfigError

if TYPE_CHECKING:
    from everlong.channels.platform import Identity, Person, Platform
    from everlong.config import Settings

__all__ = ["CHANNELS", "ChannelWishes", "set_up_channel"]

T = TypeVar("T")
_WAIT_SECONDS = 180.0
"""Seconds that a person has to write to the bot."""
_MOST_TOKENS = 3
"""Tokens that are asked for before the dialogue ends."""


_DISCORD_PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 38
"""See channels, write, show links, attach files, read the history, write in threads."""


@dataclass(frozen=True)
class _Guide:
    """What a person must know of a platform to make a bot."""

    title: str
    token: str
    group: str
    hint: str


CHANNELS = {
    "telegram": _Guide(
        "Telegram",
        "Write /newbot to @BotFather in Telegram; it asks for a name and shows a token.",
        "For a group: add the bot to it. It sees commands and replies to it; @BotFather's /setprivacy shows it all.",
        "open the chat with the bot, press START and write anything",
    ),
    "discord": _Guide(
        "Discord",
        "At https://discord.com/developers/applications make an application; under Bot, switch on the Message Content "
        "intent and press Reset Token.",
        "For a server: open https://discord.com/oauth2/authorize?client_id={id}&scope=bot+applications.commands"
        f"&permissions={_DISCORD_PERMISSIONS} and choose it. The bot answers there when it is mentioned.",
        "write a direct message to the bot, or mention it in a server that it is in",
    ),
}


@dataclass(frozen=True)
class ChannelWishes:
    """The options of the command line."""

    users: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()
    guilds: tuple[str, ...] = ()


def set_up_channel(name: str, wishes: ChannelWishes) -> None:
    """Lead through token and list, check both against the platform, and write them down.

    Without a terminal the token comes from its environment variable, the keyring or standard input, and the list from
    the options.
    """
    if wishes.guilds and name != "discord":
        raise click.UsageError("--guild is for discord; a group of Telegram is named with --chat")
    is_asking = sys.stdin.isatty() and sys.stderr.isatty()
    settings = load_settings().settings
    token, identity, is_new = _find_bot(name, settings, is_asking=is_asking)
    say(f"the bot is {_bot_name(name, identity)} (id {identity.id})")
    users, chats = list(wishes.users), list(wishes.chats)
    if not (users or chats or wishes.guilds or _has_list(name, settings)):
        if not is_asking:
            raise click.UsageError(
                "nobody may talk to the bot yet: name people with --user ID, or chats with --chat ID"
            )
        users += _ask_users(name, settings, token, identity)
    listed: dict[Literal["user", "chat", "guild"], Sequence[str]]
    listed = {"user": users, "chat": chats, "guild": wishes.guilds}
    for kind, idents in listed.items():
        for ident in idents:
            _check_listed(name, settings, token, kind, ident)
    _write(name, settings, wishes, users, chats)
    if is_new:
        _store(name, token)
    guide = CHANNELS[name]
    say(guide.group.replace("{id}", identity.id))
    say("`everlong channels run` starts the bot, `everlong doctor` checks it")


# -- the bot -----------------------------------------------------------------------------------------------------------
def _find_bot(name: str, settings: Settings, *, is_asking: bool) -> tuple[str, Identity, bool]:
    """Return the token, the bot behind it, and whether the token must still be stored."""
    source = token_source(name)
    if source is not None:
        say(f"taking the token from: {source}")
        token = find_token(name)
        return token, _identify(name, settings, token), False
    if not is_asking:
        token = sys.stdin.readline().strip()
        if not token:
            raise click.UsageError(f"there is no token: set {TOKEN_VARIABLES[name]}, or give it on standard input")
        return token, _identify(name, settings, token), True
    say(CHANNELS[name].token)
    tries_left = _MOST_TOKENS
    while True:
        token = str(click.prompt(f"Token of the {CHANNELS[name].title} bot", hide_input=True, err=True)).strip()
        tries_left -= 1
        try:
            return token, _identify(name, settings, token), True
        except PlatformRefused as error:
            if not tries_left:
                raise
            say(str(error))


def _identify(name: str, settings: Settings, token: str) -> Identity:
    return _ask(name, settings, token, lambda platform: platform.identify())


def _ask(name: str, settings: Settings, token: str, question: Callable[[Platform], Awaitable[T]]) -> T:
    """Return what a platform answers; its connections are closed afterwards."""

    async def run() -> T:
        platform = make_platform(name, token, settings.channels)
        try:
            return await question(platform)
        finally:
            await platform.close()

    return asyncio.run(run())


def _bot_name(name: str, identity: Identity) -> str:
    return f"@{identity.name}" if name == "telegram" else identity.name


# -- the list ----------------------------------------------------------------------------------------------------------
def _has_list(name: str, settings: Settings) -> bool:
    own = channel_settings(name, settings.channels)
    return bool(own.users or own.chats or getattr(own, "guilds", ()))


def _ask_users(name: str, settings: Settings, token: str, identity: Identity) -> list[str]:
    """Ask who may talk: by ids, or by a message that the person writes now."""
    say("only people on a list may talk to the bot; everybody else gets no answer")
    say(f"{CHANNELS[name].hint}, then press Enter here; or type ids of people, with spaces between them")
    while True:
        typed = str(click.prompt("Ids, or Enter", default="", show_default=False, err=True)).replace(",", " ").split()
        if typed:
            return typed
        say(f"waiting for a message to {_bot_name(name, identity)} (Ctrl-C leaves)")
        person = _ask(name, settings, token, _first_writer)
        if person is None:
            say(f"nobody wrote within {_WAIT_SECONDS:g} seconds")
        elif click.confirm(f"{person.name or 'Somebody'} (id {person.id}) wrote. Is that you?", default=True, err=True):
            return [person.id]


async def _first_writer(platform: Platform) -> Person | None:
    """Return the author of the next message. The message stays with the platform: the agent answers it later."""
    found: list[Person] = []
    came = asyncio.Event()

    async def receive(event: Inbound) -> None:
        if event.kind == "message" and event.person.id and not event.person.is_bot:
            found.append(event.person)
            came.set()
            await asyncio.Event().wait()  # never stored, so never acknowledged

    running = asyncio.ensure_future(platform.run(receive))
    waiting = asyncio.ensure_future(came.wait())
    tasks: set[asyncio.Future[Any]] = {running, waiting}
    await asyncio.wait(tasks, timeout=_WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return found[0] if found else None


def _check_listed(
    name: str, settings: Settings, token: str, kind: Literal["user", "chat", "guild"], ident: str
) -> None:
    """Say who is behind an id. One that the bot does not see yet is written all the same: it may join later."""
    if not ident.lstrip("-").isdigit():
        raise click.UsageError(f"--{kind} is {ident!r}, but an id is a number; names can change hands, ids cannot")
    try:
        found = _ask(name, settings, token, lambda platform: platform.describe(kind, ident))
    except PlatformRefused:
        unseen = "has not written to the bot yet" if kind == "user" else "does not have the bot as a member yet"
        say(f"{kind} {ident}: {unseen}, or the id is wrong")
    except PlatformError as error:
        say(f"{kind} {ident} could not be checked: {error}")
    else:
        say(f"{kind} {ident}: {found}")


# -- writing -----------------------------------------------------------------------------------------------------------
def _write(name: str, settings: Settings, wishes: ChannelWishes, users: list[str], chats: list[str]) -> None:
    path, own = user_config_path(), channel_settings(name, settings.channels)
    lists = {"users": users, "chats": chats, "guilds": list(wishes.guilds)}
    for key, added in lists.items():
        if added:
            listed = list(dict.fromkeys([*getattr(own, key), *added]))
            set_value(path, f"channels.{name}.{key}", json.dumps(listed))
            say(f"channels.{name}.{key} is now {', '.join(listed)}")
    set_value(path, f"channels.{name}.enabled", "true")
    say(f"channels.{name}.enabled is now true ({path})")


def _store(name: str, token: str) -> None:
    """Put the token into the keyring; where there is none, say where it must come from."""
    try:
        store_token(name, token)
    except (ConfigError, AuthenticationFailed) as error:
        say(f"the token was not stored: {error}")
        say(f"set {TOKEN_VARIABLES[name]} where the bot runs; the systemd unit reads it from /etc/everlong/environment")
    else:
        say("the token is in the system's keyring")
