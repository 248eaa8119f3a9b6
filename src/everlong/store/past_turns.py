"""Turns that are over when they are stored: the request, what came of it and the reply in one step.

For those who hear of a turn when it has ended, as a gateway does. A turn that is begun first, because its reply takes
its time, is in `everlong.store.turns`. Knows no provider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from sqlalchemy import Connection

from everlong.errors import NotStored, StoreBusy
from everlong.model import Message, Node, Trace, checked_messages
from everlong.store.compact import view_for
from everlong.store.content import encoded
from everlong.store.database import ATTEMPTS, TryAgain, pause
from everlong.store.linking import Linker
from everlong.store.names import Names
from everlong.store.replies import Answered, Replies
from everlong.store.session import TOTALS, usage_totals
from everlong.store.stateless import Stateless
from everlong.store.tree import Branch, Match, Request

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

T = TypeVar("T")

End = Literal["done", "failed", "cancelled"]
"""How a turn may end."""


@dataclass(frozen=True, slots=True)
class Past:
    """A turn that is over: what it was asked of, and what became of it."""

    reply: Message | None = None
    model: str | None = None
    session: str | None = None
    usage: Mapping[str, Any] | None = None
    cost: float = 0.0
    status: End = "done"
    error: str | None = None
    began: float | None = None
    """Seconds since 1970; now, if not given."""
    names: Sequence[str] = ()
    """What later requests may call the reply."""


class New(NamedTuple):
    """What a conversation has gone on by."""

    messages: list[Message]
    trace: Trace | None = None
    """The chain over the messages, where it is known."""
    mark: bytes | None = None
    """The id by which stateless requests find the place that they follow, where that is another one."""
    beside: Mapping[int, tuple[Message, ...]] = {}
    """By the number of a message what its client said with it and takes off later."""


class PastTurns:
    """Stores turns of one tenant that are over."""

    def __init__(self, core: StoreCore, replies: Replies, stateless: Stateless) -> None:
        self._core = core
        self._replies = replies
        self._stateless = stateless
        self._database = core.database
        self._run = core.database.backend.run
        self._linker = Linker(core)
        self._names = Names(core.database)
        # In plain SQL, because these are run with every request to a model.
        sql = core.database.sql
        self._branch = sql("SELECT view_id, preamble FROM branch WHERE id = ? AND tenant = ?")
        self._over = sql(
            "INSERT INTO turn (tenant, session, branch, node, depth, view_id, preamble, model, status, error, usage,"
            " cost, reply, reply_key, echo_node, ts, ended) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING id"
        )
        grown = ", ".join(f"{name} = {name} + ?" for name in (*TOTALS, "cost"))
        self._grown = sql(f"UPDATE session SET {grown}, active = ? WHERE id = ? AND tenant = ?")  # noqa: S608 - ours

    def whole(self, at: Branch, past: Past) -> int:
        """Store a turn that is over already, as `begin` and `finish` would; its number."""

        def work(connection: Connection) -> int:
            row = self._run(connection, self._branch, (at.id, self._core.tenant)).fetchone()
            if row is None:
                raise NotStored(f"there is no branch {at.id} in {self._database.backend.where}")
            self._linker.link(connection, at)
            return self._insert(connection, at, past, *row)

        return self._written(work)

    def follow(self, at: Branch, new: New, past: Past, *, view: int | None) -> tuple[Branch, int] | None:
        """Store messages at the end of a branch and the turn in which they were sent, in one step.

        Args:
            at: where the conversation stood, or the message before the reply that it has got since.
            new: what was said since.
            past: the turn, which ends with them.
            view: the view that the conversation is known under.

        Returns:
            Where the request stands, and the number of the turn. None, and nothing stored, where the branch has gone
            on differently or has another view: `Stateless.place` and `whole` find out what to do then.
        """
        core, now = self._core, time.time()
        reply = past.reply if past.status == "done" else None
        request, count = self._followed(at, new, reply)
        match = Match(at.id, at.head, at.depth)

        def work(connection: Connection) -> tuple[Branch, int] | None:
            branch = core.recorder.locked(connection, match)
            if branch is None or branch.view_id != view or branch.fork_depth >= at.depth:
                return None
            place = _end_in(request, count, branch.head, match)
            if place is None:
                return None
            if place == match and new.messages:
                self._linker.link_next(connection, at, request.trace.ids[request.trace.ends[0] - 1])
            held = self._replies.content(past.reply)
            additions = list(request.additions(place.depth))
            end = core.recorder.add_at(branch, request, place, additions, now, connection, held)
            depth = request.trace.ends[count - 1] if count else 0
            asked = Branch(end.id, request.trace.ids[depth - 1] if depth else at.head, at.depth + depth)
            node = end.head if reply is not None and end.depth > asked.depth else None
            answered = Answered(asked, node, past.session)
            return asked, self._row_of(connection, answered, past, branch.view_id, branch.preamble)

        try:
            return self._database.write(work)
        except TryAgain:
            return None

    def _followed(self, at: Branch, new: New, reply: Message | None) -> tuple[Request, int]:
        """Return what follows a place with the reply to it, and how many messages were said before the reply."""
        core, now = self._core, time.time()
        said = checked_messages(new.messages)
        count = len(said)
        trace = new.trace or core.chain.trace(map(core.cleaned, said), at.node)
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
            Request(
                *(core.chain, at.node, said, [now] * len(said), [None] * len(said), at.id),
                clean=core.cleaned,
                known=trace,
                marks=marks,
                beside=new.beside,
            ),
            count,
        )

    def _written(self, work: Callable[[Connection], T]) -> T:
        """Run work in a transaction, and again where another process has stored the same at the same moment."""
        for attempt in range(ATTEMPTS):
            try:
                return self._database.write(work)
            except TryAgain:
                pause(attempt)
        raise StoreBusy(f"{self._database.backend.where}: gave way to other writers {ATTEMPTS} times; try again")

    # -- inside a transaction ------------------------------------------------------------------------------------------

    def _insert(
        self, connection: Connection, at: Branch, past: Past, view_id: int | None, preamble: bytes | None
    ) -> int:
        """Store a turn that is over, with its reply as a message."""
        self._core.recorder.add_contents(connection, self._core.tenant, self._replies.content(past.reply))
        return self._row_of(connection, self._answered(connection, at, past), past, view_id, preamble)

    def _answered(self, connection: Connection, at: Branch, past: Past) -> Answered:
        """Put a reply into its conversation; beside it where it broke off."""
        replies = self._replies
        if past.reply is None:
            return Answered(at, None, past.session)
        if past.status == "done":
            return replies.add(connection, at, past.session, past.reply)
        return Answered(at, replies.add_broken(connection, at, past.reply), past.session)

    def _row_of(
        self, connection: Connection, answered: Answered, past: Past, view_id: int | None, preamble: bytes | None
    ) -> int:
        now, (at, node, session) = time.time(), answered
        shown = None if view_id is None else view_for(connection, view_id, at.depth, None)
        told = None if past.usage is None else encoded(dict(past.usage)).decode()
        digest, key = self._held(past.reply)
        values = (
            *(self._core.tenant, session, at.id, at.head, at.depth, None if shown is None else shown.id),
            *(preamble, storable(past.model), past.status, storable(past.error), told, past.cost),
            *(digest, key, node, now if past.began is None else past.began, now),
        )
        ident = int(self._run(connection, self._over, values).fetchone()[0])
        if past.names:
            self._names.add(connection, self._core.tenant, ident, past.names)
        self._grow(connection, session, past.usage, past.cost)
        self._left(connection, past.session, session)
        return ident

    def _left(self, connection: Connection, before: str | None, session: str | None) -> None:
        """Clear up after a turn whose reply showed that it belongs to another session."""
        if before is not None and session != before:
            self._stateless.drop_if_empty(connection, before)

    def _held(self, reply: Message | None) -> tuple[bytes | None, bytes | None]:
        """Return the name of a reply's content, and the hash of its first block."""
        for made, blocks in self._replies.content(reply):
            return made.digest, blocks[0] if blocks else None
        return None, None

    def _grow(self, connection: Connection, session: str | None, usage: Mapping[str, Any] | None, cost: float) -> None:
        if session is not None:
            added = usage_totals(usage or {}) | {"api_calls": 1}
            totals = [added[name] for name in TOTALS]
            self._run(connection, self._grown, (*totals, cost, time.time(), session, self._core.tenant))


def _end_in(request: Request, count: int, head: bytes, match: Match) -> Match | None:
    """Return where a branch ends in a request's own messages; None where it has gone on differently."""
    if head == match.id:
        return match
    last = request.trace.ends[count - 1] if count else 0
    for place, ident in enumerate(request.trace.ids[:last], 1):
        if ident == head:
            return Match(match.branch, head, match.depth + place)
    return None


def storable(text: str | None) -> str | None:
    """A text without what a database refuses."""
    return None if text is None else text.encode("utf-8", "replace").decode().replace("\0", "")
