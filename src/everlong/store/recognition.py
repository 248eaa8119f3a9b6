"""Recognition: which stored conversation a list of messages goes on from, known by what it says.

Only lists that come without a name are recognised: requests of stateless clients, and imports. The deepest message that
the list leads to is found by its hash chain. Where a client has rewritten what it sent before (an addition taken off
its question, a reply in another shape), the rest is aligned with a turn whose reply the client repeats, and the ids
that the client uses from now on become aliases of the stored messages. Reads, except for aliases and what is learnt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection

from everlong.store.additions import Additions, removed_additions
from everlong.store.echo import call_ids, is_echo
from everlong.store.paths import Entry, Segment, segments_to
from everlong.store.tree import Match, Request

if TYPE_CHECKING:
    from everlong.store.additions import Addition
    from everlong.store.core import StoreCore

PROBES = (4, 8, 16, 32, 64, 128, 256, 512)
"""Ids that are asked for at once, from the end of a list backwards."""

_TRIED = 8
"""Turns whose reply a list may repeat that are compared with it."""
MOST_ALIKE = 32
"""Conversations that begin alike of which one may be meant, the newest ones."""
_MOST_BETWEEN = 200
"""Blocks between two replies that are compared."""
_MOST_REPLIES = 12
"""Assistant messages that are tried as the repeated reply: examples that a client sends stand before it."""


class Found(NamedTuple):
    """A stored message that the first blocks of a list lead to."""

    blocks: int
    """How many blocks of the list that is."""
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
    """Finds lists in one store."""

    def __init__(self, core: StoreCore, additions: Additions) -> None:
        self._core = core
        self._additions = additions
        self._run = core.database.backend.run
        self._sql = core.database.sql
        self._alias = self._sql("INSERT INTO alias (id, node, tenant) VALUES (?,?,?) ON CONFLICT DO NOTHING")
        turn = (
            "SELECT t.node, t.depth, t.reply, t.echo_node, n.branch, n.depth FROM turn t"
            " JOIN node n ON n.id = t.echo_node JOIN branch b ON b.id = n.branch"
            " WHERE t.tenant = ? AND t.reply IS NOT NULL"
            " AND (b.root IS NULL OR n.mark IS NOT NULL) AND "  # not of one that its host knows
        )
        end = f" ORDER BY t.id DESC LIMIT {_TRIED}"
        self._of_name = self._sql(
            "SELECT n.id, n.branch, n.depth FROM session s JOIN node n ON n.branch = s.branch"  # noqa: S608 - ours
            " WHERE s.tenant = ? AND s.client_session = ? AND (n.id = ? OR n.mark = ?)"
            f" ORDER BY n.seq DESC LIMIT {_TRIED}"
        )
        self._of_prompt = self._sql(
            "SELECT n.id, n.branch, n.depth FROM node n JOIN branch b ON b.id = n.branch"  # noqa: S608 - ours
            f" WHERE n.tenant = ? AND n.mark = ? AND b.preamble = ? ORDER BY n.seq DESC LIMIT {_TRIED}"
        )
        self._role = self._sql("SELECT role FROM node WHERE branch = ? AND depth = ?")
        self._on_part = self._sql(
            "SELECT depth FROM node WHERE branch = ? AND depth > ? AND depth <= ?"
            " AND (id = ? OR mark = ? OR id IN (SELECT node FROM alias WHERE id = ?))"
        )
        named = "EXISTS (SELECT 1 FROM session s WHERE s.id = t.session AND COALESCE(s.client_session, '') = ?)"
        self._by_sender = self._sql(f"{turn}t.reply_key = ? AND t.preamble = ? AND {named}{end}")
        self._by_reply = self._sql(f"{turn}t.reply_key = ?{end}")
        self._answers = self._sql(
            "SELECT n.branch, n.depth FROM turn t JOIN node n ON n.id = t.echo_node"
            " WHERE t.branch = ? AND t.depth >= ? AND t.depth <= ?"
        )
        self._by_place = self._sql(f"{turn}t.node = ? AND t.branch = ?{end}")
        self._after = self._sql(f"{turn}t.branch = ? AND t.depth > ? ORDER BY t.depth LIMIT {_TRIED}")

    def find(self, connection: Connection, request: Request) -> list[Found]:
        """Return the newest stored messages that a list leads to, all at the greatest depth; none where it is new."""
        return self._probed(connection, request.trace.ids, 0)

    def count_known(self, connection: Connection, ids: Sequence[bytes]) -> int:
        """Return how many of a list's first blocks lead to a stored message."""
        return max((one.blocks for one in self._probed(connection, ids, 0)), default=0)

    def known(self, connection: Connection, ids: list[bytes]) -> list[Found]:
        """Return the newest stored messages that these ids lead to."""
        return [Found(0, own, branch, depth) for _, own, branch, depth in self._known(connection, ids)]

    def find_named(self, connection: Connection, ident: bytes, name: str, count: int) -> list[Found]:
        """Return the messages that an id leads to in conversations that their client calls by a name."""
        rows = self._run(connection, self._of_name, (self._core.tenant, name, ident, ident)).fetchall()
        return [Found(count, bytes(own), branch, depth) for own, branch, depth in rows]

    def find_prompted(self, connection: Connection, ident: bytes, preamble: bytes, count: int) -> list[Found]:
        """Return the messages that an id leads to in conversations that are sent with a system prompt and tools."""
        rows = self._run(connection, self._of_prompt, (self._core.tenant, ident, preamble)).fetchall()
        return [Found(count, bytes(own), branch, depth) for own, branch, depth in rows]

    def find_between(self, connection: Connection, request: Request, low: int, high: int) -> list[Found]:
        """Return the messages that the first blocks of a list lead to, at least so many and fewer than others."""
        asked = {request.trace.ids[place - 1]: place for place in range(max(low, high - PROBES[-1]), high)}
        rows = self._known(connection, list(asked))
        return [Found(asked[name], own, branch, depth) for name, own, branch, depth in rows]

    def find_more(
        self, connection: Connection, request: Request, found: Found | None, *, is_own: bool = False
    ) -> Found | None:
        """Return a deeper message than the one found, where the list goes on in words that its client has changed.

        With ``is_own`` only turns count that were sent with the list's system prompt and tools, under its name.
        """
        best = found
        while (more := self._aligned(connection, request, best, is_own=is_own)) is not None:
            rest = request.rebased(more.blocks, more.match)
            deeper = self._probed(connection, rest.trace.ids, more.blocks)
            best = max(deeper, key=lambda one: one.blocks, default=more)
        return best if best is not found else None

    def may_find_more(self, connection: Connection, request: Request, found: Found | None) -> bool:
        """Return whether a list goes on with what may be a reply that is stored in another shape, or elsewhere."""
        known = found.blocks if found is not None else 0
        ends = request.trace.ends
        first = bisect_right(ends, known)
        replies = (at for at in range(first, len(ends)) if request.messages[at].get("role") == "assistant")
        places = (ends[at - 1] if at else 0 for at in islice(replies, _MOST_REPLIES))
        return any(
            next(self._candidates(connection, request, found, place), None) is not None
            for place in places
            if place < len(request.trace.blocks)
        )

    # -- known ids -----------------------------------------------------------------------------------------------------

    def _probed(self, connection: Connection, ids: Sequence[bytes], low: int) -> list[Found]:
        end, bite = len(ids), 0
        while end > low:
            start = max(low, end - PROBES[min(bite, len(PROBES) - 1)])
            asked = {ids[place]: place + 1 for place in range(start, end)}
            rows = self._known(connection, list(asked))
            if rows:
                deepest = max(asked[row[0]] for row in rows)
                return [
                    Found(deepest, own, branch, depth) for name, own, branch, depth in rows if asked[name] == deepest
                ]
            end, bite = start, bite + 1
        return []

    def _known(self, connection: Connection, ids: list[bytes]) -> list[tuple[bytes, bytes, int, int]]:
        marks = ",".join("?" * len(ids))
        # Very many conversations may begin alike: of each kind the newest ones are enough, and the deepest.
        newest = f"ORDER BY {{}}depth DESC, {{}}seq DESC LIMIT {MOST_ALIKE}"
        statements = (
            f"SELECT id, id, branch, depth FROM node WHERE id IN ({marks})",  # noqa: S608 - only marks are put in
            f"SELECT mark, id, branch, depth FROM node WHERE mark IN ({marks}) {newest.format('', '')}",  # noqa: S608
            f"SELECT a.id, n.id, n.branch, n.depth FROM alias a JOIN node n ON n.id = a.node"  # noqa: S608 - as above
            f" WHERE a.id IN ({marks}) {newest.format('n.', 'n.')}",
        )
        found: dict[tuple[bytes, bytes], tuple[bytes, bytes, int, int]] = {}
        for statement in statements:
            for asked, ident, branch, depth in self._run(connection, self._sql(statement), tuple(ids)).fetchall():
                found.setdefault((bytes(asked), bytes(ident)), (bytes(asked), bytes(ident), branch, depth))
        return list(found.values())

    # -- changed words -------------------------------------------------------------------------------------------------

    def _aligned(self, connection: Connection, request: Request, found: Found | None, *, is_own: bool) -> Found | None:
        """Return the reply that a list repeats after words that were longer before, or in another shape."""
        ends, messages = request.trace.ends, request.messages
        known = found.blocks if found is not None else 0
        first = bisect_right(ends, known)
        if first < len(ends) and (ends[first - 1] if first else 0) != known:
            return None  # the list is known up to the middle of a message
        said = [at for at in range(first, len(ends)) if ends[at] > (ends[at - 1] if at else 0)]
        replies = (number for number, at in enumerate(said) if messages[at].get("role") == "assistant")
        for number in islice(replies, _MOST_REPLIES):
            at = said[number]
            for turn in self._candidates(connection, request, found, ends[at - 1] if at else 0, is_own=is_own):
                gone = self._compared(connection, request, turn, found, at)
                if gone is None:
                    continue
                self._additions.learn(connection, gone)
                self._name(connection, request, said[number - 1] if number else None, turn.node)
                self._name(connection, request, at, turn.echo)
                return Found(ends[at], turn.echo, turn.branch, turn.echo_depth)
        return None

    def _candidates(
        self, connection: Connection, request: Request, found: Found | None, place: int, *, is_own: bool = False
    ) -> Iterator[_Turn]:
        """Yield turns whose reply may be the message at a place: by its words, and by where the list is known."""
        tenant, key, seen = self._core.tenant, request.trace.blocks[place], set()
        asked: list[tuple[str, tuple[Any, ...]]] = []
        if request.preamble is not None:
            asked.append((self._by_sender, (tenant, key, request.preamble.digest, request.ext_id or "")))
        if not is_own:
            asked.append((self._by_reply, (tenant, key)))
        if not is_own and found is not None:
            asked += [
                (self._by_place, (tenant, found.id, found.branch)),
                (self._after, (tenant, found.branch, found.depth)),
            ]
        for statement, values in asked:
            for row in self._run(connection, statement, values).fetchall():
                turn = _Turn(bytes(row[0]), row[1], bytes(row[2]), bytes(row[3]), row[4], row[5])
                if turn not in seen:
                    seen.add(turn)
                    yield turn

    def _compared(
        self, connection: Connection, request: Request, turn: _Turn, found: Found | None, at: int
    ) -> list[Addition] | None:
        """Return what is gone of a turn's request where a message repeats its reply; None for another request."""
        core, messages = self._core, request.messages
        path = segments_to(connection, turn.branch, turn.echo_depth)
        common = (0, 0) if found is None else self._common(connection, path, request, found)
        if common is None:
            return None
        count, low = common
        if turn.depth < low or turn.echo_depth - low > _MOST_BETWEEN:
            return None
        told, reply = core.reader.values(connection, [turn.reply]).get(turn.reply), request.clean(messages[at])
        if not isinstance(told, dict) or not is_echo(core.chain, told, reply) or call_ids(told) != call_ids(reply):
            return None  # a reply without its calls is another one
        if self._has_reply(connection, path, low, turn.depth):
            return None  # what a model answered is no addition
        entries: list[Entry] = core.reader.entries(connection, path, low or -1, turn.depth)
        stored = [entry.message for entry in entries if entry.id is not None]
        begins = [0, *request.trace.ends]
        between = [one for one in range(bisect_right(request.trace.ends, count), at) if begins[one + 1] > begins[one]]
        here = next((part.branch for part in path if part.low < low <= part.high), None)
        asked = here is not None and self._run(connection, self._role, (here, low)).fetchone() == ("user",)
        sent = [request.clean(messages[one]) for one in between]
        return removed_additions(core.chain, stored, sent, follows_question=asked)

    def _has_reply(self, connection: Connection, path: list[Segment], low: int, high: int) -> bool:
        """Return whether a reply to a turn stands between two depths of a path."""
        for part in path:
            values = (part.branch, low, min(high - 1, part.high))
            for branch, depth in self._run(connection, self._answers, values).fetchall():
                if low < depth <= high and any(one.branch == branch and one.low < depth <= one.high for one in path):
                    return True
        return False

    def _common(
        self, connection: Connection, path: list[Segment], request: Request, found: Found
    ) -> tuple[int, int] | None:
        """Return how many blocks of a list a path has, and how deep that is; None where it has none of the newest.

        The message that was found may be one of another conversation, which has only begun with the same words.
        """
        for part in path:
            if part.branch == found.branch and part.low < found.depth <= part.high:
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

    def _name(self, connection: Connection, request: Request, at: int | None, node: bytes) -> None:
        """Let the id that a list has at the end of a message lead to a stored one."""
        if at is None:
            return
        ids = request.marks if request.marks is not None else request.trace.ids
        ident = ids[request.trace.ends[at] - 1]
        if ident != node:
            self._run(connection, self._alias, (ident, node, self._core.tenant))
