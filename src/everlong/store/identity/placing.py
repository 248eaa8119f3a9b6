"""Stateless requests: stored in the conversation that they go on with, or in one of their own.

`everlong.store.identity.choice` decides which conversation that is; this module stores the request there, in the same
transaction. A request that begins like another one gets a root of its own. One that leaves a conversation midway is a
fork; one that only leaves out old tool results is not.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Row, delete, func, select, update

from everlong.errors import NotStored
from everlong.model import Message, Node, Trace
from everlong.store.content import Blob, blob, encoded_in_steps, is_large
from everlong.store.database import TryAgain
from everlong.store.identity.choice import LONG_STEM, Continuation, ContinuationFinder, KnownSession
from everlong.store.identity.cleared_results import carry, view_to_carry
from everlong.store.identity.known_messages import KnownMessage, Recognizer
from everlong.store.paths import Segment, segments_to
from everlong.store.schema import branch, content, node, session, turn
from everlong.store.sessions import TOTALS, Sessions, new_session_id, next_title, usage_totals
from everlong.store.tombstones import title_of_opening
from everlong.store.tree import Branch, Match, RecordRequest

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


ATTEMPTS_IN_PLACE = 8
"""Attempts to store a turn in its conversation; then it gets a conversation of its own."""
_CLEARED = "cleared"
"""The end reason of a session whose client goes on without old tool results."""
_TITLE_BLOCKS = 64
"""The last blocks of a first request, one of which gives its conversation the title."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The client of a stateless request, as far as it is known."""

    platform: str | None = None
    session: str | None = None
    """The client's name for the conversation."""
    works_for: str | None = None
    """The client's name for the conversation that this one works for."""
    client: str | None = None
    folder: str | None = None
    model: str | None = None
    is_aside: bool = False
    """True if the request looks like a title or a probe rather than a conversation."""


@dataclass(frozen=True, slots=True)
class StatelessRequest:
    """A stateless request: its messages without the system prompt, and what it is sent with."""

    messages: list[Message]
    trace: Trace
    """The chain over the messages as its client has them: from the common root, or from ``mark``."""
    sender: Sender
    preamble: Blob | None = None
    after: Branch | None = None
    """The stored message that the messages follow, where that is known."""
    mark: bytes = b""
    """The id by which its client finds that message."""
    packed: Mapping[int, Blob] = field(default_factory=dict)
    """Large messages as they are stored, each by the id of its object."""


class PlacedRequest(NamedTuple):
    """The place of a request that was stored."""

    at: Branch
    session: str
    ends: list[Branch | None]
    """The place after each message; None where no stored message ends there."""
    depths: list[int]
    """The depth at which each message ends."""
    mark: bytes
    """The id by which the client finds the place."""
    opened: int
    """The depth of the first request of the conversation."""
    is_new: bool = False
    """True if nothing was stored of it, so that it has no view."""


