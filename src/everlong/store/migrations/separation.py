"""Separation of the conversations that stores before version 0007 joined because they began with the same words.

Those versions kept a reply only as a column of its turn until a client sent it back, and began the session of a
gateway's conversation with its second request. So first every reply becomes a message and every first request gets a
session (`FormerReplies`); then each conversation gets its own branch, view and system prompt (`_Conversations`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select, union, update

from everlong.model import Message, title_from
from everlong.store.branch_map import BranchPlace, KnownBranch, KnownTurn, Tree, turns_of
from everlong.store.content import blob, encoded, value_of
from everlong.store.core import StoreCore
from everlong.store.database import Database, in_batches
from everlong.store.paths import segments_to
from everlong.store.recognition import Additions, Recognizer, is_echo
from everlong.store.schema import branch, compaction, content, node, session, turn, view
from everlong.store.sessions import TOTALS, Sessions, clean_title, new_session_id, title_base, usage_totals
from everlong.store.stateless import StatelessRequests
from everlong.store.tombstones import read_stub
from everlong.store.tree import Branch
from everlong.store.turns import Replies

PLATFORM = "gateway"
"""The platform of the sessions that are opened here: only a gateway stored turns without one."""

_FORKS = 16
"""The newest forks at one place that are searched for a reply in another shape."""


class _FormerReply(NamedTuple):
    """A stored reply: side and hash of each of its blocks, and its message unless it was forgotten."""

    blocks: list[tuple[str, bytes]]
    message: Message | None


class FormerReplies:
    """The replies of one tenant, of which messages are made, and the requests without a session."""

    def __init__(self, core: StoreCore, connection: Connection) -> None:
        self.core = core
        additions = Additions(core.database, core.chain)
        recognizer, self.opener = Recognizer(core, additions), Sessions(core)
        stateless = StatelessRequests(core, self.opener, recognizer, additions)
        self.replies = Replies(core, stateless, recognizer)
        self.connection = connection
        self.run = core.database.backend.run
        sql = core.database.sql
        self._where = sql("SELECT branch, depth FROM node WHERE id = ?")
        self._set_time = sql("UPDATE node SET ts = ? WHERE id = ?")
        self._set_reply = sql("UPDATE turn SET echo_node = ?, session = ?, branch = ? WHERE id = ?")
        self._set_session = sql("UPDATE turn SET session = ? WHERE id = ?")
        self._next = sql(
            "SELECT id, parent, digest, role, depth FROM node WHERE branch = ? AND depth > ? ORDER BY depth LIMIT 1"
        )
        self.tree = Tree(connection, core.tenant)
        self.turns = turns_of(connection, core.tenant, self.tree)
        self.sessions = {
            row.id: row
            for row in connection.execute(
                select(session).where(session.c.tenant == core.tenant).order_by(session.c.started, session.c.id)
            )
        }
        self.on_branch = {row.branch for row in self.sessions.values()}
        self.answers = self._first_answers()
        self.echoes: dict[bytes, set[bytes]] = {}
        """The messages that replies to a request are known to be."""
        for one in self.turns:
            if one.echo is not None:
                self.echoes.setdefault(one.node, set()).add(one.echo)
        self.with_tools = self._preambles_with_tools()
        recognised = {row.branch for row in self.sessions.values() if row.opened is not None}
        self.are_tools_usual = any(
            self.tree.branches[number].preamble in self.with_tools for number in recognised & self.tree.branches.keys()
        )
        self.made: dict[tuple[bytes, bytes], str] = {}
        """The sessions that were opened here, by request and reply."""

    def place(self) -> None:
        """Put every whole reply into its conversation, and every first request into a session."""
        for some in in_batches([one for one in self.turns if one.reply is not None]):
            self._link(some)
        self._join_first_requests()
        self._join_changed()
        for some in in_batches([one for one in self.turns if one.reply is not None and one.said is None]):
            held = self._read_replies({one.reply for one in some if one.reply is not None})
            for one in some:
                self._add(one, held.get(one.reply or b""))
        self._join_retries()

    # -- replies that are messages already -----------------------------------------------------------------------------

    def _link(self, turns: Sequence[KnownTurn]) -> None:
        """Note the keys by which replies are known, and link them with the messages that they are."""
        held = self._read_replies({one.reply for one in turns if one.reply is not None})
        ids: dict[int, bytes] = {}
        for one in turns:
            ident = one.node
            for side, block in held[one.reply].blocks if one.reply in held else []:
                ident = self.core.chain.step(ident, side, block)  # type: ignore[arg-type]
            ids[one.id] = ident
        asked = sorted({ids[one.id] for one in turns if one.said is None and ids[one.id] != one.node})
        rows = self.connection.execute(select(node.c.id, node.c.branch, node.c.depth).where(node.c.id.in_(asked)))
        known = {bytes(row.id): BranchPlace(row.branch, row.depth) for row in rows}
        for one in turns:
            if one.said is None and ids[one.id] in known:
                one.echo, one.said = ids[one.id], known[ids[one.id]]
                self.echoes.setdefault(one.node, set()).add(ids[one.id])
        for one in turns:
            told = held.get(one.reply or b"")
            if one.said is None and one.status == "done" and told is not None and told.message is not None:
                self._link_changed(one, told.message)
        keys = [(_first_of(held.get(one.reply or b"")), one.echo, one.id) for one in turns]
        statement = self.core.database.sql("UPDATE turn SET reply_key = ?, echo_node = ? WHERE id = ?")
        self.run(self.connection, statement, keys)

    def _read_replies(self, digests: Iterable[bytes]) -> dict[bytes, _FormerReply]:
        query = select(content).where(content.c.digest.in_(sorted(digests)))
        found: dict[bytes, _FormerReply] = {}
        for row in self.connection.execute(query):
            if row.state == "live" and row.bytes is not None:
                message = value_of(row.bytes, row.codec)
                blocks = [("a", block) for block in self.core.chain.trace([message]).blocks]
                found[bytes(row.digest)] = _FormerReply(blocks, message)
            elif row.stub is not None:
                proofs = read_stub(row.stub)[1]
                found[bytes(row.digest)] = _FormerReply([(one[0], bytes.fromhex(one[1:])) for one in proofs], None)
        return found

    def _link_changed(self, one: KnownTurn, reply: Message) -> None:
        """Find a reply that its client sent back in another shape."""
        own = self.sessions.get(one.session) if one.session is not None else None
        is_own = own is not None and own.branch in self.tree.branches
        numbers = self._following(one.place)
        if own is not None and is_own:
            numbers = [self.tree.after(one.place, self.tree.end_of(own.branch))]
        linked = self.echoes.get(one.node, set())
        for number in numbers:
            row = self.run(self.connection, self._next, (number, one.place.depth)).fetchone()
            if row is None or row[3] != "assistant":
                continue
            if (one.place.depth > 0) if row[1] is None else bytes(row[1]) != one.node:
                continue
            ident, digest = bytes(row[0]), bytes(row[2])
            said = self.core.reader.values(self.connection, [digest])[digest]
            # In its own session, what an assistant says next is what the client made of the reply.
            if is_echo(self.core.chain, reply, said) or (is_own and ident not in linked):
                one.echo, one.said = ident, BranchPlace(number, row[4])
                self.echoes.setdefault(one.node, set()).add(ident)
                return

    def _following(self, place: BranchPlace) -> list[int]:
        """Return the branches that messages after a place may be on."""
        forks = self.tree.forks.get(place, [])
        return [place.branch, *forks[-_FORKS:]]

    # -- first requests ------------------------------------------------------------------------------------------------

    def _first_answers(self) -> dict[int, BranchPlace]:
        """Return for each branch the place where a model speaks first on the way to its end."""
        own = (
            select(node.c.branch, func.min(node.c.depth).label("depth"))
            .where(node.c.tenant == self.core.tenant, node.c.role == "assistant")
            .group_by(node.c.branch)
        )
        depths = {row.branch: row.depth for row in self.connection.execute(own)}
        found: dict[int, BranchPlace] = {}
        for number, one in self.tree.branches.items():  # parents come before their forks
            above = found.get(one.parent) if one.parent is not None else None
            if above is not None and above.depth <= one.fork_depth:
                found[number] = above
            elif number in depths:
                found[number] = BranchPlace(number, depths[number])
        return found

    def _is_first(self, one: KnownTurn) -> bool:
        answer = self.answers.get(one.place.branch)
        return answer is None or answer.depth > one.place.depth

    def _join_first_requests(self) -> None:
        """Give first requests whose reply was sent back the session that went on with it."""
        waiting: dict[BranchPlace, list[KnownTurn]] = {}
        for one in self.turns:
            if one.session is None and one.said is not None and self._is_first(one):
                waiting.setdefault(one.said, []).append(one)
        going_on: dict[BranchPlace, list[str]] = {}
        for answer, ident in self._beginnings():
            going_on.setdefault(answer, []).append(ident)
        for place, turns in waiting.items():
            # Nobody else has sent the reply back: its session was deleted, and stays so.
            sessions = going_on.get(place, [])
            for number, one in enumerate(turns if sessions else []):
                self._move(one, sessions[min(number, len(sessions) - 1)])

    def _join_changed(self) -> None:
        """Give first requests the session that went on with something else in place of their reply."""
        told = {one.said for one in self.turns}
        changed: dict[bytes, list[tuple[BranchPlace, bytes, str]]] = {}
        for answer, ident in self._beginnings():
            if answer not in told:
                query = select(node.c.id, node.c.parent).where(node.c.branch == answer.branch)
                row = self.connection.execute(query.where(node.c.depth == answer.depth)).one()
                if row.parent is not None:
                    changed.setdefault(bytes(row.parent), []).append((answer, bytes(row.id), ident))
        for one in self.turns:
            later = changed.get(one.node, [])
            if not later or one.session is not None or one.said is not None or one.reply is None:
                continue
            one.said, one.echo, ident = later.pop(0)
            self.connection.execute(update(turn).where(turn.c.id == one.id).values(echo_node=one.echo))
            self._move(one, ident)

    def _beginnings(self) -> Iterator[tuple[BranchPlace, str]]:
        """Yield for each gateway's conversation the place where a model speaks first, and its first session."""
        for row in self.sessions.values():
            answer = self.answers.get(row.branch)
            if answer is not None and row.platform == PLATFORM and row.parent is None and not row.from_depth:
                yield answer, row.id

    def _join_retries(self) -> None:
        """Give first requests that brought nothing the session of the one that repeated them."""
        later: dict[bytes, str] = {}
        for one in reversed(self.turns):
            if one.session is not None:
                later[one.node] = one.session
            elif one.reply is None and one.node in later and self._is_first(one):
                self._move(one, later[one.node])

    def _move(self, one: KnownTurn, ident: str) -> None:
        one.session = ident
        self.run(self.connection, self._set_session, (ident, one.id))

    # -- replies that nobody sent back ---------------------------------------------------------------------------------

    def _add(self, one: KnownTurn, told: _FormerReply | None) -> None:
        """Make a message of a reply: behind its request if the conversation ends there, else on a fork."""
        if one.session is None and not self._is_first(one):
            return  # of a session that was deleted
        if one.reply is None or told is None or told.message is None or not told.blocks:
            return
        place, replies = one.place, self.replies
        at = Branch(place.branch, one.node, place.depth)
        if one.status != "done":
            self._note(one, replies.add_broken(self.connection, at, told.message), one.session)
            return
        key = (one.node, one.reply)
        is_end = self.tree.branches[place.branch].head == one.node
        is_apart = not is_end or (one.session is None and place.branch in self.on_branch)
        if is_apart:
            ident = replies.add_broken(self.connection, at, told.message)
        else:
            ident = replies.add(self.connection, at, None, told.message).node
        where = self._note(one, ident, one.session)
        if key in self.made:
            self._move(one, self.made[key])
        elif where is not None and (is_apart or one.session is None):
            self.made[key] = self._open(one, where)
            self._move(one, self.made[key])

    def _note(self, one: KnownTurn, ident: bytes | None, owner: str | None) -> BranchPlace | None:
        """Note which message a reply has become; return its place."""
        if ident is None:
            return None
        number, depth = self.run(self.connection, self._where, (ident,)).fetchone()
        self.run(self.connection, self._set_time, (one.ts if one.ended is None else one.ended, ident))
        asked_on = number if one.status == "done" else one.place.branch
        self.run(self.connection, self._set_reply, (ident, owner, asked_on, one.id))
        one.echo, one.said = ident, BranchPlace(number, depth)
        known = self.tree.branches.get(number)
        if known is None:
            known = KnownBranch(number, one.place.branch, one.place.depth, ident, depth, None, one.preamble, None, None)
            self.tree.branches[number] = known
            self.tree.forks.setdefault(one.place, []).append(number)
        known.head, known.head_depth = ident, depth
        if self._is_first(one):
            self.answers.setdefault(number, one.said)
        return one.said

    def _open(self, one: KnownTurn, where: BranchPlace) -> str:
        """Open the session of a conversation that nobody went on with."""
        old = self.sessions.get(one.session) if one.session is not None else None
        about: dict[str, Any] = {"platform": PLATFORM, "model": one.model, "preamble": one.preamble}
        if old is not None:
            about = {"platform": old.platform, "model": one.model or old.model, "works_for": old.conversation}
            about |= {"client": old.client, "client_session": old.client_session, "opened": old.opened}
        else:
            about["opened"] = one.place.depth
            # Where clients work with tools, a lone request without them was for a title or a quota.
            is_aside = self.are_tools_usual and one.preamble not in self.with_tools
            about["kind"] = "side" if is_aside else "main"
            if where.branch == one.place.branch:
                about["client_session"] = self.tree.branches[where.branch].ext_id
        ident = _free_id(self.connection, one.ts)
        self.opener.open_in(self.connection, Branch(where.branch, one.echo or b"", where.depth), ident=ident, **about)
        times = {"started": one.ts, "active": one.ts if one.ended is None else one.ended}
        self.connection.execute(update(session).where(session.c.id == ident).values(times))
        self.on_branch.add(where.branch)
        return ident

    def _preambles_with_tools(self) -> set[bytes]:
        """Return the preambles that have tools."""
        found: set[bytes] = set()
        used = {one.preamble for one in self.turns if one.preamble is not None}
        used |= {one.preamble for one in self.tree.branches.values() if one.preamble is not None}
        for some in in_batches(sorted(used)):
            told = self.core.reader.values(self.connection, some)
            found |= {digest for digest, value in told.items() if isinstance(value, dict) and value.get("tools")}
        return found


