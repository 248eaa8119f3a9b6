"""Conversations as people see them: all sessions of a lineage are one, with one id and one title.

A conversation has the id of its first part, and any part's id names it. Its transcript runs from the first word to the
newest, with a mark for each compaction; `everlong.store.shown_path` decides which messages that are. Its figures are
the sums over its parts and the calls on their side. Only `rename`, `delete` and `forget` change something.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, Row, Select, func, or_, select, update

from everlong.errors import AmbiguousName, NotStored, StoreError
from everlong.store.compaction import Compaction, compaction_of
from everlong.store.database import in_batches
from everlong.store.paths import Entry, segments_to
from everlong.store.schema import branch, compaction, receipt, session, turn
from everlong.store.sessions import TOTALS, Session, Sessions, clean_title, usage_totals
from everlong.store.shown_path import (
    BrokenReply,
    ShownPath,
    ShownRun,
    conversation_of,
    count_shown,
    parts_of,
    shown_paths,
    title_of,
)
from everlong.store.upkeep.forget import Forgotten, forget_conversation

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

Kind = Literal["main", "side", "agent"]

STEP = 256
"""Blocks that are read at a time."""

_CONVERSATIONS_AT_ONCE = 400
"""Conversations that are read at a time."""
_MOST_NAMED = 5
"""The most conversations of one name that an error lists."""
COMPRESSION = "compression"
"""The end reason of a part that a compaction ended."""
_MOST_CHOICES = 50
"""The most clients, folders or models that are offered, the most recently active."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as people know it; its figures are the sums over its parts."""

    id: str
    title: str | None
    kind: Kind
    source: str
    platform: str | None
    client: str | None
    client_session: str | None
    """The client's name for it."""
    folder: str | None
    """The folder that it works in now."""
    user: str | None
    model: str | None
    works_for: str | None
    """The conversation that had it begun, or that it was forked from."""
    origin: dict[str, Any] | None
    started: float
    active: float
    """The time at which something was last said in it."""
    ended: float | None
    end_reason: str | None
    parts: tuple[str, ...]
    """The ids of its sessions, oldest first."""
    messages: int
    compactions: int
    agents: int
    """The number of sub-agents that worked for it."""
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    api_calls: int
    cost: float
    """US dollars, at the prices of the time of the calls."""

    @property
    def is_open(self) -> bool:
        """True if its newest part has not ended."""
        return self.ended is None

    @property
    def is_imported(self) -> bool:
        """True if it was imported from a file."""
        return bool(self.origin and "import" in self.origin)

    def to_dict(self) -> dict[str, Any]:
        """Return the conversation as JSON-ready data."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**told, "parts": list(self.parts), "is_open": self.is_open}


class ListCursor(NamedTuple):
    """The place in the list after which the next page begins: the last conversation of the page before."""

    active: float
    conversation: str


@dataclass(frozen=True, slots=True)
class ConversationFilters:
    """The conversations that count; a filter of None does not matter. Times are seconds since 1970."""

    client: str | None = None
    source: str | None = None
    folder: str | None = None
    """Only those that have worked in this folder."""
    folders: tuple[str, ...] | None = None
    """Only those that have worked in one of these folders."""
    model: str | None = None
    since: float | None = None
    """Only those in which something was said at or after this moment."""
    before: float | None = None
    """Only those that began before this moment."""
    least_cost: float | None = None
    """Only those that cost at least so many US dollars."""
    is_compacted: bool | None = None
    kinds: tuple[Kind, ...] = ("main",)

    @property
    def is_empty(self) -> bool:
        """True if every conversation of these kinds counts."""
        return self == ConversationFilters(kinds=self.kinds)


class ConversationChoices(NamedTuple):
    """The values that a filter may take, the most recently active first."""

    clients: tuple[str, ...]
    folders: tuple[str, ...]
    models: tuple[str, ...]


class ConversationLine(NamedTuple):
    """A message of a conversation's transcript."""

    turn: int | None
    """Its number; None for messages without identity, such as reminders. A broken reply has that of its request."""
    entry: Entry
    status: Literal["cancelled", "failed"] | None = None
    """The end of a reply that broke off; None for whole messages."""
    error: str | None = None


