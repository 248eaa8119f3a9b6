"""Recognition of lists of messages: the stored messages that they go on from, found by what they say.

Only lists that come without a name are recognised: requests of stateless clients, and imports. The deepest message that
the list leads to is found by its hash chain. Where a client has rewritten what it sent before (an addition taken off
its question, a reply in another shape), the rest is aligned with a turn whose reply the client repeats, and the ids
that the client uses from now on become aliases of the stored messages. Reads, except for aliases and what is learnt.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection

from everlong.store.identity.rewrites import MOST_ADDED, call_ids, is_echo, is_left_of
from everlong.store.paths import Entry, Segment, leads_through, segments_to
from everlong.store.tree import PROBES, Match, RecordRequest, find_deepest

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

_MOST_TURNS = 8
"""The most turns of one kind that are compared with a list which may repeat their reply."""
MOST_ALIKE = 32
"""The most conversations that begin alike and are considered, the newest ones."""
_MOST_BETWEEN = 200
"""The most blocks between two replies that are compared."""
_MOST_ROUNDS = 8
"""The most replies of one list that are looked for behind changed words: each request has one, as a rule."""
_NEWEST = 256
"""The newest turns with an equal reply, and conversations of a name, among which the right one is looked for."""


_IS_STORED = (
    " EXISTS (SELECT 1 FROM node n WHERE n.id = asked.id) OR EXISTS (SELECT 1 FROM node n WHERE n.mark = asked.id)"
    " OR EXISTS (SELECT 1 FROM alias a WHERE a.id = asked.id)"
)


class KnownMessage(NamedTuple):
    """A stored message that the first blocks of a list lead to."""

    blocks: int
    """The number of the list's blocks that lead to it."""
    id: bytes
    branch: int
    depth: int

    @property
    def match(self) -> Match:
        """The place in the tree."""
        return Match(self.branch, self.id, self.depth)


class _Turn(NamedTuple):
    """A turn whose reply a list may repeat."""

    node: bytes
    depth: int
    reply: bytes
    echo: bytes
    branch: int
    echo_depth: int


