"""Views: how an engine's output becomes items, how items become messages again, and how they are stored.

An engine gets a list of *pieces*: raw messages, and literals of the view already in force. Each carries a tag. A
message that comes back tagged and equal is kept, tagged and changed is an edit, untagged is new; if an engine drops
tags, equal messages are recognised. Items partition the depths up to the cover, and what follows the cover is raw, so
that assembling gives exactly the engine's output.
"""

from __future__ import annotations

import copy
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, select, update

from everlong.context.engine import MESSAGE_TAG
from everlong.lossless.graph import ASIDE, EDITED
from everlong.model import Message, leading_system_count, parts_of, with_part_appended
from everlong.store.content import blob, encoded
from everlong.store.database import in_batches
from everlong.store.paths import Entry, Reader, Segment
from everlong.store.schema import branch, node, view, view_item

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

TAG = MESSAGE_TAG
"""The key that carries a message's place through an engine; it is never stored."""

ID_DIGITS = 12
"""Hexadecimal digits of a message's id that people and models are given."""
_NODE_TAG = re.compile(r"[0-9a-f]{32}")

Kind = Literal["keep", "edit", "new"]


class ViewPiece(NamedTuple):
    """One message of the context, or None for a silent gap, and the stretch of depths that it stands for."""

    kind: Kind
    from_depth: int
    to_depth: int
    message: Message | None
    tag: str = ""
    is_raw: bool = False
    """True for a stored message as it was said, False for a literal of a view."""
    ts: float = 0.0
    """The time of a stored message."""


class ViewItem(NamedTuple):
    """One item of a view: depths ``(from_depth, to_depth]`` are sent as they are, as this message, or as nothing."""

    kind: Kind
    from_depth: int
    to_depth: int
    message: Message | None = None


class DerivedView(NamedTuple):
    """The items that an engine's output amounts to, and the depth that they cover."""

    items: list[ViewItem]
    cover_depth: int


def tagged(pieces: Sequence[ViewPiece], *, copies: bool = True) -> list[Message]:
    """Return the messages for an engine, each with its tag; deep copies, unless the engine changes nothing."""
    return [
        {**(copy.deepcopy(piece.message) if copies else piece.message), TAG: piece.tag}
        for piece in pieces
        if piece.message is not None
    ]


def untagged(message: Message) -> Message:
    """Return the message without its tag."""
    return {key: value for key, value in message.items() if key != TAG} if TAG in message else message


def id_in(message: Message) -> str | None:
    """Return the short id of the stored message that a tagged copy stands for; None for any other."""
    tag = message.get(TAG)
    is_node = isinstance(tag, str) and _NODE_TAG.fullmatch(tag) is not None
    return str(tag)[:ID_DIGITS] if is_node else None


def derive(pieces: Sequence[ViewPiece], output: Sequence[Message]) -> DerivedView:
    """Return the items that turn the pieces into an engine's output, with as little covered as possible."""
    said = [piece for piece in pieces if piece.message is not None]
    plain = [untagged(message) for message in output]
    tags = [message.get(TAG) for message in output]
    given = [_bytes(piece.message) for piece in said]
    made = [_bytes(message) for message in plain]

    def same(place: int, index: int) -> bool:
        return made[place] == given[index] and tags[place] in {None, said[index].tag}

    tail = 0
    while tail < min(len(said), len(plain)) and same(-1 - tail, -1 - tail):
        tail += 1
    tail = _count_raw_tail(pieces, said, tail)
    end_in, end_out = len(said) - tail, len(plain) - tail
    matched = _match_pieces(said[:end_in], tags[:end_out], made[:end_out], given[:end_in])
    cover = said[end_in].from_depth if tail else (pieces[-1].to_depth if pieces else 0)
    items = _build_items(said, plain[:end_out], matched, made, given, cover)
    return DerivedView(_merge_kept(_keep_whole_units(items, said)), cover)


def _bytes(message: Message | None) -> bytes:
    """Return bytes that are equal for equal messages, whatever the order of their keys."""
    return encoded(_sorted(message))


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


def _count_raw_tail(pieces: Sequence[ViewPiece], said: Sequence[ViewPiece], tail: int) -> int:
    """Return the longest raw end of at most ``tail`` messages that has no gap and begins with a numbered message."""
    depth = pieces[-1].to_depth if pieces else 0
    best = 0
    for count in range(1, tail + 1):
        piece = said[-count]
        if not piece.is_raw or piece.to_depth != depth:
            break
        if piece.from_depth < piece.to_depth:  # not one of those that follow a node
            best = count
        depth = piece.from_depth
    return best