def _first_of(held: _FormerReply | None) -> bytes | None:
    return held.blocks[0][1] if held is not None and held.blocks else None


def _free_id(connection: Connection, when: float) -> str:
    """Return a free id for a session that began at a moment."""
    while True:
        ident = new_session_id(when)
        if connection.execute(select(session.c.id).where(session.c.id == ident)).first() is None:
            return ident


CONTINUED = "continued"
"""The end reason of a part that went on in a session of its own without a compaction."""

_SAME_MOMENT = 5.0
"""Seconds within which one step of an earlier version has written all of its rows."""
_TITLE_BLOCKS = 64


def has_messages(connection: Connection) -> bool:
    """Return whether a database of any version holds a message."""
    return connection.execute(select(node.c.seq).limit(1)).first() is not None


def separate(database: Database, connection: Connection) -> None:
    """Separate the joined conversations of every tenant."""
    for tenant in connection.execute(union(select(branch.c.tenant), select(session.c.tenant))).scalars().all():
        core = StoreCore(database, tenant)
        FormerReplies(core, connection).place()
        _Conversations(core, connection).part()
        _finish_sessions(core, connection)


@dataclass(slots=True)
class _FormerSession:
    """The part of a session's row that may change here."""

    id: str
    parent: str | None
    conversation: str
    branch: int | None
    from_depth: int
    to_depth: int | None
    works_for: str | None
    opened: int | None
    system_prompt: bytes | None
    started: float
    ended: float | None
    end_reason: str | None
    origin: str | None

    @property
    def is_imported(self) -> bool:
        """True if it was imported from a file."""
        return "import" in json.loads(self.origin or "{}")


