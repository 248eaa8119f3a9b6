"""``everlong setup telegram`` and ``everlong setup discord``: leads to a bot that answers, and to nobody but you.

The token is checked against the platform before anything is written, and is written nowhere itself. The list of those
who may talk goes into the user's config.yaml, whose comments stay.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from everlong.channels import TOKEN_VARIABLES, channel_settings, find_token, make_platform
from everlong.channels.platform import PlatformError, PlatformRefused
from everlong.cli.output import say
from everlong.config import load_settings, set_value
from everlong.config.paths import user_config_path
from everlong.errors import AuthenticationFailed

if TYPE_CHECKING:
    from everlong.channels.platform import Identity, Platform
    from everlong.config import Settings

T = TypeVar("T")
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


CHANNELS = {
    "telegram": _Guide(
        "Telegram",
        "Write /newbot to @BotFather in Telegram; it asks for a name and shows a token.",
        "For a group: add the bot to it. It sees commands and replies to it; @BotFather's /setprivacy shows it all.",
    ),
    "discord": _Guide(
        "Discord",
        "At https://discord.com/developers/applications make an application; under Bot, switch on the Message Content "
        "intent and press Reset Token.",
        "For a server: open https://discord.com/oauth2/authorize?client_id={id}&scope=bot+applications.commands"
        f"&permissions={_DISCORD_PERMISSIONS} and choose it. The bot answers there when it is mentioned.",
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

    Without a terminal the token comes from its environment variable or standard input.
    """
    if wishes.guilds and name != "discord":
        raise click.UsageError("--guild is for discord; a group of Telegram is named with --chat")
    is_asking = sys.stdin.isatty() and sys.stderr.isatty()
    settings = load_settings().settings
    token, identity, is_new = _find_bot(name, settings, is_asking=is_asking)
    say(f"the bot is {_bot_name(name, identity)} (id {identity.id})")
    users, chats = list(wishes.users), list(wishes.chats)
    listed: dict[Literal["user", "chat", "guild"], Sequence[str]]
    listed = {"user": users, "chat": chats, "guild": wishes.guilds}
    for kind, idents in listed.items():
        for ident in idents:
            _check_listed(name, settings, token, kind, ident)
    _write(name, settings, wishes, users, chats)
    if is_new:
        say(f"set {TOKEN_VARIABLES[name]} where the bot runs; the systemd unit reads it from /etc/everlong/environment")
    guide = CHANNELS[name]
    say(guide.group.replace("{id}", identity.id))
    say("`everlong channels run` starts the bot, `everlong doctor` checks it")
    if not (users or chats or wishes.guilds or _has_list(name, settings)):
        say(f"nobody may talk to it yet: let yourself in with `everlong channels pair {name}`")


# -- the bot -----------------------------------------------------------------------------------------------------------
def _find_bot(name: str, settings: Settings, *, is_asking: bool) -> tuple[str, Identity, bool]:
    """Return the token, the bot behind it, and whether the token is not in the environment yet."""
    try:
        token = find_token(name)
    except AuthenticationFailed:
        pass
    else:
        say(f"taking the token from: {TOKEN_VARIABLES[name]}")
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