def _match_pieces(
    said: Sequence[ViewPiece], tags: Sequence[object], made: Sequence[bytes], given: Sequence[bytes]
) -> list[int | None]:
    """Return for each message of the output the piece that it came from, in increasing order; None for new ones."""
    by_tag = {piece.tag: index for index, piece in enumerate(said)}
    claimed = {by_tag[tag] for tag in tags if isinstance(tag, str) and tag in by_tag}
    by_bytes: dict[bytes, list[int]] = {}
    for place, data in enumerate(given):
        if place not in claimed:
            by_bytes.setdefault(data, []).append(place)
    guesses: list[int | None] = []
    last = -1
    for place, tag in enumerate(tags):
        index: int | None = by_tag.get(tag) if isinstance(tag, str) else None
        if index is None and tag is None:
            later = by_bytes.get(made[place], [])
            at = bisect_left(later, last + 1)
            index = later[at] if at < len(later) else None
        guesses.append(index)
        if index is not None:
            last = index
    return _longest_increasing(guesses)


def _longest_increasing(guesses: Sequence[int | None]) -> list[int | None]:
    """Return the longest strictly increasing choice of the guesses; the others become None."""
    ends: list[int] = []  # the smallest last value of a run of each length
    places: list[int] = []
    before = [-1] * len(guesses)
    for place, value in enumerate(guesses):
        if value is None:
            continue
        length = bisect_left(ends, value)
        before[place] = places[length - 1] if length else -1
        ends[length : length + 1] = [value]
        places[length : length + 1] = [place]
    chosen: list[int | None] = [None] * len(guesses)
    at = places[-1] if places else -1
    while at >= 0:
        chosen[at] = guesses[at]
        at = before[at]
    return chosen


def _build_items(
    said: Sequence[ViewPiece],
    plain: Sequence[Message],
    matched: Sequence[int | None],
    made: Sequence[bytes],
    given: Sequence[bytes],
    cover: int,
) -> list[tuple[ViewItem, int | None]]:
    """Return one item per message of the output and one per silent gap, each with the piece that it keeps as it is."""
    items: list[tuple[ViewItem, int | None]] = []
    new: list[Message] = []
    depth = 0

    def close(gap_end: int) -> None:
        nonlocal depth
        for message in new:  # the first stands for what is missing, the others beside it
            items.append((ViewItem("new", depth, gap_end, message), None))
            depth = gap_end
        new.clear()
        if depth < gap_end:
            items.append((ViewItem("new", depth, gap_end), None))
            depth = gap_end

    for place, index in enumerate(matched):
        piece = None if index is None else said[index]
        # An old literal behind a new summary, such as its acknowledgement, must not end what the summary covers.
        is_beside = bool(new) and piece is not None and not piece.is_raw and piece.from_depth == piece.to_depth
        if index is None or piece is None or piece.to_depth > cover or is_beside:
            new.append(plain[place])
            continue
        close(piece.from_depth)
        equal = made[place] == given[index]
        kind: Kind = "edit" if piece.is_raw and not equal else piece.kind
        message = None if kind == "keep" else plain[place]
        items.append((ViewItem(kind, piece.from_depth, piece.to_depth, message), index if equal else None))
        depth = piece.to_depth
    close(cover)
    return items


def _keep_whole_units(items: Sequence[tuple[ViewItem, int | None]], said: Sequence[ViewPiece]) -> list[ViewItem]:
    """Return the items; a node is kept only with all that follows it unnumbered, else it becomes a literal."""
    result: list[ViewItem] = []
    place = 0
    while place < len(items):
        item, index = items[place]
        if item.kind != "keep" or index is None:
            result.append(item)
            place += 1
            continue
        unit = 1
        while index + unit < len(said) and _follows(said[index + unit], item.to_depth):
            unit += 1
        there = [found for _, found in items[place : place + unit]]
        begins = item.from_depth < item.to_depth
        if begins and there == list(range(index, index + unit)):
            result.append(item)
            place += unit
        else:
            kind: Kind = "edit" if begins else "new"
            result.append(ViewItem(kind, item.from_depth, item.to_depth, said[index].message))
            place += 1
    return result


def _follows(piece: ViewPiece, depth: int) -> bool:
    return piece.is_raw and piece.from_depth == piece.to_depth == depth


