"""Stateless requests: which conversation one goes on with, and when it is a conversation of its own.

A stateless client sends its whole history with every request, so its conversation is known by what it says:

- Before the first repeated reply, a request is the same conversation only if its words, its system prompt, its tools
  and the client's own name for it are the same. Every other one begins a conversation with a root of its own; only
  where one client begins with the same long examples is it a fork.
- After that, words tell alone. System prompts and tools change in mid-conversation, and another name is a resume.
- Where a conversation has gone on differently, a request that leaves it is a conversation of its own, a fork. One that
  only leaves out old tool results is not.

Decides and stores in one transaction. What a client has changed in its history is found out by `recognition`.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Row, delete, select, update

from everlong.errors import NotStored, StoreBusy
from everlong.model import Message, Node, Trace, parts_of, text_of
from everlong.store.cleared_results import carry, shift_of, told_by, view_to_carry
from everlong.store.content import Blob, blob, encoded_in_steps, is_large
from everlong.store.database import ATTEMPTS, TryAgain, pause
from everlong.store.paths import Segment, segments_to
from everlong.store.recognition import MOST_ALIKE, Additions, Known, KnownMessage, Recognizer
from everlong.store.schema import branch, content, node, session, turn
from everlong.store.sessions import TOTALS, Sessions, usage_totals
from everlong.store.tombstones import title_of_opening
from everlong.store.tree import Branch, Match, RecordRequest

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

__all__ = ["find_continued"]

_NEWEST = 8
"""Replies under a name that may have been the summary."""
_SHARE = 0.6
"""Of a reply's lines that a list has to hold: clients take off what the model wrote for itself."""
_LONG_LINE = 30
_LEAST_CHARACTERS = 100


def find_continued(core: StoreCore, connection: Connection, name: str, messages: Sequence[Message]) -> str | None:
    """Return the conversation that a list of messages continues, of those that its client calls by a name."""
    told = _plain("\n".join(text_of(message) for message in messages if message.get("role") != "assistant"))
    if len(told) < _LEAST_CHARACTERS:
        return None
    replies = (
        select(turn.c.reply, session.c.conversation)
        .join(session, session.c.id == turn.c.session)
        .where(session.c.tenant == core.tenant, session.c.client_session == name, turn.c.reply.is_not(None))
        .order_by(turn.c.id.desc())
        .limit(_NEWEST)
    )
    rows = connection.execute(replies).all()
    values = core.reader.values(connection, [bytes(row.reply) for row in rows])
    for row in rows:
        reply = values.get(bytes(row.reply))
        if reply is not None and _holds(told, text_of(reply)):
            return str(row.conversation)
    return None


def _holds(told: str, reply: str) -> bool:
    """Return whether a text holds most of what a long reply says."""
    lines = [line for line in map(_plain, reply.splitlines()) if len(line) >= _LONG_LINE]
    if sum(map(len, lines)) < _LEAST_CHARACTERS:
        return False
    return sum(line in told for line in lines) >= _SHARE * len(lines)


def _plain(text: str) -> str:
    return " ".join(text.split())


