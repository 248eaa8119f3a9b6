"""Turns: each request to a model, with the view it was sent under, its end and its reply.

A turn is begun before the request goes out and finished when the reply is there (`Turns.begin`, `Turns.finish`), or
stored as a whole once it is over (`FinishedTurn`). The reply becomes a message of the conversation at once. One that
broke off stands beside the conversation; if the client sends it back all the same, the two are linked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import orjson
from sqlalchemy import ColumnElement, Connection, func, select, text

from everlong.errors import NotStored, StoreError
from everlong.model import Message, Node, Trace, checked_messages
from everlong.store.content import Blob, blob, encoded
from everlong.store.database import TryAgain, in_batches
from everlong.store.identity.placing import ATTEMPTS_IN_PLACE, StoredReply
from everlong.store.identity.rewrites import ReplyLinker
from everlong.store.paths import Segment
from everlong.store.schema import reply_name, turn
from everlong.store.sessions import TOTALS, usage_totals
from everlong.store.shown_path import ShownPath, count_messages
from everlong.store.tree import Branch, Match, RecordRequest, inherited_view

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.identity import Identity
    from everlong.tokens import MessageCounter

TurnEnd = Literal["done", "failed", "cancelled"]
"""The end of a turn."""


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """A finished turn as it is handed to the store: the only type for it. What is stored is read as a `Turn`."""

    reply: Message | None = None
    model: str | None = None
    session: str | None = None
    usage: Mapping[str, Any] | None = None
    """The tokens; empty if it is certain that there were none, None if nobody knows."""
    cost: float = 0.0
    status: TurnEnd = "done"
    error: str | None = None
    began: float | None = None
    """Seconds since 1970; now, if not given."""
    names: Sequence[str] = ()
    """The names by which later requests may refer to the reply."""


class NewMessages(NamedTuple):
    """The new messages of a conversation, sent after its last known place."""

    messages: list[Message]
    trace: Trace
    """The chain over the messages."""
    mark: bytes | None = None
    """The id by which stateless requests find the place that the messages follow, if that is another one."""


class _HeldReply(NamedTuple):
    """A reply as it is stored: its content with the hashes of its blocks, the name of that, and the first hash."""

    contents: list[tuple[Blob, Sequence[bytes]]]
    digest: bytes | None
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Turn:
    """A stored turn: one request and its result; ``status`` is ``open`` until it is finished.

    >>> with Store.open("turns.db") as store:
    ...     branch = store.record([{"role": "user", "content": "hi"}])
    ...     turn: Turn = store.turns.begin(branch, model="gpt-4o")
    ...     turn.status
    'open'
    """

    id: int
    session: str | None
    branch: int
    node: bytes
    depth: int
    view_id: int | None
    """The view under which it was sent; None if everything was sent raw."""
    model: str | None
    began: float
    status: Literal["open", "done", "failed", "cancelled"] = "open"
    error: str | None = None
    usage: dict[str, Any] | None = None
    cost: float = 0.0
    reply: bytes | None = None
    """The digest of the model's answer; `Turns.reply` returns its words."""
    echo_node: bytes | None = None
    """The reply as a message of the conversation."""
    ended: float | None = None


