"""A view of the store as it is put into the bodies of a client, and bodies with a view put in.

The store tells what to send as messages; a client's body has entries. What stands in the place of the first entries is
made once, when a view comes into force; all entries after it go on as the client wrote them. Cuts are made between
entries, so where the store's view ends inside of one, the rest of that entry is told as the store has it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from everlong.gateway.drafts import Draft, draft_of
from everlong.gateway.lines import Applied, Line
from everlong.gateway.raw import Change, Read, dumped, meant
from everlong.store.compact import Seen, see

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.store import Store
    from everlong.store.views import Piece

__all__ = ["applied_view", "moved_view", "with_view"]


def applied_view(store: Store, dialect: Dialect, line: Line) -> Applied | None:
    """The view in force for a conversation, in the bytes of an API; None where everything is sent as it came."""
    seen = see(store, line.branch)
    if seen.view_id is None:
        return None
    _, cover = store.view_items(line.branch)
    tail = [piece for piece in seen.sent if piece.message is not None and piece.from_depth >= cover]
    own = seen.messages[len(seen.system.messages()) : len(seen.messages) - len(tail)]
    covers = max(line.lead, bisect_left(line.depths, cover) + 1)
    reached = line.depths[covers - 1] if covers <= len(line.depths) else line.branch.depth
    inside = [piece.message for piece in tail if piece.to_depth <= reached and piece.message is not None]
    entries = dialect.entries_of([*own, *inside])
    if not entries:
        return None
    data, ends = _listed(entries)
    return Applied(seen.view_id, covers, data, ends, seen.system.suffix, _edits(seen, dialect, line, reached))


def _listed(entries: Sequence[Any]) -> tuple[bytes, tuple[int, ...]]:
    """Entries as they stand in a list, and where each of them ends."""
    written = [dumped(entry) for entry in entries]
    return b",".join(written), tuple(at + number for number, at in enumerate(accumulate(map(len, written))))


def _edits(seen: Seen, dialect: Dialect, line: Line, reached: int) -> dict[int, bytes]:
    """Entries after the view from which thinking is taken that belongs to another one."""
    if not dialect.binds_thinking:
        return {}
    changed: dict[int, list[Piece]] = {}
    for given, sent in zip(seen.pieces, seen.sent, strict=True):
        if given.message is not sent.message and sent.to_depth > reached:
            changed.setdefault(bisect_left(line.depths, sent.to_depth), []).append(sent)
    found: dict[int, bytes] = {}
    for number in changed:
        low, high = (line.depths[number - 1] if number else 0), line.depths[number]
        said = [one.message for one in seen.sent if low < one.to_depth <= high and one.message is not None]
        entries = dialect.entries_of(said)
        if len(entries) == 1:
            found[number] = dumped(entries[0])
    return found


def with_view(body: bytes, read: Read, dialect: Dialect, line: Line, view: Applied) -> Draft:
    """A body with a view in the place of what it covers."""
    changes: list[Change] = []
    begin, after = line.ends[line.lead - 1] if line.lead else read.start, line.ends[view.covers - 1]
    ends = list(line.ends[: line.lead])
    data, places = view.data, view.ends
    if view.note is not None:
        leading, change = dialect.noted(body, read, _leading(body, read, line), view.note)
        if leading is not None:
            noted, noted_ends = _listed(leading)
            changes.append((read.start, begin, noted))
            ends = [read.start + place for place in noted_ends]
        if change is not None:
            changes.append(change)
    if line.lead:
        data, places = b"," + data, tuple(place + 1 for place in places)
    last = ends[-1] if ends else read.start
    ends += [last + place for place in places]
    changes += ((begin, after, data), *_edited(line, view.edits))
    ends += _moved(line, view, ends[-1] - after)
    return draft_of(body, read, line.ends).changed(changes, ends)


def _leading(body: bytes, read: Read, line: Line) -> list[Any]:
    """The system messages at the beginning of a body."""
    draft = draft_of(body, read, line.ends)
    return [meant(body[slice(*draft.entry(number))]) for number in range(line.lead)]


def moved_view(line: Line, to: Line) -> Applied | None:
    """The view of a conversation for another body that says the same; None where that one has no cut at its end."""
    if line.view is None:
        return None
    numbers = {number: _number_at(to, line.depths[number]) for number in (line.view.covers - 1, *line.view.edits)}
    covers = numbers[line.view.covers - 1]
    if covers is None:
        return None
    edits = {at: data for number, data in line.view.edits.items() if (at := numbers[number]) is not None}
    return replace(line.view, covers=covers + 1, edits=edits)


def _number_at(line: Line, depth: int) -> int | None:
    number = bisect_left(line.depths, depth)
    return number if number < len(line.depths) and line.depths[number] == depth else None


def _moved(line: Line, view: Applied, shift: int) -> Iterator[int]:
    """Where the entries after a view end, with those among them that are sent otherwise."""
    for number in range(view.covers, len(line.ends)):
        if number in view.edits:
            shift += 1 + len(view.edits[number]) - (line.ends[number] - line.ends[number - 1])
        yield line.ends[number] + shift


def _edited(line: Line, edits: dict[int, bytes]) -> Sequence[Change]:
    # Between two entries stands a comma and maybe space; all of it is written anew.
    return [(line.ends[number - 1], line.ends[number], b"," + data) for number, data in edits.items()]
