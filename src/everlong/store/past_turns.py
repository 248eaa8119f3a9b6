"""Turns that are over when they are stored: the request, what came of it and the reply in one step.

For those who hear of a turn when it has ended, as a gateway does. A turn that is begun first, because its reply takes
its time, is in `everlong.store.turns`. Knows no provider.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection

from everlong.errors import NotStored
from everlong.model import Message, Trace, checked_messages
from everlong.store.compact import view_for
from everlong.store.content import Blob, blob, encoded
from everlong.store.database import TryAgain
from everlong.store.linking import Linker
from everlong.store.names import Names
from everlong.store.session import TOTALS, usage_totals
from everlong.store.tree import Branch, Match, Request

if TYPE_CHECKING:
    from everlong.store.store import Store

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


class PastTurns:
    """Stores turns of one tenant that are over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database
        self._run = store.database.backend.run
        self._linker = Linker(store)
        self._names = Names(store.database)
        # In plain SQL, because these are run with every request to a model.
        sql = store.database.sql
        self._branch = sql("SELECT view_id, preamble FROM branch WHERE id = ? AND tenant = ?")
        self._over = sql(
            "INSERT INTO turn (tenant, session, branch, node, depth, view_id, preamble, model, status, error, usage,"
            " cost, reply, ts, ended) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING id"
        )
        grown = ", ".join(f"{name} = {name} + ?" for name in (*TOTALS, "cost"))
        self._grown = sql(f"UPDATE session SET {grown} WHERE id = ? AND tenant = ?")  # noqa: S608 - our own names

    def whole(self, at: Branch, past: Past) -> int:
        """Store a turn that is over already, as `begin` and `finish` would; its number."""
        held = self._held(past.reply)

        def work(connection: Connection) -> int:
            row = self._run(connection, self._branch, (at.id, self._store.tenant)).fetchone()
            if row is None:
                raise NotStored(f"there is no branch {at.id} in {self._database.backend.where}")
            self._linker.link(connection, at)
            self._store.recorder.add_contents(connection, self._store.tenant, held)
            return self._insert(connection, at, past, held, *row)

        return self._database.write(work)

    def follow(
        self, at: Branch, messages: list[Message], past: Past, *, view: int | None, known: Trace | None = None
    ) -> tuple[Branch, int] | None:
        """Store messages at the end of a branch and the turn in which they were sent, in one step.

        Args:
            at: where the conversation stood.
            messages: what was said since.
            past: the turn, which ends with them.
            view: the view that the conversation is known under.
            known: the chain over the messages, where it is known.

        Returns:
            Where the conversation stands, and the number of the turn. None, and nothing stored, where the branch has
            gone on differently or has another view: `Store.append` and `whole` find out what to do then.
        """
        store, now = self._store, time.time()
        count = len(messages)
        said = checked_messages(messages)
        request = Request(
            store.chain, at.node, said, [now] * count, [None] * count, at.id, clean=store.cleaned, known=known
        )
        additions = list(request.additions(at.depth))
        held = self._held(past.reply)
        match = Match(at.id, at.head, at.depth)

        def work(connection: Connection) -> tuple[Branch, int] | None:
            branch = store.recorder.locked(connection, match)
            if branch is None or branch.view_id != view or branch.fork_depth >= at.depth:
                return None
            is_new = branch.head == at.head
            if is_new:
                end = store.recorder.add_at(branch, request, match, additions, now, connection, held)
            elif store.recorder.has(connection, request, at.id):  # said before in just these words
                end = request.end(at.id)
                store.recorder.add_contents(connection, store.tenant, held)
            else:
                return None
            if additions:
                first = additions[0][0]
                self._linker.link_next(connection, at, first.id, first.blob.digest if is_new else None)
            return end, self._insert(connection, end, past, held, branch.view_id, branch.preamble)

        try:
            return self._database.write(work)
        except TryAgain:
            return None

    # -- inside a transaction ------------------------------------------------------------------------------------------

    def _held(self, reply: Message | None) -> list[tuple[Blob, list[bytes]]]:
        """A reply as it is stored, with the hashes of its blocks; nothing where there is none."""
        if reply is None:
            return []
        said = self._store.cleaned(checked_messages([reply])[0])
        return [(blob(self._store.tenant, encoded(said)), self._store.chain.trace([said]).blocks)]

    def _insert(
        self,
        connection: Connection,
        at: Branch,
        past: Past,
        held: list[tuple[Blob, list[bytes]]],
        view_id: int | None,
        preamble: bytes | None,
    ) -> int:
        """A turn that is over, whose reply is stored."""
        now = time.time()
        shown = None if view_id is None else view_for(connection, view_id, at.depth, None)
        told = None if past.usage is None else encoded(dict(past.usage)).decode()
        values = (
            *(self._store.tenant, past.session, at.id, at.head, at.depth, None if shown is None else shown.id),
            *(preamble, storable(past.model), past.status, storable(past.error), told, past.cost),
            *(held[0][0].digest if held else None, now if past.began is None else past.began, now),
        )
        ident = int(self._run(connection, self._over, values).fetchone()[0])
        if past.names:
            self._names.add(connection, self._store.tenant, ident, past.names)
        self._grow(connection, past.session, past.usage, past.cost)
        return ident

    def _grow(self, connection: Connection, session: str | None, usage: Mapping[str, Any] | None, cost: float) -> None:
        if session is not None:
            added = usage_totals(usage or {}) | {"api_calls": 1}
            totals = [added[name] for name in TOTALS]
            self._run(connection, self._grown, (*totals, cost, session, self._store.tenant))


def storable(text: str | None) -> str | None:
    """A text without what a database refuses."""
    return None if text is None else text.encode("utf-8", "replace").decode().replace("\0", "")