class Turns:
    """The turns of one tenant."""

    def __init__(self, core: StoreCore, identity: Identity) -> None:
        self._core = core
        self._replies = identity.replies
        self._identity = identity
        self._database = core.database
        self._run, self._later = core.database.backend.run, core.database.backend.run_later
        self._linker = ReplyLinker(core)
        # In plain SQL, because these are run with every request to a model.
        sql = core.database.sql
        self._branch = sql("SELECT view_id, preamble FROM branch WHERE id = ? AND tenant = ?")
        self._insert_sql = sql(
            "INSERT INTO turn (tenant, session, branch, node, depth, view_id, preamble, model, status, error, usage,"
            " cost, reply, reply_key, echo_node, ts, ended) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING id"
        )
        self._began = sql("SELECT id FROM turn WHERE tenant = ? AND status = ? AND ts = ?")
        self._name_sql = sql("INSERT INTO reply_name (tenant, name, turn) VALUES (?,?,?) ON CONFLICT DO NOTHING")
        grown = ", ".join(f"{name} = {name} + ?" for name in (*TOTALS, "cost"))
        self._totals_sql = sql(f"UPDATE session SET {grown}, active = ? WHERE id = ? AND tenant = ?")  # noqa: S608 - ours
        one = f"SELECT {_COLUMNS} FROM turn WHERE id = ? AND tenant = ?"  # noqa: S608 - our own names
        self._one, self._locked = sql(one), sql(one) + core.database.backend.lock
        self._finish_sql = sql(
            "UPDATE turn SET session = ?, branch = ?, node = ?, depth = ?, status = ?, error = ?, usage = ?, cost = ?,"
            " reply = ?, reply_key = ?, echo_node = ?, ended = ? WHERE id = ?"
        )

    def begin(
        self, at: Branch, *, model: str | None = None, session: str | None = None, began: float | None = None
    ) -> Turn:
        """Begin a turn: a request is sent from a place in the tree; durable when this returns."""

        def work(connection: Connection) -> Turn:
            tenant = self._core.tenant
            row = self._run(connection, self._branch, (at.id, tenant)).fetchone()
            if row is None:
                raise NotStored(f"there is no branch {at.id} in {self._database.backend.where}")
            view_id, preamble = row
            sent_under = inherited_view(connection, view_id, at.depth)
            moment, named = time.time() if began is None else began, storable(model)
            values = (
                *(tenant, session, at.id, at.head, at.depth, sent_under, preamble, named),
                *("open", None, None, 0.0, None, None, None, moment, None),
            )
            ident = int(self._run(connection, self._insert_sql, values).fetchone()[0])
            return Turn(ident, session, at.id, at.head, at.depth, sent_under, named, moment)

        return self._database.write(work)

    def finish(  # noqa: PLR0913 - each is one thing that may be said about an end
        self,
        ident: int,
        reply: Message | None = None,
        *,
        usage: Mapping[str, Any] | None = None,
        cost: float = 0.0,
        status: TurnEnd = "done",
        error: str | None = None,
        names: Sequence[str] = (),
        echo_node: bytes | None = None,
    ) -> Turn:
        """Finish a turn: store its reply, usage and end, and add them to the totals of its session.

        The reply becomes a message of the conversation, and replies that earlier turns got and that lead there are
        linked with their turns. A host that has stored it there itself gives its id as ``echo_node``. If another reply
        stands there already, the turn begins a conversation of its own. `named` finds the turn by one of its ``names``.

        Finishing a turn again in the same way changes nothing and counts nothing twice; in another way is an error.
        """
        if status not in get_args(TurnEnd):
            raise StoreError(f"a turn cannot end as {status!r}; allowed are {', '.join(get_args(TurnEnd))}")
        checked = None if reply is None else checked_messages([reply])[0]
        held = self._held(checked)

        def work(attempt: int, connection: Connection) -> Turn:
            row = self._row(connection, ident, lock=True)
            if row.status != "open":
                _check_same_end(row, held.digest, status)
                return row
            self._core.recorder.add_contents(connection, self._core.tenant, held.contents)
            at = Branch(row.branch, row.node, row.depth)
            past = FinishedTurn(checked, session=row.session, status=status)
            answered = StoredReply(at, echo_node, row.session)
            if echo_node is None:
                self._linker.link(connection, at)
                answered = self._add_reply(connection, at, past, attempt)
            told = None if usage is None else json.dumps(dict(usage), default=str)
            place, session = answered.at, answered.session
            values = (
                *(session, place.id, place.head, place.depth, status, self._told_error(error), told, cost),
                *(held.digest, held.key, answered.node, time.time(), ident),
            )
            self._run(connection, self._finish_sql, values)
            ended = replace(past, usage=usage, cost=cost, names=names)
            self._add_totals(connection, ended, session)
            self._close(connection, ident, ended, session)
            return self._row(connection, ident)

        return self._database.retry(lambda attempt: self._database.write(partial(work, attempt)))

    def add_finished(self, at: Branch, past: FinishedTurn, *, is_again: bool = False) -> int:
        """Store a finished turn, as `begin` and `finish` would; return its number.

        Where it is tried ``is_again``, a turn that began at the same moment is this one: whoever lost the connection
        cannot know whether the server went on to commit.
        """
        held = self._held(past.reply)

        def work(attempt: int, connection: Connection) -> int:
            row = self._run(connection, self._branch, (at.id, self._core.tenant)).fetchone()
            if row is None:
                raise NotStored(f"there is no branch {at.id} in {self._database.backend.where}")
            self._linker.link(connection, at)
            self._core.recorder.add_contents(connection, self._core.tenant, held.contents)
            answered = self._add_reply(connection, at, past, attempt)
            # Asked once the reply is there: it waits for the locks of a transaction that is under way.
            moment = (self._core.tenant, past.status, past.began)
            if is_again and (stored := self._run(connection, self._began, moment).fetchone()) is not None:
                return int(stored[0])
            return self._insert_row(connection, answered, past, held, *row)

        return self._database.retry(lambda attempt: self._database.write(partial(work, attempt)))

    def add_following(
        self, at: Branch, new: NewMessages, past: FinishedTurn, *, view: int | None, opened: int | None = None
    ) -> tuple[Branch, int] | None:
        """Store messages at the end of a branch and the turn in which they were sent, in one step.

        Args:
            at: The last known place of the conversation, or the message before the reply that it has got since.
            new: The messages since then.
            past: The turn in which they were sent.
            view: The view that the caller believes to be in force.
            opened: The depth of its first request, if the place was just found by its words: replies before it may
                have come back on the way to it.

        Returns:
            The place of the request, and the number of the turn. None, with nothing stored, if the branch has gone on
            differently or has another view: then `Identity.place` and `whole` decide what to do.
        """
        core, now = self._core, time.time()
        reply = past.reply if past.status == "done" else None
        request, count = self._request_after(at, new, reply)
        if not request.trace.ids:  # a reply that says nothing or broke off
            return None
        held = self._held(past.reply)
        match = Match(at.id, at.head, at.depth)

        def work(connection: Connection) -> tuple[Branch, int] | None:
            branch = core.recorder.lock(connection, match)
            if branch is None or branch.view_id != view or branch.fork_depth >= at.depth:
                return None
            place = _end_in(request, count, branch.head, match)
            if place is None:
                return None
            if place == match and new.messages:
                self._linker.link_next(connection, at, request.trace.ids[request.trace.ends[0] - 1])
            elif opened is not None and at.depth > opened:
                self._linker.link(connection, at)
            additions = list(request.additions(place.depth))
            end = core.recorder.add_at(branch, request, place, additions, now, connection, held.contents)
            depth = request.trace.ends[count - 1] if count else 0
            asked = Branch(end.id, request.trace.ids[depth - 1] if depth else at.head, at.depth + depth)
            node = end.head if reply is not None and end.depth > asked.depth else None
            answered = StoredReply(asked, node, past.session)
            return asked, self._insert_row(connection, answered, past, held, branch.view_id, branch.preamble)

        try:
            return self._database.write(work)
        except TryAgain:
            return None

    def _told_error(self, error: str | None) -> str | None:
        """Return an error as it may be stored: an upstream's may quote what was sent."""
        return None if error is None else storable(self._core.cleaned_text(error))

    def get(self, ident: int) -> Turn:
        """Return a turn by its number."""
        with self._database.read() as connection:
            return self._row(connection, ident)

    def reply(self, ident: int) -> Message | None:
        """Return the model's answer, in its own words; None if there is none."""
        with self._database.read() as connection:
            digest = self._row(connection, ident).reply
            if digest is None:
                return None
            found: Message = self._core.reader.values(connection, [digest])[digest]
            return found

    def named(self, name: str, *, before: float | None = None) -> Turn | None:
        """Return the newest turn whose reply has a name, of all or of those begun before a moment; None if none has."""
        if not is_name(name):
            return None
        mine = reply_name.c.tenant == self._core.tenant, reply_name.c.name == name
        newest = select(func.max(turn.c.id)).join(reply_name, reply_name.c.turn == turn.c.id).where(*mine)
        if before is not None:
            newest = newest.where(turn.c.ts < before)
        found = list(self._select(turn.c.id == newest.scalar_subquery()))
        return found[0] if found else None

    def of_session(self, ident: str) -> list[Turn]:
        """Return the turns of a session, oldest first."""
        return list(self._select(turn.c.session == ident))

    def since(self, at: float = 0.0) -> Iterator[Turn]:
        """Yield all turns that were begun from a moment on (seconds since 1970), oldest first."""
        yield from self._select(turn.c.ts >= at)

    def _select(self, condition: ColumnElement[bool]) -> Iterator[Turn]:
        query = select(text(_COLUMNS)).select_from(turn).where(turn.c.tenant == self._core.tenant, condition)
        with self._database.read() as connection:
            for row in connection.execute(query.order_by(turn.c.id).execution_options(yield_per=500)):
                yield _turn(row)

    def _request_after(self, at: Branch, new: NewMessages, reply: Message | None) -> tuple[RecordRequest, int]:
        """Return new messages and the reply to them as a request, and the number of messages before the reply."""
        core, now = self._core, time.time()
        said, trace, count = new.messages, new.trace, len(new.messages)
        marks = None if new.mark is None else core.chain.rechain(said, trace, new.mark)
        if reply is not None:
            last = core.cleaned(reply)
            end = Node(trace.ids[-1] if trace.ids else at.head, at.depth + len(trace.ids))
            more = core.chain.trace([last], end)
            if marks is not None:
                marks += core.chain.rechain([last], more, marks[-1] if marks else new.mark or at.head)
            ends = [*trace.ends, *(len(trace.ids) + one for one in more.ends)]
            trace = Trace([*trace.ids, *more.ids], [*trace.blocks, *more.blocks], ends)
            said = [*said, last]
        return (
            RecordRequest(
                *(core.chain, at.node, said, [now] * len(said), at.id),
                clean=core.cleaned,
                known=trace,
                marks=marks,
            ),
            count,
        )

    def _add_reply(self, connection: Connection, at: Branch, past: FinishedTurn, attempt: int) -> StoredReply:
        """Store a reply in its conversation; beside it if it broke off, or if that fails again and again."""
        replies = self._replies
        if past.reply is None:
            return StoredReply(at, None, past.session)
        if past.status == "done":
            return replies.add(connection, at, past.session, past.reply, is_apart=attempt >= ATTEMPTS_IN_PLACE)
        return StoredReply(at, replies.add_broken(connection, at, past.reply), past.session)

    def _insert_row(
        self,
        connection: Connection,
        answered: StoredReply,
        past: FinishedTurn,
        held: _HeldReply,
        view_id: int | None,
        preamble: bytes | None,
    ) -> int:
        now, (at, node, session) = time.time(), answered
        shown = inherited_view(connection, view_id, at.depth)
        told = None if past.usage is None else encoded(dict(past.usage)).decode()
        values = (
            *(self._core.tenant, session, at.id, at.head, at.depth, shown),
            *(preamble, storable(past.model), past.status, self._told_error(past.error), told, past.cost),
            *(held.digest, held.key, node, now if past.began is None else past.began, now),
        )
        self._add_totals(connection, past, session)
        ident = int(self._run(connection, self._insert_sql, values).fetchone()[0])
        self._close(connection, ident, past, session)
        return ident

    def _held(self, reply: Message | None) -> _HeldReply:
        """Return a reply as it is stored."""
        if reply is None:
            return _HeldReply([], None, None)
        said = self._core.cleaned(reply)
        made, blocks = blob(self._core.tenant, encoded(said)), self._core.chain.trace([said]).blocks
        return _HeldReply([(made, blocks)], made.digest, blocks[0] if blocks else None)

    def _add_totals(self, connection: Connection, past: FinishedTurn, session: str | None) -> None:
        """Add what a turn used to its session."""
        if session is not None:
            added = usage_totals(past.usage or {}) | {"api_calls": 1}
            totals = [added[name] for name in TOTALS]
            self._later(connection, self._totals_sql, (*totals, past.cost, time.time(), session, self._core.tenant))

    def _close(self, connection: Connection, ident: int, past: FinishedTurn, session: str | None) -> None:
        """Store the names of a turn, which another session may have been before."""
        if rows := [(self._core.tenant, name, ident) for name in sorted(set(past.names)) if is_name(name)]:
            self._later(connection, self._name_sql, rows)
        if past.session is not None and session != past.session:  # its reply showed where it belongs
            self._identity.drop_if_empty(connection, past.session)

    def _row(self, connection: Connection, ident: int, *, lock: bool = False) -> Turn:
        values = (ident, self._core.tenant)
        row = self._run(connection, self._locked if lock else self._one, values).fetchone()
        if row is None:
            raise NotStored(f"there is no turn {ident} in {self._database.backend.where}")
        return _turn(row)


