"""The choice of the stored conversation that a stateless request goes on with, if any.

A stateless client sends its whole history with every request, so its conversation is known by what it says:

- Until it repeats a reply, a request belongs to a conversation only if its words, its system prompt, its tools, its
  folder and the client's own name for the conversation are the same.
- After that, the words alone decide. System prompts and tools may change, and another name is a resume.

Reads only: `known_messages` finds the messages, and `placing` stores the request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, select

from everlong.errors import NotStored
from everlong.model import Message, parts_of, text_of
from everlong.store.identity.cleared_results import MOST_BLOCKS_PER_LEFT, blocks_told_by, find_shift
from everlong.store.identity.known_messages import MOST_ALIKE, KnownMessage, Recognizer
from everlong.store.paths import leads_through, message_of, segments_to
from everlong.store.schema import branch, session
from everlong.store.tree import Branch, RecordRequest

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

LONG_STEM = 16
"""The most blocks of a first request that are copied; clients that begin with longer examples share them as forks."""
_MOST_FORKS = 8
"""The newest forks of a conversation that are compared with a request that lacks old results."""

_NEWEST_TURNS = 1_000
_NEWEST_REPLIES = 8
"""The newest replies under a client's name for a conversation that may be the summary that another one begins with."""
_SHARE_OF_LINES = 0.6
"""The share of a summary's long lines that must be repeated: clients take off what the model wrote for itself."""
_LONG_LINE = 30
_LEAST_CHARACTERS = 100


class KnownSession(NamedTuple):
    """The part of a session's row that decides whether a request goes on with it."""

    id: str
    conversation: str
    client_session: str | None
    folder: str | None
    preamble: bytes | None
    opened: int | None
    """The depth of its first request; None where its host knows it by name, and its words do not count."""
    ended: float | None
    started: float


_COLUMNS = ", ".join(KnownSession._fields)
_REPLIES = (
    "SELECT s.conversation, s.kind, c.bytes, c.codec, c.state, c.stub FROM turn t JOIN session s ON s.id = t.session"
    " LEFT JOIN content c ON c.digest = t.reply WHERE s.tenant = ?"
)
_AMONG_NEWEST = f" AND t.id > (SELECT max(id) FROM turn) - {_NEWEST_TURNS}"  # noqa: S608 - a number


class _BranchEnd(NamedTuple):
    """The end of a branch, and its sessions, each with the depth at which it begins."""

    head: bytes
    preamble: bytes | None
    sessions: list[tuple[int, KnownSession]]


class Continuation(NamedTuple):
    """A stored message that a request may go on from, and the newest session there."""

    rank: tuple[int, bool, bool, bool, int, bool, float]
    """The quality of the match, most important first: blocks up to the last repeated reply; same name; same system
    prompt; the message is no reply that broke off; blocks in all; the branch ends there; start of the conversation."""
    found: KnownMessage
    session: KnownSession | None

    @property
    def is_own(self) -> bool:
        """True if the conversation has the name and the system prompt of the request."""
        return self.rank[1] and self.rank[2]

    @property
    def is_end(self) -> bool:
        """True if the branch ended there when it was read."""
        return self.rank[5]


class ClearedConversation(NamedTuple):
    """A conversation that a client goes on with after it has cleared old tool results."""

    session: KnownSession
    low: int
    """The depth in the request at which the stored conversation ends."""
    head_depth: int
    """The depth at which it ends on its own branch."""


