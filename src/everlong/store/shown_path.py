"""The path that a conversation shows: which messages of the tree people read as one conversation, and their numbers.

A conversation is stored in parts. Each compaction ends one and opens the next on the same branch; a client that leaves
out old tool results goes on on another branch, where a new *run* of parts begins. Of each run the path to the end of
its last part is shown, so what was taken back is not. A message's turn counts blocks from the conversation's first
word, over all runs. A reply that broke off stands beside the path; it has the turn of the request that it answers.

Knows the tables and reads only. Works on a connection, for the search as well as for `everlong.store.conversations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, func, select

from everlong.store.naming import title_base
from everlong.store.paths import Segment, segments_to
from everlong.store.schema import branch, node, session, turn

CLEARED = "cleared"
"""Why a part ends whose client goes on without old tool results, on another branch."""

_AT_ONCE = 400
"""Values of one statement."""
_CONVERSATIONS = 50
"""Conversations whose paths are looked at together."""
_MOST_CONVERSATIONS = 1_000
"""Of so many conversations that share a beginning, the oldest, one is found to show a message; else none is named."""


class Run(NamedTuple):
    """A stretch of the conversation along one branch: depths in ``(low, high]``, after ``before`` blocks of others."""

    branch: int
    low: int
    high: int
    before: int
    path: list[Segment]
    """All of the way to its end, from the branch's first message on."""

    def holds(self, number: int, depth: int) -> bool:
        """Return whether a node, by its own branch and its depth, is on the run."""
        return self.low < depth <= self.high and any(
            part.branch == number and part.low < depth <= part.high for part in self.path
        )

    def stretches(self) -> Iterator[Segment]:
        """Yield the stretches of branches that it shows."""
        for part in self.path:
            if part.high > self.low:
                yield part._replace(low=max(part.low, self.low))


class Broken(NamedTuple):
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
    """What a conversation shows: its runs, oldest first, and the broken replies beside them, in their order."""

    conversation: str
    runs: tuple[Run, ...]
    broken: tuple[Broken, ...]

    def turn_of(self, number: int, depth: int) -> int | None:
        """Return the turn of a node, by its own branch and its depth; None where the conversation does not show it."""
        for run in self.runs:
            if run.holds(number, depth):
                return run.before + depth - run.low
        return None

    def stretches(self) -> Iterator[Segment]:
        """Yield all stretches of branches that it shows, those of broken replies too."""
        for run in self.runs:
            yield from run.stretches()
        for one in self.broken:
            yield Segment(one.echo_branch, one.fork_depth, one.echo_depth, is_last=True)

    def count(self, connection: Connection) -> int:
        """Return how many messages it shows."""
        total = len(self.broken)
        for part in (part for run in self.runs for part in run.stretches()):
            inside = (node.c.branch == part.branch, node.c.depth > part.low, node.c.depth <= part.high)
            total += connection.execute(select(func.count()).select_from(node).where(*inside)).scalar_one()
        return total


def parts_of(connection: Connection, tenant: str, conversations: Iterable[str]) -> dict[str, list[Row[Any]]]:
    """Return the parts of conversations, as rows, oldest first."""
    found: dict[str, list[Row[Any]]] = {}
    for some in in_bites(list(conversations)):
        query = select(session).where(session.c.tenant == tenant, session.c.conversation.in_(some))
        for row in connection.execute(query.order_by(session.c.started, session.c.id)):
            found.setdefault(row.conversation, []).append(row)
    return found


def shown_paths(connection: Connection, tenant: str, parts: dict[str, list[Row[Any]]]) -> dict[str, ShownPath]:
    """Return what conversations show, of which the parts are given."""
    broken: dict[str, list[Broken]] = {}
    conversation_of = {row.id: name for name, rows in parts.items() for row in rows}
    for one in _broken_in(connection, tenant, list(conversation_of)):
        broken.setdefault(conversation_of[one.session], []).append(one)
    found: dict[str, ShownPath] = {}
    for name, rows in parts.items():
        path = ShownPath(name, tuple(_runs(connection, rows)), ())
        beside = [
            one
            for one in broken.get(name, ())
            if path.turn_of(one.branch, one.depth) is not None and path.turn_of(one.echo_branch, one.echo_depth) is None
        ]
        found[name] = ShownPath(name, path.runs, tuple(beside))
    return found


def _runs(connection: Connection, parts: Sequence[Row[Any]]) -> Iterator[Run]:
    before = 0
    members: list[Row[Any]] = []
    for place, part in enumerate(parts):
        if part.branch is not None:
            members.append(part)
        if members and (part.end_reason == CLEARED or place == len(parts) - 1):
            last, low = members[-1], members[0].from_depth
            high = last.to_depth
            if high is None:
                head = select(branch.c.head_depth).where(branch.c.id == last.branch)
                high = connection.execute(head).scalar() or 0
            yield Run(last.branch, low, high, before, segments_to(connection, last.branch, high))
            before += max(0, high - low)
            members = []


