"""Resets: when a chat starts anew by itself. The rule is a setting; clock and time zone are handed in."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

__all__ = ["reset_due", "zone_for"]


def zone_for(name: str | None) -> tzinfo:
    """Return a time zone by its name, or the system's."""
    if name is not None:
        return ZoneInfo(name)
    found = datetime.now().astimezone().tzinfo
    assert found is not None  # noqa: S101 - `astimezone` sets it
    return found


def reset_due(rule: str, active: float, now: float, zone: tzinfo) -> str | None:
    """Return why a chat starts anew before the message that has just come, in words; None if it goes on.

    Args:
        rule: ``never``, ``idle:HOURS`` or ``daily:HH:MM``.
        active: when the last turn ended, in seconds since 1970; 0 before the first.
        now: the time now.
        zone: the zone of ``daily``.
    """
    if not active or rule == "never":
        return None
    kind, _, value = rule.partition(":")
    if kind == "idle":
        idle = now - active
        return f"{idle / 3600:.0f} hours of silence" if idle >= int(value) * 3600 else None
    hour, minute = map(int, value.split(":"))
    today = datetime.fromtimestamp(now, zone)
    boundary = today.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if boundary > today:
        boundary = (boundary.replace(tzinfo=None) - timedelta(days=1)).replace(tzinfo=zone)
    return f"a new day (from {value})" if active < boundary.timestamp() else None
