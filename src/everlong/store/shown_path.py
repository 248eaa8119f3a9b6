"""The path that a conversation shows: which messages of the tree people read as one conversation, and their numbers.

A conversation is stored in parts. Each compaction ends one and opens the next on the same branch; a client that leaves
out old tool results goes on on another branch, where a new *run* of parts begins. Of each run the path to the end of
its last part is shown, so what was taken back is not. A message's turn is its number: 1 for the first one, and so on
over all runs. A reply that broke off stands beside the path; it has the turn of the request that it answers.

Knows the tables and reads only. Works on a connection, for the search as well as for `everlong.store.conversations`.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, Select, bindparam, select

from everlong.errors import NotStored
from everlong.store.database import ask, in_batches
from everlong.store.paths import Segment, leads_through, segments_of, segments_to
from everlong.store.schema import alias, node, session
from everlong.store.sessions import Sessions, title_base

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.tree import Branch

CLEARED = "cleared"
"""The end reason of a part whose client goes on without old tool results, on another branch."""

_CONVERSATIONS_AT_ONCE = 50
"""The number of conversations whose paths are read together."""
_STRETCHES_AT_ONCE = 100
"""The number of stretches of branches whose messages are counted together."""
_MOST_CONVERSATIONS = 1_000
"""The most conversations with a common beginning, the oldest, that are searched for the one that shows a message."""


class ShownRun(NamedTuple):
    """A stretch of the conversation along one branch: depths in ``(low, high]``, behind ``before`` other messages."""

    branch: int
    low: int
    high: int
    before: int
    path: list[Segment]
    """All of the way to its end, from the branch's first message on."""

    def holds(self, number: int, depth: int) -> bool:
        """Return whether a node, by its own branch and its depth, is on the run."""
        return self.low < depth <= self.high and leads_through(self.path, number, depth)

    def stretches(self, upto: int | None = None) -> Iterator[Segment]:
        """Yield the stretches of branches that it shows, all or up to a depth."""
        high = self.high if upto is None else upto
        for part in self.path:
            if part.high > self.low and part.low < high:
                yield part._replace(low=max(part.low, self.low), high=min(part.high, high))

    def turn_at(self, connection: Connection, depth: int) -> int:
        """Return the number of the last message that ends at a depth or before it."""
        parts = list(self.stretches(depth))
        return self.before + sum(count_messages(connection, parts))

    def depth_of(self, connection: Connection, turn: int) -> int:
        """Return the depth at which a message ends, by its number; of one before or after the run, its nearest end."""
        left = turn - self.before
        if left <= 0:
            return self.low
        parts = list(self.stretches())
        for part, count in zip(parts, count_messages(connection, parts), strict=True):
            if left <= count:
                there = select(node.c.depth).where(node.c.branch == part.branch, node.c.depth > part.low)
                return int(connection.execute(there.order_by(node.c.depth).limit(1).offset(left - 1)).scalar_one())
            left -= count
        return self.high


class BrokenReply(NamedTuple):
    """A reply that was cancelled or failed, and the place of the request that it answers."""

    turn: int
    session: str
    status: Literal["cancelled", "failed"]
    error: str | None
    echo_node: bytes
    branch: int
    depth: int
    echo_branch: int
    echo_depth: int
    fork_depth: int


