"""The settings of channels: who may talk to the agent in Telegram and Discord, and what it may do there.

Tokens are no settings. They come from an environment variable or the system's keyring.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from everlong.config.fields import Flag, Name, Names, Section, WebAddress, setting

__all__ = ["ChannelSettings", "ChannelsSettings", "DiscordSettings", "PlaceSettings", "TelegramSettings"]


def _id_text(value: object) -> object:
    # YAML reads an id without quotes as a number.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _id_list(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    return [_id_text(each) for each in value] if isinstance(value, list) else value


def _reset(value: str) -> str:
    if value == "never" or re.fullmatch(r"idle:[1-9][0-9]{0,4}|daily:([01][0-9]|2[0-3]):[0-5][0-9]", value):
        return value
    raise ValueError("never, idle:HOURS or daily:HH:MM is wanted")


def _time_zone(value: str) -> str:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - loaded where a zone is set

    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError("the name of a time zone is wanted") from error
    return value


Id: TypeAlias = Annotated[Name, BeforeValidator(_id_text)]
Ids: TypeAlias = Annotated[Names, BeforeValidator(_id_list)]
TimeZone: TypeAlias = Annotated[Name, AfterValidator(_time_zone)]
Reset: TypeAlias = Annotated[str, AfterValidator(_reset)]
ToolPolicy: TypeAlias = Literal["ask", "read", "never", "yes"]

_IDS = "a list of ids"
_RESETS = "never, idle:HOURS or daily:HH:MM"
_POLICIES = "ask, read, never or yes"


class PlaceSettings(Section):
    """One chat, where it differs from the others."""

    tools: ToolPolicy | None = setting(
        None, f"{_POLICIES}, or null", "What the agent's tools may do in this chat; null for channels.tools."
    )
    reset: Reset | None = setting(
        None, f"{_RESETS}, or null", "When this chat starts anew by itself; null for channels.reset."
    )
    model: Name | None = setting(
        None, "provider:model, or null", "The model that answers in this chat; null for channels.model."
    )


class ChannelSettings(Section):
    """The settings that each platform has."""

    enabled: Flag = setting(
        default=False, allowed="true or false", description="Whether the channel runs; it needs a token and a list."
    )
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
    time_zone: TimeZone | None = setting(
        None,
        "a name such as Europe/Vienna, or null",
        "The time zone of daily resets and reminders; null for the system's.",
    )
    groups: Literal["addressed", "all"] = setting(
        "addressed", "addressed or all", "Which messages of a group are answered: those to the bot, or every one."
    )
    tools: ToolPolicy = setting(
        "ask",
        _POLICIES,
        "What the agent's tools may do: effects after a press on a button, reading only, nothing, or everything.",
    )
    reset: Reset = setting("never", _RESETS, "When a chat starts anew by itself; memories are kept.")
    model: Name | None = setting(
        None, "provider:model, or null", "The model that answers; null for that of agent.model."
    )
    stream: Flag = setting(
        default=True, allowed="true or false", description="Whether an answer is shown while the model writes it."
    )
    per_chat: dict[Id, PlaceSettings] = setting(
        {}, "a mapping of chat ids to settings", "Chats that differ in tools, reset or model."
    )
    telegram: TelegramSettings = TelegramSettings()
    discord: DiscordSettings = DiscordSettings()
