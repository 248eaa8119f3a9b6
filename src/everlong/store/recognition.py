"""Recognition of lists of messages: the stored messages that they go on from, found by what they say.

Only lists that come without a name are recognised: requests of stateless clients, and imports. The deepest message that
the list leads to is found by its hash chain. Where a client has rewritten what it sent before (an addition taken off
its question, a reply in another shape), the rest is aligned with a turn whose reply the client repeats, and the ids
that the client uses from now on become aliases of the stored messages. Reads, except for aliases and what is learnt.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection

from everlong.model import HashChain, Message, blocks_of, calls_of, parts_of, text_of, with_content
from everlong.store.paths import Entry, Segment, segments_to
from everlong.store.tree import PROBES, Match, RecordRequest, find_deepest

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.database import Database

TIMES_UNTIL_KNOWN = 2
"""The number of times after which an addition is taken off later messages before they are stored."""

_MOST_ADDITIONS = 256
"""The most additions of a tenant that are looked for, the newest ones."""
_MOST_MESSAGES = 32
"""The most whole messages that may move along with one question."""
_FEWEST, _LONGEST = 8, 4_000
"""The characters of a start or end that is taken off: shorter ones are too ordinary, and all are read each time."""

AdditionPlace = Literal["start", "end", "block", "message"]


class Addition(NamedTuple):
    """A text at the start or end of a message, a block or a whole message that a client adds and takes off later."""

    where: AdditionPlace
    text: str | None
    """The text of a start or an end; blocks and messages are known by their digest."""
    digest: bytes


def removed_additions(
    chain: HashChain, stored: Sequence[Message], sent: Sequence[Message], *, follows_question: bool = False
) -> list[Addition] | None:
    """Compare the messages of a request with what its client sends in their place one request later.

    Args:
        chain: derives the digests of what is gone.
        stored: the messages of the request, up to its reply.
        sent: what stands in their place now.
        follows_question: whether both come right after a user's message, so that all of the stored ones may be gone.

    Returns:
        What is gone; None where they differ in any other way.
    """
    hashes = [_hashes(chain, message) for message in stored]
    if not sent or not stored:
        is_added = not sent and (not stored or follows_question) and not any(map(_is_working, stored))
        whole = [Addition("message", None, _joined(chain, one)) for one in hashes]
        return whole if is_added and len(stored) <= _MOST_MESSAGES else None
    for place in reversed(range(len(stored))):
        if any(one.get("role") == "assistant" for one in stored[place + 1 :]):
            break  # what stands before a reply is not the newest question
        shorter = _shortened(chain, stored[place], sent[-1])
        if shorter is None:
            continue
        kept = _in_order(hashes[:place], [_hashes(chain, message) for message in sent[:-1]])
        if kept is None:
            continue
        gone = [at for at in range(len(stored)) if at != place and at not in kept]
        if len(gone) > _MOST_MESSAGES or any(_is_working(stored[at]) for at in gone):
            return None
        return [*(Addition("message", None, _joined(chain, hashes[at])) for at in gone), *shorter]
    return None


def _is_working(message: Message) -> bool:
    """Return whether a message calls a tool or answers a call; those do not move along."""
    return message.get("role") == "tool" or any(
        block.identity.startswith((b"call:", b"result:")) for block in blocks_of(message)
    )


def _in_order(stored: Sequence[list[bytes]], sent: Sequence[list[bytes]]) -> set[int] | None:
    """Return where the sent messages stand among the stored ones, in order; None where one is not there."""
    found: set[int] = set()
    place = 0
    for hashes in sent:
        while place < len(stored) and stored[place] != hashes:
            place += 1
        if place == len(stored):
            return None
        found.add(place)
        place += 1
    return found


def _shortened(chain: HashChain, stored: Message, sent: Message) -> list[Addition] | None:
    """Return what is gone from a stored message where the sent one is what is left of it; None where it is not."""
    if stored.get("role") != sent.get("role") or sent.get("role") == "tool":
        return None
    longer, shorter = _said(stored), _said(sent)
    if not shorter or len(shorter) > len(longer):
        return None
    for shift in range(len(longer) - len(shorter) + 1):
        gone = _gone(longer[shift : shift + len(shorter)], shorter)
        if gone is not None:
            outside = [*longer[:shift], *longer[shift + len(shorter) :]]
            blocks = [Addition("block", None, chain.step(b"", "u", one)) for one in outside]
            return [*(Addition(where, text, _digest(chain, where, text)) for where, text in gone), *blocks]
    return None


def _said(message: Message) -> list[bytes]:
    return [block.identity for block in blocks_of(message)]


def _gone(longer: Sequence[bytes], shorter: Sequence[bytes]) -> list[tuple[Literal["start", "end"], str]] | None:
    """Return the texts that are missing at the start of the first block and at the end of the last one."""
    if longer[1:-1] != shorter[1:-1]:
        return None
    if len(longer) > 1:
        before, after = _cut(longer[0], shorter[0]), _cut(longer[-1], shorter[-1])
        if before is None or after is None or before[1] or after[0]:
            return None
        return [*_named("start", before[0]), *_named("end", after[1])]
    both = _cut(longer[0], shorter[0])
    return None if both is None else [*_named("start", both[0]), *_named("end", both[1])]


def _named(where: Literal["start", "end"], text: str) -> list[tuple[Literal["start", "end"], str]]:
    return [(where, text)] if text else []


def _cut(longer: bytes, shorter: bytes) -> tuple[str, str] | None:
    """Return what stands before and after a text in a longer one; None where it does not stand in it."""
    if longer == shorter:
        return "", ""
    if not longer.startswith(b"text:") or not shorter.startswith(b"text:"):
        return None
    whole, part = _text(longer), _text(shorter)
    stripped = part.strip()
    if not stripped:
        return None
    if whole.startswith(part):
        return "", whole[len(part) :]
    if whole.rstrip().endswith(stripped):
        return whole[: whole.rindex(stripped)], ""
    return None


def _text(identity: bytes) -> str:
    return identity.removeprefix(b"text:").decode("utf-8", "surrogatepass")


def _hashes(chain: HashChain, message: Message) -> list[bytes]:
    return list(chain.trace([message]).blocks)


def _joined(chain: HashChain, hashes: Sequence[bytes]) -> bytes:
    return chain.step(b"message", "u", b"".join(hashes))


def _digest(chain: HashChain, where: str, text: str) -> bytes:
    return chain.step(where.encode(), "u", text.encode("utf-8", "surrogatepass"))


class KnownAdditions:
    """The additions that a tenant's clients make often enough to be taken off."""

    def __init__(self, chain: HashChain, rows: Sequence[tuple[AdditionPlace, str | None, bytes]]) -> None:
        self._chain = chain
        texts = [(where, text) for where, text, _ in rows if text is not None and len(text.strip()) >= _FEWEST]
        self._starts = sorted((text for where, text in texts if where == "start"), key=len, reverse=True)
        self._ends = sorted((text for where, text in texts if where == "end"), key=len, reverse=True)
        self._blocks = {digest for where, _, digest in rows if where == "block"}
        self._messages = {digest for where, _, digest in rows if where == "message"}

    def __bool__(self) -> bool:
        return bool(self._starts or self._ends or self._blocks or self._messages)

    def without(self, message: Message) -> Message:
        """Return a newest message with only its lasting words; the message itself where nothing is added to it."""
        if message.get("role") != "user":
            return message
        content = message.get("content")
        if isinstance(content, str):
            left = self._trim(content)
            return message if left == content else with_content(message, left)
        if not isinstance(content, list):
            return message
        parts = [part for part in parts_of(message) if not self._is_added(part)]
        for place in {0, len(parts) - 1} if parts else ():
            text = parts[place].get("text")
            if parts[place].get("type", "text") == "text" and isinstance(text, str):
                left = self._trim(text)
                parts[place] = parts[place] if left == text else {**parts[place], "text": left}
        return message if not parts or parts == content else with_content(message, parts)

    def is_moving(self, message: Message) -> bool:
        """Return whether a whole message is one that moves along before the newest question."""
        return bool(self._messages) and _joined(self._chain, _hashes(self._chain, message)) in self._messages

    def _is_added(self, part: Message) -> bool:
        found = blocks_of({"role": "user", "content": [part]})
        return len(found) == 1 and self._chain.step(b"", "u", found[0].identity) in self._blocks

    def _trim(self, text: str) -> str:
        said = text.rstrip()
        for start in self._starts:
            if said.startswith(start) and said[len(start) :].strip():
                said = said[len(start) :]
                break
        for end in self._ends:
            if said.endswith(end.rstrip()) and said[: -len(end.rstrip())].strip():
                said = said[: -len(end.rstrip())]
                break
        return text if said == text.rstrip() else said