@dataclass(frozen=True, slots=True)
class ShownPath:
    """The messages that a conversation shows: its runs, oldest first, and the broken replies beside them, in order."""

    conversation: str
    runs: tuple[ShownRun, ...]
    broken: tuple[BrokenReply, ...]

    def run_of(self, number: int, depth: int) -> ShownRun | None:
        """Return the run that shows a node, by its own branch and its depth; None if the conversation does not."""
        return next((run for run in self.runs if run.holds(number, depth)), None)

    def turn_at(self, connection: Connection, number: int, depth: int) -> int | None:
        """Return the turn at a depth on the way along a branch; None if the conversation does not show it."""
        return self.turns_at(connection, [(number, depth)])[0]

    def turns_at(self, connection: Connection, places: Sequence[tuple[int, int]]) -> list[int | None]:
        """Return the turn at each of some places; messages between them are counted once."""
        found: dict[tuple[int, int], int] = {}
        for run in self.runs:
            own = {part.branch for part in run.path}
            here = {place for place in places if place[0] in own and run.low < place[1] <= run.high} - found.keys()
            depths = sorted({depth for _, depth in here})
            between = [list(run._replace(low=low, high=high).stretches()) for low, high in pairwise([run.low, *depths])]
            counts = count_messages(connection, [part for parts in between for part in parts])
            sums = accumulate((sum(islice(counts, len(parts))) for parts in between), initial=run.before)
            turns = dict(zip(depths, islice(sums, 1, None), strict=True))
            found |= {place: turns[place[1]] for place in here}
        return [found.get(place) for place in places]

    def turns_within(self, connection: Connection, number: int, low: int, high: int) -> tuple[int | None, int | None]:
        """Return the first and the last turn at depths in ``(low, high]`` along a branch; None where there is none."""
        last, before = self.turn_at(connection, number, high), self.turn_at(connection, number, low)
        if last is not None and before is None:  # the run begins there
            before = next(run.before for run in self.runs if run.low < high <= run.high)
        return (None, None) if last is None or before is None or before >= last else (before + 1, last)

    def count_turns(self, connection: Connection) -> int:
        """Return the number of its last message."""
        return self.runs[-1].turn_at(connection, self.runs[-1].high) if self.runs else 0

    def stretches(self) -> Iterator[Segment]:
        """Yield all stretches of branches that it shows, those of broken replies too."""
        for run in self.runs:
            yield from run.stretches()
        for one in self.broken:
            yield Segment(one.echo_branch, one.fork_depth, one.echo_depth, is_last=True)


def count_shown(connection: Connection, paths: Sequence[ShownPath]) -> dict[str, int]:
    """Return how many messages each of some conversations shows."""
    found = {path.conversation: len(path.broken) for path in paths}
    parts = [(path.conversation, part) for path in paths for run in path.runs for part in run.stretches()]
    for (name, _), count in zip(parts, count_messages(connection, [part for _, part in parts]), strict=True):
        found[name] += count
    return found


def count_messages(connection: Connection, parts: Sequence[Segment]) -> Iterator[int]:
    """Yield how many messages end on each of some stretches of branches."""
    counted = "(SELECT count(*) FROM node WHERE branch = ? AND depth > ? AND depth <= ?)"
    for some in in_batches(parts, _STRETCHES_AT_ONCE):
        values = [value for part in some for value in part[:3]]
        yield from ask(connection, f"SELECT {', '.join([counted] * len(some))}", values).fetchone()


def conversation_of(connection: Connection, tenant: str, ident: str) -> str:
    """Return the id of a conversation by that of any part; the first part, which named it, may be deleted."""
    mine = select(session.c.conversation).where(session.c.tenant == tenant)
    for condition in (session.c.id == ident, session.c.conversation == ident):
        name = connection.execute(mine.where(condition).limit(1)).scalar()
        if name is not None:
            return str(name)
    raise NotStored(f"there is no conversation {ident!r}; `everlong sessions list` shows all")


def parts_of(connection: Connection, tenant: str, conversations: Iterable[str]) -> dict[str, list[Row[Any]]]:
    """Return the parts of conversations, as rows, oldest first."""
    found: dict[str, list[Row[Any]]] = {}
    for some in in_batches(list(conversations)):
        for row in connection.execute(_parts_in(), {"tenant": tenant, "conversations": some}).all():
            found.setdefault(row.conversation, []).append(row)
    return found


@cache
def _parts_in() -> Select[Any]:
    """Return the query for the parts of some conversations, oldest first."""
    mine = session.c.tenant == bindparam("tenant")
    some = session.c.conversation.in_(bindparam("conversations", expanding=True))
    return select(session).where(mine, some).order_by(session.c.started, session.c.id)