class _Claims:
    """The depths that conversations are known to reach on each branch; of each branch the two deepest ones."""

    def __init__(self) -> None:
        self._on: dict[int, list[tuple[int, str]]] = {}

    def add(self, place: BranchPlace, conversation: str) -> None:
        """Note that a conversation reaches a place."""
        here = [one for one in self._on.get(place.branch, []) if one[1] != conversation or one[0] > place.depth]
        if not any(one[1] == conversation for one in here):
            here.append((place.depth, conversation))
        self._on[place.branch] = sorted(here, reverse=True)[:2]

    def spread(self, tree: Tree) -> None:
        """Extend the claims on forks to the branches that lead to them."""
        for number in sorted(tree.branches, reverse=True):  # forks come before what they come from
            one = tree.branches[number]
            if one.parent is not None:
                for _, conversation in self._on.get(number, []):
                    place = tree.place(one.parent, one.fork_depth)
                    self.add(place, conversation)

    def are_others_beyond(self, number: int, depth: int, conversation: str) -> bool:
        """Return whether another conversation goes on after a depth of a branch."""
        return any(deep > depth and other != conversation for deep, other in self._on.get(number, []))


class _Conversations:
    """The conversations of one tenant, each of which gets its own sessions, branch, view and system prompt."""

    def __init__(self, core: StoreCore, connection: Connection) -> None:
        self.core = core
        self.connection = connection
        self.tree = Tree(connection, core.tenant)
        self.turns = turns_of(connection, core.tenant, self.tree)
        names = [field.name for field in fields(_FormerSession)]
        query = select(*(session.c[name] for name in names)).where(session.c.tenant == core.tenant)
        rows = connection.execute(query.order_by(session.c.started, session.c.id)).all()
        self.sessions = {row.id: _FormerSession(*row) for row in rows}
        self.before = {row.id: row._mapping for row in rows}  # noqa: SLF001 - the documented way to a row's names
        self.of_session: dict[str, list[KnownTurn]] = {}
        for told in self.turns:
            if told.session is not None:
                self.of_session.setdefault(told.session, []).append(told)
        self.claims = _Claims()
        self.parts: dict[str, list[_FormerSession]] = {}
        """The sessions of each conversation."""
        for one in self.sessions.values():
            self.parts.setdefault(one.conversation, []).append(one)

    def part(self) -> None:
        """Separate the conversations."""
        self._merge_continued()
        self._merge_resumed()
        for conversation, line in self.parts.items():
            for one in line:
                self._claim(one, conversation)
        self.claims.spread(self.tree)
        ends = {name: end for name, line in self.parts.items() if (end := self._end_of(name, line)) is not None}
        self._give_branches(ends)
        self._write()

    # -- sessions that only go on where another one left off -----------------------------------------------------------

    def _merge_continued(self) -> None:
        """Make sessions that began in mid-conversation parts of the conversation that they continue."""
        said: dict[BranchPlace, list[KnownTurn]] = {}
        for told in self.turns:
            if told.session in self.sessions:
                said.setdefault(told.end, []).append(told)
        parents = {one.parent for one in self.sessions.values()}
        left = [one for one in self.sessions.values() if one.end_reason == "branch"]
        for one in self.sessions.values():
            is_begun = one.parent is None and one.opened is None and one.from_depth > 0
            if not is_begun or one.branch is None or one.branch not in self.tree.branches:
                continue
            first = self.tree.place(one.branch, one.from_depth)
            old = self._forked_from(left, one, first)
            if old is not None:
                one.works_for, one.from_depth = old.conversation, 0
                continue
            last = self._last_before(one, said.get(first, [])) or self._last_before(one, self._said_before(first, said))
            if last is None or last.session is None:
                continue
            old = self.sessions[last.session]
            if self.of_session[old.id][-1] is last and old.id not in parents:
                self._continue(old, one, one.from_depth)
                old.branch = one.branch
                parents.add(old.id)
            else:  # two went on from the same place
                one.works_for, one.from_depth = old.conversation, 0

    def _forked_from(
        self, left: Sequence[_FormerSession], one: _FormerSession, first: BranchPlace
    ) -> _FormerSession | None:
        """Return the session that a person left for this one, so that it would stay as it was."""
        for old in left:
            if old.ended is None or old.branch is None or old.branch not in self.tree.branches:
                continue
            if abs(old.ended - one.started) < _SAME_MOMENT and self.tree.place(old.branch, old.to_depth or 0) == first:
                return old
        return None

    def _last_before(self, one: _FormerSession, turns: Sequence[KnownTurn]) -> KnownTurn | None:
        """Return the turn of the same host that a session goes on from."""
        candidates = [
            last
            for last in turns
            if last.session is not None
            and last.session != one.id
            and self.sessions[last.session].system_prompt == one.system_prompt
            and self.sessions[last.session].opened is None
            and (last.ts if last.ended is None else last.ended) <= one.started + _SAME_MOMENT
        ]
        return max(candidates, key=lambda last: last.id, default=None)

    def _said_before(self, place: BranchPlace, said: dict[BranchPlace, list[KnownTurn]]) -> list[KnownTurn]:
        """Return the turns that end with the message before a place."""
        above = node.alias()
        query = select(above.c.branch, above.c.depth).join(node, node.c.parent == above.c.id)
        row = self.connection.execute(query.where(node.c.branch == place.branch, node.c.depth == place.depth)).first()
        return [] if row is None else said.get(BranchPlace(row.branch, row.depth), [])

    def _merge_resumed(self) -> None:
        """Make sessions that a client resumed under another name parts of the conversation that they continue."""
        together: dict[int, list[_FormerSession]] = {}
        for one in self.sessions.values():
            if one.opened is not None and one.branch is not None and not one.is_imported:
                together.setdefault(one.branch, []).append(one)
        for some in together.values():
            for old, one in pairwise(some):
                mine, its = self.of_session.get(one.id, []), self.of_session.get(old.id, [])
                if one.parent is not None or one.from_depth or old.ended is not None or not mine or not its:
                    continue
                if max(last.id for last in its) < mine[0].id and self._deepest(its) <= mine[0].place.depth:
                    self._continue(old, one, self._deepest(its))
                    one.from_depth = self._deepest(its)

    def _deepest(self, turns: Sequence[KnownTurn]) -> int:
        return max(one.end.depth for one in turns)

    def _continue(self, old: _FormerSession, one: _FormerSession, depth: int) -> None:
        """Make a session the next part of another one's conversation."""
        moved = self.parts.pop(one.conversation)
        for part in moved:
            part.conversation = old.conversation
        self.parts[old.conversation] += moved
        one.parent = old.id
        old.to_depth = depth
        old.ended = one.started if old.ended is None else old.ended
        old.end_reason = old.end_reason or CONTINUED

    # -- where conversations end ---------------------------------------------------------------------------------------

    def _claim(self, one: _FormerSession, conversation: str) -> None:
        turns = self.of_session.get(one.id, [])
        for last in turns:
            self.claims.add(last.place, conversation)
            if last.said is not None and last.status == "done":
                self.claims.add(last.said, conversation)
        if not turns and one.to_depth and one.branch is not None and one.branch in self.tree.branches:
            self.claims.add(self.tree.place(one.branch, one.to_depth), conversation)

    def _end_of(self, conversation: str, parts: Sequence[_FormerSession]) -> tuple[_FormerSession, BranchPlace] | None:
        """Return the last part of a conversation and the place where it ends by its own turns; None if that is open."""
        parents = {one.parent for one in parts}
        open_ends = [one for one in parts if one.id not in parents and one.branch in self.tree.branches]
        if not open_ends or open_ends[-1].to_depth == 0:
            return None
        last = open_ends[-1]
        assert last.branch is not None  # noqa: S101 - it is among the branches
        shown = self.tree.end_of(last.branch)
        if last.to_depth is not None:
            shown = self.tree.place(last.branch, last.to_depth)
        turns = [told for part in parts for told in self.of_session.get(part.id, [])]
        if not turns:
            return (last, shown) if last.to_depth is not None else None
        newest = max(turns, key=lambda told: told.id)
        told = newest.end if newest.status == "done" else newest.place
        if self.tree.is_on(told, shown):
            behind = self.tree.after(told, shown)
            is_others = shown != told and self.claims.are_others_beyond(behind, told.depth, conversation)
            return last, told if is_others else shown
        if self.tree.is_on(shown, told):  # it was taken back
            return last, shown if last.to_depth is not None else told
        parted = self.tree.common(told, shown)
        is_others = self.claims.are_others_beyond(self.tree.after(parted, shown), parted.depth, conversation)
        return last, told if is_others else shown

    # -- branches ------------------------------------------------------------------------------------------------------

    def _give_branches(self, ends: dict[str, tuple[_FormerSession, BranchPlace]]) -> None:
        """Let each conversation end on a branch that nobody else's does."""
        owners = self._owners_of_views()
        prompts = _Prompts(self.core, self.connection, self.tree, [one for one, _ in ends.values()])
        by_branch: dict[int, list[tuple[str, _FormerSession, BranchPlace]]] = {}
        for conversation, (last, end) in ends.items():
            by_branch.setdefault(end.branch, []).append((conversation, last, end))
        for number, some in by_branch.items():
            there = self.tree.branches[number]
            some.sort(key=lambda one: (-one[2].depth, one[1].started))
            is_free = True
            for conversation, last, end in some:
                is_others = self.claims.are_others_beyond(number, end.depth, conversation)
                shown = self._own_view(conversation, there.view_id, end.depth, owners)
                if is_free and not is_others:
                    is_free = False
                    last.branch = number
                    self._show(number, there.view_id, shown, prompts.own(last, there.preamble), there.preamble)
                    at_end = there.head_depth == end.depth and last.ended is None
                    last.to_depth = None if at_end else end.depth
                else:
                    self._branch_off(last, end, shown, prompts)

    def _branch_off(self, last: _FormerSession, end: BranchPlace, shown: int | None, prompts: _Prompts) -> None:
        """Put the end of a conversation on a branch of its own, which has no messages yet."""
        there = self.tree.branches[end.branch]
        head = self.connection.execute(
            select(node.c.id).where(node.c.branch == end.branch, node.c.depth == end.depth)
        ).scalar()
        if head is None:  # a place in the middle of a message, which no turn names
            return
        values = {
            "tenant": self.core.tenant,
            "parent": end.branch,
            "fork_depth": end.depth,
            "head": bytes(head),
            "head_depth": end.depth,
            "view_id": shown,
            "epoch": 0,
            "preamble": prompts.own(last, there.preamble),
            "ts": last.started,
        }
        key = self.connection.execute(branch.insert().values(values)).inserted_primary_key
        assert key is not None  # noqa: S101 - an insert gives one
        last.branch = int(key[0])
        last.to_depth = None if last.ended is None else end.depth

    def _show(self, number: int, view_id: int | None, shown: int | None, own: bytes | None, held: bytes | None) -> None:
        values: dict[str, Any] = {}
        if shown != view_id:
            values |= {"view_id": shown, "epoch": branch.c.epoch + 1}
        if own != held:
            values["preamble"] = own
        if values:
            self.connection.execute(update(branch).where(branch.c.id == number).values(values))

    def _owners_of_views(self) -> dict[int, str]:
        """Return the conversation in which each view was made."""
        made = select(compaction.c.view_id, compaction.c.session).where(
            compaction.c.tenant == self.core.tenant,
            compaction.c.view_id.is_not(None),
            compaction.c.session.is_not(None),
        )
        rows = self.connection.execute(made)
        return {row.view_id: self.sessions[row.session].conversation for row in rows if row.session in self.sessions}

    def _own_view(self, conversation: str, view_id: int | None, depth: int, owners: dict[int, str]) -> int | None:
        """Return the newest view of a chain that is no other conversation's."""
        while view_id is not None:
            row = self.connection.execute(select(view).where(view.c.id == view_id)).first()
            if row is None:
                return None
            is_usable = row.saw_depth <= depth and row.state != "void"
            if is_usable and owners.get(view_id, conversation) == conversation:
                return view_id
            view_id = row.prev
        return None

    def _write(self) -> None:
        """Write the sessions that have changed."""
        for one in self.sessions.values():
            before = self.before[one.id]
            changed = {name: getattr(one, name) for name in before if getattr(one, name) != before[name]}
            if changed:
                self.connection.execute(update(session).where(session.c.id == one.id).values(changed))