class Identity:
    """The stateless requests of one tenant."""

    def __init__(self, core: StoreCore, sessions: Sessions) -> None:
        self._core = core
        self._sessions = sessions
        self.recognizer = Recognizer(core)
        self.replies = Replies(core, self, self.recognizer)
        self._finder = ContinuationFinder(core, self.recognizer)
        self._run = core.database.backend.run
        sql = core.database.sql
        self._named = sql(
            "SELECT conversation FROM session WHERE tenant = ? AND client_session = ? ORDER BY started LIMIT 1"
        )
        self._branch_of = sql("SELECT branch FROM session WHERE id = ?")
        self._mark = sql("SELECT mark FROM node WHERE id = ?")
        self._marks = sql(
            "SELECT n.id, n.depth, n.mark, a.id FROM node n LEFT JOIN alias a ON a.node = n.id"
            " WHERE n.branch = ? AND n.depth > ? AND n.depth <= ?"
        )

    def count_unknown(self, trace: Trace) -> int:
        """Return how many blocks of a whole conversation are not stored yet."""
        with self._core.database.read() as connection:
            return len(trace.ids) - self.recognizer.count_known(connection, trace.ids)

    def place(self, asked: StatelessRequest) -> PlacedRequest:
        """Store a request in the conversation that it belongs to, which has a session; durable when this returns.

        Raises:
            NotStored: The message that it follows is not stored.
        """
        core = self._core
        large = [message for message in asked.messages if is_large(message)]
        if large:  # compressed before the transaction, for which others wait
            packed = {id(one): blob(core.tenant, encoded_in_steps(core.cleaned(one))) for one in large}
            asked = replace(asked, packed=packed)
        return core.database.retry(lambda attempt: core.database.write(partial(self._place, asked, attempt)))

    def resolve(self, request: RecordRequest) -> tuple[RecordRequest, Match | None]:
        """Return a recorded or imported list as the continuation of what is stored of it, wherever that has its root.

        The match is given where nothing of the list is stored, unless another process stores it at this moment.
        """
        recognizer, database, own = self.recognizer, self._core.database, request.trace.ids
        with database.read() as connection:
            candidates = recognizer.find(connection, request)
            at_root = next((one for one in candidates if one.id == own[one.blocks - 1]), None)
            found = at_root or max(candidates, key=lambda one: one.branch, default=None)
            is_new = found is None or found.blocks < len(own)
            is_changed = is_new and recognizer.may_find_more(connection, request, found)
        if is_changed:
            more = database.write(lambda connection: recognizer.find_more(connection, request, found))
            if more is not None:
                return request.rebased(more.blocks, more.match), None
        if found is None and own:
            return request, Match(request.start_branch, request.start.id, request.start.depth)
        if found is None or at_root is not None:
            return request, None
        return request.rebased(found.blocks, found.match), None

    def mark_of(self, at: Branch) -> bytes:
        """Return the id by which stateless requests find a place."""
        with self._core.database.read() as connection:
            row = connection.execute(select(node.c.mark).where(node.c.id == at.head)).first()
        return at.head if row is None or row.mark is None else bytes(row.mark)

    def session_at(self, connection: Connection, number: int, depth: int) -> str | None:
        """Return the newest session on a branch, preferably one that began before a depth."""
        known = self._finder.session_at(connection, number, depth)
        return None if known is None else known.id

    # -- replies and their sessions, inside the transaction that stores a reply ----------------------------------------

    def is_recognised(self, connection: Connection, ident: str) -> bool:
        """Return whether a session is recognised by its words, rather than known to its host by name."""
        known = self._finder.session(connection, ident)
        return known is not None and known.opened is not None

    def has_left(self, connection: Connection, ident: str, number: int) -> bool:
        """Return whether a session has moved to another branch."""
        found = self._run(connection, self._branch_of, (ident,)).fetchone()
        return found is not None and found[0] is not None and found[0] != number

    def are_alike(self, connection: Connection, one: str, other: str) -> bool:
        """Return whether two conversations began with the same system prompt and tools, under the same name."""
        mine, its = self._finder.session(connection, one), self._finder.session(connection, other)
        if mine is None or its is None:
            return False
        return (mine.client_session, mine.preamble) == (its.client_session, its.preamble)

    def adopt(self, connection: Connection, ident: str, number: int) -> None:
        """Move a session to another branch, which leads on from where it is."""
        connection.execute(update(session).where(session.c.id == ident).values(branch=number, to_depth=None))

    def drop_if_empty(self, connection: Connection, ident: str) -> None:
        """Delete a session whose only turn turned out to be another's, so that its question is not shown twice."""
        if connection.execute(select(turn.c.id).where(turn.c.session == ident).limit(1)).first() is not None:
            return
        row = connection.execute(select(session).where(session.c.id == ident)).first()
        if row is None or row.opened is None:
            return
        head = connection.execute(select(branch.c.head_depth).where(branch.c.id == row.branch)).scalar()
        others = select(session.c.id).where(session.c.id != ident, session.c.conversation == row.conversation)
        if head == row.opened and row.parent is None and connection.execute(others.limit(1)).first() is None:
            connection.execute(delete(session).where(session.c.id == ident))

    def begin_fork(self, connection: Connection, ident: str, at: Branch, depth: int) -> str:
        """Open the session of a fork that leaves a conversation at a depth, on a branch of its own; return its id."""
        part = self._session(connection, ident)
        child = self._open(connection, at, self._sender_of(connection, ident), forked_from=part)
        self._share_turns(connection, part.conversation, segments_to(connection, at.id, depth), depth, child)
        return child

    def split(self, connection: Connection, at: Branch, ident: str) -> tuple[Branch, str]:
        """Give a request whose reply differs from the stored one a conversation of its own; return where it stands.

        A repeated opening is copied to a root of its own, unless it is long. A request that leaves a conversation
        later becomes a fork once its reply is stored.
        """
        part = self._session(connection, ident)
        if at.depth > min(part.opened or 0, LONG_STEM):
            return at, ident
        core, sender = self._core, self._sender_of(connection, ident)
        path = segments_to(connection, at.id, at.depth)
        entries = core.reader.entries(connection, path, -1, at.depth)
        messages = [entry.message for entry in entries]
        trace = core.chain.trace(messages)
        marks = self._marks_along(connection, at)
        child = new_session_id(time.time())
        root = core.chain.root(child)
        request = RecordRequest(
            *(core.chain, root, messages, [entry.ts for entry in entries]),
            known=Trace(core.chain.rechain(messages, trace, root.id), trace.blocks, trace.ends),
            root=root.id,
            marks=[marks.get(place, own) for place, own in enumerate(trace.ids, 1)],
            ext_id=sender.session,
            folder=sender.folder,
        )
        additions = list(request.additions(0))
        begun = core.recorder.add_at(None, request, Match(None, root.id, 0), additions, time.time(), connection)
        values = {"preamble": connection.execute(select(branch.c.preamble).where(branch.c.id == at.id)).scalar()}
        connection.execute(update(branch).where(branch.c.id == begun.id).values(values))
        opening = replace(request, preamble=None)
        self._open(connection, begun, sender, ident=child, opening=opening)
        connection.execute(update(session).where(session.c.id == child).values(preamble=part.preamble))
        return begun, child

    def move_turn(self, connection: Connection, row: Row[Any], ident: str) -> None:
        """Move a turn to another session, with its usage and cost."""
        used = usage_totals(json.loads(row.usage) if row.usage else {}) | {"api_calls": 1, "cost": row.cost}
        for target, sign in ((row.session, -1), (ident, 1)):
            values = {name: session.c[name] + sign * used[name] for name in (*TOTALS, "cost")}
            connection.execute(update(session).where(session.c.id == target).values(values))
        connection.execute(update(turn).where(turn.c.id == row.id).values(session=ident))

    # -- placing, inside a transaction ---------------------------------------------------------------------------------

    def _place(
        self, asked: StatelessRequest, attempt: int, connection: Connection, *, may_slide: bool = True
    ) -> PlacedRequest:
        request = self._record_request(asked)
        self._core.database.backend.lock_name(connection, request.trace.ids[0] if request.trace.ids else b"")
        is_apart = attempt >= ATTEMPTS_IN_PLACE
        chosen, is_known = (None, True) if is_apart else self._finder.find(connection, request, asked.after)
        if chosen is not None and self._finder.awaits_reply(connection, request, chosen):
            chosen = self._find_without_waiting(connection, request, asked)
        if asked.after is None and may_slide and not is_apart:
            window = self._finder.find_window(connection, request, chosen)
            if window is not None:
                return self._place_window(connection, asked, window, attempt)
        if chosen is None and asked.after is not None:  # several begin so; the whole history tells them apart
            return self._place_with_history(connection, asked, attempt)
        if chosen is None:
            return self._begin(connection, request, asked, is_known=is_known)
        return self._continue(connection, request, asked, chosen)

    def _find_without_waiting(
        self, connection: Connection, request: RecordRequest, asked: StatelessRequest
    ) -> Continuation | None:
        """Return where a request goes on whose reply is not stored yet: mostly in a conversation that begins with it.

        Whoever stores the reply finds that conversation: under the lock of the branches of which it may be the reply.
        """
        for one in sorted(self.recognizer.find(connection, request), key=lambda one: one.branch):
            self._core.recorder.lock(connection, one.match)
        chosen, _ = self._finder.find(connection, request, asked.after)
        return None if chosen is None or self._finder.awaits_reply(connection, request, chosen) else chosen

    def _continue(
        self, connection: Connection, request: RecordRequest, asked: StatelessRequest, chosen: Continuation
    ) -> PlacedRequest:
        """Go on from a stored message: with its conversation, or with a fork of it."""
        found, known = chosen.found, chosen.session
        locked = self._core.recorder.lock(connection, found.match)
        is_end = locked is not None and locked.head == found.id
        if is_end != chosen.is_end:
            raise TryAgain(f"branch {found.branch} was extended at the same moment")
        rest = request.rebased(found.blocks, found.match)
        low = 0 if asked.after is None else asked.after.depth
        if known is None:
            known = self._open_for_recorded(connection, found, asked)
        elif is_end and self._finder.goes_on_behind(connection, known, found):
            is_end = False
        if is_end or found.blocks == len(request.trace.ids):
            at = self._add(connection, rest, found.match)
            ident = self._go_on(connection, known, at, asked.sender) if is_end else known.id
            return self._locate(rest, at, ident, low, known.opened or 0, connection)
        cleared = self._finder.find_cleared(connection, rest, found, known)
        at = self._add(connection, rest, found.match)
        if cleared is not None:
            ident = self._go_on_cleared(connection, cleared.session, at, cleared.low, cleared.head_depth)
        else:
            ident = self._open(connection, at, asked.sender, forked_from=known)
            path = segments_to(connection, found.branch, found.depth)
            self._share_turns(connection, known.conversation, path, found.depth, ident)
        return self._locate(rest, at, ident, low, known.opened or 0, connection)

    def _place_with_history(self, connection: Connection, asked: StatelessRequest, attempt: int) -> PlacedRequest:
        """Place a request that names the message it follows as if its client had sent the whole history."""
        core, after = self._core, asked.after
        assert after is not None  # noqa: S101 - else it is whole already
        path = segments_to(connection, after.id, after.depth)
        before = [entry.message for entry in core.reader.entries(connection, path, -1, after.depth)]
        messages = [*before, *asked.messages]
        preamble = asked.preamble or self._read_preamble(connection, after.id)
        trace = core.chain.trace(map(core.cleaned, messages))
        whole = replace(asked, messages=messages, trace=trace, preamble=preamble, after=None)
        placed = self._place(whole, attempt, connection, may_slide=False)
        count = len(before)
        return placed._replace(ends=placed.ends[count:], depths=placed.depths[count:])

    def _place_window(
        self, connection: Connection, asked: StatelessRequest, found: KnownMessage, attempt: int
    ) -> PlacedRequest:
        """Place a request that repeats the last messages of a conversation as if its client had named the last one."""
        ends, blocks = asked.trace.ends, asked.trace.blocks[found.blocks :]
        first = bisect_left(ends, found.blocks) + 1
        messages, stops = asked.messages[first:], [end - found.blocks for end in ends[first:]]
        row = self._run(connection, self._mark, (found.id,)).fetchone()
        mark = found.id if row[0] is None else bytes(row[0])
        trace = Trace(self._core.chain.rechain(messages, Trace([], blocks, stops), mark), blocks, stops)
        after = Branch(found.branch, found.id, found.depth)
        rest = replace(asked, messages=messages, trace=trace, after=after, mark=mark)
        placed = self._place(rest, attempt, connection)
        depths = [found.depth - found.blocks + end for end in ends[:first]]
        return placed._replace(ends=[*[None] * first, *placed.ends], depths=[*depths, *placed.depths])

    def _begin(
        self, connection: Connection, request: RecordRequest, asked: StatelessRequest, *, is_known: bool
    ) -> PlacedRequest:
        """Begin a conversation, with a root of its own if others begin with the same words."""
        ident = new_session_id(time.time())
        if is_known:
            root = self._core.chain.root(ident)
            request = replace(request.rebased(0, Match(None, root.id, 0)), root=root.id)
        at = self._add(connection, request, Match(None, request.start.id, 0))
        self._open(connection, at, asked.sender, ident=ident, opening=request)
        return self._locate(request, at, ident, 0, at.depth, connection)._replace(is_new=True)

    def _add(self, connection: Connection, request: RecordRequest, match: Match) -> Branch:
        core = self._core
        additions = list(request.additions(match.depth))
        locked = core.recorder.lock(connection, match)
        done = core.recorder.add_at(locked, request, match, additions, time.time(), connection)
        if match.branch is not None and done.id != match.branch:
            carried = view_to_carry(core, connection, request, match)
            if carried is not None and done.depth >= carried.saw_depth:
                carry(core, connection, carried, done)
        return done

    def _open(
        self,
        connection: Connection,
        at: Branch,
        sender: Sender,
        *,
        ident: str | None = None,
        opening: RecordRequest | None = None,
        forked_from: KnownSession | None = None,
    ) -> str:
        """Open the session of a new conversation."""
        works_for, kind = None, "side" if sender.is_aside else "main"
        if sender.works_for:
            row = self._run(connection, self._named, (self._core.tenant, sender.works_for)).fetchone()
            works_for, kind = (None if row is None else str(row[0])), "agent"
        if forked_from is not None:
            works_for = works_for or forked_from.conversation
        elif kind == "main" and (sender.session or sender.client) and opening is not None:
            summarized = self._finder.find_summarized(connection, sender.session, sender.client, opening)
            if summarized is not None:
                return self._go_on_with_summary(connection, summarized, at, ident, opening)
        if opening is not None:
            title = title_of_opening(connection, self._core.tenant, opening.messages, self._core.cleaned)
        else:
            title = self._title_of_stored(connection, at, forked_from)
        preamble = None if opening is None or opening.preamble is None else opening.preamble.digest
        if forked_from is not None:
            preamble = forked_from.preamble
        return self._sessions.open_in(
            connection,
            at,
            ident=ident,
            kind=kind,
            title=title,
            platform=sender.platform,
            model=sender.model,
            client=sender.client,
            folder=sender.folder,
            client_session=sender.session,
            works_for=works_for,
            opened=at.depth if opening is not None else (forked_from.opened or 0) if forked_from is not None else 0,
            preamble=preamble,
        )

    def _go_on_with_summary(
        self, connection: Connection, conversation: str, at: Branch, ident: str | None, opening: RecordRequest
    ) -> str:
        """Open the next part of a conversation whose client has summarized it, and goes on from that on a new root."""
        conversation = self._join_summarized(connection, conversation)
        child = self._sessions.continue_in(connection, self._end_last(connection, conversation), at, 0, child=ident)
        preamble = None if opening.preamble is None else opening.preamble.digest
        values = {"opened": at.depth, "preamble": preamble}
        connection.execute(update(session).where(session.c.id == child).values(values))
        return child

    def _join_summarized(self, connection: Connection, conversation: str) -> str:
        """Make a fork in which a client only asked for a summary a part of its conversation; return the conversation.

        Claude Code asks before its conversation's last answer, so that the request is a fork at first.
        """
        own = select(session).where(session.c.conversation == conversation, session.c.tenant == self._core.tenant)
        fork, *others = connection.execute(own).all()
        turns = connection.execute(select(func.count(turn.c.id)).where(turn.c.session == fork.id)).scalar()
        whole = None if fork.works_for is None else self._finder.session(connection, fork.works_for)
        if others or turns != 1 or whole is None or whole.client_session != fork.client_session:
            return conversation
        last = self._end_last(connection, whole.conversation)
        values = {
            "conversation": whole.conversation,
            "parent": last,
            "works_for": None,
            "title": None if fork.title is None else next_title(connection, whole.conversation, fork.title),
            "from_depth": connection.execute(select(branch.c.fork_depth).where(branch.c.id == fork.branch)).scalar(),
        }
        connection.execute(update(session).where(session.c.id == fork.id).values(values))
        return whole.conversation

    def _end_last(self, connection: Connection, conversation: str) -> str:
        """End the last part of a conversation, which goes on elsewhere; return the part."""
        parts = select(session.c.id, session.c.branch, session.c.ended).where(
            session.c.conversation == conversation, session.c.tenant == self._core.tenant
        )
        last = connection.execute(parts.order_by(session.c.started.desc(), session.c.id.desc()).limit(1)).one()
        if last.ended is None:
            depth = connection.execute(select(branch.c.head_depth).where(branch.c.id == last.branch)).scalar() or 0
            self._sessions.end_in(connection, last.id, _CLEARED, depth)
        return str(last.id)

    def _title_of_stored(self, connection: Connection, at: Branch, part: KnownSession | None) -> str | None:
        """Return the title that the first request of a stored conversation gives it."""
        opened = 0 if part is None or part.opened is None else part.opened
        upto = min(at.depth, opened or _TITLE_BLOCKS)
        path = segments_to(connection, at.id, upto)
        entries = self._core.reader.entries(connection, path, max(-1, upto - _TITLE_BLOCKS), upto)
        said = [entry.message for entry in entries if entry.id is not None]
        if not opened:
            said = list(takewhile(lambda one: one.get("role") != "assistant", said))
        return title_of_opening(connection, self._core.tenant, said, self._core.cleaned)

    def _open_for_recorded(self, connection: Connection, found: KnownMessage, asked: StatelessRequest) -> KnownSession:
        """Open a session for a stored list that has none, as when somebody recorded it by hand."""
        at = Branch(found.branch, found.id, found.depth)
        return self._session(connection, self._open(connection, at, asked.sender))

    def _go_on(self, connection: Connection, part: KnownSession, at: Branch, sender: Sender) -> str:
        """Go on with a conversation at its end, in a new session if the last one has ended; return the session."""
        ident = part.id
        columns = (session.c.id, session.c.branch, session.c.ended, session.c.to_depth)
        row = connection.execute(select(*columns).where(session.c.id == ident)).one()
        while row.ended is not None:
            children = select(*columns).where(session.c.parent == ident)
            child = connection.execute(children.order_by(session.c.started.desc()).limit(1)).first()
            if child is None:
                break
            if child.branch != row.branch:  # it has gone on elsewhere
                return self._open(connection, at, sender, forked_from=part)
            ident, row = child.id, child  # which a compaction has opened at this very place
        if row.ended is not None:
            ident = self._sessions.continue_in(connection, ident, at, row.to_depth or 0)
        values: dict[str, Any] = {}
        if row.branch != at.id:  # on the branch of a reply that broke off, which the client goes on with
            values |= {"branch": at.id, "to_depth": None}
        if sender.session is not None and part.client_session != sender.session:
            values["client_session"] = sender.session
        if values:
            connection.execute(update(session).where(session.c.id == ident).values(values))
        return ident

    def _go_on_cleared(self, connection: Connection, part: KnownSession, at: Branch, low: int, head_depth: int) -> str:
        """Go on with a conversation on the branch of a client that left out old results; return the session."""
        child = new_session_id(time.time())
        if part.ended is None:
            self._sessions.end_in(connection, part.id, _CLEARED, head_depth)
        return self._sessions.continue_in(connection, part.id, at, low, child=child)

    def _session(self, connection: Connection, ident: str) -> KnownSession:
        known = self._finder.session(connection, ident)
        if known is None:
            raise NotStored(f"there is no session {ident} in {self._core.database.backend.where}")
        return known

    # -- the request as it is recorded ---------------------------------------------------------------------------------

    def _record_request(self, asked: StatelessRequest) -> RecordRequest:
        core, now, count = self._core, time.time(), len(asked.messages)
        start = core.chain.root() if asked.after is None else Node(asked.mark, asked.after.depth)
        return RecordRequest(
            *(core.chain, start, list(asked.messages), [now] * count),
            preamble=asked.preamble,
            ext_id=asked.sender.session,
            folder=asked.sender.folder,
            clean=core.cleaned,
            known=asked.trace,
            packed=asked.packed,
        )

    def _read_preamble(self, connection: Connection, number: int) -> Blob | None:
        """Return the system messages and tools that a branch was last sent with."""
        query = select(content.c.digest, content.c.bytes, content.c.codec).join(
            branch, branch.c.preamble == content.c.digest
        )
        row = connection.execute(query.where(branch.c.id == number)).first()
        return None if row is None or row.bytes is None else Blob(bytes(row.digest), bytes(row.bytes), row.codec)

    def _marks_along(self, connection: Connection, at: Branch) -> dict[int, bytes]:
        marks: dict[int, bytes] = {}
        for part in segments_to(connection, at.id, at.depth):
            rows = self._run(connection, self._marks, (part.branch, part.low, part.high)).fetchall()
            marks |= {depth: bytes(ident if mark is None else mark) for ident, depth, mark, _ in rows}
        return marks

    def _sender_of(self, connection: Connection, ident: str) -> Sender:
        row: Row[Any] = connection.execute(select(session).where(session.c.id == ident)).one()
        return Sender(
            platform=row.platform,
            session=row.client_session,
            client=row.client,
            folder=row.folder,
            model=row.model,
            is_aside=row.kind == "side",
        )

    def _share_turns(
        self, connection: Connection, conversation: str, path: list[Segment], depth: int, ident: str
    ) -> None:
        """Give a fork its share of the turns before the place where it leaves a conversation.

        Two clients that said the same and were answered the same have two turns at each place, of which the fork gets
        the newest. A single client that goes back has one, which stays.
        """
        parts = select(session.c.id).where(session.c.conversation == conversation)
        rows = connection.execute(
            select(turn)
            .where(
                turn.c.tenant == self._core.tenant,
                turn.c.session.in_(parts),
                turn.c.branch.in_([part.branch for part in path]),
                turn.c.depth < depth,
                turn.c.status == "done",
            )
            .order_by(turn.c.id)
        ).all()
        tops = {part.branch: part.high for part in path}
        by_place: dict[tuple[bytes, bytes], list[Row[Any]]] = {}
        for row in (row for row in rows if row.depth <= tops[row.branch]):
            by_place.setdefault((bytes(row.node), bytes(row.echo_node or b"")), []).append(row)
        moved = [rows_there[-1] for rows_there in by_place.values() if len(rows_there) > 1]
        for row in moved:
            self.move_turn(connection, row, ident)

    def _locate(
        self, request: RecordRequest, at: Branch, ident: str, low: int, opened: int, connection: Connection
    ) -> PlacedRequest:
        """Return the place of each message of a request that begins after a depth."""
        marks = request.marks if request.marks is not None else request.trace.ids
        count, base = request.base or (0, None)
        is_own = request.start.depth == low
        if base is not None and count:
            is_own = is_own and list(marks) == request.trace.ids and base.id == request.trace.ids[count - 1]
        known: dict[bytes, tuple[bytes, int]] = {}
        if not is_own:
            for part in segments_to(connection, at.id, at.depth):
                rows = self._run(connection, self._marks, (part.branch, part.low, part.high)).fetchall()
                for own, depth, mark, alias in rows:
                    for name in (own, mark, alias):
                        if name is not None:
                            known[bytes(name)] = (bytes(own), depth)
        ends: list[Branch | None] = []
        depths: list[int] = []
        last, depth = 0, low
        for end in request.trace.ends:
            if is_own:
                depth = request.start.depth + end
                place = Branch(at.id, request.trace.ids[end - 1], depth) if end else None
            else:
                found = known.get(bytes(marks[end - 1])) or known.get(request.trace.ids[end - 1]) if end else None
                depth = found[1] if found is not None else depth + end - last
                place = Branch(at.id, found[0], depth) if found is not None else None
            last = end
            ends.append(place)
            depths.append(depth)
        mark = bytes(marks[-1]) if len(marks) else at.head
        return PlacedRequest(at, ident, ends, depths, mark, opened)