def shown_paths(connection: Connection, tenant: str, parts: dict[str, list[Row[Any]]]) -> dict[str, ShownPath]:
    """Return the shown paths of conversations, whose parts are given."""
    broken: dict[str, list[BrokenReply]] = {}
    conversation_of = {row.id: name for name, rows in parts.items() for row in rows}
    for one in _broken_in(connection, tenant, list(conversation_of)):
        broken.setdefault(conversation_of[one.session], []).append(one)
    found: dict[str, ShownPath] = {}
    known = _branches_of(connection, parts)
    for name, rows in parts.items():
        path = ShownPath(name, tuple(_runs(connection, rows, known)), ())
        beside = [
            one
            for one in broken.get(name, ())
            if path.run_of(one.branch, one.depth) is not None and path.run_of(one.echo_branch, one.echo_depth) is None
        ]
        found[name] = ShownPath(name, path.runs, tuple(beside))
    return found


def _branches_of(connection: Connection, parts: dict[str, list[Row[Any]]]) -> dict[int, tuple[int | None, int, int]]:
    """Return by number where the branches of conversations come from, begin and end."""
    found: dict[int, tuple[int | None, int, int]] = {}
    for some in in_batches(sorted({row.branch for rows in parts.values() for row in rows if row.branch is not None})):
        statement = f"SELECT id, parent, fork_depth, head_depth FROM branch WHERE id IN ({', '.join(map(str, some))})"  # noqa: S608
        found.update((row[0], tuple(row[1:])) for row in ask(connection, statement))
    return found


def _runs(
    connection: Connection, parts: Sequence[Row[Any]], known: Mapping[int, tuple[int | None, int, int]]
) -> Iterator[ShownRun]:
    before = 0
    members: list[Row[Any]] = []
    for place, part in enumerate(parts):
        if part.branch is not None:
            members.append(part)
        if members and (part.end_reason == CLEARED or place == len(parts) - 1):
            last, low = members[-1], members[0].from_depth
            high = last.to_depth
            parent, fork_depth, head_depth = known.get(last.branch, (last.branch, 0, 0))
            if high is None:
                high = head_depth
            if parent is None:  # most branches were forked from none
                path = segments_of([(last.branch, None, fork_depth)], high)
            else:
                path = segments_to(connection, last.branch, high)
            run = ShownRun(last.branch, low, high, before, path)
            yield run
            if place < len(parts) - 1:
                before = run.turn_at(connection, high)
            members = []


def _broken_in(connection: Connection, tenant: str, sessions: Sequence[str]) -> Iterator[BrokenReply]:
    """Yield the replies of sessions that were cancelled or failed, in the order of their turns."""
    for some in in_batches(sessions):
        yield from _broken(connection, tenant, "session", some)


def _broken(
    connection: Connection, tenant: str, by: Literal["session", "echo_node"], values: Sequence[str | bytes]
) -> list[BrokenReply]:
    marks = ", ".join("?" * len(values))
    rows = ask(connection, _BROKEN.format(by=by, marks=marks), (tenant, *values)).fetchall() if values else ()
    found: dict[bytes, BrokenReply] = {}  # a reply that broke off twice at the same word is one message
    for row in rows:
        one = BrokenReply(*row)
        found.setdefault(bytes(one.echo_node), one._replace(echo_node=bytes(one.echo_node)))
    return list(found.values())


_BROKEN = (
    "SELECT t.id, t.session, t.status, t.error, t.echo_node, n.branch, n.depth, e.branch, e.depth, b.fork_depth "
    "FROM turn t JOIN node n ON n.id = t.node JOIN node e ON e.id = t.echo_node JOIN branch b ON b.id = e.branch "
    "WHERE t.tenant = ? AND t.status IN ('cancelled', 'failed') AND t.reply IS NOT NULL AND t.session IS NOT NULL "
    "AND t.{by} IN ({marks}) ORDER BY t.id"
)
"""The broken replies by the values of a column, in plain SQL because every page of a search asks for them."""