def _merge_kept(items: Sequence[ViewItem]) -> list[ViewItem]:
    """Return the items with neighbouring kept stretches merged and empty silent ones left out."""
    result: list[ViewItem] = []
    for item in items:
        last = result[-1] if result else None
        if last and item.kind == last.kind == "keep" and last.to_depth == item.from_depth:
            result[-1] = ViewItem("keep", last.from_depth, item.to_depth)
        elif item.kind == "keep" or item.message is not None or item.from_depth < item.to_depth:
            result.append(item)
    return result


def problems_of(items: Sequence[ViewItem], cover: int) -> list[str]:
    """Return what is wrong with a view's items as a partition of the depths up to the cover."""
    depth = 0
    for item in items:
        if item.from_depth != depth or item.to_depth < item.from_depth:
            return [f"an item covers ({item.from_depth}, {item.to_depth}] where ({depth}, …] was to follow"]
        if item.kind == "edit" and item.message is None:
            return [f"the edit of ({item.from_depth}, {item.to_depth}] has no message"]
        depth = item.to_depth
    return [] if depth == cover else [f"the items end at {depth}, and the view covers up to {cover}"]


class SystemMessages(NamedTuple):
    """The system messages of a request, and what a view does to them."""

    given: list[Message]
    suffix: str | None = None
    replaced: list[Message] | None = None

    def messages(self) -> list[Message]:
        """Return the system messages to send."""
        if self.replaced is not None:
            return self.replaced
        if self.suffix is None or not self.given:
            return self.given
        return [*self.given[:-1], with_part_appended(self.given[-1], self.suffix)]


class NewView(NamedTuple):
    """A view to be written."""

    derived: DerivedView
    system: SystemMessages
    saw_depth: int
    profile: str
    state: str
    origin: int | None = None
    """The view of another branch that it repeats."""


def pieces_of(
    connection: Connection, reader: Reader, path: list[Segment], shown: Row[Any] | None, depth: int
) -> list[ViewPiece]:
    """Return the context up to a depth as pieces: the view's items, then the raw messages."""
    if shown is None:
        return raw_pieces(reader.entries(connection, path, -1, depth), 0)
    pieces: list[ViewPiece] = []
    for place, item in enumerate(items_of(connection, reader, shown.id)):
        if item.kind == "keep":
            kept = reader.entries(connection, path, item.from_depth, item.to_depth)
            pieces += raw_pieces(kept, item.from_depth)
        else:
            pieces.append(ViewPiece(*item, tag=f"view{shown.id}.{place}"))
    after = reader.entries(connection, path, shown.cover_depth, depth)
    return [*pieces, *raw_pieces(after, shown.cover_depth)]


def with_edited_ids(connection: Connection, path: list[Segment], pieces: Sequence[ViewPiece]) -> list[ViewPiece]:
    """Return the pieces; the tag of an edited message names the message that it was."""
    depths = [piece.to_depth for piece in pieces if piece.kind == "edit" and not piece.is_raw]
    ids: dict[int, str] = {}
    for part in path:
        for some in in_batches([depth for depth in depths if part.low < depth <= part.high]):
            found = select(node.c.depth, node.c.id).where(node.c.branch == part.branch, node.c.depth.in_(some))
            ids.update({depth: bytes(ident).hex() for depth, ident in connection.execute(found)})
    return [
        piece._replace(tag=f"{piece.tag}{EDITED}{ids[piece.to_depth]}{ASIDE * (piece.from_depth == piece.to_depth)}")
        if piece.kind == "edit" and not piece.is_raw and piece.to_depth in ids
        else piece
        for piece in pieces
    ]


def items_of(connection: Connection, reader: Reader, view_id: int) -> list[ViewItem]:
    """Return the items of a view, in order."""
    rows = connection.execute(select(view_item).where(view_item.c.view == view_id).order_by(view_item.c.ord)).all()
    literals = reader.values(connection, [bytes(row.digest) for row in rows if row.digest is not None])
    return [
        ViewItem(row.kind, row.from_depth, row.to_depth, None if row.digest is None else literals[bytes(row.digest)])
        for row in rows
    ]


