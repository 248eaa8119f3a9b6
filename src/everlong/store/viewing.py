"""Views in the database: reading one as the messages it stands for, and writing a new one.

A view is never changed once written, and a branch points at the one in force. Pinned messages are told again after a
summary that swallowed them. This module knows tables and pieces; it runs no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select, update

from everlong.model import Message, leading_system_count, parts_of, text_of, with_part_appended
from everlong.store.content import blob, encoded
from everlong.store.database import Database
from everlong.store.paths import Entry, Reader, Segment, segments_to
from everlong.store.schema import branch, node, pin, view, view_item
from everlong.store.views import Derived, Item, Piece

PINNED = "[Pinned: kept word for word from earlier in this conversation]"
"""The line before a pinned message that is told again."""


class System(NamedTuple):
    """The system messages of a request, and what a view does to them."""

    given: list[Message]
    suffix: str | None = None
    replaced: list[Message] | None = None

    def messages(self) -> list[Message]:
        """What is sent."""
        if self.replaced is not None:
            return self.replaced
        if self.suffix is None or not self.given:
            return self.given
        return [*self.given[:-1], with_part_appended(self.given[-1], self.suffix)]


class NewView(NamedTuple):
    """A view to be written."""

    derived: Derived
    system: System
    saw_depth: int
    profile: str
    tokens: int | None
    state: str
    origin: int | None = None
    """The view of another branch that it repeats."""


def pieces_of(
    connection: Connection, reader: Reader, path: list[Segment], shown: Row[Any] | None, depth: int
) -> list[Piece]:
    """The context up to a depth as pieces: the view's items, then what is raw."""
    if shown is None:
        return raw_pieces(reader.entries(connection, path, -1, depth), 0)
    pieces: list[Piece] = []
    for place, item in enumerate(items_of(connection, reader, shown.id)):
        if item.kind == "keep":
            kept = reader.entries(connection, path, item.from_depth, item.to_depth)
            pieces += raw_pieces(kept, item.from_depth)
        else:
            pieces.append(Piece(*item, tag=f"view{shown.id}.{place}"))
    after = reader.entries(connection, path, shown.cover_depth, depth)
    return [*pieces, *raw_pieces(after, shown.cover_depth)]


def items_of(connection: Connection, reader: Reader, view_id: int) -> list[Item]:
    """The items of a view, in order."""
    rows = connection.execute(select(view_item).where(view_item.c.view == view_id).order_by(view_item.c.ord)).all()
    literals = reader.values(connection, [bytes(row.digest) for row in rows if row.digest is not None])
    return [
        Item(row.kind, row.from_depth, row.to_depth, None if row.digest is None else literals[bytes(row.digest)])
        for row in rows
    ]


def raw_pieces(entries: Sequence[Entry], low: int) -> list[Piece]:
    """Stored messages as pieces; the tag of a message is its node, and of one that follows it the node and a number."""
    pieces: list[Piece] = []
    tag, beside = "start", 0
    for entry in entries:
        if entry.id is None:
            beside += 1
            beside_tag = f"{tag}+{beside}"
            pieces.append(Piece("keep", entry.depth, entry.depth, entry.message, beside_tag, is_raw=True, ts=entry.ts))
        else:
            tag, beside = entry.id.hex(), 0
            pieces.append(Piece("keep", low, entry.depth, entry.message, tag, is_raw=True, ts=entry.ts))
            low = entry.depth
    return pieces


def system_of(connection: Connection, reader: Reader, number: int, shown: Row[Any] | None) -> System:
    """The system messages that a branch was last sent with, as a view shows them."""
    digest = connection.execute(select(branch.c.preamble).where(branch.c.id == number)).scalar()
    wanted = [bytes(one) for one in (digest, shown.preamble if shown is not None else None) if one is not None]
    values = reader.values(connection, wanted)
    given = values.get(bytes(digest), {}).get("system", []) if digest is not None else []
    if shown is None:
        return System(given)
    replaced = values[bytes(shown.preamble)]["system"] if shown.preamble is not None else None
    return System(given, shown.system_suffix, replaced)


