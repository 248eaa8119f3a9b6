"""Turns: each request to a model with the view it was sent under, what became of it, and the reply.

A turn is begun before the request goes out and finished when the reply is there; the reply is a message of the
conversation at once. One that was begun and never finished stays visible. A reply that broke off stands beside the
conversation; where the client sends it back all the same, the two are linked, by `everlong.store.linking`. Knows no
provider.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from sqlalchemy import Connection, Row, select

from everlong.errors import NotStored, StoreError
from everlong.model import Message, checked_messages
from everlong.store.compact import view_for
from everlong.store.past_turns import End, Past, PastTurns, storable
from everlong.store.paths import Segment, segments_to
from everlong.store.replies import Answered, Replies
from everlong.store.schema import turn
from everlong.store.stateless import Stateless
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


class _Row(NamedTuple):
    """A turn's row, as it is needed here."""

    id: int
    session: str | None
    branch: int
    node: bytes
    depth: int
    view_id: int | None
    model: str | None
    status: Literal["open", "done", "failed", "cancelled"]
    error: str | None
    usage: str | None
    cost: float
    reply: bytes | None
    echo_node: bytes | None
    ts: float
    ended: float | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and what became of it; ``status`` is ``open`` until it is finished."""

    id: int
    session: str | None
    branch: int
    node: bytes
    depth: int
    view_id: int | None
    """The view under which it was sent; None where everything was sent raw."""
    model: str | None
    began: float
    status: Literal["open", "done", "failed", "cancelled"] = "open"
    error: str | None = None
    usage: dict[str, Any] | None = None
    cost: float = 0.0
    has_reply: bool = False
    echo_node: bytes | None = None
    """The reply as a message of the conversation."""
    ended: float | None = None


class Turns(PastTurns):
    """The turns of one tenant."""

    def __init__(self, core: StoreCore, replies: Replies, stateless: Stateless) -> None:
        super().__init__(core, replies, stateless)
        # In plain SQL, because these are run with every request to a model.
        sql = core.database.sql
        one = f"SELECT {', '.join(_Row._fields)} FROM turn WHERE id = ? AND tenant = ?"  # noqa: S608 - our own names
        self._one, self._locked = sql(one), sql(one) + core.database.backend.lock
        self._begun = sql(
            "INSERT INTO turn (tenant, session, branch, node, depth, view_id, preamble, model, status, cost, ts)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?) RETURNING id"
        )
        self._ended = sql(
            "UPDATE turn SET session = ?, branch = ?, node = ?, depth = ?, status = ?, error = ?, usage = ?, cost = ?,"
            " reply = ?, reply_key = ?, echo_node = ?, ended = ? WHERE id = ?"
        )

    def begin(
        self, at: Branch, *, model: str | None = None, session: str | None = None, began: float | None = None
    ) -> Turn:
        """Say that a request is sent from a place in the tree, now or at another moment; durable when this returns.

        Replies that earlier turns got and that lead to this place are linked with their turns.
        """

        def work(connection: Connection) -> Turn:
            tenant = self._core.tenant
            row = self._run(connection, self._branch, (at.id, tenant)).fetchone()
            if row is None:
                raise NotStored(f"there is no branch {at.id} in {self._database.backend.where}")
            self._linker.link(connection, at)
            view_id, preamble = row
            shown = None if view_id is None else view_for(connection, view_id, at.depth, None)
            sent_under = None if shown is None else shown.id
            moment, named = time.time() if began is None else began, storable(model)
            values = (tenant, session, at.id, at.head, at.depth, sent_under, preamble, named, "open", 0.0, moment)
            ident = int(self._run(connection, self._begun, values).fetchone()[0])
            return Turn(ident, session, at.id, at.head, at.depth, sent_under, named, moment)

        return self._database.write(work)

    def finish(  # noqa: PLR0913 - each is one thing that may be said about an end
        self,
        ident: int,
        reply: Message | None = None,
        *,
        usage: Mapping[str, Any] | None = None,
        cost: float = 0.0,
        status: End = "done",
        error: str | None = None,
        names: Sequence[str] = (),
        echo_node: bytes | None = None,
    ) -> Turn:
        """Store what became of a turn: its reply, what it used, how it ended; the totals of its session grow by it.

        The reply is a message of the conversation from now on. A host that has put it there itself says under which id
        (``echo_node``). Where another reply stands there already, the turn begins a conversation of its own. By one of
        its ``names`` the turn is found later (`named`).

        Finishing a turn again in the same way changes nothing and counts nothing twice; in another way is an error.
        """
        if status not in get_args(End):
            raise StoreError(f"a turn cannot end as {status!r}; allowed are {', '.join(get_args(End))}")
        checked = None if reply is None else checked_messages([reply])[0]
        digest, key = self._held(checked)

        def work(connection: Connection) -> Turn:
            row = self._row(connection, ident, lock=True)
            if row.status != "open":
                _check_same_end(row, digest, status)
                return _turn(row)
            contents = self._replies.content(checked)
            self._core.recorder.add_contents(connection, self._core.tenant, contents)
            at = Branch(row.branch, bytes(row.node), row.depth)
            past = Past(checked, session=row.session, status=status)
            answered = Answered(at, echo_node, row.session)
            if echo_node is None:
                answered = self._answered(connection, at, past)
            told = None if usage is None else json.dumps(dict(usage), default=str)
            (number, node, depth), session = (answered.at.id, answered.at.head, answered.at.depth), answered.session
            ended = replace(
                _turn(row),
                session=session,
                branch=number,
                node=node,
                depth=depth,
                status=status,
                error=storable(error),
                usage=json.loads(told) if told else None,
                cost=cost,
                has_reply=digest is not None,
                echo_node=answered.node,
                ended=time.time(),
            )
            values = (*(session, number, node, depth, status, ended.error, told, cost), digest, key, answered.node)
            self._run(connection, self._ended, (*values, ended.ended, ident))
            self._names.add(connection, self._core.tenant, ident, names)
            self._grow(connection, session, usage, cost)
            self._left(connection, row.session, session)
            return ended

        return self._written(work)

    def get(self, ident: int) -> Turn:
        """A turn by its number."""
        with self._database.read() as connection:
            return _turn(self._row(connection, ident))

    def reply(self, ident: int) -> Message | None:
        """What the model answered, in its own words; None where there is no answer."""
        with self._database.read() as connection:
            digest = self._row(connection, ident).reply
            if digest is None:
                return None
            found: Message = self._core.reader.values(connection, [bytes(digest)])[bytes(digest)]
            return found

    def named(self, name: str, *, before: float | None = None) -> Turn | None:
        """The newest turn whose reply has a name, of all or of those begun before a moment; None where none has."""
        with self._database.read() as connection:
            ident = self._names.newest(connection, self._core.tenant, name, before)
            return None if ident is None else _turn(self._row(connection, ident))

    def of_session(self, ident: str) -> list[Turn]:
        """The turns of a session, oldest first."""
        return self._select(turn.c.session == ident)

    def of_branch(self, at: Branch) -> list[Turn]:
        """The turns that were sent on the way to a place, oldest first."""
        with self._database.read() as connection:
            path = segments_to(connection, at.id, at.depth)
        return self._select(turn.c.branch.in_([part.branch for part in path]), on=path)

    def unfinished(self) -> list[Turn]:
        """Turns that were begun and not finished, oldest first: under way, or left behind by a crash."""
        return self._select(turn.c.status == "open")

    def since(self, at: float = 0.0) -> Iterator[Turn]:
        """All turns that were begun from a moment on (seconds since 1970), oldest first, read bit by bit."""
        query = select(turn).where(turn.c.tenant == self._core.tenant, turn.c.ts >= at).order_by(turn.c.id)
        with self._database.read() as connection:
            for row in connection.execution_options(yield_per=500).execute(query):
                yield _turn(row)

    def link(self, at: Branch) -> int:
        """Link replies with the messages on the way to a place that repeat them; how many were found.

        `begin` does this by itself.
        """
        return self._database.write(lambda connection: self._linker.link(connection, at))

    # -- inside a transaction ------------------------------------------------------------------------------------------

    def _row(self, connection: Connection, ident: int, *, lock: bool = False) -> _Row:
        values = (ident, self._core.tenant)
        row = self._run(connection, self._locked if lock else self._one, values).fetchone()
        if row is None:
            raise NotStored(f"there is no turn {ident} in {self._database.backend.where}")
        return _Row(*row)

    def _select(self, condition: Any, on: list[Segment] | None = None) -> list[Turn]:
        query = select(turn).where(turn.c.tenant == self._core.tenant, condition).order_by(turn.c.id)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        tops = None if on is None else {part.branch: part.high for part in on}
        return [_turn(row) for row in rows if tops is None or row.depth <= tops[row.branch]]


def _check_same_end(row: _Row, reply: bytes | None, status: str) -> None:
    before = None if row.reply is None else bytes(row.reply)
    if row.status != status or before != reply:
        raise StoreError(f"turn {row.id} has ended already ({row.status}); begin another one")


def _turn(row: _Row | Row[Any]) -> Turn:
    return Turn(
        id=row.id,
        session=row.session,
        branch=row.branch,
        node=bytes(row.node),
        depth=row.depth,
        view_id=row.view_id,
        model=row.model,
        status=row.status,
        error=row.error,
        usage=json.loads(row.usage) if row.usage else None,
        cost=row.cost,
        has_reply=row.reply is not None,
        echo_node=bytes(row.echo_node) if row.echo_node is not None else None,
        began=row.ts,
        ended=row.ended,
    )