# -- the other way round -----------------------------------------------------------------------------------------------


class ShownPlace(NamedTuple):
    """The place of a message or a summary: its own branch and depth, and the id if it is a message."""

    branch: int
    depth: int
    node: bytes | None


class Located(NamedTuple):
    """The conversation and the turn that show something; ``status`` is that of a reply that broke off.

    Where no conversation shows it, the turn counts from its branch's beginning.
    """

    conversation: str | None
    title: str | None
    turn: int
    status: Literal["cancelled", "failed"] | None = None


def locate(connection: Connection, tenant: str, places: Iterable[ShownPlace]) -> dict[ShownPlace, Located]:
    """Return the conversation that shows each place, the oldest if several do; what was taken back is shown by none."""
    waiting = set(places)
    found: dict[ShownPlace, Located] = _beside(connection, tenant, waiting)
    before: dict[ShownPlace, list[Segment]] = {}
    waiting -= found.keys()
    names = _conversations_around(connection, tenant, {place.branch for place in waiting})
    for some in in_batches(names[:_MOST_CONVERSATIONS], _CONVERSATIONS_AT_ONCE):
        if not waiting:
            break
        parts = parts_of(connection, tenant, some)
        known = _branches_of(connection, parts)
        for name in some:
            runs = tuple(_runs(connection, parts[name], known))
            shown = ShownPath(name, runs, ())
            for place in list(waiting):
                run = shown.run_of(place.branch, place.depth)
                if run is not None:
                    found[place] = Located(name, title_of(parts[name]), run.before)
                    before[place] = list(run.stretches(place.depth))
                    waiting.discard(place)
    deepest = {place.branch: place.depth for place in sorted(waiting, key=lambda place: place.depth)}
    ways = {number: segments_to(connection, number, depth) for number, depth in deepest.items()}
    for place in waiting:
        found[place] = Located(None, None, 0)
        parts_to = [part for part in ways[place.branch] if part.low < place.depth]
        before[place] = [part._replace(high=min(part.high, place.depth)) for part in parts_to]
    counts = iter(list(count_messages(connection, [part for some in before.values() for part in some])))
    for place, stretches in before.items():  # counted by one statement, which takes less than one for each
        found[place] = found[place]._replace(turn=found[place].turn + sum(islice(counts, len(stretches))))
    return found


def _beside(connection: Connection, tenant: str, places: Iterable[ShownPlace]) -> dict[ShownPlace, Located]:
    """Return those places that are broken replies, with the conversations that show them."""
    by_node = {place.node: place for place in places if place.node is not None}
    found: dict[ShownPlace, Located] = {}
    for some in in_batches(sorted(by_node)):
        broken = _broken(connection, tenant, "echo_node", some)
        names = select(session.c.conversation).where(session.c.id.in_([one.session for one in broken])).distinct()
        parts = parts_of(connection, tenant, connection.execute(names).scalars().all()) if broken else {}
        for name, shown in shown_paths(connection, tenant, parts).items():
            for one in shown.broken:
                run = shown.run_of(one.branch, one.depth)
                if one.echo_node in by_node and run is not None:
                    number = run.turn_at(connection, one.depth)
                    found[by_node[one.echo_node]] = Located(name, title_of(parts[name]), number, one.status)
    return found


def _conversations_around(connection: Connection, tenant: str, branches: set[int]) -> list[str]:
    """Return the conversations with a part on some branches or on their forks, oldest first."""
    began: dict[str, float] = {}
    for some in in_batches(sorted(branches)):
        statement = (
            f"WITH RECURSIVE tree(id) AS (SELECT id FROM branch WHERE id IN ({', '.join(map(str, some))}) "  # noqa: S608
            "UNION SELECT b.id FROM branch b JOIN tree ON b.parent = tree.id) SELECT s.conversation, min(s.started) "
            "FROM session s WHERE s.tenant = ? AND s.branch IN (SELECT id FROM tree) GROUP BY s.conversation"
        )
        for name, started in ask(connection, statement, (tenant,)):
            began[name] = min(started, began.get(name, started))
    return sorted(began, key=lambda name: (began[name], name))


