"""The graph of the lossless engine in the database: summaries of one conversation, and the messages under them.

`StoredGraph` is what the engine works with. A summary names the last message of its range, so forks that share messages
share their summaries. Edges are rows; messages are not stored a second time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast, get_args

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, or_, select, update

from everlong.context.literals import is_summary, summary_body
from everlong.errors import NotStored
from everlong.lossless.frontier import GraphBroken, read_node_ids
from everlong.lossless.graph import (
    ROOT,
    FoundPassage,
    NewSummary,
    SearchWish,
    State,
    SummaryNode,
    TextPage,
    search_texts,
    summary_id,
    tag_of,
)
from everlong.model import Message
from everlong.store.compaction import tagged_context
from everlong.store.content import blob, encoded, value_of
from everlong.store.database import in_batches
from everlong.store.outputs import page_of
from everlong.store.paths import Reader, Segment, leads_through, read_message, segments_to
from everlong.store.schema import branch, content, node, summary, summary_child, view
from everlong.store.shown_path import count_messages, find_message
from everlong.store.upkeep.references import drop_unused
from everlong.store.views import ViewItem, items_of

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.search import Searcher
    from everlong.store.tree import Branch

_IN_FORCE: tuple[State, ...] = ("good", "degraded")

# Plain SQL where a turn may wait for it: to put a statement together takes longer than to run it.
_NODE = "SELECT branch, depth, ts FROM node WHERE id = ? AND tenant = ?"
_TIMES = "SELECT min(ts), max(ts) FROM node WHERE branch = ? AND depth > ? AND depth <= ?"
_DEPTH = "SELECT depth FROM node WHERE branch = ? AND depth > ? AND depth <= ? ORDER BY depth LIMIT 1 OFFSET ?"
_SUMMARY = "SELECT s.*, c.bytes, c.codec FROM summary s LEFT JOIN content c ON c.digest = s.digest WHERE s.tenant = ?"
_EDGES = "SELECT parent, child FROM summary_child"


class StoredGraph:
    """The graph of one conversation; ``at`` is a place of it, or tells where the conversation is now."""

    def __init__(
        self,
        core: StoreCore,
        at: Branch | Callable[[], Branch | None],
        searcher: Callable[[], Searcher] | None = None,
    ) -> None:
        self._core = core
        self.is_of_host = callable(at)
        """True if a host tells where the conversation is; False for a graph as it was at one place."""
        self._at = at if callable(at) else lambda: at
        self._searcher = searcher
        self._sql = core.database.sql

    # -- messages ------------------------------------------------------------------------------------------------------

    def place(self, messages: Sequence[Message], after: str) -> list[str]:
        """Return the ids that the store has tagged messages with; an untagged one has that of the one before."""
        ids: list[str] = []
        for message in messages:
            after = tag_of(message) or after
            ids.append(after)
        return ids

    def before(self, message: str) -> str:
        """Return the id of the message before a message; `ROOT` for the first one."""
        with self._core.database.read() as connection:
            sql = self._core.database.sql("SELECT parent FROM node WHERE id = ?")
            row = connection.exec_driver_sql(sql, (bytes.fromhex(message),)).first()
        return ROOT if row is None or row[0] is None else bytes(row[0]).hex()

    def messages(self, after: str, last: str) -> list[tuple[str, Message]]:
        """Return the messages of a range, each with its id; one without identity has that of the message before."""
        found: list[tuple[str, Message]] = []
        with self._core.database.read() as connection:
            branch_id, low, high = self._range(connection, after, last)
            path = segments_to(connection, branch_id, high)
            entries = self._core.reader.entries(connection, path, low, high)
        for entry in entries:
            ident = found[-1][0] if entry.id is None and found else "" if entry.id is None else entry.id.hex()
            found.append((ident, entry.message))
        return found

    def context(self) -> list[Message] | None:
        """Return the conversation as it is sent now, with ids."""
        at = self._at()
        return None if at is None else tagged_context(self._core, at)

    def following(self, after: str, most: int) -> list[tuple[str, Message]]:
        """Return up to so many messages of the conversation after a message, each with its id."""
        at = self._at()
        if at is None:
            return []
        with self._core.database.read() as connection:
            low = 0 if after == ROOT else self._node(connection, after).depth
            found: list[tuple[str, Message]] = []
            for part in segments_to(connection, at.id, at.depth):
                if part.high <= low or len(found) >= most:
                    continue
                values = (part.branch, max(low, part.low), part.high, most - len(found) - 1)
                last = connection.exec_driver_sql(self._sql(_DEPTH), values).scalar()
                high = part.high if last is None else last
                entries = self._core.reader.entries(connection, [part], max(low, part.low), high)
                found += [(entry.id.hex(), entry.message) for entry in entries if entry.id is not None]
        return found[:most]

    def message_ids(self, after: str, last: str, start: int, count: int) -> list[str]:
        """Return some of the ids of a range, from the message with that number on, counted from 0."""
        found: list[str] = []
        with self._core.database.read() as connection:
            stretches = self._stretches(connection, after, last)
            for part, size in zip(stretches, count_messages(connection, stretches), strict=True):
                if start < size and len(found) < count:
                    mine = node.c.branch == part.branch, node.c.depth > part.low, node.c.depth <= part.high
                    wanted = select(node.c.id).where(*mine).order_by(node.c.depth)
                    rows = connection.execute(wanted.offset(start).limit(count - len(found))).scalars()
                    found += [bytes(ident).hex() for ident in rows]
                start = max(0, start - size)
        return found

    def _stretches(self, connection: Connection, after: str, last: str) -> list[Segment]:
        """Return the stretches of branches that hold the messages of a range."""
        if last == ROOT:
            return []
        number, low, high = self._range(connection, after, last)
        path = segments_to(connection, number, high)
        return [part._replace(low=max(part.low, low)) for part in path if part.high > low]

    def _range(self, connection: Connection, after: str, last: str) -> tuple[int, int, int]:
        """Return the branch of a range's last message, and the depths that it covers."""
        end = self._node(connection, last)
        return end.branch, 0 if after == ROOT else self._node(connection, after).depth, end.depth

    def _node(self, connection: Connection, ident: str) -> Any:
        values = (bytes.fromhex(ident), self._core.tenant)
        row = connection.exec_driver_sql(self._sql(_NODE), values).first()
        if row is None:
            raise NotStored(f"there is no message {ident} in {self._core.database.backend.where}")
        return row

    def read(self, message: str, page: int, chars: int) -> TextPage | None:
        """Return a page of a message's words, counted from 1; None if there is no such message."""
        try:
            found = find_message(self._core, message)
        except NotStored:
            return None
        read = page_of(read_message(self._core.database, self._core.tenant, found.node), page, chars)
        return TextPage(read.text, page, max(1, read.pages), read.chars)

    def search(self, wish: SearchWish) -> tuple[list[FoundPassage], bool]:
        """Return a page of places, best first, and whether there are more."""
        from everlong.store.recall import find_passages  # noqa: PLC0415 - loaded only where it is used
        from everlong.store.search import Filters, Searcher  # noqa: PLC0415 - as above
        from everlong.store.search.query import Mode  # noqa: PLC0415 - as above
        from everlong.store.search.snippets import passages as passages_in  # noqa: PLC0415 - as above

        if wish.role == "summary":
            return search_texts(wish, ((one.id, "summary", one.ended, one.made.text) for one in self.all()))
        if (at := self._at()) is None:
            return [], False
        filters = Filters(path=(at.id, at.depth), role=wish.role, tool=wish.tool, since=wish.since, before=wish.before)
        start, stop = (wish.page - 1) * wish.limit, wish.page * wish.limit
        mode: Mode = cast("Mode", wish.mode) if wish.mode in get_args(Mode) else "auto"
        searcher = Searcher(self._core.database, self._core.tenant) if self._searcher is None else self._searcher()
        found = find_passages(self._core, searcher, wish.query, filters, mode=mode, most=min(1_000, stop + 1))
        passages = list(islice((one for one in found if one.hit.node is not None), stop + 1))
        shown = [
            FoundPassage(
                one.hit.node.hex(),
                one.hit.role,
                one.hit.at,
                passages_in(one.text, wish.query, wish.room),
                len(one.text),
            )
            for one in passages[start:stop]
            if one.hit.node is not None
        ]
        return shown, len(passages) > stop

    # -- summaries -----------------------------------------------------------------------------------------------------

    def get(self, ident: str) -> SummaryNode | None:
        """Return a summary; None if there is none of that id, or it is void."""
        with self._core.database.read() as connection:
            return self._get(connection, ident)

    def newest(self, idents: Sequence[str]) -> list[SummaryNode | None]:
        """Return summaries, each in the form that has replaced it since; None for one that is not there."""
        now = list(idents)
        with self._core.database.read() as connection:
            found = self._get_all(connection, now)
            while later := {one: node.replaced_by for one, (node, _) in found.items() if node.replaced_by}:
                now = [later.get(ident, ident) for ident in now]
                found = self._get_all(connection, now)
            return [self._of_row(*found[ident]) if ident in found else None for ident in now]

    def find(self, after: str, last: str, children: Sequence[str] = ()) -> SummaryNode | None:
        """Return the summary of a range that was made from these children, as long as nothing has replaced it."""
        with self._core.database.read() as connection:
            return self._find(connection, after, last, tuple(children))

    def _find(self, connection: Connection, after: str, last: str, children: tuple[str, ...]) -> SummaryNode | None:
        if last == ROOT:
            return None
        begins = "s.after IS NULL" if after == ROOT else "s.after = ?"
        sql = f"{_SUMMARY} AND s.last = ? AND s.state IN ('good', 'degraded') AND {begins} ORDER BY s.seq DESC"
        values = (self._core.tenant, bytes.fromhex(last), *(() if after == ROOT else (bytes.fromhex(after),)))
        for row in connection.exec_driver_sql(self._sql(sql), values).all():
            found = self._of_row(row, self._children(connection, [row]).get(row.id, ()))
            if found.made.children == children:
                return found
        return None

    def add(self, made: NewSummary) -> SummaryNode:
        """Add a summary, unless another process has just added one of the same range and children."""
        core = self._core
        text = core.cleaned_text(made.text)
        held = blob(core.tenant, encoded(text))
        now = time.time()

        def work(connection: Connection) -> SummaryNode:
            if made.last == ROOT:  # another engine's summary, of which nobody knows what it stands for
                raise GraphBroken("a summary that stands for no message cannot be stored")
            number, low, high = self._range(connection, made.after, made.last)
            if (there := self._added_meanwhile(connection, number, made)) is not None:
                return there
            ident = self._free_id(connection, made, text)
            core.recorder.add_contents(connection, core.tenant, [(held, ())])
            started, ended = self._times(connection, made.after, made.last)
            values = (
                *(ident, core.tenant, number, low, high, made.level, bytes.fromhex(made.after) or None),
                *(bytes.fromhex(made.last), held.digest, made.tokens, made.source_tokens, made.messages),
                *(started, ended, made.model, made.quality, made.state, now),
            )
            names = (
                "id, tenant, branch, from_depth, to_depth, level, after, last, digest, tokens, source_tokens, messages,"
                " started, ended, model, quality, state, ts"
            )
            marks = ",".join("?" * len(values))
            statement = f"INSERT INTO summary ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"  # noqa: S608 - constants
            is_new = connection.exec_driver_sql(core.database.sql(statement), values).rowcount
            if is_new:
                self._add_edges(connection, ident, made.children)
            if made.replaces is not None:
                self._replace(connection, made, ident)
            found = self._get(connection, ident)
            assert found is not None  # noqa: S101 - just written
            return found

        return core.database.write(work)

    def _replace(self, connection: Connection, made: NewSummary, ident: str) -> None:
        """Take a degraded summary out of force; one whose words are the same becomes good itself."""
        old = update(summary).where(summary.c.id == made.replaces, summary.c.tenant == self._core.tenant)
        if made.replaces != ident:
            connection.execute(old.values(state="replaced", replaced_by=ident))
            return
        connection.execute(old.values(state=made.state, model=made.model, quality=made.quality))
        connection.execute(delete(summary_child).where(summary_child.c.parent == ident))
        self._add_edges(connection, ident, made.children)

    def _add_edges(self, connection: Connection, parent: str, children: Sequence[str]) -> None:
        rows = [(parent, place, child) for place, child in enumerate(children)]
        if rows:
            connection.exec_driver_sql(self._sql("INSERT INTO summary_child (parent, ord, child) VALUES (?,?,?)"), rows)

    def _free_id(self, connection: Connection, made: NewSummary, text: str) -> str:
        """Return the id of a new summary.

        After forgetting, the same words get another id. A view with the old one would have the bytes of one that was
        forgotten, and what was forgotten is not stored again.
        """
        while True:
            ident = summary_id(made.after, made.last, text)
            there = select(summary.c.state).where(summary.c.id == ident)
            if connection.execute(there).scalar() != "void":
                return ident
            text += "\0"

    def _added_meanwhile(self, connection: Connection, number: int, made: NewSummary) -> SummaryNode | None:
        """Return the summary that another process has added in place of one; none can be added until this one is."""
        lock = select(branch.c.id).where(branch.c.id == number)
        connection.execute(self._core.database.backend.locked(lock))
        if made.replaces is None:
            return self._find(connection, made.after, made.last, made.children)
        later = select(summary.c.replaced_by).where(
            summary.c.id == made.replaces, summary.c.tenant == self._core.tenant
        )
        ident = connection.execute(later).scalar()
        return None if ident is None else self._get(connection, ident)

    def _times(self, connection: Connection, after: str, last: str) -> tuple[float | None, float | None]:
        """Return the times of a range's first and last message."""
        places = [part[:3] for part in self._stretches(connection, after, last)]
        ends = [one for place in places for one in connection.exec_driver_sql(self._sql(_TIMES), place).one()]
        times = [one for one in ends if one is not None]
        return (min(times), max(times)) if times else (None, None)

    def degraded(self, most: int) -> list[SummaryNode]:
        """Return summaries of this conversation that are to be made again, the lowest levels first."""
        at = self._at()
        if at is None:
            return []
        with self._core.database.read() as connection:
            waiting = self._mine().where(summary.c.state == "degraded").order_by(summary.c.level, summary.c.seq)
            if connection.execute(waiting.limit(1)).first() is None:
                return []
            rows = connection.execute(waiting.where(_on_path(connection, at)).limit(most)).all()
            children = self._children(connection, rows)
            return [self._of_row(row, children.get(row.id, ())) for row in rows]

    def count(self) -> dict[str, int]:
        """Return the number of this conversation's summaries by state."""
        at = self._at()
        if at is None:
            return {}
        with self._core.database.read() as connection:
            mine = summary.c.tenant == self._core.tenant, _on_path(connection, at)
            query = select(summary.c.state, func.count()).where(*mine)
            return {str(state): int(many) for state, many in connection.execute(query.group_by(summary.c.state))}

    def all(self) -> Iterator[SummaryNode]:
        """Yield the summaries of this conversation that are in force, oldest first and lowest levels first."""
        at = self._at()
        if at is None:
            return
        with self._core.database.read() as connection:
            for part in segments_to(connection, at.id, at.depth):
                query = self._mine().where(summary.c.branch == part.branch, summary.c.state.in_(_IN_FORCE))
                query = query.where(summary.c.to_depth <= part.high).order_by(summary.c.to_depth, summary.c.level)
                rows = connection.execute(query).all()
                children = self._children(connection, rows)
                yield from (self._of_row(row, children.get(row.id, ())) for row in rows)

    def _mine(self) -> Any:
        held = summary.outerjoin(content, content.c.digest == summary.c.digest)
        return (
            select(summary, content.c.bytes, content.c.codec)
            .select_from(held)
            .where(summary.c.tenant == self._core.tenant)
        )

    def _get(self, connection: Connection, ident: str) -> SummaryNode | None:
        found = self._get_all(connection, [ident]).get(ident)
        return None if found is None else self._of_row(*found)

    def _get_all(self, connection: Connection, idents: Sequence[str]) -> dict[str, tuple[Row[Any], tuple[str, ...]]]:
        """Return the rows of summaries that are not void, each with the ids of its children."""
        if not idents:
            return {}
        sql = f"{_SUMMARY} AND s.state <> 'void' AND s.id IN ({','.join('?' * len(idents))})"
        rows = connection.exec_driver_sql(self._sql(sql), (self._core.tenant, *idents)).all()
        children = self._children(connection, rows)
        return {row.id: (row, children.get(row.id, ())) for row in rows}

    def _children(self, connection: Connection, rows: Sequence[Any]) -> dict[str, tuple[str, ...]]:
        """Return the ids of the children of summaries, by the parent's id."""
        found: dict[str, tuple[str, ...]] = {}
        for some in in_batches([row.id for row in rows if row.level]):
            sql = f"{_EDGES} WHERE parent IN ({','.join('?' * len(some))}) ORDER BY parent, ord"
            for parent, child in connection.exec_driver_sql(self._sql(sql), tuple(some)):
                found[parent] = (*found.get(parent, ()), child)
        return found

    @staticmethod
    def _of_row(row: Row[Any], children: tuple[str, ...]) -> SummaryNode:
        state: State = row.state
        made = NewSummary(
            row.level,
            ROOT if row.after is None else bytes(row.after).hex(),
            bytes(row.last).hex(),
            "" if row.bytes is None else value_of(row.bytes, row.codec),
            row.tokens,
            row.source_tokens,
            row.messages,
            row.model,
            row.quality,
            state,
            children,
        )
        return SummaryNode(row.id, made, state, row.ts, row.started, row.ended)


