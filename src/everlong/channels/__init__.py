"""Channels: the agent in Telegram and Discord.

A `Platform` speaks with one service through its library, which belongs to an extra and is loaded when one is made. The
rest of this folder does not know which one: it stores what people write, runs the agent's turns, and delivers each
answer once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from everlong.config.settings import ChannelSettings, ChannelsSettings
from everlong.errors import AuthenticationFailed, ConfigError
from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.channels.platform import Platform

__all__ = [
    "PLATFORMS",
    "TOKEN_VARIABLES",
    "channel_settings",
    "find_token",
    "has_token",
    "make_platform",
]

PLATFORMS = ("telegram", "discord")


def channel_settings(name: str, settings: ChannelsSettings) -> ChannelSettings:
    """Return the settings of a platform."""
    return settings.telegram if name == "telegram" else settings.discord


def make_platform(name: str, token: str, settings: ChannelsSettings) -> Platform:
    """Return the adapter of a platform, not connected yet; `ConfigError` where its extra is not installed."""
    try:
        if name == "telegram":
            from everlong.channels.telegram import TelegramPlatform  # noqa: PLC0415 - its library takes half a second

            return TelegramPlatform(token, settings.telegram)
        from everlong.channels.discord import DiscordPlatform  # noqa: PLC0415 - as above

        return DiscordPlatform(token, settings.discord)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{name} needs a package that is not installed ({error.name}); say: {install_command(name)}"
        ) from error


# -- tokens ------------------------------------------------------------------------------------------------------------


TOKEN_VARIABLES = {"telegram": "TELEGRAM_BOT_TOKEN", "discord": "DISCORD_BOT_TOKEN"}
"""The environment variable of each platform's token."""


def find_token(platform: str, env: Mapping[str, str] | None = None) -> str:
    """Return the token of a platform's bot; raise `AuthenticationFailed` without one."""
    token = (os.environ if env is None else env).get(TOKEN_VARIABLES[platform], "").strip()
    if not token:
        raise AuthenticationFailed(
            f"there is no token for {platform}; set {TOKEN_VARIABLES[platform]}", provider=platform
        )
    return token


def has_token(platform: str) -> bool:
    """Return whether the environment has the token of a platform's bot."""
    return bool(os.environ.get(TOKEN_VARIABLES[platform], "").strip())
