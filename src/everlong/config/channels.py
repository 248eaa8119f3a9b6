"""The settings of channels: who may talk to the agent in Telegram and Discord, and what it may do there.

Tokens are no settings. They come from an environment variable or the system's keyring.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator

from everlong.config.fields import Flag, Name, Names, Section, WebAddress, flag, setting

__all__ = ["ChannelSettings", "ChannelsSettings", "DiscordSettings", "TelegramSettings"]


def _id_text(value: object) -> object:
    # YAML reads an id without quotes as a number.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _id_list(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    return [_id_text(each) for each in value] if isinstance(value, list) else value


Ids: TypeAlias = Annotated[Names, BeforeValidator(_id_list)]
ToolPolicy: TypeAlias = Literal["ask", "read", "never", "yes"]

_IDS = "a list of ids"
_POLICIES = "ask, read, never or yes"


class ChannelSettings(Section):
    """The settings that each platform has."""

    enabled: Flag = flag(default=False, description="Whether the channel runs; it needs a token and a list.")
    api_base: WebAddress | None = setting(
        None, "an http:// or https:// address, or null", "Where the platform's API is; null for its own address."
    )
    users: Ids = setting([], _IDS, "People who may talk to the agent, besides those that were paired.")
    chats: Ids = setting([], _IDS, "Chats in which everybody may talk to the agent.")


class TelegramSettings(ChannelSettings):
    """Telegram."""


class DiscordSettings(ChannelSettings):
    """Discord."""

    guilds: Ids = setting([], _IDS, "Servers in which everybody may talk to the agent.")


class ChannelsSettings(Section):
    """The channels of ``everlong channels run`` and ``everlong serve``."""

    workspace: Name | None = setting(
        None,
        "the path of a folder, or null",
        "The folder that the agent's tools see; null for an empty one of its own.",
    )
    groups: Literal["addressed", "all"] = setting(
        "addressed", "addressed or all", "Which messages of a group are answered: those to the bot, or every one."
    )
    tools: ToolPolicy = setting(
        "ask",
        _POLICIES,
        "What the agent's tools may do: effects after a press on a button, reading only, nothing, or everything.",
    )
    stream: Flag = flag(default=True, description="Whether an answer is shown while the model writes it.")
    telegram: TelegramSettings = TelegramSettings()
    discord: DiscordSettings = DiscordSettings()