_CLEARED = "cleared"
"""Why a session ends whose client goes on without old tool results."""
LONG_STEM = 16
"""First requests of one client that share more blocks than these share them in the store: they are not copied."""
_WAITS = 8
"""So often a request waits a moment for a reply that another process may be storing; half a second in all."""
_TRIED = 8
"""Forks of a conversation that are compared with a request that lacks old results, the newest ones."""
_THINNED = 32
"""Of so many blocks a client that clears leaves one, at least; a shorter list is another conversation."""
_TITLE_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends a stateless request, as far as that is told."""

    platform: str | None = None
    session: str | None = None
    """What the client calls the conversation."""
    works_for: str | None = None
    """What the client calls the conversation that this one works for."""
    client: str | None = None
    folder: str | None = None
    model: str | None = None
    is_aside: bool = False
    """Whether the request looks like a title or a probe rather than a conversation."""


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


class Placed(NamedTuple):
    """Where a request came to stand."""

    at: Branch
    session: str
    ends: list[Branch | None]
    """The place after each message; None where no stored message ends there."""
    depths: list[int]
    """How deep each message ends."""
    mark: bytes
    """The id by which the client finds the place."""
    opened: int
    """How deep the first request of the conversation reached."""


class _Part(NamedTuple):
    """The newest session on a branch."""

    id: str
    conversation: str
    client_session: str | None
    preamble: bytes | None
    opened: int | None
    """How deep its first request reached; None where its host knows it and it is not recognised by its words."""
    ended: float | None
    to_depth: int | None
    started: float


class _Chosen(NamedTuple):
    """A stored message that a request may go on from."""

    rank: tuple[int, bool, bool, bool, int, bool, float]
    """How many blocks up to the last reply that it repeats; whether the conversation has its name and its system
    prompt; whether it is no reply that broke off; how many blocks in all; whether the branch ends there; when the
    conversation began."""
    found: KnownMessage
    part: _Part | None

    @property
    def is_own(self) -> bool:
        """Whether the conversation has the name and the system prompt of the request."""
        return self.rank[1] and self.rank[2]

    @property
    def is_end(self) -> bool:
        """Whether the branch ended there when it was looked at."""
        return self.rank[5]


class _Thinned(NamedTuple):
    """A conversation that a client goes on with after it has cleared old results."""

    part: _Part
    low: int
    """Where its words end in the thinned ones."""
    head_depth: int
    """Where they end on its own branch."""


_PART = "SELECT id, conversation, client_session, preamble, opened, ended, to_depth, started FROM session"


class Stateless:
    """The stateless requests of one tenant."""

    def __init__(self, core: StoreCore, sessions: Sessions, recognizer: Recognizer, additions: Additions) -> None:
        self._core = core
        self._sessions = sessions
        self._recognizer = recognizer
        self._additions = additions
        self._run = core.database.backend.run
        self.known_additions = Known(core.chain, [])
        """What clients are known to add to their newest message, as of the last request that was looked up."""
        sql = core.database.sql
        reaching = "ORDER BY (CASE WHEN from_depth < ? THEN 0 ELSE 1 END), started DESC, id DESC LIMIT 1"
        own = f"{_PART} WHERE tenant = ? AND branch = ? {reaching}"
        self._on_branch = sql(own)
        self._own = sql("SELECT branch FROM node WHERE id = ? AND tenant = ?")
        self._asked = sql("SELECT status FROM turn WHERE branch = ? AND node = ? ORDER BY id DESC LIMIT 1")
        forks = "SELECT id FROM branch WHERE parent = ? AND fork_depth >= ? ORDER BY id DESC LIMIT"
        self._forks = sql(f"{forks} {_TRIED}")
        self._by_id = sql(f"{_PART} WHERE id = ? AND tenant = ?")
        self._head = sql("SELECT head, head_depth, preamble FROM branch WHERE id = ?")
        self._answering = sql(
            "SELECT t.session FROM node n JOIN branch b ON b.id = n.branch JOIN turn t ON t.branch = b.parent"
            " AND t.depth = b.fork_depth WHERE n.tenant = ? AND n.id = ? AND t.echo_node = n.id"
            " AND t.session IS NOT NULL ORDER BY t.id LIMIT 1"
        )
        self._ahead = sql(
            "WITH RECURSIVE ahead(id, depth) AS (SELECT id, fork_depth FROM branch WHERE tenant = ? AND parent = ?"
            " AND fork_depth >= ? UNION ALL SELECT b.id, b.fork_depth FROM branch b JOIN ahead a ON b.parent = a.id)"
            " SELECT s.id FROM ahead a JOIN session s ON s.branch = a.id ORDER BY s.started, s.id LIMIT 1"
        )
        self._named = sql(
            "SELECT conversation FROM session WHERE tenant = ? AND client_session = ? ORDER BY started LIMIT 1"
        )
        self._marks = sql(
            "SELECT n.id, n.depth, n.mark, a.id FROM node n LEFT JOIN alias a ON a.node = n.id"
            " WHERE n.branch = ? AND n.depth > ? AND n.depth <= ?"
        )

    def count_unknown(self, trace: Trace) -> int:
        """Return how many blocks of a whole conversation are not stored yet; nothing is written."""
        with self._core.database.read() as connection:
            return len(trace.ids) - self._recognizer.count_known(connection, trace.ids)

    # -- placing a request ---------------------------------------------------------------------------------------------

    def place(self, asked: StatelessRequest) -> Placed:
        """Store what a request says where it belongs, and see that it is in a session; durable when this returns.

        Raises:
            NotStored: the message that it follows is not there.
        """
        core = self._core
        large = [message for message in asked.messages if is_large(message)]
        if large:  # others wait while something is written, and must not wait for this
            packed = {id(one): blob(core.tenant, encoded_in_steps(core.cleaned(one))) for one in large}
            asked = replace(asked, packed=packed)
        for attempt in range(ATTEMPTS):
            try:
                return self._core.database.write(partial(self._place, asked, attempt))
            except TryAgain:
                pause(attempt)
        where = self._core.database.backend.where
        raise StoreBusy(f"{where}: gave way to other writers {ATTEMPTS} times; try again")

    def _place(self, asked: StatelessRequest, attempt: int, connection: Connection) -> Placed:
        request = self._request(connection, asked)
        self._core.database.backend.lock_name(connection, request.trace.ids[0] if request.trace.ids else b"")
        chosen = self._found(connection, request, asked)
        if chosen is not None and self._awaits_reply(connection, request, asked, chosen):
            if attempt < _WAITS and self._core.database.backend.name != "sqlite":
                raise TryAgain("the reply that a request repeats may be on its way from another process")
            chosen = None  # the reply to somebody else's request is still to come
        request, kept = self._without_moving(request, chosen)
        if len(kept) < len(asked.messages):  # what is left may be stored already, as when it is asked again
            chosen = self._found(connection, request, asked)
        if chosen is None and asked.after is not None:  # several conversations begin so; its first words tell
            return self._place_whole(connection, asked, attempt)
        if chosen is None:
            is_known = bool(self._recognizer.find(connection, request))
            placed = self._begun(connection, request, asked, is_known=is_known)
        else:
            placed = self._continued(connection, request, asked, chosen)
        return _for_all(placed, kept, len(asked.messages), 0 if asked.after is None else asked.after.depth)

    def _continued(
        self, connection: Connection, request: RecordRequest, asked: StatelessRequest, chosen: _Chosen
    ) -> Placed:
        """Go on from a stored message: with its conversation, or with a fork of it."""
        found, part = chosen.found, chosen.part
        locked = self._core.recorder.locked(connection, found.match)
        is_end = locked is not None and locked.head == found.id
        if is_end != chosen.is_end:
            raise TryAgain(f"branch {found.branch} was extended at the same moment")
        rest = request.rebased(found.blocks, found.match)
        low = 0 if asked.after is None else asked.after.depth
        if part is None:
            part = self._adopted(connection, found, asked)
        elif is_end and self._is_ahead(connection, part, found):
            is_end = False
        if is_end or found.blocks == len(request.trace.ids):
            at = self._added(connection, rest, found.match)
            ident = self._gone_on(connection, part, at, asked.sender) if is_end else part.id
            return self._placed(connection, rest, at, ident, low)
        thinned = self._thinned(connection, rest, found, part)
        at = self._added(connection, rest, found.match)
        if thinned is not None:
            ident = self._moved_on(connection, thinned.part, at, thinned.low, thinned.head_depth)
        else:
            ident = self._open(connection, at, asked.sender, forked_from=part)
            path = segments_to(connection, found.branch, found.depth)
            self._share_turns(connection, part.conversation, path, found.depth, ident)
        return self._placed(connection, rest, at, ident, low)

    def _place_whole(self, connection: Connection, asked: StatelessRequest, attempt: int) -> Placed:
        """Place a request that is known by what it adds as if its client had sent all of it."""
        core, after = self._core, asked.after
        assert after is not None  # noqa: S101 - else it is whole already
        path = segments_to(connection, after.id, after.depth)
        before = [entry.message for entry in core.reader.entries(connection, path, -1, after.depth)]
        messages = [*before, *asked.messages]
        preamble = asked.preamble or self._preamble_of(connection, after.id)
        trace = core.chain.trace(map(core.cleaned, messages))
        whole = replace(asked, messages=messages, trace=trace, preamble=preamble, after=None)
        placed = self._place(whole, attempt, connection)
        count = len(before)
        return placed._replace(ends=placed.ends[count:], depths=placed.depths[count:])

    def _preamble_of(self, connection: Connection, number: int) -> Blob | None:
        """Return the system messages and tools that a branch was last sent with."""
        query = select(content.c.digest, content.c.bytes, content.c.codec).join(
            branch, branch.c.preamble == content.c.digest
        )
        row = connection.execute(query.where(branch.c.id == number)).first()
        return None if row is None or row.bytes is None else Blob(bytes(row.digest), bytes(row.bytes), row.codec)

    def _request(self, connection: Connection, asked: StatelessRequest) -> RecordRequest:
        core, now, count = self._core, time.time(), len(asked.messages)
        start = core.chain.root() if asked.after is None else Node(asked.mark, asked.after.depth)
        request = RecordRequest(
            *(core.chain, start, list(asked.messages), [now] * count, [None] * count),
            preamble=asked.preamble,
            ext_id=asked.sender.session,
            clean=core.cleaned,
            known=asked.trace,
            packed=asked.packed,
        )
        known = self.known_additions = self._additions.known(connection)
        last = core.cleaned(asked.messages[-1]) if asked.messages else None
        lasting = known.without(last) if last is not None and known else last
        if last is None or lasting is None or lasting is last:
            return request
        if asked.trace.ids and self._recognizer.known(connection, [asked.trace.ids[-1]]):
            return request  # stored with the addition, before that was known for one
        messages = [*asked.messages[:-1], lasting]
        first = asked.trace.ends[-2] if count > 1 else 0
        before = Node(asked.trace.ids[first - 1] if first else start.id, first)
        added = core.chain.trace([lasting], before)
        trace = Trace(
            [*asked.trace.ids[:first], *added.ids],
            [*asked.trace.blocks[:first], *added.blocks],
            [*asked.trace.ends[:-1], first + len(added.ids)],
        )
        return replace(request, messages=messages, known=trace, beside={count - 1: (last,)})

    def _without_moving(self, request: RecordRequest, chosen: _Chosen | None) -> tuple[RecordRequest, list[int]]:
        """Leave out of a request the messages that always stand right before the newest question, or behind it.

        They are kept beside it. Returns the request, and the numbers of the messages that are left.
        """
        known = self.known_additions
        ends, count = request.trace.ends, chosen.found.blocks if chosen is not None else 0
        moving = [
            at
            for at in range(len(ends))
            if (ends[at - 1] if at else 0) >= count and known.is_moving(request.clean(request.messages[at]))
        ]
        if not moving or len(moving) == len(ends):
            return request, list(range(len(ends)))
        kept = [at for at in range(len(ends)) if at not in moving]
        begins = [0, *ends]
        blocks = [block for at in kept for block in request.trace.blocks[begins[at] : ends[at]]]
        sizes = [ends[at] - begins[at] for at in kept]
        stops = [sum(sizes[: place + 1]) for place in range(len(sizes))]
        messages = [request.messages[at] for at in kept]
        plain = Trace([], blocks, stops)
        ids = self._core.chain.rechain(messages, plain, request.start.id)
        last = len(kept) - 1
        beside = {last: (*request.beside.get(len(ends) - 1, ()), *(request.messages[at] for at in moving))}
        picked = [request.ts[at] for at in kept]
        known_now = Trace(ids, blocks, stops)
        tokens = [None] * len(kept)
        return replace(request, messages=messages, ts=picked, tokens=tokens, known=known_now, beside=beside), kept

    # -- finding -------------------------------------------------------------------------------------------------------

    def _found(self, connection: Connection, request: RecordRequest, asked: StatelessRequest) -> _Chosen | None:
        """Return the stored message that a request goes on from, and the newest session there."""
        recognizer = self._recognizer
        candidates = self._candidates(connection, request, asked)
        if asked.after is not None:
            base = KnownMessage(0, asked.after.head, self._owner(connection, asked.after), asked.after.depth)
            own = recognizer.find(connection, request.rebased(0, base.match)) or [base]
            candidates = max(candidates, own, key=lambda some: some[0].blocks if some else -1)
        chosen = self._chosen(connection, request, asked, candidates)
        if chosen is not None and not chosen.is_own:
            # Somebody else was answered the same; what this client said may be stored with an addition to it.
            mine = recognizer.find_more(connection, request, None, is_own=True)
            rival = None if mine is None else self._chosen(connection, request, asked, [mine])
            if rival is not None and rival.is_own and rival.rank >= chosen.rank:
                return rival
        best = chosen.found if chosen is not None else (candidates[0] if candidates else None)
        more = recognizer.find_more(connection, request, best)
        if more is not None:
            chosen = self._chosen(connection, request, asked, [more])
        return chosen

    def _candidates(
        self, connection: Connection, request: RecordRequest, asked: StatelessRequest
    ) -> list[KnownMessage]:
        """Return the stored messages that a request may go on from: the deepest, and where others spoke on before it.

        Words that follow the last repeated reply say nothing about who says them.
        """
        recognizer = self._recognizer
        candidates = recognizer.find(connection, request)
        if not candidates:
            return []
        count = candidates[0].blocks
        ident = request.trace.ids[count - 1]
        if asked.sender.session is not None:
            candidates = [*recognizer.find_named(connection, ident, asked.sender.session, count), *candidates]
        if len(candidates) >= MOST_ALIKE and asked.preamble is not None:  # there may be more than were looked at
            candidates = [*recognizer.find_prompted(connection, ident, asked.preamble.digest, count), *candidates]
        candidates = list(dict.fromkeys(candidates))
        low = request.last_reply(count)
        if not low or low == count:
            return candidates
        paths = [segments_to(connection, one.branch, one.depth) for one in candidates]
        before = recognizer.find_between(connection, request, low, count)
        return [*candidates, *(one for one in before if not any(_leads_through(path, one) for path in paths))]

    def _owner(self, connection: Connection, at: Branch) -> int:
        """Return the branch that a message is on; any that leads through it may have been named."""
        if not at.depth:
            return at.id
        row = self._run(connection, self._own, (at.head, self._core.tenant)).fetchone()
        if row is None:
            raise NotStored(f"the message {at.head.hex()} that a request follows is not stored")
        return int(row[0])

    def _chosen(
        self,
        connection: Connection,
        request: RecordRequest,
        asked: StatelessRequest,
        candidates: Sequence[KnownMessage],
    ) -> _Chosen | None:
        """Return the candidate that a request goes on with; None where it is in none of their conversations."""
        ranked: list[_Chosen] = []
        preamble = None if asked.preamble is None else asked.preamble.digest
        for one in candidates:
            part, is_on_it = self._part_at(connection, one)
            head, _, newest = self._run(connection, self._head, (one.branch,)).fetchone()
            is_end = bytes(head) == one.id
            if part is not None and not self._is_same(request, asked, one, part, is_end):
                continue
            is_named = part is not None and part.client_session == asked.sender.session
            # Two that were told apart by their system prompts stay so, even where they were answered alike.
            is_prompted = preamble in (None if newest is None else bytes(newest), part.preamble if part else None)
            began = part.started if part is not None else 0.0
            rank = (request.last_reply(one.blocks), is_named, is_prompted, is_on_it, one.blocks, is_end, began)
            ranked.append(_Chosen(rank, one, part))
        return max(ranked, key=lambda one: one.rank, default=None)

    def _awaits_reply(
        self, connection: Connection, request: RecordRequest, asked: StatelessRequest, chosen: _Chosen
    ) -> bool:
        """Return whether a request repeats a reply where the stored conversation has none yet, which is under way.

        Several clients without names may have begun alike, and only their replies tell them apart.
        """
        found, part = chosen.found, chosen.part
        if asked.sender.session is not None or part is None or found.depth != part.opened:
            return False
        first = bisect_right(request.trace.ends, found.blocks)
        if first >= len(request.messages) or request.messages[first].get("role") != "assistant":
            return False
        row = self._run(connection, self._asked, (found.branch, found.id)).fetchone()
        return chosen.is_end and (row is None or row[0] == "open")

    def _is_same(
        self, request: RecordRequest, asked: StatelessRequest, found: KnownMessage, part: _Part, is_end: bool
    ) -> bool:
        """Return whether a request belongs to a conversation with which it shares its first words."""
        if part.opened is None:
            return False
        if found.depth > part.opened:
            return True
        preamble = None if asked.preamble is None else asked.preamble.digest
        is_same = part.client_session == asked.sender.session and part.preamble == preamble
        is_repeat = found.blocks == len(request.trace.ids)
        if is_repeat and asked.after is not None and found.id == asked.after.head:
            return True  # whoever says so has stored it there
        return is_same and (is_end or is_repeat or found.depth > LONG_STEM)

    def _part_at(self, connection: Connection, found: KnownMessage) -> tuple[_Part | None, bool]:
        """Return the newest session at a message, and whether the message is on its way rather than beside it."""
        tenant = self._core.tenant
        row = self._run(connection, self._on_branch, (tenant, found.branch, found.depth)).fetchone()
        if row is not None:
            return _part(row), True
        beside = self._run(connection, self._answering, (tenant, found.id)).fetchone()
        if beside is not None:  # a reply that broke off stands on a branch of its own
            return _part(self._row(connection, beside[0])), False
        ahead = self._run(connection, self._ahead, (tenant, found.branch, found.depth)).fetchone()
        if ahead is not None:  # its conversation goes on with such a reply
            return _part(self._row(connection, ahead[0])), True
        return None, True

    def _row(self, connection: Connection, ident: str) -> Any:
        return self._run(connection, self._by_id, (ident, self._core.tenant)).fetchone()

    def is_recognised(self, connection: Connection, ident: str) -> bool:
        """Return whether a session is recognised by its words, rather than known to its host."""
        row = self._row(connection, ident)
        return row is not None and _part(row).opened is not None

    def mark_of(self, at: Branch) -> bytes:
        """Return the id by which stateless requests find a place."""
        with self._core.database.read() as connection:
            row = connection.execute(select(node.c.mark).where(node.c.id == at.head)).first()
        return at.head if row is None or row.mark is None else bytes(row.mark)

    def session_at(self, connection: Connection, number: int, depth: int) -> str | None:
        """Return the newest session on a branch that began before a depth."""
        row = self._run(connection, self._on_branch, (self._core.tenant, number, depth)).fetchone()
        return None if row is None else str(row[0])

    def has_left(self, connection: Connection, ident: str, number: int) -> bool:
        """Return whether a session has gone on on another branch than this one."""
        found = connection.execute(select(session.c.branch).where(session.c.id == ident)).scalar()
        return found is not None and found != number

    def are_alike(self, connection: Connection, one: str, other: str) -> bool:
        """Return whether two conversations began with the same system prompt and tools, under the same name."""
        first, second = (self._row(connection, ident) for ident in (one, other))
        if first is None or second is None:
            return False
        mine, its = _part(first), _part(second)
        return (mine.client_session, mine.preamble) == (its.client_session, its.preamble)

    # -- storing -------------------------------------------------------------------------------------------------------

    def _begun(
        self, connection: Connection, request: RecordRequest, asked: StatelessRequest, *, is_known: bool
    ) -> Placed:
        """Begin a conversation; with a root of its own where others begin with the same words."""
        ident = self._sessions.free_id(connection)
        if is_known:
            root = self._core.chain.root(ident)
            request = replace(request.rebased(0, Match(None, root.id, 0)), root=root.id)
        at = self._added(connection, request, Match(None, request.start.id, 0))
        self._open(connection, at, asked.sender, ident=ident, opening=request)
        return self._placed(connection, request, at, ident, 0)

    def _added(self, connection: Connection, request: RecordRequest, match: Match) -> Branch:
        core = self._core
        additions = list(request.additions(match.depth))
        done = core.recorder.add(request, match, additions, time.time(), connection)
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
        forked_from: _Part | None = None,
    ) -> str:
        """Open the session of a new conversation."""
        works_for, kind = None, "side" if sender.is_aside else "main"
        if sender.works_for:
            row = self._run(connection, self._named, (self._core.tenant, sender.works_for)).fetchone()
            works_for, kind = (None if row is None else str(row[0])), "agent"
        if forked_from is not None:
            works_for = works_for or forked_from.conversation
        elif kind == "main" and sender.session and opening is not None:
            works_for = find_continued(self._core, connection, sender.session, opening.messages)
        said = opening.messages if opening is not None else self._opening(connection, at, forked_from)
        preamble = None if opening is None or opening.preamble is None else opening.preamble.digest
        if forked_from is not None:
            preamble = forked_from.preamble
        return self._sessions.open_in(
            connection,
            at,
            ident=ident,
            kind=kind,
            title=title_of_opening(connection, self._core.tenant, said),
            platform=sender.platform,
            model=sender.model,
            client=sender.client,
            folder=sender.folder,
            client_session=sender.session,
            works_for=works_for,
            opened=at.depth if opening is not None else (forked_from.opened or 0) if forked_from is not None else 0,
            preamble=preamble,
        )

    def _opening(self, connection: Connection, at: Branch, part: _Part | None) -> list[Message]:
        """Return the first messages of a conversation that is stored."""
        upto = part.opened if part is not None and part.opened else _TITLE_BLOCKS
        path = segments_to(connection, at.id, min(at.depth, upto))
        entries = self._core.reader.entries(connection, path, -1, min(at.depth, upto))
        said = [entry.message for entry in entries if entry.id is not None]
        if part is not None and part.opened:
            return said
        first = next((place for place, one in enumerate(said) if one.get("role") == "assistant"), len(said))
        return said[:first]

    def _adopted(self, connection: Connection, found: KnownMessage, asked: StatelessRequest) -> _Part:
        """Give a stored list that is in no session one, as when somebody recorded it by hand."""
        at = Branch(found.branch, found.id, found.depth)
        ident = self._open(connection, at, asked.sender)
        return _part(self._row(connection, ident))

    def _gone_on(self, connection: Connection, part: _Part, at: Branch, sender: Sender) -> str:
        """Go on with a conversation at its end; in a new part where the last one was ended."""
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

    def _is_ahead(self, connection: Connection, part: _Part, found: KnownMessage) -> bool:
        """Return whether a conversation goes on behind a message, on the branch of a reply that broke off."""
        number = connection.execute(select(session.c.branch).where(session.c.id == part.id)).scalar()
        if number is None or number == found.branch:
            return False
        head = select(branch.c.head_depth).where(branch.c.id == number)
        depth = connection.execute(head).scalar() or 0
        return depth > found.depth and _leads_through(segments_to(connection, number, depth), found)

    def _thinned(
        self, connection: Connection, request: RecordRequest, found: KnownMessage, part: _Part
    ) -> _Thinned | None:
        """Return the conversation that a request goes on with, but for old results; None for other forks.

        It may have left others behind at the place where the results are missing, so that its branch is a fork.
        """
        numbers = [found.branch]
        first = bisect_right(request.trace.ends, found.blocks)
        if first < len(request.messages) and _is_result(request.clean(request.messages[first])):
            rows = self._run(connection, self._forks, (found.branch, found.depth)).fetchall()
            numbers += [row[0] for row in rows]
        for number in numbers:
            _, head_depth, _ = self._run(connection, self._head, (number,)).fetchone()
            low = self._cleared_until(connection, request, found, number, head_depth)
            if low is None:
                continue
            its, _ = (
                (part, True) if number == found.branch else self._part_at(connection, found._replace(branch=number))
            )
            if its is not None and its.opened is not None:
                return _Thinned(its, low, head_depth)
        return None

    def _cleared_until(
        self, connection: Connection, request: RecordRequest, found: KnownMessage, number: int, head_depth: int
    ) -> int | None:
        """Return where a branch that a request leaves out old results of ends in it; None for other forks."""
        new = len(request.trace.ids) - found.blocks
        if head_depth - found.depth > _THINNED * (new + 1):
            return None
        path = segments_to(connection, number, head_depth)
        entries = self._core.reader.entries(connection, path, found.depth, head_depth)
        stored = [told for entry in entries if entry.id for told in told_by(request.chain, entry.message)]
        sent = [told for one in request.messages for told in told_by(request.chain, request.clean(one))]
        if stored and stored[-1].kind == "result" and stored[-1].hash not in {told.hash for told in sent}:
            return None  # the newest result is another one; old ones are cleared
        shift = shift_of(stored, sent[found.blocks :], found.depth, found.depth, head_depth)
        return None if shift is None else shift(head_depth)

    def _moved_on(self, connection: Connection, part: _Part, at: Branch, low: int, head_depth: int) -> str:
        """Go on with a conversation on the branch of a client that left out old results, behind what it has."""
        child = self._sessions.free_id(connection)
        if part.ended is None:
            self._sessions.end_in(connection, part.id, _CLEARED, head_depth)
        return self._sessions.continue_in(connection, part.id, at, low, child=child)

    def drop_if_empty(self, connection: Connection, ident: str) -> None:
        """Delete a session whose only turn turned out to be another's, so that nobody sees its question twice."""
        if connection.execute(select(turn.c.id).where(turn.c.session == ident).limit(1)).first() is not None:
            return
        row = connection.execute(select(session).where(session.c.id == ident)).first()
        if row is None or row.opened is None:
            return
        head = connection.execute(select(branch.c.head_depth).where(branch.c.id == row.branch)).scalar()
        others = select(session.c.id).where(session.c.id != ident, session.c.conversation == row.conversation)
        if head == row.opened and row.parent is None and connection.execute(others.limit(1)).first() is None:
            connection.execute(delete(session).where(session.c.id == ident))

    def adopt(self, connection: Connection, ident: str, number: int) -> None:
        """Have a session go on on another branch, which leads on from where it is."""
        connection.execute(update(session).where(session.c.id == ident).values(branch=number, to_depth=None))

    def begin_fork(self, connection: Connection, ident: str, at: Branch, depth: int) -> str:
        """Open the session of a conversation that leaves another one at a depth, on a branch of its own."""
        part = _part(self._row(connection, ident))
        child = self._open(connection, at, self._sender(connection, ident), forked_from=part)
        self._share_turns(connection, part.conversation, segments_to(connection, at.id, depth), depth, child)
        return child

    def split(self, connection: Connection, at: Branch, ident: str) -> tuple[Branch, str]:
        """Give a request whose reply differs from the stored one a conversation of its own.

        A repeated opening gets a root of its own with the same words, unless it is long. What leaves a conversation
        later is a fork, which begins when its reply is stored.
        """
        part = _part(self._row(connection, ident))
        if at.depth > min(part.opened or 0, LONG_STEM):
            return at, ident
        core, sender = self._core, self._sender(connection, ident)
        path = segments_to(connection, at.id, at.depth)
        entries = core.reader.entries(connection, path, -1, at.depth)
        messages = [entry.message for entry in entries]
        trace = core.chain.trace(messages)
        marks = self._marks_along(connection, at)
        child = self._sessions.free_id(connection)
        root = core.chain.root(child)
        request = RecordRequest(
            *(core.chain, root, messages, [entry.ts for entry in entries], [entry.tokens for entry in entries]),
            known=Trace(core.chain.rechain(messages, trace, root.id), trace.blocks, trace.ends),
            root=root.id,
            marks=self._marked(trace, marks),
            ext_id=sender.session,
        )
        additions = list(request.additions(0))
        begun = core.recorder.add(request, Match(None, root.id, 0), additions, time.time(), connection)
        values = {"preamble": connection.execute(select(branch.c.preamble).where(branch.c.id == at.id)).scalar()}
        connection.execute(update(branch).where(branch.c.id == begun.id).values(values))
        opening = replace(request, preamble=None)
        self._open(connection, begun, sender, ident=child, opening=opening)
        connection.execute(update(session).where(session.c.id == child).values(preamble=part.preamble))
        return begun, child

    def _marked(self, trace: Trace, marks: dict[int, bytes]) -> list[bytes]:
        """Return the ids by which clients find the blocks of a stored path: as noted, else as its words say."""
        return [marks.get(place, ident) for place, ident in enumerate(trace.ids, 1)]

    def _marks_along(self, connection: Connection, at: Branch) -> dict[int, bytes]:
        marks: dict[int, bytes] = {}
        for part in segments_to(connection, at.id, at.depth):
            rows = self._run(connection, self._marks, (part.branch, part.low, part.high)).fetchall()
            marks |= {depth: bytes(ident if mark is None else mark) for ident, depth, mark, _ in rows}
        return marks

    def _sender(self, connection: Connection, ident: str) -> Sender:
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
        """Give a conversation that parts from another its own of the turns that both have had.

        Two clients that said the same and were answered the same had two turns at each place; of one client that goes
        back, there is one.
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

    def move_turn(self, connection: Connection, row: Row[Any], ident: str) -> None:
        """Make a turn one of another session, with what it used."""
        used = usage_totals(json.loads(row.usage) if row.usage else {}) | {"api_calls": 1, "cost": row.cost}
        for target, sign in ((row.session, -1), (ident, 1)):
            values = {name: session.c[name] + sign * used[name] for name in (*TOTALS, "cost")}
            connection.execute(update(session).where(session.c.id == target).values(values))
        connection.execute(update(turn).where(turn.c.id == row.id).values(session=ident))

    # -- what the caller needs to know ---------------------------------------------------------------------------------

    def _placed(self, connection: Connection, request: RecordRequest, at: Branch, ident: str, low: int) -> Placed:
        """Say where each message of a request stands, which begins after a depth."""
        marks = request.marks if request.marks is not None else request.trace.ids
        count, base = request.base or (0, None)
        is_own = list(marks) == request.trace.ids and request.start.depth == low
        if base is not None and count:
            is_own = is_own and base.id == request.trace.ids[count - 1]
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
        opened = self._row(connection, ident)[4] or 0
        return Placed(at, ident, ends, depths, mark, opened)


def _is_result(message: Message) -> bool:
    """Return whether a message is the result of a call."""
    return message.get("role") == "tool" or any(part.get("type") == "tool_result" for part in parts_of(message))


def _for_all(placed: Placed, kept: list[int], count: int, low: int = 0) -> Placed:
    """Say where all messages of a request stand, also those that were left out of it."""
    if len(kept) == count:
        return placed
    ends: list[Branch | None] = [None] * count
    depths, depth, places = [], low, {number: place for place, number in enumerate(kept)}
    for number in range(count):
        if number in places:
            ends[number], depth = placed.ends[places[number]], placed.depths[places[number]]
        depths.append(depth)
    return placed._replace(ends=ends, depths=depths)


def _part(row: Any) -> _Part:
    ident, conversation, client_session, preamble, opened, ended, to_depth, started = row
    held = None if preamble is None else bytes(preamble)
    return _Part(ident, conversation, client_session, held, opened, ended, to_depth, started)


def _leads_through(path: Sequence[Segment], found: KnownMessage) -> bool:
    """Return whether a stored message is on a path."""
    return any(part.branch == found.branch and part.low < found.depth <= part.high for part in path)