class Additions:
    """The additions that the clients of one tenant were seen to make."""

    def __init__(self, database: Database, chain: HashChain) -> None:
        self._chain = chain
        self._run = database.backend.run
        self._learn = database.sql(
            "INSERT INTO addition (tenant, digest, place, text, times, ts) VALUES (?,?,?,?,?,?)"
            " ON CONFLICT (tenant, digest) DO UPDATE SET times = addition.times + excluded.times, ts = excluded.ts"
        )
        self._known = database.sql(
            "SELECT place, text, digest FROM addition WHERE tenant = ? AND times >= ? ORDER BY ts DESC LIMIT ?"
        )

    def learn(self, connection: Connection, seen: Sequence[Addition]) -> None:
        """Count additions that came and went once more."""
        now = time.time()
        rows = {one.digest: one for one in seen if one.text is None or len(one.text) <= _LONGEST}
        if rows:
            values = [(self._chain.tenant, one.digest, one.where, one.text, 1, now) for one in rows.values()]
            self._run(connection, self._learn, sorted(values, key=lambda row: row[1]))

    def known(self, connection: Connection) -> KnownAdditions:
        """Return the additions that came and went often enough."""
        values = (self._chain.tenant, TIMES_UNTIL_KNOWN, _MOST_ADDITIONS)
        rows = self._run(connection, self._known, values).fetchall()
        return KnownAdditions(self._chain, [(place, text, bytes(digest)) for place, text, digest in rows])