def _end_in(request: RecordRequest, count: int, head: bytes, match: Match) -> Match | None:
    """Return where a branch ends in a request's own messages; None if it has gone on differently."""
    if head == match.id:
        return match
    last = request.trace.ends[count - 1] if count else 0
    for place, ident in enumerate(request.trace.ids[:last], 1):
        if ident == head:
            return Match(match.branch, head, match.depth + place)
    return None


def storable(text: str | None) -> str | None:
    """Return a text without characters that a database refuses."""
    return None if text is None else text.encode("utf-8", "replace").decode().replace("\0", "")


def _check_same_end(row: Turn, reply: bytes | None, status: str) -> None:
    if row.status != status or row.reply != reply:
        raise StoreError(f"turn {row.id} has ended already ({row.status}); begin another one")


_COLUMNS = "id, session, branch, node, depth, view_id, model, ts, status, error, usage, cost, reply, echo_node, ended"
"""The columns of a turn that are read, in the order of a `Turn`."""


def _turn(row: Sequence[Any]) -> Turn:
    read = Turn(*row)
    usage: Any = read.usage
    return replace(
        read,
        node=bytes(read.node),
        usage=json.loads(usage) if usage else None,
        reply=None if read.reply is None else bytes(read.reply),
        echo_node=None if read.echo_node is None else bytes(read.echo_node),
    )