class CompactionMark(NamedTuple):
    """The place in a transcript where a compaction was, after a turn."""

    turn: int
    part: str
    """The session that begins there."""
    at: float
    compaction: Compaction | None
    """Its entry of the history; None if that is gone."""

    def to_dict(self) -> dict[str, Any]:
        """Return the mark as JSON-ready data, without the engine's report."""
        done = self.compaction
        figures = ("reason", "engine", "model", "summarizer", "tokens_before", "tokens_after", "messages_before")
        told = {name: getattr(done, name) for name in (*figures, "messages_after", "cost")} if done else {}
        return {"part": self.part, "at": self.at, **told}


class Conversations:
    """The conversations of one tenant."""

    def __init__(self, core: StoreCore, sessions: Sessions) -> None:
        self._core = core
        self._sessions = sessions
        self._database = core.database

    # -- looking up ----------------------------------------------------------------------------------------------------

    def get(self, ident: str) -> Conversation:
        """Return the conversation that a session is part of, by the id of any of its parts."""
        with self._database.read() as connection:
            name = conversation_of(connection, self._core.tenant, ident)
            return self._read_conversations(connection, [name])[0]

    def find(self, name: str) -> Conversation:
        """Return a conversation by the id of any of its parts, its title, or the beginning of an id.

        Raises:
            AmbiguousName: several conversations have that name; the error lists them.
            NotStored: none has it.
        """
        title = clean_title(name)
        conditions = [or_(session.c.id == name, session.c.conversation == name), session.c.title == title]
        if name:
            conditions.append(session.c.id.startswith(name, autoescape=True))
        query = select(session.c.conversation, session.c.kind, func.max(session.c.active).label("last")).where(
            session.c.tenant == self._core.tenant
        )
        query = query.group_by(session.c.conversation, session.c.kind)
        with self._database.read() as connection:
            for condition in conditions:
                rows = connection.execute(query.where(condition)).all()
                rows = [row for row in rows if row.kind == "main"] or rows  # whom people talk with comes first
                if len(rows) == 1:
                    return self._read_conversations(connection, [rows[0].conversation])[0]
                if rows:
                    newest = sorted(rows, key=lambda row: (row.last, row.conversation), reverse=True)
                    listed = self._read_conversations(connection, [row.conversation for row in newest[:_MOST_NAMED]])
                    raise AmbiguousName(_ambiguous_text(name, listed, len(newest)))
        raise NotStored(f"there is no conversation with the id or title {name!r}; `everlong sessions list` shows all")

    def newest(  # noqa: PLR0913 - each is one thing to choose by
        self,
        limit: int | None = None,
        *,
        source: str | None = None,
        since: float | None = None,
        before: float | None = None,
        title: str | None = None,
        folder: str | None = None,
        kinds: Sequence[Kind] = ("main",),
        where: Callable[[Conversation], bool] = lambda _: True,
    ) -> list[Conversation]:
        """Return conversations, the most recently active first.

        Args:
            limit: at most so many.
            source: only from this source.
            since: only those in which something was said at or after this moment.
            before: only those that began before this moment.
            title: only those with this text in their title, in whatever case.
            folder: only those that work in this folder.
            kinds: which kinds.
            where: only those for which this is true.
        """
        filters = ConversationFilters(source=source, since=since, before=before, folder=folder, kinds=tuple(kinds))
        found: list[Conversation] = []
        with self._database.read() as connection:
            names = names_in(connection, self._core.tenant, filters)
            size = _CONVERSATIONS_AT_ONCE if limit is None else max(1, min(_CONVERSATIONS_AT_ONCE, limit))
            for some in in_batches(names, size):
                for one in self._read_conversations(connection, some, title):
                    is_there = folder is None or one.folder == folder
                    if is_there and where(one):
                        found.append(one)
                if limit is not None and len(found) >= limit:
                    return found[:limit]
        return found

    def page(
        self, filters: ConversationFilters, *, limit: int = 50, after: ListCursor | None = None
    ) -> list[Conversation]:
        """Return one page of the list, the most recently active first; it begins after the last one of another page."""
        with self._database.read() as connection:
            names = names_in(connection, self._core.tenant, filters, limit, after)
            return self._read_conversations(connection, names)

    def choices(self) -> ConversationChoices:
        """Return the clients, folders and models that conversations can be chosen by."""
        found = []
        with self._database.read() as connection:
            for column in (session.c.client, session.c.folder, session.c.model):
                named = session.c.kind == "main", column.is_not(None), column != ""
                query = select(column).where(session.c.tenant == self._core.tenant, *named).group_by(column)
                query = query.order_by(func.max(session.c.active).desc()).limit(_MOST_CHOICES)
                found.append(tuple(connection.execute(query).scalars().all()))
        return ConversationChoices(*found)

    def waiting(self, some: Sequence[Conversation]) -> set[str]:
        """Return the ids of those conversations in which a request waits for its answer."""
        whole = {part: one.id for one in some for part in one.parts[-1:]}
        mine = turn.c.tenant == self._core.tenant, turn.c.session.in_(list(whole))
        with self._database.read() as connection:
            parts = connection.execute(select(turn.c.session).where(*mine, turn.c.status == "open")).scalars()
            return {whole[str(part)] for part in parts}

    def count(self, kinds: Sequence[Kind] = ("main", "side", "agent")) -> int:
        """Return how many conversations there are."""
        query = select(func.count(session.c.conversation.distinct())).where(
            session.c.tenant == self._core.tenant, session.c.kind.in_(list(kinds))
        )
        with self._database.read() as connection:
            return int(connection.execute(query).scalar_one())

    def parts(self, ident: str) -> list[Session]:
        """Return all parts of a conversation, oldest first."""
        with self._database.read() as connection:
            name = conversation_of(connection, self._core.tenant, ident)
            return [Session.of(row) for row in parts_of(connection, self._core.tenant, [name])[name]]

    def path(self, ident: str) -> ShownPath:
        """Return the path through the tree that a conversation shows."""
        with self._database.read() as connection:
            name = conversation_of(connection, self._core.tenant, ident)
            parts = parts_of(connection, self._core.tenant, [name])
            return shown_paths(connection, self._core.tenant, parts)[name]

    def count_turns(self, ident: str) -> int:
        """Return the number of a conversation's last message."""
        path = self.path(ident)
        with self._database.read() as connection:
            return path.count_turns(connection)

    def compactions(self, ident: str) -> list[Compaction]:
        """Return the compaction history of a conversation, oldest first."""
        with self._database.read() as connection:
            name = conversation_of(connection, self._core.tenant, ident)
            rows = parts_of(connection, self._core.tenant, [name])[name]
            return self._history(connection, [row.id for row in rows])

    def system_prompt(self, ident: str) -> str | None:
        """Return the system prompt that a conversation began with."""
        return self._sessions.system_prompt(self.parts(ident)[0].id)

    def has_own_root(self, ident: str) -> bool:
        """Return whether a conversation's messages have ids of their own, not those that their words would give."""
        numbers = [part.branch for part in self.parts(ident) if part.branch is not None]
        with self._database.read() as connection:
            query = select(branch.c.root).where(branch.c.id.in_(numbers), branch.c.root.is_not(None))
            return connection.execute(query.limit(1)).first() is not None

    # -- the transcript ------------------------------------------------------------------------------------------------

    def entries(
        self, ident: str, *, after: int = 0, to: int | None = None
    ) -> Iterator[ConversationLine | CompactionMark]:
        """Yield a conversation from its first word on, with a mark for each compaction; read bit by bit.

        Args:
            ident: The id of the conversation, or of any of its parts.
            after: Only the messages after this turn; nothing before it is read.
            to: Only the messages up to this turn. A compaction right after it still belongs to them.
        """
        with self._database.read() as connection:
            name = conversation_of(connection, self._core.tenant, ident)
            parts = parts_of(connection, self._core.tenant, [name])
            shown = shown_paths(connection, self._core.tenant, parts)[name]
            marks = self._marks(connection, parts[name], shown)
        beside: dict[tuple[int, int], list[BrokenReply]] = {}
        for one in shown.broken:
            beside.setdefault((one.branch, one.depth), []).append(one)
        for run in shown.runs:
            with self._database.read() as connection:
                low = run.depth_of(connection, after) if after > run.before else run.low
                high = run.high if to is None else run.depth_of(connection, to)
            if low < high:
                mine = [mark for mark in marks if mark[0] is run and (mark[1] > low or low == run.low)]
                first = max(after, run.before)
                mine = [mark for mark in mine if mark[1] <= high]
                yield from self._entries_of_run(run, low, high, first, mine, beside)

    def lines(self, ident: str) -> Iterator[ConversationLine]:
        """Yield the messages of a conversation alone."""
        return (line for line in self.entries(ident) if isinstance(line, ConversationLine))

    def node_at(self, ident: str, turn: int) -> bytes | None:
        """Return the id of the message that ends at a turn, or None."""
        lines = self.entries(ident, after=turn - 1, to=turn) if turn > 0 else ()
        return next((one.entry.id for one in lines if isinstance(one, ConversationLine) and one.turn == turn), None)

    def _entries_of_run(
        self,
        run: ShownRun,
        low: int,
        high: int,
        turn: int,
        marks: Sequence[tuple[ShownRun, int, CompactionMark]],
        beside: dict[tuple[int, int], list[BrokenReply]],
    ) -> Iterator[ConversationLine | CompactionMark]:
        waiting = sorted(marks, key=lambda mark: mark[1])
        answers = {depth: some for (number, depth), some in beside.items() if run.holds(number, depth)}
        broken: list[ConversationLine] = []  # replies to the last message that broke off
        for entry in self._read_run(run, low, high):
            if entry.id is not None:
                yield from broken
                while waiting and waiting[0][1] < entry.depth:
                    yield waiting.pop(0)[2]
                turn += 1
                broken = [line for one in answers.get(entry.depth, ()) for line in self._broken_lines(one, turn)]
            yield ConversationLine(None if entry.id is None else turn, entry)
        yield from broken
        yield from (mark for _, _, mark in waiting)

    def _read_run(self, run: ShownRun, low: int, high: int) -> Iterator[Entry]:
        start = low if low > 0 else -1  # what precedes the first message belongs to it
        while start < high:
            stop = min(max(start, 0) + STEP, high)
            with self._database.read() as connection:
                found = self._core.reader.entries(connection, run.path, start, stop)
            yield from found
            start = stop

    def _broken_lines(self, one: BrokenReply, turn: int | None) -> Iterator[ConversationLine]:
        at = self._core.branch(one.echo_branch)
        for entry in self._core.entries(at, one.fork_depth, one.echo_depth):
            if entry.id is not None:
                yield ConversationLine(turn, entry, one.status, one.error)

    def _marks(
        self, connection: Connection, parts: Sequence[Row[Any]], shown: ShownPath
    ) -> list[tuple[ShownRun, int, CompactionMark]]:
        """Return the compactions on the shown path, each with its run and the depth after which it stands."""
        history = {one.child: one for one in self._history(connection, [row.id for row in parts]) if one.child}
        by_id = {row.id: row for row in parts}
        found: list[tuple[ShownRun, int, CompactionMark]] = []
        for row in parts:
            done, parent = history.get(row.id), by_id.get(row.parent)
            ended = parent if parent is not None and parent.end_reason == COMPRESSION else None
            if row.branch is None or (done is None and ended is None):
                continue
            # Where the part before ended; this one may have gone back behind it since.
            number, depth = (row.branch, row.from_depth) if ended is None else (ended.branch, ended.to_depth)
            for run in shown.runs:
                if _leads_through(connection, run, done.branch if done else number, depth):
                    number, at = run.turn_at(connection, depth), done.at if done else row.started
                    mark = CompactionMark(number, row.id, at, done)
                    found.append((run, depth, mark))
                    break
        return found

    # -- changing ------------------------------------------------------------------------------------------------------

    def rename(self, ident: str, title: str) -> Conversation:
        """Give a conversation a title; its later parts get the same one with their number."""
        wanted = clean_title(title)
        if wanted is None:
            raise StoreError("a title needs at least one character that shows")

        def work(connection: Connection) -> None:
            name = conversation_of(connection, self._core.tenant, ident)
            for number, row in enumerate(parts_of(connection, self._core.tenant, [name])[name], start=1):
                own = wanted if number == 1 else f"{wanted} #{number}"
                connection.execute(update(session).where(session.c.id == row.id).values(title=own))

        self._database.write(work)
        return self.get(ident)

    def forget(self, ident: str) -> Forgotten:
        """Forget all messages of a conversation that no other shows; words that others use too stay there."""
        return forget_conversation(self._core, ident)

    # -- inside a transaction ------------------------------------------------------------------------------------------

    def _history(self, connection: Connection, parts: Sequence[str]) -> list[Compaction]:
        found: dict[int, Compaction] = {}
        for some in in_batches(parts):
            query = select(compaction).where(compaction.c.tenant == self._core.tenant, compaction.c.session.in_(some))
            found |= {row.id: compaction_of(row) for row in connection.execute(query)}
        return sorted(found.values(), key=lambda one: (one.at, one.id))

    def _read_conversations(
        self, connection: Connection, names: Sequence[str], title: str | None = None
    ) -> list[Conversation]:
        """Return conversations by their ids, in that order; with a title, those that have it in theirs."""
        tenant = self._core.tenant
        parts = parts_of(connection, tenant, names)
        if title is not None:
            parts = {name: rows for name, rows in parts.items() if title.lower() in (title_of(rows) or "").lower()}
        shown = shown_paths(connection, tenant, parts)
        paid = self._side_calls(connection, {row.id: name for name, rows in parts.items() for row in rows})
        agents = self._count_agents(connection, list(parts))
        done = self._count_compactions(connection, parts)
        counts = count_shown(connection, list(shown.values()))
        return [
            _conversation(parts[name], counts[name], done[name], agents.get(name, 0), paid.get(name))
            for name in names
            if name in parts
        ]

    def _side_calls(self, connection: Connection, conversation_of: dict[str, str]) -> dict[str, dict[str, Any]]:
        """Return the usage and cost of calls on the side of conversations: summaries, memory, pings."""
        found: dict[str, dict[str, Any]] = {}
        for some in in_batches(list(conversation_of)):
            for row in connection.execute(select(receipt).where(receipt.c.session.in_(some))):
                sums = found.setdefault(conversation_of[row.session], dict.fromkeys((*TOTALS, "cost"), 0))
                used = usage_totals(json.loads(row.usage)) | {"api_calls": 1, "cost": row.cost or 0.0}
                for name, amount in used.items():
                    sums[name] += amount
        return found

    def _count_compactions(self, connection: Connection, parts: dict[str, list[Row[Any]]]) -> dict[str, int]:
        """Return how often conversations were compacted, even if the history is gone."""
        children: dict[str | None, list[str | None]] = {}
        for some in in_batches([row.id for rows in parts.values() for row in rows]):
            query = select(compaction.c.session, compaction.c.child).where(compaction.c.session.in_(some))
            for ident, child in connection.execute(query):
                children.setdefault(ident, []).append(child)
        counts: dict[str, int] = {}
        for name, rows in parts.items():
            told = [child for row in rows for child in children.get(row.id, ())]
            ends = {row.id: row.end_reason for row in rows}
            untold = sum(ends.get(row.parent) == COMPRESSION and row.id not in told for row in rows)
            counts[name] = len(told) + untold
        return counts

    def _count_agents(self, connection: Connection, names: Sequence[str]) -> dict[str, int]:
        """Return how many sub-agents worked for conversations; those without any are left out."""
        found: dict[str, int] = {}
        for some in in_batches(names):
            query = select(session.c.works_for, func.count(session.c.conversation.distinct())).where(
                session.c.tenant == self._core.tenant, session.c.kind == "agent", session.c.works_for.in_(some)
            )
            found |= {row[0]: int(row[1]) for row in connection.execute(query.group_by(session.c.works_for))}
        return found