class ContinuationFinder:
    """The finder of continuations in one store."""

    def __init__(self, core: StoreCore, recognizer: Recognizer) -> None:
        self._core = core
        self._recognizer = recognizer
        self._run = core.database.backend.run
        sql = core.database.sql
        self._by_id = sql(f"SELECT {_COLUMNS} FROM session WHERE id = ? AND tenant = ?")  # noqa: S608 - our own names
        self._branch_of = sql("SELECT branch FROM node WHERE id = ? AND tenant = ?")
        self._newest_status = sql("SELECT status FROM turn WHERE branch = ? AND node = ? ORDER BY id DESC LIMIT 1")
        self._end = sql("SELECT head_depth FROM branch WHERE id = ?")
        self._ends = (
            f"SELECT b.id, b.head, b.preamble, s.from_depth, s.{_COLUMNS.replace(', ', ', s.')} FROM branch b"  # noqa: S608
            " LEFT JOIN session s ON s.branch = b.id WHERE b.id IN ({})"
        )
        self._forks = sql(
            "SELECT id FROM branch WHERE parent = ? AND fork_depth >= ?"  # noqa: S608 - a number
            f" ORDER BY id DESC LIMIT {_MOST_FORKS}"
        )
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

    def find(
        self, connection: Connection, request: RecordRequest, after: Branch | None
    ) -> tuple[Continuation | None, bool]:
        """Return where a request goes on, or None if it begins a conversation; and whether any of it is stored.

        ``after`` is the stored message that the request follows, where its client has named it.
        """
        recognizer = self._recognizer
        candidates = self._candidates(connection, request)
        is_known = bool(candidates)
        if after is not None:
            base = KnownMessage(0, after.head, self._owner(connection, after), after.depth)
            own = recognizer.find(connection, request.rebased(0, base.match)) or [base]
            candidates = max(candidates, own, key=lambda some: some[0].blocks if some else -1)
        chosen = self._choose(connection, request, after, candidates)
        if chosen is not None and not chosen.is_own:
            # Somebody else was answered the same; what this client said may be stored with an addition to it.
            mine = recognizer.find_more(connection, request, None, is_own=True)
            rival = None if mine is None else self._choose(connection, request, after, [mine])
            if rival is not None and rival.is_own and rival.rank >= chosen.rank:
                return rival, True
        best = chosen.found if chosen is not None else (candidates[0] if candidates else None)
        more = recognizer.find_more(connection, request, best)
        if more is not None:
            chosen = self._choose(connection, request, after, [more])
        return chosen, is_known or more is not None

    def find_window(
        self, connection: Connection, request: RecordRequest, chosen: Continuation | None
    ) -> KnownMessage | None:
        """Return the reply after which a list goes on whose first messages its client has left out."""
        known = 0 if chosen is None else request.last_reply(chosen.found.blocks)
        if known == request.last_reply(len(request.trace.ids)):
            return None
        found = self._recognizer.find_window(connection, request)
        its = None if found is None else self._session_at_message(connection, found)[0]
        return found if its is not None and its.opened is not None else None

    def awaits_reply(self, connection: Connection, request: RecordRequest, chosen: Continuation) -> bool:
        """Return whether a request repeats a reply where the stored one is still under way.

        Several clients without names may have begun alike, and only their replies tell them apart.
        """
        found, known = chosen.found, chosen.session
        if request.ext_id is not None or known is None or found.depth != known.opened:
            return False
        first = bisect_right(request.trace.ends, found.blocks)
        if first >= len(request.messages) or request.messages[first].get("role") != "assistant":
            return False
        row = self._run(connection, self._newest_status, (found.branch, found.id)).fetchone()
        return chosen.is_end and (row is None or row[0] == "open")

    def find_cleared(
        self, connection: Connection, request: RecordRequest, found: KnownMessage, known: KnownSession
    ) -> ClearedConversation | None:
        """Return the conversation that a request goes on with but for old results; None for other forks.

        It may have left others behind at the place where the results are missing, so that its branch is a fork.
        """
        numbers = [found.branch]
        first = bisect_right(request.trace.ends, found.blocks)
        if first < len(request.messages) and _is_result(request.clean(request.messages[first])):
            numbers += [row[0] for row in self._run(connection, self._forks, (found.branch, found.depth)).fetchall()]
        for number in numbers:
            (head_depth,) = self._run(connection, self._end, (number,)).fetchone()
            low = self._cleared_until(connection, request, found, number, head_depth)
            if low is None:
                continue
            its: KnownSession | None = known
            if number != found.branch:
                its, _ = self._session_at_message(connection, found._replace(branch=number))
            if its is not None and its.opened is not None:
                return ClearedConversation(its, low, head_depth)
        return None

    def goes_on_behind(self, connection: Connection, known: KnownSession, found: KnownMessage) -> bool:
        """Return whether a conversation goes on behind a message, on the branch of a reply that broke off."""
        number = connection.execute(select(session.c.branch).where(session.c.id == known.id)).scalar()
        if number is None or number == found.branch:
            return False
        depth = connection.execute(select(branch.c.head_depth).where(branch.c.id == number)).scalar() or 0
        return depth > found.depth and leads_through(segments_to(connection, number, depth), found.branch, found.depth)

    def find_summarized(
        self, connection: Connection, name: str | None, client: str | None, opening: RecordRequest
    ) -> str | None:
        """Return the conversation of a client whose summary begins these messages, or None.

        A summary that was asked for on the side is that of the conversation whose last reply they repeat, or of the
        newest one under their name. A provider's own compaction is an item that only the provider can read; it comes
        back as it was given.
        """
        said = _plain("\n".join(text_of(message) for message in opening.messages))
        sealed = {seal for message in opening.messages for seal in _seals(message)}
        if len(said) < _LEAST_CHARACTERS and not sealed:
            return None
        whose, own = " AND s.client_session = ?", [self._core.tenant, name]
        if name is None:  # as many sessions are; only the newest turns are looked at
            whose = f" AND s.client_session IS NULL AND s.client = ?{_AMONG_NEWEST}"
            own[1] = client
        sql = self._core.database.sql
        newest = sql(f"{_REPLIES}{whose} AND t.reply IS NOT NULL ORDER BY t.id DESC LIMIT {_NEWEST_REPLIES}")
        for conversation, kind, *held in self._run(connection, newest, (*own,)).fetchall():
            reply = message_of(*held)
            if not (_repeats(said, text_of(reply)) or not sealed.isdisjoint(_seals(reply))):
                continue
            if kind == "main":
                return str(conversation)
            main, end = f"{_REPLIES}{whose} AND s.kind = 'main'", " ORDER BY t.id DESC LIMIT 1"
            count = opening.last_reply(len(opening.trace.ids))
            begins = [0, *opening.trace.ends]
            keys = [opening.trace.blocks[low] for low, high in pairwise(begins) if high == count and low < high]
            found = None
            if keys:
                found = self._run(connection, sql(f"{main} AND t.reply_key = ?{end}"), (*own, keys[0])).fetchone()
            if found is None and name:
                found = self._run(connection, sql(f"{main}{end}"), (*own,)).fetchone()
            return None if found is None else str(found[0])
        return None

    def session(self, connection: Connection, ident: str) -> KnownSession | None:
        """Return a session by its id, or None."""
        return _known(self._run(connection, self._by_id, (ident, self._core.tenant)).fetchone())

    def session_at(self, connection: Connection, number: int, depth: int) -> KnownSession | None:
        """Return the newest session on a branch, preferably one that began before a depth."""
        end = self._read_ends(connection, {number}).get(number)
        return None if end is None else _newest_at(end.sessions, depth)

    # -- candidates ----------------------------------------------------------------------------------------------------

    def _candidates(self, connection: Connection, request: RecordRequest) -> list[KnownMessage]:
        """Return the stored messages that a request may go on from: the deepest, and those where others spoke on.

        Words that follow the last repeated reply say nothing about who says them.
        """
        recognizer = self._recognizer
        candidates = recognizer.find(connection, request)
        if not candidates:
            return []
        count = candidates[0].blocks
        ident = request.trace.ids[count - 1]
        if request.ext_id is not None:
            candidates = [*recognizer.find_named(connection, ident, request.ext_id, count), *candidates]
        if len(candidates) >= MOST_ALIKE and request.preamble is not None:  # there may be more than were read
            candidates = [*recognizer.find_prompted(connection, ident, request.preamble.digest, count), *candidates]
        candidates = list(dict.fromkeys(candidates))
        low = request.last_reply(count)
        if not low or low == count:
            return candidates
        paths = [segments_to(connection, one.branch, one.depth) for one in candidates]
        before = recognizer.find_between(connection, request, low, count)
        apart = [one for one in before if not any(leads_through(path, one.branch, one.depth) for path in paths)]
        return [*candidates, *apart]

    def _owner(self, connection: Connection, at: Branch) -> int:
        """Return the branch that holds a message; the caller may have named any branch that leads through it."""
        if not at.depth:
            return at.id
        row = self._run(connection, self._branch_of, (at.head, self._core.tenant)).fetchone()
        if row is None:
            raise NotStored(f"the message {at.head.hex()} that a request follows is not stored")
        return int(row[0])

    def _choose(
        self, connection: Connection, request: RecordRequest, after: Branch | None, candidates: Sequence[KnownMessage]
    ) -> Continuation | None:
        """Return the best of the candidates to whose conversation the request belongs, or None."""
        ranked: list[Continuation] = []
        preamble = None if request.preamble is None else request.preamble.digest
        ends = self._read_ends(connection, {one.branch for one in candidates})
        for one in candidates:
            head, newest, sessions = ends[one.branch]
            known, is_on_it = _newest_at(sessions, one.depth), True
            if known is None:
                known, is_on_it = self._session_beside(connection, one)
            is_end = head == one.id
            if known is not None and not self._belongs_to(request, after, one, known, is_end):
                continue
            is_named = known is not None and _is_of_same(known, request)
            # Two that were told apart by their system prompts stay so, even where they were answered alike.
            is_prompted = preamble in (newest, known.preamble if known else None)
            began = known.started if known is not None else 0.0
            rank = (request.last_reply(one.blocks), is_named, is_prompted, is_on_it, one.blocks, is_end, began)
            ranked.append(Continuation(rank, one, known))
        return max(ranked, key=lambda one: one.rank, default=None)

    def _belongs_to(
        self, request: RecordRequest, after: Branch | None, found: KnownMessage, known: KnownSession, is_end: bool
    ) -> bool:
        """Return whether a request belongs to a conversation with which it shares its first words."""
        if known.opened is None:
            return False
        if found.depth > known.opened:
            return True
        is_repeat = found.blocks == len(request.trace.ids)
        if is_repeat and after is not None and found.id == after.head:
            return True  # whoever names the message has stored it there
        preamble = None if request.preamble is None else request.preamble.digest
        is_same = _is_of_same(known, request) and known.preamble == preamble
        return is_same and (is_end or is_repeat or found.depth > LONG_STEM)

    def _session_at_message(self, connection: Connection, found: KnownMessage) -> tuple[KnownSession | None, bool]:
        """Return the newest session at a message, and whether the message is on its path rather than beside it."""
        known = self.session_at(connection, found.branch, found.depth)
        return self._session_beside(connection, found) if known is None else (known, True)

    def _read_ends(self, connection: Connection, numbers: set[int]) -> dict[int, _BranchEnd]:
        """Return the ends of some branches, with their sessions."""
        found: dict[int, _BranchEnd] = {}
        if numbers:
            statement = self._core.database.sql(self._ends.format(",".join("?" * len(numbers))))
            for number, head, prompt, low, *about in self._run(connection, statement, (*numbers,)).fetchall():
                newest = None if prompt is None else bytes(prompt)
                end = found.setdefault(number, _BranchEnd(bytes(head), newest, []))
                if low is not None and (known := _known(about)) is not None:
                    end.sessions.append((low, known))
        return found

    def _session_beside(self, connection: Connection, found: KnownMessage) -> tuple[KnownSession | None, bool]:
        """Return the session at a message on whose branch there is none, and whether the message is on its path."""
        beside = self._run(connection, self._answering, (self._core.tenant, found.id)).fetchone()
        if beside is not None:  # a reply that broke off stands on a branch of its own
            return self.session(connection, beside[0]), False
        ahead = self._run(connection, self._ahead, (self._core.tenant, found.branch, found.depth)).fetchone()
        if ahead is not None:  # its conversation goes on with such a reply
            return self.session(connection, ahead[0]), True
        return None, True

    def _cleared_until(
        self, connection: Connection, request: RecordRequest, found: KnownMessage, number: int, head_depth: int
    ) -> int | None:
        """Return the depth in a request at which a branch ends whose old results it lacks; None for other forks."""
        new = len(request.trace.ids) - found.blocks
        if head_depth - found.depth > MOST_BLOCKS_PER_LEFT * (new + 1):
            return None
        path = segments_to(connection, number, head_depth)
        entries = self._core.reader.entries(connection, path, found.depth, head_depth)
        stored = [block for entry in entries if entry.id for block in blocks_told_by(request.chain, entry.message)]
        if stored and stored[-1].kind == "result" and stored[-1].hash not in request.trace.blocks:
            return None  # the newest result is another one; old ones are cleared
        first = bisect_right(request.trace.ends, found.blocks)
        before = request.trace.ends[first - 1] if first else 0
        told = (blocks_told_by(request.chain, request.clean(one)) for one in request.messages[first:])
        sent = [block for blocks in told for block in blocks][found.blocks - before :]
        shift = find_shift(stored, sent, found.depth, found.depth, head_depth)
        return None if shift is None else shift(head_depth)