_LONGEST_NAME = 200
"""The most characters of a name."""


def is_name(text: str) -> bool:
    """Return whether a text can be a name: 1 to 200 printable characters."""
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable()


# -- figures, in plain SQL and in pages: a conversation may have tens of thousands of turns ----------------------------

_FIGURES = "id, branch, depth, view_id, model, status, usage, cost, ts, ended, session, error"


class TurnFigures(NamedTuple):
    """One request: its place in the conversation, the tokens that the provider reported, and their cost."""

    id: int
    turn: int | None
    """The number of the last message that was sent; None if the conversation does not show it."""
    branch: int
    view_id: int | None
    model: str | None
    status: str
    at: float
    seconds: float | None
    session: str | None
    error: str | None
    prompt: int
    """All tokens sent."""
    read: int
    written: int
    output: int
    cost: float
    missed: int
    """Tokens that lay in the provider's cache and were paid again."""
    missed_by: str


class TurnMark(NamedTuple):
    """A turn that was answered, and the view under which it was sent."""

    id: int
    view_id: int | None


def answered_turns(core: StoreCore, parts: Sequence[str]) -> list[TurnMark]:
    """Return all answered turns of a conversation, oldest first; ``parts`` are the ids of its sessions."""
    found: list[TurnMark] = []
    for some in in_batches(list(parts)):
        marks = ",".join("?" * len(some))
        statement = core.database.sql(
            f"SELECT id, view_id FROM turn WHERE tenant = ? AND session IN ({marks}) AND usage <> '{{}}' ORDER BY id"  # noqa: S608 - marks only
        )
        with core.database.read() as connection:
            rows = connection.exec_driver_sql(statement, (core.tenant, *some)).all()
        found += [TurnMark(*row) for row in rows]
    return sorted(found)