class _Prompts:
    """The system prompts of conversations whose branches carry one another's."""

    def __init__(self, core: StoreCore, connection: Connection, tree: Tree, sessions: Iterable[_FormerSession]) -> None:
        self._core = core
        self._connection = connection
        self._tree = tree
        own = [
            one for one in sessions if one.opened is None and one.system_prompt is not None and one.branch is not None
        ]
        self._values: dict[bytes, Any] = {}
        self._load({bytes(one.system_prompt or b"") for one in own})
        self._together: dict[int, set[str]] = {}
        """The texts of the system prompts, by the branch that the sessions come from."""
        for one in own:
            words = self._values.get(bytes(one.system_prompt or b""))
            if isinstance(words, str):
                self._together.setdefault(tree.root_of(one.branch or 0), set()).add(words)

    def _load(self, digests: Iterable[bytes]) -> None:
        self._values |= self._core.reader.values(self._connection, set(digests) - self._values.keys())

    def own(self, one: _FormerSession, preamble: bytes | None) -> bytes | None:
        """Return the preamble of a session's branch, with the session's own system prompt in place of another's."""
        if preamble is None or one.opened is not None or one.system_prompt is None or one.branch is None:
            return preamble
        there = self._together.get(self._tree.root_of(one.branch), set())
        mine = self._values.get(bytes(one.system_prompt))
        if len(there) == 1 or not isinstance(mine, str):
            return preamble
        self._load([preamble])
        sent = self._values.get(preamble)
        system = sent.get("system") if isinstance(sent, dict) else None
        if sent is None or not system or len(system) != 1:
            return preamble
        words = system[0].get("content")
        if words == mine or words not in there:
            return preamble
        changed = {"system": [{**system[0], "content": mine}], "tools": sent.get("tools")}
        made = blob(self._core.tenant, encoded(changed))
        self._core.recorder.add_contents(self._connection, self._core.tenant, [(made, [])])
        return made.digest