def _conversation(
    rows: Sequence[Row[Any]], messages: int, compactions: int, agents: int, paid: dict[str, Any] | None
) -> Conversation:
    first, last = rows[0], rows[-1]
    aside = paid or {}
    totals = {name: sum(getattr(row, name) for row in rows) + aside.get(name, 0) for name in (*TOTALS, "cost")}
    return Conversation(
        id=first.conversation,
        title=title_of(rows),
        kind=first.kind,
        source=first.source,
        platform=first.platform,
        client=last.client,
        client_session=last.client_session,
        folder=last.folder,
        user=first.user,
        model=last.model,
        works_for=first.works_for,
        origin=json.loads(first.origin) if first.origin else None,
        started=first.started,
        active=max(row.active for row in rows),
        ended=last.ended,
        end_reason=last.end_reason,
        parts=tuple(row.id for row in rows),
        messages=messages,
        compactions=compactions,
        agents=agents,
        **totals,
    )


def _leads_through(connection: Connection, run: ShownRun, number: int, depth: int) -> bool:
    """Return whether a place of a branch is on a run."""
    return any(
        part.low < depth <= part.high and run.holds(part.branch, depth)
        for part in segments_to(connection, number, depth)
    )


def _ambiguous_text(name: str, listed: Sequence[Conversation], count: int) -> str:
    """Return an error text that lists the conversations of a name, one on a line."""
    lines = [f"several conversations are called {name!r}; name one by its id:"]
    for one in listed:
        where = ", ".join(text for text in (one.client or one.source, one.folder) if text)
        when = f"{datetime.fromtimestamp(one.active).astimezone():%Y-%m-%d %H:%M}"
        lines.append(f"  {one.id}  {when}  {where}  {one.title or ''}".rstrip())
    if count > len(listed):
        lines.append(f"  … and {count - len(listed)} more")
    return "\n".join(lines)