def turns_by_id(core: StoreCore, path: ShownPath, idents: Sequence[int]) -> list[TurnFigures]:
    """Return the figures of some turns, oldest first."""
    found: list[TurnFigures] = []
    for some in in_batches(list(idents)):
        marks = ",".join("?" * len(some))
        found += _figure_rows(core, path, f"id IN ({marks}) ORDER BY id", some)
    return sorted(found, key=lambda one: one.id)


def page_of_turns(
    core: StoreCore, path: ShownPath, parts: Sequence[str], *, limit: int, before: int | None = None, by: str = "id"
) -> list[TurnFigures]:
    """Return the newest turns of a conversation before a turn's id, newest first; ``by`` "cost", the dearest."""
    found: list[TurnFigures] = []
    for some in in_batches(list(parts)):
        marks = ",".join("?" * len(some))
        most = 2**62 if before is None else before
        order = "coalesce(cost, 0) DESC, id DESC" if by == "cost" else "id DESC"
        condition = f"session IN ({marks}) AND id < ? ORDER BY {order} LIMIT ?"
        found += _figure_rows(core, path, condition, [*some, most, limit])
    return sorted(found, key=lambda one: (one.cost if by == "cost" else 0, one.id), reverse=True)[:limit]


def count_turns(core: StoreCore, parts: Sequence[str]) -> int:
    """Return how many turns some sessions have."""
    total = 0
    for some in in_batches(list(parts)):
        marks = ",".join("?" * len(some))
        statement = core.database.sql(f"SELECT count(*) FROM turn WHERE session IN ({marks})")  # noqa: S608 - marks only
        with core.database.read() as connection:
            total += int(connection.exec_driver_sql(statement, tuple(some)).scalar_one())
    return total