def _on_path(connection: Connection, at: Branch) -> ColumnElement[bool]:
    """Return the condition for summaries of messages up to a place."""
    path = segments_to(connection, at.id, at.depth)
    return or_(*(and_(summary.c.branch == part.branch, summary.c.to_depth <= part.high) for part in path))


# -- forgetting and checking -------------------------------------------------------------------------------------------


def void_summaries(connection: Connection, tenant: str, places: set[tuple[int, int]]) -> None:
    """Take away the words of all summaries that cover one of these messages (branch and depth)."""
    ends = select(summary.c.branch, func.max(summary.c.to_depth)).where(
        summary.c.tenant == tenant, summary.c.state != "void"
    )
    gone: dict[str, bytes | None] = {}
    for number, deepest in connection.execute(ends.group_by(summary.c.branch)).all():
        path = segments_to(connection, number, deepest)
        depths = [depth for own, depth in places if leads_through(path, own, depth)]
        for depth in depths:
            covering = select(summary.c.id, summary.c.digest).where(
                summary.c.branch == number, summary.c.from_depth < depth, summary.c.to_depth >= depth
            )
            gone.update({row.id: row.digest for row in connection.execute(covering)})
    for part in in_batches(sorted(gone)):
        connection.execute(update(summary).where(summary.c.id.in_(part)).values(state="void", digest=None))
    drop_unused(connection, {bytes(one) for one in gone.values() if one is not None})


