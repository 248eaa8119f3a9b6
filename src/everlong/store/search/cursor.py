"""Where a page ended, as a short text: the rest of the ranking, and how to go on after it.

The ranking of the first page is carried along, so that later pages neither shift nor repeat when messages come in
between. A cursor belongs to the search that gave it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from everlong.errors import QueryError
from everlong.store.search.index import Place

_VERSION = 1
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """The state of a search between two pages."""

    upto: int
    shown: tuple[int, ...] = ()
    """Of the ranking, what the pages so far have shown or passed over."""
    waiting: tuple[int, ...] = ()
    """Of the ranking, what comes next."""
    tail: Place | None = None
    """Where the newest-first rest goes on; None before it has begun."""
    has_tail: bool = False
    is_fragment: bool = False
    """Whether the query, whose words were not known, is being looked for within words."""

    def packed(self, search: str) -> str:
        """The cursor as a text that goes with one search."""
        flags = self.has_tail + 2 * (self.tail is not None) + 4 * self.is_fragment
        numbers = [_VERSION, self.upto, len(self.shown), len(self.waiting), flags]
        numbers += _deltas((*self.shown, *self.waiting))
        data = _check(search) + b"".join(map(_varint, numbers))
        if self.tail is not None:
            data += struct.pack("<dq", self.tail.ts, self.tail.seq)
        return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def read_cursor(text: str, search: str) -> Cursor:
    """Read a cursor that a page of the same search gave; raises `QueryError` for any other text."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        (version, upto, shown, waiting, flags), rest = _numbers(data[4:], 5)
        deltas, rest = _numbers(rest, min(shown + waiting, len(data)))
        place = Place(*struct.unpack("<dq", rest)) if flags & 2 else None
    except (ValueError, IndexError, struct.error, binascii.Error, UnicodeEncodeError) as error:
        raise QueryError(f"{text[:40]!r} is no cursor; take it from the page before, as it is") from error
    if version != _VERSION or data[:4] != _check(search):
        raise QueryError("the cursor belongs to another search; repeat query, filters and order of the page before")
    ranking = _summed(deltas)
    return Cursor(upto, ranking[:shown], ranking[shown:], place, bool(flags & 1), bool(flags & 4))


def _check(search: str) -> bytes:
    return hashlib.blake2b(search.encode("utf-8", "surrogatepass"), digest_size=4).digest()


def _deltas(seqs: Iterable[int]) -> list[int]:
    found, last = [], 0
    for seq in seqs:
        step = seq - last
        found.append(step << 1 if step >= 0 else (-step << 1) - 1)
        last = seq
    return found


def _summed(deltas: list[int]) -> tuple[int, ...]:
    found, last = [], 0
    for delta in deltas:
        last += delta >> 1 if not delta & 1 else -((delta + 1) >> 1)
        found.append(last)
    return tuple(found)


def _varint(number: int) -> bytes:
    number &= _MASK
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _numbers(data: bytes, count: int) -> tuple[list[int], bytes]:
    found: list[int] = []
    at = 0
    for _ in range(count):
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise ValueError("number too long")
        found.append(number)
    return found, data[at:]
