"""Payloads of Discord, as far as its library reads them, for the stand-in."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

EPOCH = 1_420_070_400_000
TEXT, DM, THREAD = 0, 1, 11
_lock = threading.Lock()
_newest = 0


def next_id() -> str:
    """Return a snowflake larger than all before it, also if the clock goes back."""
    global _newest  # noqa: PLW0603 - ids are unique in the process
    with _lock:
        now = (int(time.time() * 1000) - EPOCH) << 22
        _newest = max(_newest + 1, now)
        return str(_newest)


def time_of(snowflake: str) -> str:
    seconds = ((int(snowflake) >> 22) + EPOCH) / 1000
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def user(number: str, name: str, *, is_bot: bool = False) -> Json:
    return {
        "id": number,
        "username": name,
        "discriminator": "0",
        "global_name": None if is_bot else name.capitalize(),
        "avatar": None,
        "bot": is_bot,
    }


def application(number: str, name: str, flags: int) -> Json:
    return {
        "id": number,
        "name": name,
        "icon": None,
        "description": "",
        "bot_public": True,
        "bot_require_code_grant": False,
        "owner": user("100000000000000001", "owner"),
        "verify_key": "0" * 64,
        "team": None,
        "flags": flags,
    }


def channel(number: str, kind: int, name: str = "", **more: Any) -> Json:
    shape: Json = {"id": number, "type": kind, "last_message_id": None, "flags": 0}
    if kind == DM:
        return {**shape, **more}
    shape |= {
        "name": name,
        "position": 0,
        "permission_overwrites": [],
    }
    if kind == THREAD:
        shape |= {
            "owner_id": "100000000000000001",
            "message_count": 1,
            "member_count": 1,
            "thread_metadata": {
                "archived": True,
                "auto_archive_duration": 1440,
                "archive_timestamp": time_of(number),
            },
        }
    return {**shape, **more}


def guild(number: str, name: str, channels: list[Json], roles: list[Json]) -> Json:
    return {
        "id": number,
        "name": name,
        "owner_id": "100000000000000001",
        "roles": [role(number, "@everyone"), *roles],
        "unavailable": False,
        "member_count": 3,
        "members": [],
        "channels": channels,
        "threads": [],
    }


def role(number: str, name: str, bot: str = "") -> Json:
    shape: Json = {
        "id": number,
        "name": name,
        "position": 0,
        "permissions": "1071698660929",
        "managed": bool(bot),
    }
    return {**shape, "tags": {"bot_id": bot}} if bot else shape


def member(person: Json | None = None) -> Json:
    shape: Json = {
        "nick": None,
        "avatar": None,
        "roles": [],
        "joined_at": "2026-01-01T00:00:00+00:00",
        "flags": 0,
    }
    return {**shape, "user": person, "permissions": "1071698660929"} if person is not None else shape


def message(number: str, where: str, author: Json, content: str, **more: Any) -> Json:
    return {
        "id": number,
        "type": 0,
        "channel_id": where,
        "author": author,
        "content": content,
        "edited_timestamp": None,
        "tts": False,
        "mention_everyone": False,
        "mentions": [],
        "mention_roles": [],
        "attachments": [],
        "embeds": [],
        "components": [],
        "pinned": False,
        "flags": 0,
        **more,
    }


def attachment(number: str, name: str, media_type: str, size: int, url: str) -> Json:
    return {
        "id": number,
        "filename": name,
        "content_type": media_type,
        "size": size,
        "url": url,
        "proxy_url": url,
    }


def interaction(number: str, token: str, application_id: str, kind: int, person: Json, where: Json, data: Json) -> Json:
    shape: Json = {
        "id": number,
        "application_id": application_id,
        "type": kind,
        "token": token,
        "version": 1,
        "data": data,
        "channel_id": where["id"],
        "channel": where,
        "attachment_size_limit": 10 * 1024**2,
    }
    if "guild_id" in where:
        return {
            **shape,
            "guild_id": where["guild_id"],
            "guild": {"id": where["guild_id"], "features": [], "locale": "en-US"},
            "member": member(person),
        }
    return {**shape, "user": person}
