"""The ledger: the prefixes that a provider should still hold, and the four markers that make the most of them.

    S  the last block of the system prompt, which covers the tools as well
    R  the deepest block whose prefix is known to be held: a sure hit, whatever was appended since
    F  the frontier: the last block of a summary, or of a region whose results were cleared
    W  the last block that can carry a marker, so that the next request finds all of this one

Markers left over go where they widen the reach of a read, or keep an earlier point of the conversation alive for those
who go back to it. `place` is a pure function of a request's blocks and a ledger; it sends and records nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from everlong.caching.rules import SECONDS, Ttl
from everlong.caching.view import RequestView

__all__ = ["CacheMark", "Ledger", "LedgerEntry", "Role", "last_markable", "place", "static_end"]

Role: TypeAlias = Literal["S", "R", "F", "W", "spare", "client", "automatic"]
SPACING = 15
"""Blocks between spare markers, so that reads that walk back 20 positions leave no gap."""
_CAPACITY = 8_192
_CLIENTS = frozenset({"client", "automatic"})


class CacheMark(NamedTuple):
    """A marker to send: its block, its time to live, and its role."""

    at: int
    ttl: Ttl
    role: Role


class LedgerEntry(NamedTuple):
    """The expiry of a prefix that the provider should hold."""

    expires: float
    ttl: Ttl


@dataclass
class Ledger:
    """The prefixes marked in requests to one model of one provider, by hash, with their expiry."""

    entries: dict[bytes, LedgerEntry] = field(default_factory=dict)

    def is_known(self, prefix: bytes) -> bool:
        """Return whether a prefix was marked before."""
        return prefix in self.entries

    def is_live(self, prefix: bytes, now: float) -> bool:
        """Return whether the provider should still hold a prefix."""
        entry = self.entries.get(prefix)
        return entry is not None and now < entry.expires

    def record(self, prefix: bytes, ttl: Ttl, now: float) -> None:
        """Record a marker that was sent; a prefix that is still held keeps its longer life."""
        entry = self.entries.get(prefix)
        if entry is not None and now < entry.expires:
            ttl = entry.ttl
        self.entries[prefix] = LedgerEntry(now + SECONDS[ttl], ttl)
        if len(self.entries) > _CAPACITY:
            oldest = sorted(self.entries, key=lambda known: self.entries[known].expires)
            for known in oldest[: _CAPACITY // 2]:
                del self.entries[known]


def place(
    view: RequestView,
    known: Sequence[int],
    is_live: Callable[[bytes], bool],
    *,
    own: Sequence[CacheMark] = (),
    slots: int = 4,
    ttl: Ttl = "5m",
) -> list[CacheMark]:
    """Return the markers for a request, including the client's ``own``, in the order of their blocks.

    ``known`` are the blocks, in order, whose prefix stands in the ledger.
    """
    slots -= len(own)
    taken = {mark.at for mark in own}
    chosen: list[CacheMark] = []

    def take(at: int | None, role: Role) -> None:
        if at is not None and len(chosen) < slots and at not in taken:
            taken.add(at)
            chosen.append(CacheMark(at, ttl, role))

    last = last_markable(view, _stable_end(view))
    live = _deepest_live(view, known, is_live, last)
    take(last, "W")
    take(static_end(view), "S")
    if live is not None:
        take(live, "R")
    if view.kept < view.head and view.kept:  # the system prompt changed: mark the part that stays
        take(last_markable(view, view.kept), "spare")
    for at, role in _further_places(view, known, live, last):
        if len(chosen) >= slots:
            break
        take(at, role)
    return _order_marks([*chosen, *own])


def _stable_end(view: RequestView) -> int:
    """Count the blocks before the first one that only this request has."""
    return view.ephemerals[0] if view.ephemerals else len(view.blocks)


def last_markable(view: RequestView, end: int, start: int = 0) -> int | None:
    """Return the last block between two places that can carry a marker."""
    for at in range(min(end, len(view.blocks)) - 1, start - 1, -1):
        if view.blocks[at].can_mark:
            return at
    return None


def static_end(view: RequestView) -> int | None:
    """Return the last block of tools and system prompt that can carry a marker."""
    return last_markable(view, view.head)


def _deepest_live(
    view: RequestView, known: Sequence[int], is_live: Callable[[bytes], bool], last: int | None
) -> int | None:
    for at in reversed(known):
        if (last is None or at < last) and is_live(view.chain[at]) and view.blocks[at].can_mark:
            return at
    return None


def _further_places(
    view: RequestView, known: Sequence[int], live: int | None, last: int | None
) -> Iterator[tuple[int | None, Role]]:
    """Yield places for further markers, the most useful first."""
    if last is None:
        return
    if live is None or live < view.head:
        # No part of the conversation is known to be held. If one is, markers at a distance may reach it.
        yield _frontier(view), "F"
        earlier = bisect_right(known, last - 1)
        yield (known[earlier - 1] if earlier and known[earlier - 1] >= view.head else None), "spare"
    else:
        yield _reply_end(view, live, last), "spare"
        yield _frontier(view), "F"
        yield _way_back(view, known, live), "spare"
    for at in range(last - SPACING, view.head, -SPACING):
        yield last_markable(view, at + 1, view.head), "spare"


def _frontier(view: RequestView) -> int | None:
    return view.frontiers[-1] if view.frontiers and view.blocks[view.frontiers[-1]].can_mark else None


def _reply_end(view: RequestView, start: int, last: int) -> int | None:
    """Return the end of the latest reply among the new blocks: where people fork a conversation."""
    for at in range(last - 1, start, -1):
        if view.blocks[at].ends_reply and view.blocks[at].can_mark:
            return at
    return None


def _way_back(view: RequestView, known: Sequence[int], live: int) -> int | None:
    """Return an earlier block, about half-way, to keep alive for those who go far back."""
    middle = view.head + (live - view.head) // 2
    place = bisect_right(known, middle)
    at = known[place - 1] if place else None
    return at if at is not None and at >= view.head and view.blocks[at].can_mark else None


def _order_marks(marks: list[CacheMark]) -> list[CacheMark]:
    """Return marks in the order of blocks, with no five-minute mark before a one-hour mark."""
    ordered = sorted(marks)
    short_seen = False
    fixed: list[CacheMark] = []
    last_own_hour = max((mark.at for mark in ordered if mark.role in _CLIENTS and mark.ttl == "1h"), default=-1)
    for mark in ordered:
        ttl: Ttl = mark.ttl
        if mark.role not in _CLIENTS:
            ttl = "5m" if short_seen else "1h" if mark.at < last_own_hour else mark.ttl
        short_seen = short_seen or ttl == "5m"
        fixed.append(mark._replace(ttl=ttl))
    return fixed
