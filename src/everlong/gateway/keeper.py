"""What the gateway does with the store: recording bodies, turns and replies, finding sessions, compacting.

Runs in worker threads and blocks. One keeper serves one tenant and one API.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everlong.errors import NotStored
from everlong.gateway.dialects import Dialect, is_leading
from everlong.gateway.lines import Line
from everlong.gateway.raw import Read, Span, read_body
from everlong.gateway.views import applied_view
from everlong.store.history import Occasion
from everlong.store.past_turns import Past, storable
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.context import ContextEngine
    from everlong.gateway.spool import Spooled
    from everlong.model import Message, Trace
    from everlong.providers.base import Reply
    from everlong.store import Compacted, Store
    from everlong.store.past_turns import End

__all__ = ["Added", "Ended", "Keeper", "first_answer"]

PLATFORM = "gateway"
_MOST_SESSIONS = 10_000
"""Sessions that are known without a question."""

_SESSION = "SELECT id, origin FROM session WHERE tenant = ? AND branch = ? AND ended IS NULL ORDER BY started DESC"


@dataclass(frozen=True, slots=True)
class Added:
    """What some entries add to a conversation: their messages, and the place in the tree after each entry."""

    messages: list[Message]
    branches: list[Branch]
    """After each entry; the branch's number is that of the conversation that they follow."""
    trace: Trace
    """The chain over the messages."""

    @property
    def last(self) -> Message | None:
        """Who speaks last; None where nobody does."""
        return {"role": self.messages[-1]["role"]} if self.messages else None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended."""

    reply: Reply | None = None
    error: str | None = None
    is_cut: bool = False
    """Whether the client hung up."""
    cost: float = 0.0
    """US dollars."""

    @property
    def status(self) -> End:
        """How the turn is marked."""
        return "done" if self.reply is not None else "cancelled" if self.is_cut else "failed"

    @property
    def message(self) -> Message | None:
        """What was answered."""
        return None if self.reply is None else self.reply.message

    @property
    def usage(self) -> dict[str, int] | None:
        """What it used."""
        return None if self.reply is None else self.reply.usage.to_dict()

    def past(self, session: str | None, model: str | None, began: float, names: Sequence[str] = ()) -> Past:
        """The whole turn."""
        return Past(
            self.message,
            model=model,
            session=session,
            usage=self.usage,
            cost=self.cost,
            status=self.status,
            error=self.error,
            began=began,
            names=names,
        )


class Keeper:
    """Keeps the conversations of one tenant that come in by one API."""

    def __init__(self, store: Store, dialect: Dialect) -> None:
        self.store = store
        self.dialect = dialect
        self._sessions: dict[tuple[int, str | None], str] = {}
        """Sessions by their branch and the client's name for them, as far as they were asked for lately."""

    # -- reading -------------------------------------------------------------------------------------------------------

    def added(self, entries: Sequence[Span], at: Branch | None, last: Message | None) -> Added:
        """Read entries that follow a place; nothing is stored."""
        messages: list[Message] = []
        counts: list[int] = []
        before = last
        for entry in entries:
            said = self.dialect.messages_of(entry.value, before)
            messages += said
            before = said[-1] if said else before
            counts.append(len(messages))
        start = at.node if at is not None else self.store.chain.root()
        trace = self.store.chain.trace(map(self.store.cleaned, messages), start)
        number = at.id if at is not None else 0
        branches: list[Branch] = []
        for count in counts:
            end = trace.ends[count - 1] if count else 0
            branches.append(Branch(number, trace.ids[end - 1] if end else start.id, start.depth + end))
        return Added(messages, branches, trace)

    def glanced(self, read: Read) -> tuple[Line, Added]:
        """A whole body as a conversation by itself; nothing is stored, and nobody is asked."""
        lead = 0
        while lead < len(read.entries) and is_leading(read.entries[lead].value):
            lead += 1
        new = self.added(read.entries[lead:], None, None)
        depths = array("Q", [*(0 for _ in range(lead)), *(place.depth for place in new.branches)])
        ends = array("Q", [entry.end for entry in read.entries])
        root = self.store.chain.root()
        branch = new.branches[-1] if new.branches else Branch(0, root.id, root.depth)
        return Line(read.beginning(), lead, ends, depths, branch, new.last), new

    # -- writing -------------------------------------------------------------------------------------------------------

    def opened(self, read: Read, hint: str | None = None) -> tuple[Line, dict[int, Branch]]:
        """Record a whole body; the conversation, and the node after each of its entries."""
        line, new = self.glanced(read)
        tools = read.field("tools")
        branch = line.branch = self.store.record(
            [*self.dialect.system_of(read), *(entry.value for entry in read.entries[: line.lead]), *new.messages],
            tools=tools if isinstance(tools, list) else None,
            ext_id=hint,
            known=new.trace,
        )
        line.answered, line.hint = first_answer(read.entries), hint
        if self.view_in_force(branch) is not None:
            line.view = applied_view(self.store, self.dialect, line)
        places = {
            number: Branch(branch.id, place.head, place.depth)
            for number, place in enumerate(new.branches, line.lead + 1)
        }
        return line, places

    def appended(self, at: Branch, messages: list[Message]) -> Branch:
        """Record what follows a place; on another branch where the conversation has gone on differently there."""
        return self.store.append(at, messages) if messages else at

    def view_in_force(self, at: Branch) -> int | None:
        """The view that a branch points at."""
        row = self._first("SELECT view_id FROM branch WHERE id = ?", at.id)
        return None if row is None else row[0]

    def owned(self, at: Branch) -> Branch | None:
        """A place with the branch that its node is on; None where that is not stored."""
        row = self._first("SELECT branch FROM node WHERE id = ? AND tenant = ?", at.head, self.store.tenant)
        return None if row is None else Branch(row[0], at.head, at.depth)

    def begun(self, line: Line, model: str | None, began: float) -> int:
        """Say that a request has gone out; the number of its turn."""
        return self.store.turns.begin(line.branch, model=model, session=line.session, began=began).id

    def finished(self, turn: int, ended: Ended, names: Sequence[str] = ()) -> None:
        """Say what became of it."""
        self.store.turns.finish(
            turn,
            ended.message,
            usage=ended.usage,
            cost=ended.cost,
            status=ended.status,
            error=ended.error,
            names=names,
        )

    def recorded(self, line: Line, past: Past) -> int:
        """Store a request that is over already; the number of its turn."""
        return self.store.turns.whole(line.branch, past)

    def followed(self, line: Line, at: Branch, new: Added, past: Past) -> tuple[Branch, int] | None:
        """Store what a conversation has gone on by, with its turn; None where it has gone on in another way as well."""
        view = line.view.view_id if line.view is not None else None
        return self.store.turns.follow(at, new.messages, past, view=view, known=new.trace)

    def replayed(self, entry: Spooled) -> None:
        """Store what had to wait for the database."""
        branch = self._place_of(entry)
        known = "SELECT id, status FROM turn WHERE branch = ? AND depth = ? AND ts = ?"
        if (row := self._first(known, branch.id, branch.depth, entry.began)) is not None:
            if row[1] == "open":  # it was begun, and what came of it was not stored
                self.store.turns.finish(
                    row[0],
                    entry.reply,
                    usage=entry.usage,
                    cost=entry.cost,
                    status=entry.status,  # type: ignore[arg-type]  # as it was written
                    error=entry.error,
                    names=entry.names,
                )
            return
        is_second = any(one.message["role"] == "assistant" for one in self.store.entries(branch) if one.id is not None)
        past = Past(
            entry.reply,
            model=entry.model,
            session=self.session(branch, entry.model, entry.hint, is_second=is_second),
            usage=entry.usage,
            cost=entry.cost,
            status=entry.status,  # type: ignore[arg-type]  # as it was written
            error=entry.error,
            began=entry.began,
            names=entry.names,
        )
        self.store.turns.whole(branch, past)

    def _place_of(self, entry: Spooled) -> Branch:
        """Where the request of an entry stands, with its messages stored."""
        if entry.body is not None:
            return self.opened(read_body(entry.body.encode(), "messages"), entry.hint)[0].branch
        if entry.at is None:
            raise NotStored("an entry of the spool says nowhere where it belongs")
        given = Branch(entry.at[0], bytes.fromhex(entry.at[1]), entry.at[2])
        at = self.owned(given) if given.depth else given
        if at is None:
            raise NotStored(f"the message {entry.at[1]} that an entry of the spool follows is not there")
        return self.appended(at, entry.messages)

    def session(self, at: Branch, model: str | None, hint: str | None, *, is_second: bool) -> str | None:
        """The session of a conversation; begun where it has none and somebody has answered in it.

        Requests without an answer in them have none: many conversations begin alike.
        """
        if not is_second:
            return None
        found = self.known_session(at, hint)
        if found is None:
            about: dict[str, Any] | None = {"client_session": hint} if hint else None
            found = self.store.sessions.started(
                at, platform=PLATFORM, model=storable(model), origin=about, from_depth=0
            )
            self._sessions[at.id, hint] = found
        return found

    def known_session(self, at: Branch, hint: str | None) -> str | None:
        """The session of a conversation, if it has one."""
        found = self._sessions.get((at.id, hint))
        if found is not None:
            return found
        for ident, origin in self._all(_SESSION, self.store.tenant, at.id):
            known = json.loads(origin).get("client_session") if origin else None
            if hint is None or known is None or known == hint:
                if len(self._sessions) >= _MOST_SESSIONS:
                    self._sessions.clear()
                self._sessions[at.id, hint] = str(ident)
                return str(ident)
        return None

    def forget_session(self, at: Branch, hint: str | None) -> None:
        """Ask for the session of a conversation the next time: a compaction may have begun another one."""
        self._sessions.pop((at.id, hint), None)

    def forget_sessions(self) -> None:
        """Ask for all of them the next time: what was begun may not have been stored."""
        self._sessions.clear()

    # -- compacting ----------------------------------------------------------------------------------------------------

    def catch_up(self, line: Line) -> bool:
        """Put the view in force into a conversation that has an older one, or none; whether there was another."""
        if self.view_in_force(line.branch) in {None, line.view.view_id if line.view is not None else None}:
            return False
        before, line.view = line.view, applied_view(self.store, self.dialect, line)
        return line.view is not None and (before is None or before.view_id != line.view.view_id)

    def compacted(self, line: Line, engine: ContextEngine, occasion: Occasion, **options: Any) -> Compacted:
        """Have an engine compact a conversation, and put the view into the form of the API."""
        done = self.store.compact(line.branch, engine, occasion, roll_over=line.session, **options)
        if done.child is not None:
            line.session = done.child
            self.forget_session(line.branch, line.hint)
        line.view = applied_view(self.store, self.dialect, line)
        return done

    def _first(self, statement: str, *values: Any) -> Any:
        """The first row of a statement."""
        rows = self._all(statement, *values)
        return rows[0] if rows else None

    def _all(self, statement: str, *values: Any) -> Sequence[Any]:
        """The rows of a statement; in plain SQL, because it is run with every request."""
        database = self.store.database
        with database.read() as connection:
            rows: Sequence[Any] = database.backend.run(connection, database.sql(statement), values).fetchall()
        return rows


def first_answer(entries: Sequence[Span], before: int = 0) -> int:
    """The number of the first entry in which a model speaks, counted from 1; 0 where none does."""
    for number, entry in enumerate(entries, before + 1):
        if isinstance(entry.value, dict) and entry.value.get("role") == "assistant":
            return number
    return 0
