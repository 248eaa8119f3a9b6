"""Channels: the agent in Telegram and Discord.

A `Platform` speaks with one service through its library, which belongs to an extra and is loaded when one is made. The
rest of this folder does not know which one: it stores what people write, runs the agent's turns, and delivers each
answer once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from everlong.config.settings import ChannelSettings, ChannelsSettings
from everlong.errors import AuthenticationFailed, ConfigError
from everlong.extras import install_command
from everlong.providers.endpoints import Endpoint, find_key, key_source

if TYPE_CHECKING:
    from everlong.channels.platform import Platform

__all__ = [
    "PLATFORMS",
    "channel_settings",
    "find_token",
    "make_platform",
    "token_endpoint",
    "token_source",
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
    try:
        return find_key(token_endpoint(platform), env)
    except AuthenticationFailed as error:
        raise AuthenticationFailed(
            f"there is no token for {platform}; set {TOKEN_VARIABLES[platform]}, or store one with: "
            f"everlong auth set {platform}",
            provider=platform,
        ) from error


def token_source(platform: str, env: Mapping[str, str] | None = None) -> str | None:
    """Return where a platform's token comes from: ``env NAME`` or ``keyring``; None without one."""
    return key_source(token_endpoint(platform), env)


def token_endpoint(platform: str) -> Endpoint:
    """Return where a platform's token is kept: under a name apart from those of providers, who may have any."""
    variables = (TOKEN_VARIABLES[platform],)
    return Endpoint(f"channel {platform}", "openai", "", key_variables=variables, needs_key=True, keyring=True)