def check_summaries(connection: Connection, tenant: str) -> Iterator[str]:
    """Yield what is wrong with the graph of a tenant: ranges without messages, gaps between children, lost words."""
    rows = {
        row.id: row
        for row in connection.execute(
            select(summary, content.c.state.label("words"))
            .outerjoin(content, content.c.digest == summary.c.digest)
            .where(summary.c.tenant == tenant)
        )
    }
    edges: dict[str, list[str]] = {}
    for row in connection.execute(select(summary_child).order_by(summary_child.c.parent, summary_child.c.ord)):
        edges.setdefault(row.parent, []).append(row.child)
    for row in rows.values():
        if row.state == "void":
            continue
        if row.words is None:
            yield f"summary {row.id} has lost its words"
        yield from _check_range(connection, row)
        children = [rows.get(child) for child in edges.get(row.id, ())]
        if any(child is None for child in children):
            yield f"summary {row.id} is made of a summary that is not there"
            continue
        known = [child for child in children if child is not None]
        if known and not _are_whole(row, known):
            yield f"the summaries under {row.id} do not cover its messages once each"


def _check_range(connection: Connection, row: Row[Any]) -> Iterator[str]:
    last = connection.execute(select(node.c.branch, node.c.depth).where(node.c.id == row.last)).first()
    if last is None or (last.branch, last.depth) != (row.branch, row.to_depth):
        yield f"summary {row.id} ends at a message that is not there"
    if row.after is not None:
        first = connection.execute(select(node.c.depth).where(node.c.id == row.after)).scalar()
        if first != row.from_depth:
            yield f"summary {row.id} begins after a message that is not there"


