"""A body on its way upstream: its bytes, and where its fields and the entries of its list stand in them.

Places are carried along from change to change, so that a long history is not read again to find its last message. What
is put in and why is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everlong.gateway.raw import Change, Stretch, spliced

if TYPE_CHECKING:
    from everlong.gateway.raw import Read

__all__ = ["Draft", "draft_of"]

_BETWEEN = b", \t\n\r"


@dataclass(frozen=True, slots=True)
class Draft:
    """A body as it is to be sent, as far as it has come."""

    body: bytes
    fields: Mapping[str, Stretch]
    """Where the values of its fields stand, the list of messages left out."""
    start: int
    """The place after the list's opening bracket."""
    ends: Sequence[int]
    """The place after each entry of the list."""

    def entry(self, number: int) -> Stretch:
        """Where an entry stands, counted from 0."""
        place = self.ends[number - 1] if number else self.start
        while self.body[place] in _BETWEEN:
            place += 1
        return place, self.ends[number]

    def changed(self, changes: Sequence[Change], ends: Sequence[int] | None = None) -> Draft:
        """The body with some stretches replaced.

        Where entries are among them, ``ends`` says where they end, as if all before the list were as it was.
        """
        fields = {name: (_begin(changes, start), _end(changes, end)) for name, (start, end) in self.fields.items()}
        start = _end(changes, self.start)
        ends, shift = self.ends if ends is None else ends, start - self.start
        return Draft(spliced(self.body, changes), fields, start, [end + shift for end in ends] if shift else ends)

    def cut(self, count: int) -> Draft:
        """The body with the first entries of its list only, of which there must be one."""
        return self.changed([(self.ends[count - 1], self.ends[-1], b"")], self.ends[:count])

    def with_field(self, name: str, value: bytes) -> Draft:
        """The body with one more field, behind all others."""
        place = self.body.rindex(b"}")
        written = b',"' + name.encode() + b'":'
        begin = place + len(written)
        body = spliced(self.body, [(place, place, written + value)])
        return Draft(body, {**self.fields, name: (begin, begin + len(value))}, self.start, self.ends)


def draft_of(body: bytes, read: Read, ends: Sequence[int]) -> Draft:
    """A body as it came."""
    return Draft(body, {**read.before, **read.after}, read.start, ends)


def _begin(changes: Sequence[Change], place: int) -> int:
    """Where what begins at a place begins after some changes."""
    return place + sum(len(new) - (end - start) for start, end, new in changes if end <= place)


def _end(changes: Sequence[Change], place: int) -> int:
    """Where what ends at a place ends after some changes; what is put in right there comes after it."""
    return place + sum(len(new) - (end - start) for start, end, new in changes if start < place and end <= place)