def _broken_in(connection: Connection, tenant: str, sessions: Sequence[str]) -> Iterator[Broken]:
    """Yield the replies of sessions that were cancelled or failed, in the order of their turns."""
    for some in in_bites(sessions):
        yield from _broken(connection, tenant, turn.c.session.in_(some))


def _broken(connection: Connection, tenant: str, condition: Any) -> list[Broken]:
    asked, echo = node.alias("asked"), node.alias("echo")
    columns = (
        *(turn.c.id, turn.c.session, turn.c.status, turn.c.error, turn.c.echo_node),
        *(asked.c.branch, asked.c.depth, echo.c.branch, echo.c.depth, branch.c.fork_depth),
    )
    query = (
        select(*columns)
        .join(asked, asked.c.id == turn.c.node)
        .join(echo, echo.c.id == turn.c.echo_node)
        .join(branch, branch.c.id == echo.c.branch)
        .where(
            *(turn.c.tenant == tenant, turn.c.status.in_(("cancelled", "failed")), turn.c.reply.is_not(None)),
            *(turn.c.session.is_not(None), condition),
        )
        .order_by(turn.c.id)
    )
    found: dict[bytes, Broken] = {}  # a reply that broke off twice at the same word is one message
    rows: Sequence[Any] = connection.execute(query).all()
    for row in rows:
        one = Broken(*row)
        found.setdefault(bytes(one.echo_node), one._replace(echo_node=bytes(one.echo_node)))
    return list(found.values())


# -- the other way round ---------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A node or a summary that was found somewhere: its own branch and depth, and its id where it is a message."""

    branch: int
    depth: int
    node: bytes | None


class Located(NamedTuple):
    """The conversation that shows something, and at which turn; ``status`` is that of a reply that broke off."""

    conversation: str
    title: str | None
    turn: int
    status: Literal["cancelled", "failed"] | None = None


def locate(connection: Connection, tenant: str, places: Iterable[Place]) -> dict[Place, Located]:
    """Return for places which conversation shows them, the oldest where several do; those that none shows are left out.

    What was taken back is shown by none.
    """
    waiting = set(places)
    found: dict[Place, Located] = _beside(connection, tenant, waiting)
    waiting -= found.keys()
    names = _conversations_around(connection, tenant, {place.branch for place in waiting})
    for some in in_bites(names[:_MOST_CONVERSATIONS], _CONVERSATIONS):
        if not waiting:
            break
        parts = parts_of(connection, tenant, some)
        for name in some:
            runs = tuple(_runs(connection, parts[name]))
            shown = ShownPath(name, runs, ())
            for place in list(waiting):
                number = shown.turn_of(place.branch, place.depth)
                if number is not None:
                    found[place] = Located(name, title_of(parts[name]), number)
                    waiting.discard(place)
    return found


def _beside(connection: Connection, tenant: str, places: Iterable[Place]) -> dict[Place, Located]:
    """Return those places that are replies which broke off."""
    by_node = {place.node: place for place in places if place.node is not None}
    found: dict[Place, Located] = {}
    for some in in_bites(sorted(by_node)):
        broken = _broken(connection, tenant, turn.c.echo_node.in_(some))
        names = select(session.c.conversation).where(session.c.id.in_([one.session for one in broken])).distinct()
        parts = parts_of(connection, tenant, connection.execute(names).scalars().all()) if broken else {}
        for name, shown in shown_paths(connection, tenant, parts).items():
            for one in shown.broken:
                number = shown.turn_of(one.branch, one.depth)
                if one.echo_node in by_node and number is not None:
                    found[by_node[one.echo_node]] = Located(name, title_of(parts[name]), number, one.status)
    return found


def _conversations_around(connection: Connection, tenant: str, branches: set[int]) -> list[str]:
    """Return the conversations with a part on one of some branches, or on one that was forked from them."""
    began: dict[str, float] = {}
    for some in in_bites(sorted(branches)):
        tree = select(branch.c.id).where(branch.c.id.in_(some)).cte("tree", recursive=True)
        forks = select(branch.c.id).where(branch.c.parent == tree.c.id)
        numbers = select(tree.union(forks).c.id)
        query = select(session.c.conversation, func.min(session.c.started)).where(
            session.c.tenant == tenant, session.c.branch.in_(numbers)
        )
        for name, started in connection.execute(query.group_by(session.c.conversation)):
            began[name] = min(started, began.get(name, started))
    return sorted(began, key=lambda name: (began[name], name))


def title_of(parts: Sequence[Row[Any]]) -> str | None:
    """Return a conversation's title: that of its first part, unless a later one was given another."""
    titled: list[str] = [row.title for row in parts if row.title]
    if not titled:
        return None
    first, last = titled[0], titled[-1]
    return first if title_base(first) == title_base(last) or title_base(last) == first else last


def in_bites(values: Sequence[Any], size: int = _AT_ONCE) -> Iterator[Sequence[Any]]:
    """Yield values so many at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
