"""The tree of messages: which messages of a list are known, and the transaction that adds the others.

A list is matched by its hash chain to the deepest node that the store knows. The rest is appended to that node's
branch, or becomes a fork if the branch has gone on differently. Recording the same list again adds nothing. This module
writes nodes, contents and branches; it knows no view beyond which one a fork inherits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select

from everlong.model import HashChain, Message, Node, Trace, blocks_of, is_reasoning, is_system, parts_of, text_of
from everlong.store.content import Blob, blob, encoded
from everlong.store.database import Database, TryAgain
from everlong.store.schema import annex, branch, view
from everlong.store.tombstones import forgotten_rows


def rest_of(message: Message, known: int) -> Message:
    """Return the message without its first ``known`` blocks; parts that identify nothing go with what they follow."""
    if known <= 0:
        return message
    role = message.get("role")
    content = parts_of(message)
    if role == "assistant":  # the order in which blocks are counted: calls after everything else
        content = sorted(content, key=lambda part: part.get("type") == "tool_use")
    kept: list[dict[str, Any]] = []
    left = known
    for part in content:
        if left > 0:
            left -= len(blocks_of({"role": role, "content": [part]}))
        else:
            kept.append(part)
    rest: Message = {**message, "content": kept or None}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and left > 0:
        readable = [call for call in calls if isinstance(call, dict)]
        rest["tool_calls"] = readable[left:]
    return rest


def kind_of_annex(message: Message) -> str:
    """Return why a message has no identity: ``system``, ``thinking``, ``reminder`` or ``empty``."""
    if is_system(message):
        return "system"
    if any(is_reasoning(part) for part in parts_of(message)):
        return "thinking"
    return "reminder" if text_of(message).strip() else "empty"


@lru_cache(maxsize=64)
def role_name(role: str) -> str:
    """Return a role as a column holds it."""
    return role[:32].encode("utf-8", "replace").decode().replace("\0", "")


BATCH = 4_096
"""The number of messages of one list that are committed together."""

PROBES = (8, 16, 32, 64, 128, 256, 512)
"""The numbers of ids that are asked for at once, from the end of a list backwards."""

_VIEW = select(view.c.saw_depth, view.c.prev, view.c.state).where(view.c.id == bindparam("ident"))


@dataclass(frozen=True, slots=True)
class Branch:
    """A place in the tree: a branch, and the node on it at which a conversation ends.

    >>> with Store.open("talk.db") as store:
    ...     branch: Branch = store.record([{"role": "user", "content": "hi"}])
    ...     branch = store.append(branch, [{"role": "assistant", "content": "hello"}])
    ...     branch.depth, len(store.context(branch))
    (2, 2)
    """

    id: int
    head: bytes
    depth: int

    @property
    def node(self) -> Node:
        """The node at the end of the conversation."""
        return Node(self.head, self.depth)


class Match(NamedTuple):
    """The deepest known node of a list; ``branch`` is None before the first message."""

    branch: int | None
    id: bytes
    depth: int


class NewMessage(NamedTuple):
    """One message to store: its place, its bytes, and the hashes of its blocks."""

    id: bytes
    depth: int
    role: str
    blob: Blob
    blocks: Sequence[bytes]
    ts: float
    mark: bytes | None = None
    """The id by which stateless requests find it, if that is another one."""


class Aside(NamedTuple):
    """One message without identity, after the node at a depth."""

    depth: int
    ord: int
    kind: str
    blob: Blob
    ts: float


class LockedBranch(NamedTuple):
    """A branch that nobody else can change before the transaction ends."""

    head: bytes
    view_id: int | None
    preamble: bytes | None
    fork_depth: int
    root: bytes | None
    may_be_gone: bool = True
    """False if nothing was ever forgotten."""


@dataclass(slots=True)
class RecordRequest:
    """A list to record, with its hashes: it begins after ``start`` and carries what it was sent with."""

    chain: HashChain
    start: Node
    messages: list[Message]
    ts: Sequence[float]
    start_branch: int | None = None
    preamble: Blob | None = None
    ext_id: str | None = None
    folder: str | None = None
    clean: Callable[[Message], Message] = field(default=lambda message: message)
    """Returns a given message as it may be stored."""
    known: Trace | None = None
    """The chain over the cleaned messages, if it is known already."""
    root: bytes | None = None
    """The node before the first message, if the conversation has one of its own."""
    marks: Sequence[bytes] | None = None
    """The ids after each block by which stateless requests find them, if those are others."""
    base: tuple[int, Match] | None = None
    """The number of first blocks that lead to a stored message, and that message, if they do so by other ids."""
    packed: Mapping[int, Blob] = field(default_factory=dict)
    """The messages that were compressed ahead, as they are stored, by the ids of their objects."""
    trace: Trace = field(init=False)

    def __post_init__(self) -> None:
        self.trace = self.known or self.chain.trace(map(self.clean, self.messages), self.start)

    def rebased(self, count: int, at: Match) -> RecordRequest:
        """Return the request as the continuation of a stored node, to which its first blocks lead by other ids."""
        rest = self.chain.rechain(self.messages, self.trace, at.id) if not count else self._rechained(count, at.id)
        trace = Trace([*self.trace.ids[:count], *rest], self.trace.blocks, self.trace.ends)
        start = Node(self.start.id if count else at.id, at.depth - count)
        marks = self.marks if self.marks is not None else self.trace.ids
        return replace(self, start=start, start_branch=at.branch, known=trace, marks=marks, base=(count, at))

    def last_reply(self, count: int) -> int:
        """Return how many of its first blocks reach to the last reply among so many of them."""
        at = bisect_right(self.trace.ends, count) - 1
        while at >= 0 and self.messages[at].get("role") != "assistant":
            at -= 1
        return self.trace.ends[at] if at >= 0 else 0

    def _rechained(self, count: int, start: bytes) -> list[bytes]:
        first = bisect_right(self.trace.ends, count)
        ends = [max(end - count, 0) for end in self.trace.ends[first:]]
        rest = Trace([], self.trace.blocks[count:], ends)
        return self.chain.rechain(self.messages[first:], rest, start)

    def asides_at(self, depth: int) -> list[Aside]:
        """Return the messages without identity directly after a depth."""
        ends, place = self.trace.ends, depth - self.start.depth
        first = bisect_right(ends, place - 1)  # the first message that ends at or after the place
        asides: list[Aside] = []
        if first < len(ends) and ends[first] == place and place > (ends[first - 1] if first else 0):
            first += 1  # the message that made the node
        while first < len(ends) and ends[first] == place:
            message = self.clean(self.messages[first])
            data = self.packed.get(id(self.messages[first])) or blob(self.chain.tenant, encoded(message))
            asides.append(Aside(depth, len(asides), kind_of_annex(message), data, self.ts[first]))
            first += 1
        return asides

    def additions(self, after: int) -> Iterator[tuple[NewMessage, list[Aside]]]:
        """Yield the messages to store beyond a depth, each with those without identity that follow it."""
        ends, ids = self.trace.ends, self.trace.ids
        known = after - self.start.depth
        before = known
        for index in range(bisect_right(ends, known), len(ends)):
            end = ends[index]
            if end == before:
                continue
            message = self.clean(self.messages[index])
            packed = self.packed.get(id(self.messages[index]))
            begin = ends[index - 1] if index else 0
            if begin < before:
                message, packed = rest_of(message, before - begin), None
            made = NewMessage(
                ids[end - 1],
                self.start.depth + end,
                role_name(str(message["role"])),
                packed or blob(self.chain.tenant, encoded(message)),
                self.trace.blocks[before:end],
                self.ts[index],
                self.marks[end - 1] if self.marks is not None and self.marks[end - 1] != ids[end - 1] else None,
            )
            followed = index + 1 < len(ends) and ends[index + 1] == end
            yield made, (self.asides_at(made.depth) if followed else [])
            before = end


def find_deepest(connection: Connection, database: Database, request: RecordRequest) -> Match:
    """Return the deepest node of a list that the store knows, asking from the end for ever more ids at once."""
    ids = request.trace.ids
    low = 0 if request.base is None else request.base[0]
    end, bite = len(ids), 0
    while end > low:
        size = PROBES[min(bite, len(PROBES) - 1)]
        asked = ids[max(low, end - size) : end]
        mark = database.backend.mark
        marks = ",".join([mark] * len(asked))
        row = connection.exec_driver_sql(
            f"SELECT branch, id, depth FROM node WHERE id IN ({marks}) AND tenant = {mark}"  # noqa: S608
            " ORDER BY depth DESC LIMIT 1",
            (*asked, request.chain.tenant),
        ).first()
        if row is not None:
            return Match(row[0], bytes(row[1]), row[2])
        end -= size
        bite += 1
    if request.base is not None:
        return request.base[1]
    if not ids and request.start_branch is None:  # nothing said yet: the same silence is not stored twice
        held = None if request.preamble is None else request.preamble.digest
        empty = select(branch.c.id).where(
            branch.c.tenant == request.chain.tenant, branch.c.head == request.start.id, branch.c.preamble == held
        )
        found = connection.execute(empty.order_by(branch.c.id).limit(1)).scalar()
        return Match(found, request.start.id, request.start.depth)
    return Match(request.start_branch, request.start.id, request.start.depth)


class Recorder:
    """The writer of requests into one database, inside transactions that others open."""

    def __init__(self, database: Database, tenant: str) -> None:
        self.database = database
        self._tenant = tenant
        self._run, self._later = database.backend.run, database.backend.run_later
        sql = database.sql
        self._content = sql(
            "INSERT INTO content (tenant, digest, bytes, codec, state, stub) VALUES (?,?,?,?,?,?)"
            " ON CONFLICT DO NOTHING"
        )
        self._node = sql(
            "INSERT INTO node (id, tenant, parent, branch, depth, role, digest, ts, mark)"
            " VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING"
        )
        self._annex = sql(
            "INSERT INTO annex (tenant, branch, depth, ord, digest, kind, shown, first_ts) VALUES (?,?,?,?,?,?,?,?)"
        )
        self._copy_annex = sql(
            "INSERT INTO annex (tenant, branch, depth, ord, digest, kind, shown, first_ts)"
            " SELECT tenant, ?, depth, ord, digest, kind, shown, first_ts FROM annex WHERE branch = ? AND depth = ?"
        )
        self._pending = sql(
            "INSERT INTO pending (seq) SELECT seq FROM node"
            " WHERE branch = ? AND depth > ? AND depth <= ? AND tenant = ?"
        )
        self._branch = sql(
            "INSERT INTO branch (tenant, parent, fork_depth, root, head, head_depth, view_id, epoch, preamble, ts)"
            " VALUES (?,?,?,?,?,?,?,?,?,?) RETURNING id"
        )
        seen = "SELECT head, view_id, preamble, fork_depth, root FROM branch WHERE id = ?"
        self._locked = sql(seen) + database.backend.lock
        self._owner = sql("SELECT branch FROM node WHERE id = ? AND tenant = ?")
        self._tombstones = sql("SELECT 1 FROM tombstone WHERE tenant = ? LIMIT 1")
        self._prompt = sql("UPDATE branch SET preamble = ? WHERE id = ?")
        self._move = sql("UPDATE branch SET head = ?, head_depth = ? WHERE id = ? AND head = ?")

    def add_at(
        self,
        at: LockedBranch | None,
        request: RecordRequest,
        match: Match,
        additions: Sequence[tuple[NewMessage, list[Aside]]],
        now: float,
        connection: Connection,
        also: Sequence[tuple[Blob, Sequence[bytes]]] = (),
    ) -> Branch:
        """Store additions after a match whose branch is locked; at its end, other contents with them.

        Raises:
            TryAgain: another process was there first.
        """
        is_head = at is not None and at.head == match.id
        gone = None if at is not None else self._later(connection, self._tombstones, (self._tenant,))
        first = request.asides_at(match.depth)
        if not additions and not is_head and match.branch is not None:
            return Branch(match.branch, match.id, match.depth)
        if is_head and match.branch is not None:
            number = match.branch
            first = first and self._missing_asides(connection, number, match.depth, first)
        else:
            number = self._fork(connection, request, match, at, now, additions[-1][0] if additions else None)
            if match.branch is not None and match.depth == request.start.depth:
                first = self._copy_asides(connection, match, number, first)
        asides = [*first, *(aside for _, following in additions for aside in following)]
        may_be_gone = at.may_be_gone if at is not None else gone is None or gone.fetchone() is not None
        blobs: list[tuple[Blob, Sequence[bytes]]] = [(made.blob, made.blocks) for made, _ in additions]
        blobs += [*((aside.blob, []) for aside in asides), *also]
        if request.preamble is not None and (at is None or not is_head or at.preamble != request.preamble.digest):
            blobs.append((request.preamble, []))
            if number == match.branch:
                self._later(connection, self._prompt, (request.preamble.digest, number))
        self.add_contents(connection, request.chain.tenant, blobs, may_be_gone=may_be_gone)
        if asides:
            self._add_asides(connection, request.chain.tenant, number, asides)
        if not additions:
            return Branch(number, match.id, match.depth)
        return self._add_nodes(connection, request, match, number, [made for made, _ in additions])

    def _add_nodes(
        self, connection: Connection, request: RecordRequest, match: Match, number: int, made: list[NewMessage]
    ) -> Branch:
        tenant = request.chain.tenant
        parent: bytes | None = match.id if match.depth else None
        rows = []
        for addition in made:
            rows.append(
                (
                    *(addition.id, tenant, parent, number, addition.depth),
                    *(addition.role, addition.blob.digest, addition.ts, addition.mark),
                )
            )
            parent = addition.id
        last = made[-1]
        self._later(connection, self._node, rows, changes_all=True)
        if number == match.branch:
            self._later(connection, self._move, (last.id, last.depth, number, match.id), changes_all=True)
        self._later(connection, self._pending, (number, match.depth, last.depth, tenant))
        return Branch(number, last.id, last.depth)

    def lock(self, connection: Connection, match: Match) -> LockedBranch | None:
        """Lock the branch of a match until the transaction ends; return None before the first message."""
        if match.branch is None:
            return None
        locked = self._later(connection, self._locked, (match.branch,))
        may_be_gone = self._run(connection, self._tombstones, (self._tenant,)).fetchone() is not None
        row = locked.fetchone()
        if row is None:
            raise TryAgain(f"branch {match.branch} was removed at the same moment")
        head, view_id, preamble, fork_depth, root = row
        known, its_root = None if preamble is None else bytes(preamble), None if root is None else bytes(root)
        return LockedBranch(bytes(head), view_id, known, fork_depth, its_root, may_be_gone)

    def _fork(
        self,
        connection: Connection,
        request: RecordRequest,
        match: Match,
        at: LockedBranch | None,
        now: float,
        last: NewMessage | None,
    ) -> int:
        """Begin a branch that ends with its last new message."""
        shown, preamble = (None, None) if at is None else (at.view_id, at.preamble)
        if request.preamble is not None:
            preamble = request.preamble.digest
        parent = match.branch
        if parent is not None and match.depth:  # a place may be named by any branch that leads through it
            owner = self._run(connection, self._owner, (match.id, request.chain.tenant)).fetchone()
            parent = parent if owner is None else owner[0]
        root = request.root if at is None else at.root
        values = (
            *(request.chain.tenant, parent, match.depth, root),
            *((match.id, match.depth) if last is None else (last.id, last.depth)),
            *(inherited_view(connection, shown, match.depth), 0, preamble, now),
        )
        return int(self._run(connection, self._branch, values).fetchone()[0])

    def add_contents(
        self,
        connection: Connection,
        tenant: str,
        blobs: Sequence[tuple[Blob, Sequence[bytes]]],
        *,
        may_be_gone: bool = True,
    ) -> None:
        """Store contents, each with the hashes of its blocks; one with a forgotten block becomes a tombstone."""
        if not blobs:
            return
        if may_be_gone and self._run(connection, self._tombstones, (tenant,)).fetchone() is not None:
            rows = forgotten_rows(connection, tenant, blobs)
        else:  # nothing was ever forgotten, which is the rule
            rows = [(tenant, made.digest, made.bytes, made.codec, "live", None) for made, _ in blobs]
        rows.sort(key=itemgetter(1))  # two writers of the same contents meet in one order, so neither deadlocks
        self._later(connection, self._content, rows)

    def _add_asides(self, connection: Connection, tenant: str, number: int, asides: list[Aside]) -> None:
        rows = [(tenant, number, one.depth, one.ord, one.blob.digest, one.kind, True, one.ts) for one in asides]
        self._later(connection, self._annex, rows)

    def _copy_asides(self, connection: Connection, match: Match, number: int, asides: list[Aside]) -> list[Aside]:
        """Copy the messages without identity after a place to a fork; return those to add, numbered behind them."""
        copied = self._run(connection, self._copy_annex, (number, match.branch, match.depth)).rowcount
        return [aside._replace(ord=copied + place) for place, aside in enumerate(asides)]

    def _missing_asides(self, connection: Connection, number: int, depth: int, asides: list[Aside]) -> list[Aside]:
        """Return the messages that the branch lacks after its head, numbered behind those that it has."""
        there = select(annex.c.digest, annex.c.kind).where(annex.c.branch == number, annex.c.depth == depth)
        rows = connection.execute(there).all()
        same = Counter(bytes(row.digest) for row in rows)
        left = Counter(row.kind for row in rows)
        new: list[Aside] = []
        for aside in asides:
            # An instruction is another one if its words are; the rest are the same ones in whatever shape they come.
            left[aside.kind] -= 1
            same[aside.blob.digest] -= 1
            if (same[aside.blob.digest] if aside.kind == "system" else left[aside.kind]) < 0:
                new.append(aside)
        return [aside._replace(ord=len(rows) + place) for place, aside in enumerate(new)]


def inherited_view(connection: Connection, view_id: int | None, depth: int) -> int | None:
    """Return the newest usable view of a chain that was made with no knowledge beyond a depth."""
    while view_id is not None:
        row = connection.execute(_VIEW, {"ident": view_id}).first()
        if row is None:
            return None
        if row.saw_depth <= depth and row.state != "void":
            return view_id
        view_id = row.prev
    return None