class StoredReply(NamedTuple):
    """The place of a reply: its request, the message it became, and the session of both."""

    at: Branch
    """The last message of the request."""
    node: bytes | None
    """The reply as a message; None if it says nothing."""
    session: str | None


class Replies:
    """The writer of replies into their conversations."""

    def __init__(self, core: StoreCore, identity: Identity, recognizer: Recognizer) -> None:
        self._core = core
        self._identity = identity
        self._recognizer = recognizer
        self._run = core.database.backend.run
        sql = core.database.sql
        self._place = sql("SELECT branch, mark FROM node WHERE id = ?")
        self._parent = sql("SELECT p.id, p.branch, p.depth FROM node n JOIN node p ON p.id = n.parent WHERE n.id = ?")

    def add(
        self, connection: Connection, at: Branch, session: str | None, reply: Message, *, is_apart: bool = False
    ) -> StoredReply:
        """Store a whole reply after a request, in a fork if another reply stands there, or if it ``is_apart``."""
        core = self._core
        place, mark = self._resolve(connection, at)
        request = self._request(place, mark, reply)
        if not request.trace.ids:
            return StoredReply(at, None, session)
        match = Match(place.id, place.head, place.depth)
        locked = core.recorder.lock(connection, match)
        # Asked under the lock: the client may send the reply back at this moment.
        known = self._find_known(connection, request, session)
        if known is not None:
            return known
        # A host that knows its conversation decides itself where it goes on; others are told apart by their replies.
        is_told_apart = session is not None and self._identity.is_recognised(connection, session)
        if is_told_apart and session is not None and locked is not None:
            has_left = self._identity.has_left(connection, session, place.id)
            if has_left or locked.head != place.head:
                before = place.id
                place, session = self._identity.split(connection, place, session)
                request = self._request(place, mark, reply)
                match = Match(place.id, place.head, place.depth)
                locked = core.recorder.lock(connection, match)
                if has_left and place.id == before and locked is not None:
                    locked = locked._replace(head=b"")  # what stands here is not where the conversation ends
        if is_apart and locked is not None:
            locked = locked._replace(head=b"")
        additions = list(request.additions(place.depth))
        done = core.recorder.add_at(locked, request, match, additions, time.time(), connection)
        if is_told_apart and session is not None and done.id != place.id:
            session = self._identity.begin_fork(connection, session, done, place.depth)
            place = Branch(done.id, place.head, place.depth)
        return StoredReply(place, done.head, session)

    def add_broken(self, connection: Connection, at: Branch, reply: Message) -> bytes | None:
        """Store a reply that broke off beside the conversation, which does not go on with it; return its id."""
        place, mark = self._resolve(connection, at)
        request = self._request(place, mark, reply)
        if not request.trace.ids:
            return None
        last = request.trace.ids[-1]
        if self._run(connection, self._place, (last,)).fetchone() is not None:
            return last
        match = Match(place.id, place.head, place.depth)
        locked = self._core.recorder.lock(connection, match)
        apart = None if locked is None else locked._replace(head=b"")  # on a branch of its own, wherever it stands
        additions = list(request.additions(place.depth))
        return self._core.recorder.add_at(apart, request, match, additions, time.time(), connection).head

    def _resolve(self, connection: Connection, at: Branch) -> tuple[Branch, bytes]:
        """Return a place on the branch that holds its node, and the id by which stateless requests find it."""
        row = self._run(connection, self._place, (at.head,)).fetchone() if at.depth else None
        if row is None:
            return at, at.head
        return Branch(row[0], at.head, at.depth), at.head if row[1] is None else bytes(row[1])

    def _request(self, at: Branch, mark: bytes, reply: Message) -> RecordRequest:
        core, now = self._core, time.time()
        said = core.cleaned(reply)
        trace = core.chain.trace([said], at.node)
        marks = None if mark == at.head else core.chain.rechain([said], trace, mark)
        return RecordRequest(core.chain, at.node, [said], [now], at.id, known=Trace(*trace), marks=marks)

    def _find_known(self, connection: Connection, request: RecordRequest, session: str | None) -> StoredReply | None:
        """Return the place of the same reply after the same words of the same client, if it is stored."""
        ids = {request.trace.ids[-1]} | ({request.marks[-1]} if request.marks is not None else set())
        found = self._recognizer.known(connection, sorted(ids))
        own = next((one for one in found if one.id == request.trace.ids[-1]), None)
        for one in [own] if own is not None else found:
            row = self._run(connection, self._parent, (one.id,)).fetchone()
            above = Branch(one.branch, request.start.id, 0) if row is None else Branch(row[1], bytes(row[0]), row[2])
            if session is None:
                if own is not None:
                    return StoredReply(above, one.id, None)
                continue
            its = self._identity.session_at(connection, one.branch, one.depth)
            if its is not None and (own is not None or self._identity.are_alike(connection, its, session)):
                return StoredReply(above, one.id, its)
            if own is not None:  # it broke off before, and is whole now
                self._identity.adopt(connection, session, one.branch)
                return StoredReply(above, one.id, session)
        return None