# -- titles and totals -------------------------------------------------------------------------------------------------


def _finish_sessions(core: StoreCore, connection: Connection) -> None:
    """Give conversations without a title one, and sessions the totals of their turns."""
    totals: dict[str, dict[str, Any]] = {}
    query = select(turn.c.session, turn.c.usage, turn.c.cost, turn.c.status)
    for row in connection.execute(query.where(turn.c.tenant == core.tenant, turn.c.session.is_not(None))):
        used = totals.setdefault(row.session, dict.fromkeys((*TOTALS, "cost"), 0))
        if row.status == "open":  # it has not ended, and counts when it has
            continue
        added = usage_totals(json.loads(row.usage) if row.usage else {}) | {"api_calls": 1, "cost": row.cost}
        for name in used:
            used[name] += added[name]
    names = (*TOTALS, "cost")
    statement = f"UPDATE session SET {', '.join(f'{name} = ?' for name in names)} WHERE id = ?"  # noqa: S608 - our own
    rows = [(*(used[name] for name in names), ident) for ident, used in totals.items()]
    if rows:
        core.database.backend.run(connection, core.database.sql(statement), rows)
    parts = select(session).where(session.c.tenant == core.tenant).order_by(session.c.started, session.c.id)
    lines: dict[str, list[Any]] = {}
    for row in connection.execute(parts).all():
        lines.setdefault(row.conversation, []).append(row)
    for line in lines.values():
        _give_titles(core, connection, line)


def _give_titles(core: StoreCore, connection: Connection, line: Sequence[Any]) -> None:
    if all(row.title is not None for row in line):
        return
    base = next((title_base(row.title) for row in line if row.title is not None), None)
    if base is None and line[0].branch is not None:
        path = segments_to(connection, line[0].branch, _TITLE_BLOCKS)
        entries = core.reader.entries(connection, path, -1, _TITLE_BLOCKS)
        said = [entry.message for entry in entries if entry.id is not None and not entry.forgotten]
        first = next((place for place, one in enumerate(said) if one.get("role") == "assistant"), len(said))
        base = clean_title(title_from(said[:first]))
    for number, row in enumerate(line, 1):
        if row.title is None and base is not None:
            title = base if number == 1 else f"{base} #{number}"
            connection.execute(update(session).where(session.c.id == row.id).values(title=title))