def newest_change(core: StoreCore) -> tuple[int, int, int]:
    """Return numbers that grow with every turn, message and compaction, so that a reader sees when to look again."""
    statement = core.database.sql(
        "SELECT (SELECT coalesce(max(id), 0) FROM turn), (SELECT coalesce(max(seq), 0) FROM node),"
        " (SELECT coalesce(max(id), 0) FROM compaction)"
    )
    with core.database.read() as connection:
        row = connection.exec_driver_sql(statement).one()
    return int(row[0]), int(row[1]), int(row[2])


def _figure_rows(core: StoreCore, path: ShownPath, condition: str, values: Sequence[Any]) -> Iterator[TurnFigures]:
    statement = core.database.sql(f"SELECT {_FIGURES} FROM turn WHERE tenant = ? AND {condition}")  # noqa: S608 - ours
    with core.database.read() as connection:
        rows = connection.exec_driver_sql(statement, (core.tenant, *values)).all()
        numbers = path.turns_at(connection, [(row[1], row[2]) for row in rows])
    yield from map(_figures, rows, numbers)


def _figures(row: Sequence[Any], number: int | None) -> TurnFigures:
    ident, branch, _, view_id, model, status, told, cost, at, ended, session, error = row
    usage = _read_usage(told)
    totals = usage_totals(usage)
    read, written = totals["cache_read_tokens"], totals["cache_write_tokens"]
    miss = usage.get("cache_miss")
    about: dict[str, Any] = miss if isinstance(miss, dict) else {}
    missed = about.get("tokens")
    return TurnFigures(
        id=ident,
        turn=number,
        branch=branch,
        view_id=view_id,
        model=model,
        status=status,
        at=at,
        seconds=None if ended is None else ended - at,
        session=session,
        error=error,
        prompt=totals["input_tokens"] + read + written,
        read=read,
        written=written,
        output=totals["output_tokens"],
        cost=cost or 0.0,
        missed=missed if isinstance(missed, int) else 0,
        missed_by=str(about.get("reason") or ""),
    )


def _read_usage(told: str | None) -> dict[str, Any]:
    try:
        usage = orjson.loads(told) if told else {}
    except orjson.JSONDecodeError:
        return {}
    return usage if isinstance(usage, dict) else {}


# -- sizes -------------------------------------------------------------------------------------------------------------

MOST_BLOCKS = 2_000
"""The blocks of a stretch whose messages are all counted."""


class StretchSize(NamedTuple):
    """The size of a stretch of messages."""

    messages: int
    tokens: int
    newest: list[Message]
    """The messages that were counted."""


def size_along(
    core: StoreCore, connection: Connection, path: Sequence[Segment], low: int, high: int, counter: MessageCounter
) -> StretchSize:
    """Return the size of the messages at depths in ``(low, high]`` of a path.

    Of a stretch longer than `MOST_BLOCKS`, the newest messages stand for all.
    """
    entries = core.reader.entries(connection, list(path), max(low, high - MOST_BLOCKS), high)
    newest = [one.message for one in entries if one.id is not None]
    tokens = sum(counter.counts(newest))
    stretch = [one._replace(low=max(low, one.low), high=min(high, one.high)) for one in path]
    messages = sum(count_messages(connection, [one for one in stretch if one.low < one.high]))
    return StretchSize(messages, tokens * messages // max(1, len(newest)), newest)