def title_of(parts: Sequence[Row[Any]]) -> str | None:
    """Return a conversation's title: that of its first part, unless a later one was given another."""
    titled: list[str] = [row.title for row in parts if row.title]
    if not titled:
        return None
    first, last = titled[0], titled[-1]
    return first if title_base(first) == title_base(last) or title_base(last) == first else last


SHORTEST = 8
"""The fewest digits by which a message can be named."""


class FoundMessage(NamedTuple):
    """A stored message: id, role, time, conversation and turn."""

    node: bytes
    role: str
    at: float
    session: str | None
    turn: int


def find_message(core: StoreCore, ident: str) -> FoundMessage:
    """Return the message whose id begins with some hex digits; raise `NotStored` if there is none, or several."""
    digits = ident.strip().lower()
    if not SHORTEST <= len(digits) <= 32 or not set(digits) <= set(string.hexdigits):
        raise NotStored(f"{ident!r} is no id of a message; one has {SHORTEST} to 32 hexadecimal digits")
    low, high = bytes.fromhex(digits.ljust(32, "0")), bytes.fromhex(digits.ljust(32, "f"))
    with core.database.read() as connection:
        rows = _matching(connection, core.tenant, low, high)
        if not rows:
            raise NotStored(f"there is no message with the id {ident!r} in {core.database.backend.where}")
        if len(rows) > 1:
            raise NotStored(f"several messages have an id that begins with {ident!r}; give more of it")
        row = rows[0]
        place = ShownPlace(row.branch, row.depth, bytes(row.id))
        where = locate(connection, core.tenant, [place])[place]
    return FoundMessage(bytes(row.id), row.role, row.ts, where.conversation, where.turn)


def _matching(connection: Connection, tenant: str, low: bytes, high: bytes) -> Sequence[Row[Any]]:
    """Return the messages with an id between two; if there is none, those with such a mark or alias."""
    mine = select(node).where(node.c.tenant == tenant).order_by(node.c.seq)
    rows = connection.execute(mine.where(node.c.id.between(low, high)).limit(2)).all()
    if rows:
        return rows
    # Ids under which messages were known before their conversation got a root of its own.
    marked = connection.execute(mine.where(node.c.mark.between(low, high))).all()
    others = [(bytes(row.mark), row) for row in marked]
    aliases = connection.execute(select(alias).where(alias.c.tenant == tenant, alias.c.id.between(low, high))).all()
    for one in aliases:
        others += [(bytes(one.id), row) for row in connection.execute(mine.where(node.c.id == one.node))]
    others.sort(key=lambda other: other[1].seq)
    first = dict(reversed(others))
    return list(first.values())


def latest_request(core: StoreCore, session: str) -> bytes | None:
    """Return the newest message of the user on a session's branch, or None."""
    number = Sessions(core).get(session).branch
    if number is None:
        return None
    query = select(node.c.id).where(node.c.branch == number, node.c.role == "user").order_by(node.c.depth.desc())
    with core.database.read() as connection:
        found = connection.execute(query.limit(1)).scalar()
    return None if found is None else bytes(found)


def message_after(core: StoreCore, ident: bytes, within: Branch | str) -> bytes | None:
    """Return the message that follows another one on the way to a place, or in the conversation of an id."""
    following = select(node).where(node.c.parent == ident, node.c.tenant == core.tenant)
    with core.database.read() as connection:
        if isinstance(within, str):
            paths = shown_paths(connection, core.tenant, parts_of(connection, core.tenant, [within]))
            path = [part for one in paths.values() for part in one.stretches()]
        else:
            path = segments_to(connection, within.id, within.depth)
        found = connection.execute(following).all()
    return next((bytes(row.id) for row in found if leads_through(path, row.branch, row.depth)), None)