class Recognizer:
    """The finder of lists in one store."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._run = core.database.backend.run
        self._sql = core.database.sql
        self._alias = self._sql("INSERT INTO alias (id, node, tenant) VALUES (?,?,?) ON CONFLICT DO NOTHING")
        turn = (
            "SELECT t.node, t.depth, t.reply, t.echo_node, n.branch, n.depth FROM {} t"
            " JOIN node n ON n.id = t.echo_node JOIN branch b ON b.id = n.branch"
            " WHERE t.tenant = ? AND t.reply IS NOT NULL"
            " AND (b.root IS NULL OR n.mark IS NOT NULL) AND "  # not of one that its host knows
        )
        end = f" ORDER BY t.id DESC LIMIT {_MOST_TURNS}"
        self._by_name = self._sql(
            "SELECT n.id, n.branch, n.depth FROM (SELECT branch FROM session WHERE tenant = ? AND client_session = ?"  # noqa: S608
            f" ORDER BY started DESC LIMIT {_NEWEST}) s CROSS JOIN node n"
            " WHERE n.branch = s.branch AND n.depth >= ? AND n.depth <= ?"
            # As a case, because SQLite would begin with the id, by which very many messages may be called.
            f" AND CASE WHEN n.id = ? OR n.mark = ? THEN 1 ELSE 0 END = 1 ORDER BY n.seq DESC LIMIT {_MOST_TURNS}"
        )
        self._by_prompt = self._sql(
            "SELECT n.id, n.branch, n.depth FROM node n JOIN branch b ON b.id = n.branch"  # noqa: S608 - ours
            f" WHERE n.tenant = ? AND n.mark = ? AND b.preamble = ? ORDER BY n.seq DESC LIMIT {_MOST_TURNS}"
        )
        newest = f" ORDER BY n.seq DESC LIMIT {MOST_ALIKE}"
        called = "SELECT n.id, n.branch, n.depth FROM node n"
        self._by_any = self._sql(
            f"{called} WHERE n.id = ? UNION ALL SELECT * FROM ({called} WHERE n.mark = ?{newest}) AS marked"  # noqa: S608
            f" UNION ALL SELECT * FROM ({called} JOIN alias a ON a.node = n.id WHERE a.id = ?{newest}) AS renamed"
        )
        self._role = self._sql("SELECT role FROM node WHERE branch = ? AND depth = ?")
        self._on_part = self._sql(
            "SELECT depth FROM node WHERE branch = ? AND depth > ? AND depth <= ?"
            " AND (id = ? OR mark = ? OR id IN (SELECT node FROM alias WHERE id = ?))"
        )
        # Very many replies may be equal: only the newest ones are looked at for those of one client.
        self._equal = f"WITH equal AS (SELECT * FROM turn WHERE reply_key = ? ORDER BY id DESC LIMIT {_NEWEST}) "  # noqa: S608
        named = "EXISTS (SELECT 1 FROM session s WHERE s.id = t.session AND COALESCE(s.client_session, '') = ?)"
        equal = f"SELECT * FROM ({turn.format('equal')}{{}}{end}) AS newest"  # noqa: S608 - ours
        self._by_sender = equal.format(f"t.preamble = ? AND {named}")
        self._by_client = equal.format(named)
        self._by_reply = equal.format("t.reply_key IS NOT NULL")
        self._answers = self._sql(
            "SELECT n.branch, n.depth FROM turn t JOIN node n ON n.id = t.echo_node"
            " WHERE t.branch = ? AND t.depth >= ? AND t.depth <= ?"
        )
        turn = turn.format("turn")
        self._by_place = self._sql(f"{turn}t.node = ? AND t.branch = ? AND t.depth = ?{end}")
        self._after = self._sql(f"{turn}t.branch = ? AND t.depth > ? ORDER BY t.depth LIMIT {_MOST_TURNS}")
        self._at_depth = self._sql("SELECT id FROM node WHERE branch = ? AND depth = ?")

    def find(self, connection: Connection, request: RecordRequest) -> list[KnownMessage]:
        """Return the newest stored messages that a list leads to, all at the greatest depth; none where it is new."""
        return self._probe(connection, request.trace.ids, 0)

    def count_known(self, connection: Connection, ids: Sequence[bytes]) -> int:
        """Return how many of a list's first blocks lead to a stored message."""
        return max((one.blocks for one in self._probe(connection, ids, 0)), default=0)

    def known(self, connection: Connection, ids: list[bytes]) -> list[KnownMessage]:
        """Return the newest stored messages that these ids lead to."""
        return [KnownMessage(0, *row) for ident in ids for row in self._called(connection, ident)]

    def find_named(self, connection: Connection, ident: bytes, name: str, count: int) -> list[KnownMessage]:
        """Return the messages that an id leads to in conversations that their client calls by a name."""
        depths = (count, count + MOST_ADDED)  # what was stored may have additions in it
        rows = self._run(connection, self._by_name, (self._core.tenant, name, *depths, ident, ident)).fetchall()
        return [KnownMessage(count, bytes(own), branch, depth) for own, branch, depth in rows]

    def find_prompted(self, connection: Connection, ident: bytes, preamble: bytes, count: int) -> list[KnownMessage]:
        """Return the messages that an id leads to in conversations that are sent with a system prompt and tools."""
        rows = self._run(connection, self._by_prompt, (self._core.tenant, ident, preamble)).fetchall()
        return [KnownMessage(count, bytes(own), branch, depth) for own, branch, depth in rows]

    def find_between(self, connection: Connection, request: RecordRequest, low: int, high: int) -> list[KnownMessage]:
        """Return the messages that the first blocks of a list lead to, at least so many and fewer than others."""
        first = max(low, high - PROBES[-1])
        stored = self._stored(connection, request.trace.ids[first - 1 : high - 1]) if first < high else set()
        found: list[KnownMessage] = []
        for count in range(high - 1, first - 1, -1):
            if request.trace.ids[count - 1] in stored and len(found) < MOST_ALIKE:
                found += [KnownMessage(count, *row) for row in self._called(connection, request.trace.ids[count - 1])]
        return found

    def find_more(
        self, connection: Connection, request: RecordRequest, found: KnownMessage | None, *, is_own: bool = False
    ) -> KnownMessage | None:
        """Return a deeper message than the one found, where the list goes on in words that its client has changed.

        With ``is_own`` only turns count that were sent with the list's system prompt and tools, under its name.
        """
        best = self._descend(connection, request, found)
        for _ in range(_MOST_ROUNDS):
            more = self._align(connection, request, best, is_own=is_own)
            if more is None:
                break
            rest = request.rebased(more.blocks, more.match)
            deeper = self._probe(connection, rest.trace.ids, more.blocks)
            best = self._descend(connection, request, max(deeper, key=lambda one: one.blocks, default=more))
        return best if best != found else None

    def find_window(self, connection: Connection, request: RecordRequest) -> KnownMessage | None:
        """Return the last reply that a list repeats, where it begins in the middle of that reply's conversation.

        Such a client sends a window of its last messages: they are the same as those before the reply, all of them.
        """
        count = request.last_reply(len(request.trace.ids))
        reply = bisect_left(request.trace.ends, count)
        begin = request.trace.ends[reply - 1] if reply else 0
        if not begin or all(one.get("role") == "assistant" for one in request.messages[:reply]):
            return None  # a reply alone says too little
        for turn in self._equal_replies(connection, request, begin, "client"):
            low = turn.echo_depth - count
            path = segments_to(connection, turn.branch, turn.echo_depth) if low > 0 else []
            part = next((part for part in path if part.low < low <= part.high), None)
            row = None if part is None else self._run(connection, self._at_depth, (part.branch, low)).fetchone()
            if row is None:
                continue
            ids = self._core.chain.rechain(request.messages, request.trace, bytes(row[0]))
            if ids[count - 1] == turn.echo:
                return KnownMessage(count, turn.echo, turn.branch, turn.echo_depth)
        return None

    def may_find_more(self, connection: Connection, request: RecordRequest, found: KnownMessage | None) -> bool:
        """Return whether a list goes on with what may be a reply that is stored in another shape, or elsewhere."""
        reply = _next_reply(request, found)
        if reply is None:
            return False
        place = request.trace.ends[reply - 1] if reply else 0
        return next(self._candidates(connection, request, found, place), None) is not None

    # -- known ids -----------------------------------------------------------------------------------------------------

    def _probe(self, connection: Connection, ids: Sequence[bytes], low: int) -> list[KnownMessage]:
        end, bite = len(ids), 0
        while end > low:
            start = max(low, end - PROBES[min(bite, len(PROBES) - 1)])
            stored = self._stored(connection, ids[start:end])
            if stored:
                count = next(place for place in range(end, start, -1) if ids[place - 1] in stored)
                return [KnownMessage(count, *row) for row in self._called(connection, ids[count - 1])]
            end, bite = start, bite + 1
        return []

    def _descend(
        self, connection: Connection, request: RecordRequest, found: KnownMessage | None
    ) -> KnownMessage | None:
        """Return the deepest message behind one that was found with which the list goes on.

        Another client may have stored it, which calls the messages before it by other ids.
        """
        if found is None or found.blocks == len(request.trace.ids):
            return found
        rest = request.rebased(found.blocks, found.match)
        own, ident, depth = find_deepest(connection, self._core.database, rest)
        if depth == found.depth or own is None:
            return found
        return KnownMessage(found.blocks + depth - found.depth, ident, own, depth)

    def _stored(self, connection: Connection, ids: Sequence[bytes]) -> set[bytes]:
        """Return those of some ids that lead to a stored message; very many may begin with the same words."""
        asked = f"WITH asked(id) AS (VALUES {','.join(['(?)'] * len(ids))}) SELECT id FROM asked WHERE"  # noqa: S608 - ours
        statement = self._sql(asked + _IS_STORED)
        return {bytes(row[0]) for row in self._run(connection, statement, tuple(ids)).fetchall()}

    def _called(self, connection: Connection, ident: bytes) -> list[tuple[bytes, int, int]]:
        """Return the newest messages that an id leads to, each with its id, branch and depth."""
        found: dict[bytes, tuple[bytes, int, int]] = {}
        for own, branch, depth in self._run(connection, self._by_any, (ident, ident, ident)).fetchall():
            found.setdefault(bytes(own), (bytes(own), branch, depth))
        return list(found.values())

    # -- changed words -------------------------------------------------------------------------------------------------

    def _align(
        self, connection: Connection, request: RecordRequest, found: KnownMessage | None, *, is_own: bool
    ) -> KnownMessage | None:
        """Return the reply that a list repeats after words that were longer before, or in another shape."""
        ends = request.trace.ends
        known = found.blocks if found is not None else 0
        first = bisect_right(ends, known)
        if first < len(ends) and (ends[first - 1] if first else 0) != known:
            return None  # the list is known up to the middle of a message
        at = _next_reply(request, found)
        if at is None:
            return None
        for turn in self._candidates(connection, request, found, ends[at - 1] if at else 0, is_own=is_own):
            if not self._repeats(connection, request, turn, found, at):
                continue
            asked = next((one for one in reversed(range(first, at)) if ends[one] > (ends[one - 1] if one else 0)), None)
            self._add_alias(connection, request, asked, turn.node)
            self._add_alias(connection, request, at, turn.echo)
            return KnownMessage(ends[at], turn.echo, turn.branch, turn.echo_depth)
        return None

    def _candidates(
        self,
        connection: Connection,
        request: RecordRequest,
        found: KnownMessage | None,
        place: int,
        *,
        is_own: bool = False,
    ) -> Iterator[_Turn]:
        """Yield turns whose reply may be the message at a place: by where the list is known, and by its words."""
        seen: set[_Turn] = set()
        if not is_own and found is not None:
            tenant = self._core.tenant
            at = (tenant, found.id, found.branch, found.depth)
            yield from self._turns(connection, self._by_place, at, seen)
            yield from self._turns(connection, self._after, (tenant, found.branch, found.depth), seen)
        yield from self._equal_replies(connection, request, place, "sender" if is_own else "anyone", seen)

    def _equal_replies(
        self,
        connection: Connection,
        request: RecordRequest,
        place: int,
        whose: Literal["sender", "client", "anyone"],
        seen: set[_Turn] | None = None,
    ) -> Iterator[_Turn]:
        """Yield the newest turns that were answered with the message at a place, those of the same sender first.

        A sender has the same name, system prompt and tools; a client the same name.
        """
        tenant, name = self._core.tenant, request.ext_id or ""
        parts: list[str] = []
        values: list[Any] = [request.trace.blocks[place]]
        if request.preamble is not None:
            parts.append(self._by_sender)
            values += [tenant, request.preamble.digest, name]
        if whose != "sender":
            parts.append(self._by_client if whose == "client" else self._by_reply)
            values += [tenant, name] if whose == "client" else [tenant]
        if parts:
            statement = self._sql(self._equal + " UNION ALL ".join(parts))
            yield from self._turns(connection, statement, tuple(values), set() if seen is None else seen)

    def _turns(
        self, connection: Connection, statement: str, values: tuple[Any, ...], seen: set[_Turn]
    ) -> Iterator[_Turn]:
        """Yield the turns that a statement finds and that were not seen before."""
        for row in self._run(connection, statement, values).fetchall():
            turn = _Turn(bytes(row[0]), row[1], bytes(row[2]), bytes(row[3]), row[4], row[5])
            if turn not in seen:
                seen.add(turn)
                yield turn

    def _repeats(
        self, connection: Connection, request: RecordRequest, turn: _Turn, found: KnownMessage | None, at: int
    ) -> bool:
        """Return whether a message repeats a turn's reply, behind what is left of that turn's request."""
        core, messages = self._core, request.messages
        path = segments_to(connection, turn.branch, turn.echo_depth)
        common = (0, 0) if found is None else self._common(connection, path, request, found)
        if common is None:
            return False
        count, low = common
        if turn.depth < low or turn.echo_depth - low > _MOST_BETWEEN:
            return False
        told, reply = core.reader.values(connection, [turn.reply]).get(turn.reply), request.clean(messages[at])
        if not isinstance(told, dict) or not is_echo(core.chain, told, reply) or call_ids(told) != call_ids(reply):
            return False  # a reply without its calls is another one
        if self._has_reply(connection, path, low, turn.depth):
            return False  # what a model answered is no addition
        entries: list[Entry] = core.reader.entries(connection, path, low or -1, turn.depth)
        stored = [entry.message for entry in entries if entry.id is not None]
        begins = [0, *request.trace.ends]
        between = [one for one in range(bisect_right(request.trace.ends, count), at) if begins[one + 1] > begins[one]]
        here = next((part.branch for part in path if part.low < low <= part.high), None)
        asked = here is not None and self._run(connection, self._role, (here, low)).fetchone() == ("user",)
        sent = [request.clean(messages[one]) for one in between]
        return is_left_of(stored, sent, follows_question=asked)

    def _has_reply(self, connection: Connection, path: list[Segment], low: int, high: int) -> bool:
        """Return whether a reply to a turn stands between two depths of a path."""
        for part in path:
            values = (part.branch, low, min(high - 1, part.high))
            for branch, depth in self._run(connection, self._answers, values).fetchall():
                if low < depth <= high and leads_through(path, branch, depth):
                    return True
        return False

    def _common(
        self, connection: Connection, path: list[Segment], request: RecordRequest, found: KnownMessage
    ) -> tuple[int, int] | None:
        """Return how many blocks of a list a path has, and how deep that is; None where it has none of the newest.

        The message that was found may be one of another conversation, which has only begun with the same words.
        """
        if leads_through(path, found.branch, found.depth):
            return found.blocks, found.depth
        ids = request.marks if request.marks is not None else request.trace.ids
        ends = [end for end in request.trace.ends if found.blocks - _MOST_BETWEEN < end <= found.blocks]
        for end in sorted({end for end in ends if end}, reverse=True):
            for part in path:
                values = (part.branch, part.low, part.high, ids[end - 1], ids[end - 1], ids[end - 1])
                row = self._run(connection, self._on_part, values).fetchone()
                if row is not None:
                    return end, int(row[0])
        return (0, 0) if found.blocks < _MOST_BETWEEN else None

    def _add_alias(self, connection: Connection, request: RecordRequest, at: int | None, node: bytes) -> None:
        """Let the id that a list has at the end of a message lead to a stored one."""
        if at is None:
            return
        ids = request.marks if request.marks is not None else request.trace.ids
        ident = ids[request.trace.ends[at] - 1]
        if ident != node:
            self._core.database.backend.run_later(connection, self._alias, (ident, node, self._core.tenant))


def _next_reply(request: RecordRequest, found: KnownMessage | None) -> int | None:
    """Return the number of the first reply behind the message that a list is known to lead to."""
    ends = request.trace.ends
    known = found.blocks if found is not None else 0
    for at in range(bisect_right(ends, known), len(ends)):
        if request.messages[at].get("role") == "assistant" and ends[at] > (ends[at - 1] if at else 0):
            return at
    return None
