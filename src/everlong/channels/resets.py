"""Resets: when a chat starts anew by itself. The rule is a setting; clock and time zone are handed in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

__all__ = ["reset_reason", "zone_for"]


def zone_for(name: str | None) -> tzinfo:
    """Return a time zone by its name, or the system's."""
    return ZoneInfo(name) if name is not None else SystemZone()


class SystemZone(tzinfo):
    """The time zone of the system, with summer and winter time; `datetime.astimezone` knows only the offset of now."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """Return how far local time is ahead of UTC at a moment."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def tzname(self, moment: datetime | None) -> str | None:
        """Return the name of local time at a moment."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def dst(self, moment: datetime | None) -> None:
        """Return nothing: the system does not tell how much of the offset is summer time."""
        del moment

    def fromutc(self, moment: datetime) -> datetime:
        """Return the local time of a moment in UTC."""
        local = moment.replace(tzinfo=UTC).astimezone()
        first = local.replace(tzinfo=self, fold=0)
        return first if first.utcoffset() == local.utcoffset() else first.replace(fold=1)


def reset_reason(rule: str, active: float, now: float, zone: tzinfo) -> str | None:
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
        boundary -= timedelta(days=1)  # of the clock on the wall, also where the clocks were changed in between
    return f"a new day (from {value})" if active < boundary.timestamp() else None