def _is_of_same(known: KnownSession, request: RecordRequest) -> bool:
    """Return whether a session has the name of a request, and works in its folder."""
    return known.client_session == request.ext_id and request.folder in {None, known.folder}


def _newest_at(sessions: list[tuple[int, KnownSession]], depth: int) -> KnownSession | None:
    """Return the newest of a branch's sessions, preferably one that began before a depth."""
    best = max(sessions, key=lambda one: (one[0] < depth, one[1].started, one[1].id), default=None)
    return None if best is None else best[1]


def _known(row: Sequence[object] | None) -> KnownSession | None:
    if row is None:
        return None
    known = KnownSession(*row)  # type: ignore[arg-type]
    return known if known.preamble is None else known._replace(preamble=bytes(known.preamble))


def _is_result(message: Message) -> bool:
    """Return whether a message is the result of a call."""
    return message.get("role") == "tool" or any(part.get("type") == "tool_result" for part in parts_of(message))


def _repeats(said: str, summary: str) -> bool:
    """Return whether a text repeats most of the long lines of a summary."""
    lines = [line for line in map(_plain, summary.splitlines()) if len(line) >= _LONG_LINE]
    if sum(map(len, lines)) < _LEAST_CHARACTERS:
        return False
    return sum(line in said for line in lines) >= _SHARE_OF_LINES * len(lines)


def _seals(message: Message) -> list[str]:
    """Return the contents of a provider's compactions in a message."""
    parts = [part for part in parts_of(message) if "compaction" in str(part.get("type"))]
    return [seal for part in parts if isinstance(seal := part.get("encrypted_content"), str)]


def _plain(text: str) -> str:
    return " ".join(text.split())
