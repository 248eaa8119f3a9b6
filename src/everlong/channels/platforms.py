"""The platforms by name. Their libraries belong to extras, and are loaded when one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlong.config.channels import ChannelSettings, ChannelsSettings
from everlong.errors import ConfigError
from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.channels.platform import Platform

__all__ = ["PLATFORMS", "channel_settings", "make_platform"]

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
