"""Replies of a store from before conversations: each becomes a message, and each first request gets a session.

An earlier version kept a reply only as what became of its request until somebody sent it back, and began the session
of a gateway's conversation with its second request. Part of `everlong.store.separation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, func, select, update

from everlong.model import Message
from everlong.store.additions import Additions
from everlong.store.content import value_of
from everlong.store.echo import is_echo
from everlong.store.forgotten import read_stub
from everlong.store.former_tree import KnownBranch, KnownTurn, Place, Tree, in_parts, turns_of
from everlong.store.naming import new_session_id
from everlong.store.recognition import Recognizer
from everlong.store.replies import Replies
from everlong.store.schema import content, node, session, turn
from everlong.store.sessions import Sessions
from everlong.store.stateless import Stateless
from everlong.store.tree import Branch

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

PLATFORM = "gateway"
"""Where the sessions come from that are made here: only a gateway stored turns without one."""

_FORKS = 16
"""Forks at one place that are looked through for a reply in another shape."""


class _Held(NamedTuple):
    """A stored reply: side and hash of each of its blocks, and its words unless they were forgotten."""

    blocks: list[tuple[str, bytes]]
    message: Message | None


class FormerReplies:
    """Makes messages of the replies of one tenant, and finds the sessions of requests that have none."""

    def __init__(self, core: StoreCore, connection: Connection) -> None:
        self.core = core
        additions = Additions(core.database, core.chain)
        recognizer, self.opener = Recognizer(core, additions), Sessions(core)
        stateless = Stateless(core, self.opener, recognizer, additions)
        self.replies = Replies(core, stateless, recognizer)
        self.connection = connection
        self.run = core.database.backend.run
        sql = core.database.sql
        self._where = sql("SELECT branch, depth FROM node WHERE id = ?")
        self._said_at = sql("UPDATE node SET ts = ? WHERE id = ?")
        self._noted = sql("UPDATE turn SET echo_node = ?, session = ?, branch = ? WHERE id = ?")
        self._moved = sql("UPDATE turn SET session = ? WHERE id = ?")
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
        """Sessions that were begun here, by request and reply."""

    def place(self) -> None:
        """Put every whole reply into its conversation, and every first request into a session."""
        for some in in_parts([one for one in self.turns if one.reply is not None]):
            self._link(some)
        self._join_first_requests()
        self._join_changed()
        for some in in_parts([one for one in self.turns if one.reply is not None and one.said is None]):
            held = self._held({one.reply for one in some if one.reply is not None})
            for one in some:
                self._add(one, held.get(one.reply or b""))
        self._join_retries()

    # -- replies that are messages already ---------------------------------------------------------------------------

    def _link(self, turns: Sequence[KnownTurn]) -> None:
        """Note by what replies are known, and which messages they are."""
        held = self._held({one.reply for one in turns if one.reply is not None})
        ids: dict[int, bytes] = {}
        for one in turns:
            ident = one.node
            for side, block in held[one.reply].blocks if one.reply in held else []:
                ident = self.core.chain.step(ident, side, block)  # type: ignore[arg-type]
            ids[one.id] = ident
        asked = sorted({ids[one.id] for one in turns if one.said is None and ids[one.id] != one.node})
        rows = self.connection.execute(select(node.c.id, node.c.branch, node.c.depth).where(node.c.id.in_(asked)))
        known = {bytes(row.id): Place(row.branch, row.depth) for row in rows}
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

    def _held(self, digests: Iterable[bytes]) -> dict[bytes, _Held]:
        query = select(content).where(content.c.digest.in_(sorted(digests)))
        found: dict[bytes, _Held] = {}
        for row in self.connection.execute(query):
            if row.state == "live" and row.bytes is not None:
                message = value_of(row.bytes, row.codec)
                blocks = [("a", block) for block in self.core.chain.trace([message]).blocks]
                found[bytes(row.digest)] = _Held(blocks, message)
            elif row.stub is not None:
                proofs = read_stub(row.stub)[1]
                found[bytes(row.digest)] = _Held([(one[0], bytes.fromhex(one[1:])) for one in proofs], None)
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
                one.echo, one.said = ident, Place(number, row[4])
                self.echoes.setdefault(one.node, set()).add(ident)
                return

    def _following(self, place: Place) -> list[int]:
        """Return the branches that messages after a place may be on."""
        forks = self.tree.forks.get(place, [])
        return [place.branch, *forks[-_FORKS:]]

    # -- first requests ------------------------------------------------------------------------------------------------

    def _first_answers(self) -> dict[int, Place]:
        """Return for each branch where a model speaks first on the way to its end."""
        own = (
            select(node.c.branch, func.min(node.c.depth).label("depth"))
            .where(node.c.tenant == self.core.tenant, node.c.role == "assistant")
            .group_by(node.c.branch)
        )
        depths = {row.branch: row.depth for row in self.connection.execute(own)}
        found: dict[int, Place] = {}
        for number, one in self.tree.branches.items():  # parents come before their forks
            above = found.get(one.parent) if one.parent is not None else None
            if above is not None and above.depth <= one.fork_depth:
                found[number] = above
            elif number in depths:
                found[number] = Place(number, depths[number])
        return found

    def _is_first(self, one: KnownTurn) -> bool:
        answer = self.answers.get(one.place.branch)
        return answer is None or answer.depth > one.place.depth

    def _join_first_requests(self) -> None:
        """Give first requests whose reply was sent back the session that went on with it."""
        waiting: dict[Place, list[KnownTurn]] = {}
        for one in self.turns:
            if one.session is None and one.said is not None and self._is_first(one):
                waiting.setdefault(one.said, []).append(one)
        going_on: dict[Place, list[str]] = {}
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
        changed: dict[bytes, list[tuple[Place, bytes, str]]] = {}
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

    def _beginnings(self) -> Iterator[tuple[Place, str]]:
        """Yield for each gateway's conversation where a model speaks first, and its first session."""
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
        self.run(self.connection, self._moved, (ident, one.id))

    # -- replies that nobody sent back ---------------------------------------------------------------------------------

    def _add(self, one: KnownTurn, told: _Held | None) -> None:
        """Make a message of a reply: where the conversation ends with its request, else on a fork."""
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

    def _note(self, one: KnownTurn, ident: bytes | None, owner: str | None) -> Place | None:
        """Note which message a reply has become; where it stands."""
        if ident is None:
            return None
        number, depth = self.run(self.connection, self._where, (ident,)).fetchone()
        self.run(self.connection, self._said_at, (one.ts if one.ended is None else one.ended, ident))
        asked_on = number if one.status == "done" else one.place.branch
        self.run(self.connection, self._noted, (ident, owner, asked_on, one.id))
        one.echo, one.said = ident, Place(number, depth)
        known = self.tree.branches.get(number)
        if known is None:
            known = KnownBranch(number, one.place.branch, one.place.depth, ident, depth, None, one.preamble, None, None)
            self.tree.branches[number] = known
            self.tree.forks.setdefault(one.place, []).append(number)
        known.head, known.head_depth = ident, depth
        if self._is_first(one):
            self.answers.setdefault(number, one.said)
        return one.said

    def _open(self, one: KnownTurn, where: Place) -> str:
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
        """Return what requests were sent with that had tools."""
        found: set[bytes] = set()
        used = {one.preamble for one in self.turns if one.preamble is not None}
        used |= {one.preamble for one in self.tree.branches.values() if one.preamble is not None}
        for some in in_parts(sorted(used)):
            told = self.core.reader.values(self.connection, some)
            found |= {digest for digest, value in told.items() if isinstance(value, dict) and value.get("tools")}
        return found


def _first_of(held: _Held | None) -> bytes | None:
    return held.blocks[0][1] if held is not None and held.blocks else None


def _free_id(connection: Connection, when: float) -> str:
    """Return an id of a session that began at a moment, which no session has."""
    while True:
        ident = new_session_id(when)
        if connection.execute(select(session.c.id).where(session.c.id == ident)).first() is None:
            return ident