def raw_pieces(entries: Sequence[Entry], low: int) -> list[ViewPiece]:
    """Return stored messages as pieces, tagged with their node; those without identity with a number behind it."""
    pieces: list[ViewPiece] = []
    tag, beside = "start", 0
    for entry in entries:
        if entry.id is None:
            beside += 1
            beside_tag = f"{tag}{ASIDE}{beside}"
            pieces.append(
                ViewPiece("keep", entry.depth, entry.depth, entry.message, beside_tag, is_raw=True, ts=entry.ts)
            )
        else:
            tag, beside = entry.id.hex(), 0
            pieces.append(ViewPiece("keep", low, entry.depth, entry.message, tag, is_raw=True, ts=entry.ts))
            low = entry.depth
    return pieces


def system_of(connection: Connection, reader: Reader, number: int, shown: Row[Any] | None) -> SystemMessages:
    """Return the system messages that a branch was last sent with, as a view shows them."""
    digest = connection.execute(select(branch.c.preamble).where(branch.c.id == number)).scalar()
    wanted = [bytes(one) for one in (digest, shown.preamble if shown is not None else None) if one is not None]
    values = reader.values(connection, wanted)
    given = values.get(bytes(digest), {}).get("system", []) if digest is not None else []
    if shown is None:
        return SystemMessages(given)
    replaced = values[bytes(shown.preamble)]["system"] if shown.preamble is not None else None
    return SystemMessages(given, shown.system_suffix, replaced)


def system_from(before: SystemMessages, output: Sequence[Message]) -> tuple[SystemMessages, int]:
    """Return what an engine did to the system messages, and how many of its output they are."""
    sent = before.messages()
    count = len(sent)
    made = list(output[:count])
    if made == sent:
        return before, count
    if before.given and before.replaced is None and made[:-1] == before.given[:-1] and len(made) == count:
        parts, base = parts_of(made[-1]), parts_of(before.given[-1])
        added = parts[-1] if len(parts) == len(base) + 1 else {}
        candidate = SystemMessages(before.given, str(added.get("text", "")))
        if added and candidate.messages() == made:
            return candidate, count
    count = min(count, leading_system_count(list(output)))
    return SystemMessages(before.given, None, list(output[:count])), count


def write_view(
    core: StoreCore, connection: Connection, number: int, made: NewView, prev: int | None, now: float
) -> int:
    """Store a view with its items, without putting it in force; return its number."""
    database, tenant = core.database, core.tenant
    items = [
        (item, blob(tenant, encoded(item.message)) if item.message is not None else None) for item in made.derived.items
    ]
    system = made.system.replaced
    replaced = None if system is None else blob(tenant, encoded({"system": system, "tools": None}))
    blobs = [*(held for _, held in items if held is not None), *([replaced] if replaced is not None else [])]
    core.recorder.add_contents(connection, tenant, [(held, ()) for held in blobs])
    key = connection.execute(
        view.insert().values(
            tenant=tenant,
            branch=number,
            cover_depth=made.derived.cover_depth,
            saw_depth=made.saw_depth,
            prev=prev,
            profile=made.profile,
            system_suffix=made.system.suffix,
            preamble=None if replaced is None else replaced.digest,
            state=made.state,
            ts=now,
            origin=made.origin,
        )
    ).inserted_primary_key
    ident = int(key[0]) if key is not None else 0
    if items:
        connection.exec_driver_sql(
            database.sql("INSERT INTO view_item (view, ord, kind, from_depth, to_depth, digest) VALUES (?,?,?,?,?,?)"),
            [
                (ident, place, item.kind, item.from_depth, item.to_depth, held.digest if held else None)
                for place, (item, held) in enumerate(items)
            ],
        )
    # The index already has items of the previous view, and of the view that this one repeats.
    told = made.origin if made.origin is not None else prev
    connection.exec_driver_sql(
        database.sql(
            "INSERT INTO pending (seq) SELECT -i.seq FROM view_item i WHERE i.view = ? AND i.kind = 'new'"
            " AND i.digest IS NOT NULL AND NOT EXISTS (SELECT 1 FROM view_item o WHERE o.view = ?"
            " AND o.digest = i.digest)"
        ),
        (ident, told if told is not None else -1),
    )
    return ident


def put_in_force(connection: Connection, number: int, view_id: int | None, epoch: int) -> bool:
    """Point a branch at a view; return False if another was put in force since the epoch was read."""
    moved = connection.execute(
        update(branch)
        .where(branch.c.id == number, branch.c.epoch == epoch)
        .values(view_id=view_id, epoch=branch.c.epoch + 1)
    )
    return moved.rowcount == 1