def system_from(before: System, output: Sequence[Message]) -> tuple[System, int]:
    """What an engine did to the system messages, and how many of its output they are."""
    sent = before.messages()
    count = len(sent)
    made = list(output[:count])
    if made == sent:
        return before, count
    if before.given and before.replaced is None and made[:-1] == before.given[:-1] and len(made) == count:
        parts, base = parts_of(made[-1]), parts_of(before.given[-1])
        added = parts[-1] if len(parts) == len(base) + 1 else {}
        candidate = System(before.given, str(added.get("text", "")))
        if added and candidate.messages() == made:
            return candidate, count
    count = min(count, leading_system_count(list(output)))
    return System(before.given, None, list(output[:count])), count


def with_pins(pieces: Sequence[Piece], pinned: Sequence[Entry]) -> list[Message]:
    """The messages of pieces, where what is pinned stands in its own words: in its place, or after the summary."""
    messages: list[Message] = []
    covered = {entry.depth: entry for entry in pinned}
    for piece in pieces:
        inside = [covered[depth] for depth in sorted(covered) if piece.from_depth < depth <= piece.to_depth]
        if piece.is_raw or not inside:
            if piece.message is not None:
                messages.append(piece.message)
        elif piece.kind == "edit":
            messages.append(inside[-1].message)
        else:
            told = "\n\n".join([PINNED, *(text_of(entry.message) for entry in inside)])
            base = piece.message
            messages.append({"role": "user", "content": told} if base is None else with_part_appended(base, told))
    return messages


def pinned_in(connection: Connection, tenant: str, path: Sequence[Segment]) -> list[tuple[bytes, int]]:
    """The pinned nodes of a path, each with its depth."""
    rows = connection.execute(
        select(node.c.id, node.c.depth, node.c.branch).join(pin, pin.c.node == node.c.id).where(pin.c.tenant == tenant)
    ).all()
    spans = {segment.branch: segment for segment in path}
    return [
        (bytes(row.id), row.depth)
        for row in rows
        if row.branch in spans and spans[row.branch].low < row.depth <= spans[row.branch].high
    ]


def write_view(
    connection: Connection, database: Database, tenant: str, number: int, made: NewView, prev: int | None, now: float
) -> int:
    """Store a view with its items; putting it in force is another step."""
    cover_id = _node_at(connection, database, number, made.derived.cover_depth)
    items = [
        (item, blob(tenant, encoded(item.message)) if item.message is not None else None) for item in made.derived.items
    ]
    system = made.system.replaced
    replaced = None if system is None else blob(tenant, encoded({"system": system, "tools": None}))
    blobs = [*(held for _, held in items if held is not None), *([replaced] if replaced is not None else [])]
    contents = database.sql(
        "INSERT INTO content (tenant, digest, bytes, codec, state) VALUES (?,?,?,?,'live') ON CONFLICT DO NOTHING"
    )
    rows = sorted({(tenant, held.digest, held.bytes, held.codec) for held in blobs}, key=lambda row: row[1])
    if rows:
        connection.exec_driver_sql(contents, rows)
    key = connection.execute(
        view.insert().values(
            tenant=tenant,
            branch=number,
            cover=cover_id,
            cover_depth=made.derived.cover_depth,
            saw_depth=made.saw_depth,
            prev=prev,
            profile=made.profile,
            tokens=made.tokens,
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
    # What the view before, or the one that it repeats, told already is indexed already.
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
    """Point a branch at a view, unless another was put in force since the epoch was read."""
    moved = connection.execute(
        update(branch)
        .where(branch.c.id == number, branch.c.epoch == epoch)
        .values(view_id=view_id, epoch=branch.c.epoch + 1)
    )
    return moved.rowcount == 1


def _node_at(connection: Connection, database: Database, number: int, depth: int) -> bytes:
    if depth == 0:
        return b""
    for segment in segments_to(connection, number, depth):
        if segment.low < depth <= segment.high:
            found = connection.exec_driver_sql(
                database.sql("SELECT id FROM node WHERE branch = ? AND depth = ?"), (segment.branch, depth)
            ).scalar()
            if found is not None:
                return bytes(found)
    raise LookupError(f"no message ends at depth {depth} of branch {number}")