# -- the list, chosen by the database, so that a page costs the same in a store of any size ----------------------------


def names_in(
    connection: Connection,
    tenant: str,
    filters: ConversationFilters,
    limit: int | None = None,
    after: ListCursor | None = None,
) -> list[str]:
    """Return the ids of all conversations or of one page, the most recently active first."""
    last = func.max(session.c.active)
    query = (
        select(session.c.conversation)
        .where(session.c.tenant == tenant, session.c.kind.in_(list(filters.kinds)))
        .group_by(session.c.conversation)
        .order_by(last.desc(), session.c.conversation.desc())
        .limit(limit)
    )
    for name in ("client", "source", "folder", "model"):
        wanted = getattr(filters, name)
        if wanted is not None:
            query = query.where(session.c.conversation.in_(_named(tenant, session.c[name] == wanted)))
    if filters.folders is not None:
        query = query.where(session.c.conversation.in_(_named(tenant, session.c.folder.in_(list(filters.folders)))))
    if filters.since is not None:
        query = query.having(last >= filters.since)
    if filters.before is not None:
        query = query.having(func.min(session.c.started) < filters.before)
    if filters.least_cost is not None:
        aside = _paid_aside(tenant)
        query = query.outerjoin(aside, aside.c.conversation == session.c.conversation)
        paid = func.sum(session.c.cost) + func.coalesce(func.max(aside.c.cost), 0.0)
        query = query.having(paid >= filters.least_cost)
    if filters.is_compacted is not None:
        compacted = _named(tenant, session.c.id.in_(select(compaction.c.session).where(compaction.c.tenant == tenant)))
        chosen = session.c.conversation.in_(compacted)
        query = query.where(chosen if filters.is_compacted else ~chosen)
    if after is not None:
        is_older = last < after.active
        query = query.having(is_older | ((last == after.active) & (session.c.conversation < after.conversation)))
    return [str(name) for name in connection.execute(query).scalars()]


def _named(tenant: str, condition: Any) -> Select[tuple[str]]:
    return select(session.c.conversation).where(session.c.tenant == tenant, condition)


def _paid_aside(tenant: str) -> Any:
    """Return the costs of the calls on the side of each conversation."""
    part = session.alias("part")
    return (
        select(part.c.conversation, func.sum(receipt.c.cost).label("cost"))
        .select_from(receipt.join(part, part.c.id == receipt.c.session))
        .where(receipt.c.tenant == tenant)
        .group_by(part.c.conversation)
        .subquery("aside")
    )