def _are_whole(row: Row[Any], children: Sequence[Row[Any]]) -> bool:
    at = row.after
    for child in children:
        if child.after != at:
            return False
        at = child.last
    return bool(at == row.last)


def shown_ids(items: Sequence[ViewItem]) -> list[str]:
    """Return the ids of the summaries that a view shows, oldest first; none if another engine made it."""
    new = (item.message for item in items if item.kind == "new" and item.message is not None)
    told = next(filter(is_summary, new), None)
    return read_node_ids(summary_body(told)) if told is not None else []


def check_frontiers(connection: Connection, reader: Reader, tenant: str) -> Iterator[str]:
    """Yield views in force under which a message does not stand exactly once.

    Each message is in the tail, kept in the view, or under one of the summaries that the view shows.
    """
    shown = select(view.c.id, view.c.cover_depth, view.c.branch).join(branch, branch.c.view_id == view.c.id)
    mine = view.c.tenant == tenant, view.c.branch.in_(select(branch.c.id).where(branch.c.tenant == tenant))
    if connection.execute(select(summary.c.seq).where(summary.c.tenant == tenant).limit(1)).first() is None:
        return
    for row in connection.execute(shown.where(*mine).distinct()).all():
        items = items_of(connection, reader, row.id)
        ids = shown_ids(items)
        if not ids:
            continue
        nodes = {one.id: one for one in connection.execute(select(summary).where(summary.c.id.in_(ids)))}
        at: bytes | None = None
        depth = 0
        for ident in ids:
            one = nodes.get(ident)
            if one is None or (None if one.after is None else bytes(one.after)) != at:
                yield f"view {row.id}: summary {ident} does not follow the one before it"
                break
            at, depth = bytes(one.last), one.to_depth
        else:
            silent = [item for item in items if item.to_depth > depth and item.kind == "new" and item.message is None]
            spans = [(max(depth, item.from_depth), item.to_depth) for item in silent]
            if depth > row.cover_depth or any(_has_sendable(connection, row.branch, *span) for span in spans):
                yield f"view {row.id}: the messages after {ids[-1]} are under no summary"


def _has_sendable(connection: Connection, number: int, low: int, high: int) -> bool:
    """Return whether a stretch has more than results without a call, which no request can carry."""
    for part in segments_to(connection, number, high):
        mine = node.c.branch == part.branch, node.c.depth > max(low, part.low), node.c.depth <= part.high
        if connection.execute(select(node.c.seq).where(*mine, node.c.role != "tool").limit(1)).first() is not None:
            return True
    return False