FEWEST_COMMON = 16
"""The fewest characters by which a common beginning of two texts tells that one is made from the other."""


def is_echo(chain: HashChain, reply: Message, said: Message) -> bool:
    """Return whether ``said`` is what a client made of ``reply``: by identity, by a call's id, or by its text."""
    if said.get("role") != "assistant":
        return False
    ours, theirs = chain.trace([reply]).ids, chain.trace([said]).ids
    if ours and theirs and ours[0] == theirs[0]:  # the rest may have been split off, merged or dropped
        return True
    calls = call_ids(reply)
    if calls and not calls.isdisjoint(call_ids(said)):
        return True
    words, other = _words(reply), _words(said)
    shorter, longer = sorted((words, other), key=len)
    return bool(shorter) and (shorter == longer or (len(shorter) >= FEWEST_COMMON and longer.startswith(shorter)))


def call_ids(message: Message) -> set[str]:
    """Return the ids of the calls that a message makes, in either wire format."""
    found = {call.id for call in calls_of(message)}
    found |= {str(part.get("id") or "") for part in parts_of(message) if part.get("type") == "tool_use"}
    return found - {""}


def _words(message: Message) -> str:
    return "".join(text_of(message).casefold().split())


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

    def __init__(self, core: StoreCore, additions: Additions) -> None:
        self._core = core
        self._additions = additions
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
        self._by_id = self._sql(f"{called} WHERE n.id = ?")
        self._by_mark = self._sql(f"{called} WHERE n.mark = ?{newest}")
        self._by_alias = self._sql(f"{called} JOIN alias a ON a.node = n.id WHERE a.id = ?{newest}")
        self._role = self._sql("SELECT role FROM node WHERE branch = ? AND depth = ?")
        self._on_part = self._sql(
            "SELECT depth FROM node WHERE branch = ? AND depth > ? AND depth <= ?"
            " AND (id = ? OR mark = ? OR id IN (SELECT node FROM alias WHERE id = ?))"
        )
        # Very many replies may be equal: only the newest ones are looked at for those of one client.
        equal = f"(SELECT * FROM turn WHERE reply_key = ? ORDER BY id DESC LIMIT {_NEWEST})"  # noqa: S608 - ours
        named = "EXISTS (SELECT 1 FROM session s WHERE s.id = t.session AND COALESCE(s.client_session, '') = ?)"
        self._by_sender = self._sql(f"{turn.format(equal)}t.preamble = ? AND {named}{end}")
        self._by_client = self._sql(f"{turn.format(equal)}{named}{end}")
        self._by_reply = self._sql(f"{turn.format(equal)}t.reply_key IS NOT NULL{end}")
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
        depths = (count, count + _MOST_MESSAGES)  # what was stored may have additions in it
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
        for statement in (self._by_id, self._by_mark, self._by_alias):
            for own, branch, depth in self._run(connection, statement, (ident,)).fetchall():
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
            gone = self._compare(connection, request, turn, found, at)
            if gone is None:
                continue
            self._additions.learn(connection, gone)
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
        seen = set() if seen is None else seen
        key, tenant, name = request.trace.blocks[place], self._core.tenant, request.ext_id or ""
        if request.preamble is not None:
            values = (key, tenant, request.preamble.digest, name)
            yield from self._turns(connection, self._by_sender, values, seen)
        if whose == "client":
            yield from self._turns(connection, self._by_client, (key, tenant, name), seen)
        elif whose == "anyone":
            yield from self._turns(connection, self._by_reply, (key, tenant), seen)

    def _turns(
        self, connection: Connection, statement: str, values: tuple[Any, ...], seen: set[_Turn]
    ) -> Iterator[_Turn]:
        """Yield the turns that a statement finds and that were not seen before."""
        for row in self._run(connection, statement, values).fetchall():
            turn = _Turn(bytes(row[0]), row[1], bytes(row[2]), bytes(row[3]), row[4], row[5])
            if turn not in seen:
                seen.add(turn)
                yield turn

    def _compare(
        self, connection: Connection, request: RecordRequest, turn: _Turn, found: KnownMessage | None, at: int
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
        self, connection: Connection, path: list[Segment], request: RecordRequest, found: KnownMessage
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

    def _add_alias(self, connection: Connection, request: RecordRequest, at: int | None, node: bytes) -> None:
        """Let the id that a list has at the end of a message lead to a stored one."""
        if at is None:
            return
        ids = request.marks if request.marks is not None else request.trace.ids
        ident = ids[request.trace.ends[at] - 1]
        if ident != node:
            self._run(connection, self._alias, (ident, node, self._core.tenant))


def _next_reply(request: RecordRequest, found: KnownMessage | None) -> int | None:
    """Return the number of the first reply behind the message that a list is known to lead to."""
    ends = request.trace.ends
    known = found.blocks if found is not None else 0
    for at in range(bisect_right(ends, known), len(ends)):
        if request.messages[at].get("role") == "assistant" and ends[at] > (ends[at - 1] if at else 0):
            return at
    return None
