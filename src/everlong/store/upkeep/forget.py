"""Forgetting: the words of a message are deleted for good, the tree stays whole.

The content becomes a tombstone wherever the same message was said. Its blocks are remembered by hash, so that they are
not stored again, and every view that was made with it in sight becomes void. Titles taken from
it and logs that repeat it are cleared too. Node rows stay, so the chain still verifies and conversations are still
recognised. Nothing here can be undone.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sqlalchemy import Connection, Row, Select, Table, and_, delete, func, or_, select, union, update

from everlong.errors import NotStored
from everlong.model import blocks_of, title_from
from everlong.store.content import SLOWLY, decoded, digest_of, encoded, unpacked, value_of
from everlong.store.database import in_batches
from everlong.store.outputs import drop_outputs
from everlong.store.paths import Segment, leads_through, segments_to, sessions_along, stretch_of
from everlong.store.schema import (
    annex,
    branch,
    channel_answer,
    channel_conversation,
    channel_file,
    channel_place,
    channel_update,
    compaction,
    content,
    node,
    session as sessions,
    turn,
    view,
    view_item,
)
from everlong.store.session_log import forget_in_logs
from everlong.store.sessions import clean_title, title_base
from everlong.store.shown_path import conversation_of, parts_of, shown_paths
from everlong.store.summaries import void_summaries
from everlong.store.tombstones import stub_of, stub_of_prompt
from everlong.store.tree import inherited_view
from everlong.store.upkeep.garbage import purge_search, remove_from_search
from everlong.store.upkeep.references import drop_unused

if TYPE_CHECKING:
    from everlong.store.core import StoreCore

_log = logging.getLogger("everlong.store")


class Forgotten(NamedTuple):
    """The result of forgetting: the number of messages that lost their words, and of views that became void."""

    messages: int
    views: int
    spared: int = 0
    """Messages of a session that stay, because another session shows them too."""


def forget(core: StoreCore, nodes: Sequence[bytes]) -> Forgotten:
    """Forget messages by their ids, the same words wherever else they stand, and summaries made of them."""
    ahead = None
    # Others who write to a file would have to wait while everything is compared. On a server nobody waits, and a
    # transaction may have taken its numbers and not be committed yet.
    if core.database.backend.name == "sqlite":
        with core.database.read() as connection:
            chosen = [_node_row(core, connection, ident) for ident in nodes]
            ahead = _Forgetting(core, connection).find_alike(chosen)

    def work(connection: Connection) -> _Forgetting:
        chosen = [_node_row(core, connection, ident) for ident in nodes]
        return _Forgetting(core, connection, ahead).run(chosen, [])

    return _clean_up(core, core.database.write(work))


class _FoundAhead(NamedTuple):
    """The contents with the same blocks, found before the transaction that forgets them."""

    sought: frozenset[bytes]
    """The contents that are to be forgotten."""
    alike: frozenset[bytes]
    newest: int
    """The number of the newest content that was compared; later ones have higher numbers."""


def forget_conversation(core: StoreCore, ident: str) -> Forgotten:
    """Forget everything said in the conversation that a session is part of, unless another one shows it.

    That is what it shows, what was taken back, and replies that broke off. Words that others use too stay with those.
    """

    def work(connection: Connection) -> _Forgetting:
        name = conversation_of(connection, core.tenant, ident)
        mine = parts_of(connection, core.tenant, [name])[name]
        return _Forgetting(core, connection).run(_messages_of(core, connection, mine), mine)

    return _clean_up(core, core.database.write(work))


def _clean_up(core: StoreCore, done: _Forgetting) -> Forgotten:
    """Take what was forgotten out of memory, the index's pages and the logs; return the figures."""
    core.checkpoints.clear()
    purge_search(core)
    forget_in_logs(core, done.parts, done.changed)
    remove_files(done.files)
    return done.figures


def _messages_of(core: StoreCore, connection: Connection, parts: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Return the messages of a conversation, also those that it does not show."""
    name, low = parts[0].conversation, min(part.from_depth for part in parts)
    stretches = list(shown_paths(connection, core.tenant, {name: list(parts)})[name].stretches())
    stretches += [part for one in parts if one.branch is not None for part in stretch_of(connection, one)]
    mine = turn.c.session.in_([part.id for part in parts])
    asked = select(turn.c.branch, func.max(turn.c.depth).label("depth")).where(mine).group_by(turn.c.branch)
    for row in connection.execute(asked).all():
        for part in segments_to(connection, row.branch, row.depth):
            stretches.append(part._replace(low=max(part.low, low)))
    found: dict[int, Row[Any]] = {}
    for part in set(stretches):
        query = select(node).where(node.c.branch == part.branch, node.c.depth > part.low, node.c.depth <= part.high)
        found.update({row.seq: row for row in connection.execute(query)})
    answers = select(node).join(turn, turn.c.echo_node == node.c.id).where(mine)
    found.update({row.seq: row for row in connection.execute(answers)})
    return [found[seq] for seq in sorted(found)]


def _node_row(core: StoreCore, connection: Connection, ident: bytes) -> Row[Any]:
    row = connection.execute(select(node).where(node.c.id == ident, node.c.tenant == core.tenant)).first()
    if row is None:
        raise NotStored(f"there is no message {ident.hex()} in {core.database.backend.where}")
    return row


class _Forgetting:
    """One act of forgetting inside one transaction."""

    def __init__(self, core: StoreCore, connection: Connection, ahead: _FoundAhead | None = None) -> None:
        self.core = core
        self.connection = connection
        self._ahead = ahead
        self.parts: set[str] = set()
        """Sessions that are forgotten themselves."""
        self.changed: set[str] = set()
        """Others that have lost a title, or the report of a compaction."""
        self.files: list[str] = []
        """Files that came along with messages of a channel."""
        self.figures = Forgotten(0, 0)

    def run(self, chosen: Sequence[Row[Any]], mine: Sequence[Row[Any]]) -> Self:
        """Forget messages; if they are those of a conversation, whose parts are given, spare others' words."""
        spare_shared = bool(mine)
        asked = len(chosen)
        if mine:
            shown = self._shown_by_others(mine)
            self._drop_beside({row.branch for row in chosen} - {part.branch for part in shown}, mine)
            chosen = [row for row in chosen if not leads_through(shown, row.branch, row.depth)]
        replies = self.replies_of(chosen, mine)
        digests = self.contents_of(chosen, replies)
        numbers = {row.seq for row in chosen}
        shared = self._shared_contents(digests, numbers, {row.id for row in replies}) if spare_shared else set()
        whole = digests - shared
        if not spare_shared:
            whole |= self.contents_alike(whole)
        rows = {row.seq: row for row in chosen}
        rows.update({row.seq: row for row in self._messages_with(whole)})
        places = {(row.branch, row.depth) for row in rows.values()}
        views = self._views_over(places)
        self._drop_errors(places)
        items = self._items_with_literals(views)
        # The index takes its terms out by reading the words once more, so this comes first.
        remove_from_search(self.core, self.connection, [*rows, *(-item.seq for item in items)])
        for row in chosen:
            if bytes(row.digest) in shared:
                self._give_own_tombstone(node, row, bytes(row.id))
        for part in in_batches([row.id for row in replies if bytes(row.reply) in shared]):
            self.connection.execute(update(turn).where(turn.c.id.in_(part)).values(reply=None))
        self._drop_titles(whole, mine)
        self._entomb(whole)
        self._void(views, items)
        void_summaries(self.connection, self.core.tenant, places)
        for part in in_batches(sorted(bytes(row.id) for row in rows.values())):
            drop_outputs(self.connection, self.core.tenant, list(part))
        self.parts = {row.id for row in mine}
        for name in {row.conversation for row in mine}:
            self.files += drop_channel_data(self.connection, self.core.tenant, name)
        self.figures = Forgotten(len(rows), len(views), asked - len(chosen))
        return self

    def _shown_by_others(self, mine: Sequence[Row[Any]]) -> list[Segment]:
        """Return the stretches of branches that other conversations of the same tree show."""
        own = {part.id for part in mine}
        first = {part for one in mine if one.branch is not None for part in stretch_of(self.connection, one)[:1]}
        others = {
            one.id: one
            for part in first
            for one in sessions_along(self.connection, self.core.tenant, [part])
            if one.id not in own and one.branch is not None
        }
        return [part for one in others.values() for part in stretch_of(self.connection, one)]

    def _shared_contents(self, digests: set[bytes], numbers: set[int], turns: set[int]) -> set[bytes]:
        """Return the contents that other messages, or the replies of other turns, hold too."""
        shared: set[bytes] = set()
        for part in in_batches(sorted(digests)):
            said = select(node.c.digest, node.c.seq).where(node.c.digest.in_(part))
            shared |= {bytes(row.digest) for row in self.connection.execute(said) if row.seq not in numbers}
            replied = select(turn.c.reply, turn.c.id).where(turn.c.reply.in_(part))
            shared |= {bytes(row.reply) for row in self.connection.execute(replied) if row.id not in turns}
        return shared

    def contents_of(self, chosen: Sequence[Row[Any]], replies: Sequence[Any]) -> set[bytes]:
        """Return the contents of messages and of replies."""
        return {bytes(row.digest) for row in chosen} | {bytes(row.reply) for row in replies}

    def find_alike(self, chosen: Sequence[Row[Any]]) -> _FoundAhead:
        """Find the contents with a block of some messages, or of the replies that became these."""
        sought = self.contents_of(chosen, self.replies_of(chosen, []))
        newest = self.connection.execute(select(func.max(content.c.seq))).scalar() or 0
        return _FoundAhead(frozenset(sought), frozenset(self.contents_alike(sought)), newest)

    def contents_alike(self, digests: set[bytes]) -> set[bytes]:
        """Return other contents with one of the same blocks: the message in another shape, split, merged or marked."""
        trace, tenant = self.core.chain.trace, self.core.tenant
        messages = [value_of(row.bytes, row.codec) for row in self._live(digests)]
        blocks = {block for message in messages for block in trace([message]).blocks}
        if not blocks:
            return set()
        columns = select(content.c.digest, content.c.bytes, content.c.codec)
        query = columns.where(content.c.tenant == tenant, content.c.state == "live")
        found: set[bytes] = set()
        if self._ahead is not None and self._ahead.sought == digests:
            found |= self._ahead.alike
            query = query.where(content.c.seq > self._ahead.newest)
        needles = {_needle(block.identity) for message in messages for block in blocks_of(message)}
        for row in self.connection.execute(query.execution_options(yield_per=500)):
            data = unpacked(row.bytes, row.codec)
            if not data.startswith(SLOWLY) and not any(needle in data for needle in needles):
                continue  # as nearly all: to hash a message takes ten times as long
            value = decoded(data)
            if isinstance(value, dict) and "role" in value and not blocks.isdisjoint(trace([value]).blocks):
                found.add(bytes(row.digest))
        return found

    def _messages_with(self, digests: set[bytes]) -> Iterator[Row[Any]]:
        """Yield the messages with one of some contents."""
        mine = select(node).where(node.c.tenant == self.core.tenant)
        for part in in_batches(sorted(digests)):
            yield from self.connection.execute(mine.where(node.c.digest.in_(part)))

    def replies_of(self, chosen: Sequence[Row[Any]], mine: Sequence[Row[Any]]) -> list[Any]:
        """Return the replies that became these messages, and all replies of a conversation."""
        asked = select(turn.c.id, turn.c.reply).where(turn.c.tenant == self.core.tenant, turn.c.reply.is_not(None))
        rows: list[Any] = []
        for part in in_batches([bytes(row.id) for row in chosen]):
            rows += self.connection.execute(asked.where(turn.c.echo_node.in_(part))).all()
        for part in in_batches([one.id for one in mine]):
            rows += self.connection.execute(asked.where(turn.c.session.in_(part))).all()
        return rows

    def _live(self, digests: Iterable[bytes]) -> Iterator[Row[Any]]:
        for part in in_batches(sorted(digests)):
            query = select(content).where(content.c.digest.in_(part), content.c.state == "live")
            yield from self.connection.execute(query).all()

    def _entomb(self, digests: Iterable[bytes]) -> None:
        """Turn contents into tombstones; their blocks are never stored again."""
        tenant, now = self.core.tenant, time.time()
        statement = "INSERT INTO tombstone (block, tenant, ts) VALUES (?,?,?) ON CONFLICT DO NOTHING"
        for row in self._live(digests):
            message = value_of(row.bytes, row.codec)
            rows = [(block, tenant, now) for block in sorted(set(self.core.chain.trace([message]).blocks))]
            if rows:
                self.connection.exec_driver_sql(self.core.database.sql(statement), rows)
            values = {"bytes": None, "codec": 0, "state": "forgotten", "stub": stub_of(tenant, message)}
            self.connection.execute(update(content).where(content.c.seq == row.seq).values(values))

    def _drop_titles(self, digests: set[bytes], mine: Sequence[Row[Any]]) -> None:
        """Delete the titles of a conversation, and all that were taken from words that are now forgotten."""
        tenant = self.core.tenant
        messages = (value_of(row.bytes, row.codec) for row in self._live(digests))
        taken = {title_base(title) for one in messages if (title := clean_title(title_from([one]))) is not None}
        titled = select(sessions.c.id, sessions.c.title).where(
            sessions.c.tenant == tenant, sessions.c.title.is_not(None)
        )
        rows = self.connection.execute(titled).all() if taken else []
        gone = {row.id for row in rows if title_base(row.title) in taken} | {row.id for row in mine}
        for part in in_batches(sorted(gone)):
            self.connection.execute(update(sessions).where(sessions.c.id.in_(part)).values(title=None))
        self.changed |= gone

    def _drop_beside(self, branches: set[int], mine: Sequence[Row[Any]]) -> None:
        """Drop what stands beside the messages of a conversation's own branches: thoughts, reminders, system prompts.

        Many conversations begin with the same, so it goes only from this one.
        """
        gone: set[bytes] = set()
        for part in in_batches(sorted(branches)):
            for row in self.connection.execute(select(annex).where(annex.c.branch.in_(part))).all():
                self._give_own_tombstone(annex, row, b"aside %d" % row.seq)
                gone.add(bytes(row.digest))
        for column, owner in _PROMPTS.items():
            for some in in_batches([row.id for row in mine] if owner.type.python_type is str else sorted(branches)):
                used = owner.in_(some), column.is_not(None)
                gone |= set(map(bytes, self.connection.execute(select(column).where(*used)).scalars()))
                self.connection.execute(update(column.table).where(*used).values({column.name: None}))
        drop_unused(self.connection, gone)

    def _give_own_tombstone(self, table: Table, row: Row[Any], name: bytes) -> None:
        """Give a message a tombstone of its own; others who share the words keep them."""
        for held in self._live([bytes(row.digest)]):
            own = digest_of(self.core.tenant, b"forgotten:" + name)
            stub = stub_of(self.core.tenant, value_of(held.bytes, held.codec))
            values = (self.core.tenant, own, None, 0, "forgotten", stub)
            statement = "INSERT INTO content (tenant, digest, bytes, codec, state, stub) VALUES (?,?,?,?,?,?)"
            self.connection.exec_driver_sql(self.core.database.sql(f"{statement} ON CONFLICT DO NOTHING"), values)
            self.connection.execute(update(table).where(table.c.seq == row.seq).values(digest=own))

    def _views_over(self, places: set[tuple[int, int]]) -> list[int]:
        """Return the views that were made with one of the places in sight."""
        usable = view.c.tenant == self.core.tenant, view.c.state != "void"
        found = self._led_through(select(view.c.id, view.c.branch, view.c.saw_depth).where(*usable), places)
        repeating = found
        while repeating:  # on forks to which one of them was carried over
            again = select(view.c.id).where(view.c.origin.in_(repeating), view.c.state != "void")
            repeating = [one for one in self.connection.execute(again).scalars() if one not in found]
            found += repeating
        return found

    def _led_through(self, query: Select[Any], places: set[tuple[int, int]]) -> list[int]:
        """Return the numbers of rows, each with a branch and a depth, to which the path leads through some places."""
        found: list[int] = []
        for ident, number, depth in self.connection.execute(query).all():
            path = segments_to(self.connection, number, depth)
            if any(leads_through(path, *place) for place in places):
                found.append(ident)
        return found

    def _drop_errors(self, places: set[tuple[int, int]]) -> None:
        """Delete the errors of requests that had one of the places in sight: an upstream may have quoted it."""
        mine = turn.c.tenant == self.core.tenant, turn.c.error.is_not(None)
        failed = select(turn.c.id, turn.c.branch, turn.c.depth).where(*mine)
        for part in in_batches(self._led_through(failed, places)):
            self.connection.execute(update(turn).where(turn.c.id.in_(part)).values(error=None))

    def _items_with_literals(self, views: list[int]) -> Sequence[Any]:
        query = select(view_item.c.seq, view_item.c.digest).where(
            view_item.c.view.in_(views), view_item.c.digest.is_not(None)
        )
        return self.connection.execute(query).all()

    def _void(self, views: list[int], items: Sequence[Any]) -> None:
        if not views:
            return
        rewritten = select(view.c.preamble).where(view.c.id.in_(views), view.c.preamble.is_not(None))
        words = {bytes(digest) for digest in self.connection.execute(rewritten).scalars()}
        words |= {bytes(item.digest) for item in items}
        values = {"state": "void", "system_suffix": None, "preamble": None}
        self.connection.execute(update(view_item).where(view_item.c.view.in_(views)).values(digest=None))
        self.connection.execute(update(view).where(view.c.id.in_(views)).values(values))
        # They may quote what a summary lacked, the topic that somebody named, or an upstream that quoted the request.
        mentioned = compaction.c.view_id.in_(views)
        self.changed |= set(self.connection.execute(select(compaction.c.session).where(mentioned)).scalars()) - {None}
        self.connection.execute(update(compaction).where(mentioned).values(report=None, fallback=None))
        drop_unused(self.connection, words)
        shown = select(branch.c.id, branch.c.view_id, branch.c.head_depth).where(branch.c.view_id.in_(views))
        for row in self.connection.execute(shown).all():
            left = inherited_view(self.connection, row.view_id, row.head_depth)
            self.connection.execute(
                update(branch).where(branch.c.id == row.id).values(view_id=left, epoch=branch.c.epoch + 1)
            )


def _needle(identity: bytes) -> bytes:
    """Return bytes that every content with a block has, unless the standard library wrote it; none for a picture."""
    kind, _, told = identity.partition(b":")
    if kind == b"text":
        return encoded(told.decode("utf-8", "surrogatepass")).strip(b'"')
    if kind in {b"call", b"result"}:
        with suppress(ValueError, RecursionError):  # nested too deep to be read back
            return encoded(json.loads(told)[0]).strip(b'"')  # the call's id
    return b""


# -- by words alone ----------------------------------------------------------------------------------------------------


def forget_titles(core: StoreCore, words: str) -> int:
    """Delete titles that hold some words, in whatever case; return how many conversations had one."""

    def work(connection: Connection) -> int:
        titled = select(sessions.c.id, sessions.c.conversation, sessions.c.title).where(
            sessions.c.tenant == core.tenant, sessions.c.title.is_not(None)
        )
        found = [row for row in connection.execute(titled) if words.casefold() in row.title.casefold()]
        for part in in_batches([row.id for row in found]):
            connection.execute(update(sessions).where(sessions.c.id.in_(part)).values(title=None))
        return len({row.conversation for row in found})

    return core.database.write(work)


_PROMPTS = {
    branch.c.preamble: branch.c.id,
    view.c.preamble: view.c.branch,
    turn.c.preamble: turn.c.session,
    sessions.c.preamble: sessions.c.id,
    sessions.c.system_prompt: sessions.c.id,
}
"""The columns that name system prompts, each with that of the session or branch whose they are."""


def find_prompts(core: StoreCore, words: str) -> list[bytes]:
    """Return the system prompts with their tools, and the reminders, that hold some words, in whatever case."""
    from everlong.store.search.corpus import all_texts  # noqa: PLC0415 - loaded only where it is used

    mine = [select(column).where(column.table.c.tenant == core.tenant) for column in (*_PROMPTS, annex.c.digest)]
    live = select(content).where(content.c.digest.in_(union(*mine)), content.c.state == "live")
    with core.database.read() as connection:
        prompts = [(bytes(row.digest), value_of(row.bytes, row.codec)) for row in connection.execute(live)]
    sought = words.casefold()
    return [digest for digest, value in prompts if any(sought in text.casefold() for text in all_texts(value))]


def forget_prompts(core: StoreCore, digests: Sequence[bytes]) -> None:
    """Forget system prompts, with their tools, and reminders."""

    def work(connection: Connection) -> set[str]:
        told: set[str] = set()
        for part in in_batches(digests):
            for row in connection.execute(select(content).where(content.c.digest.in_(part))).all():
                value = value_of(row.bytes, row.codec)
                is_message = isinstance(value, dict) and "role" in value
                stub = stub_of(core.tenant, value) if is_message else stub_of_prompt(value)
                values = {"bytes": None, "codec": 0, "state": "forgotten", "stub": stub}
                connection.execute(update(content).where(content.c.seq == row.seq).values(values))
            had = or_(sessions.c.system_prompt.in_(part), sessions.c.preamble.in_(part))
            told |= set(connection.execute(select(sessions.c.id).where(had)).scalars())
        return told

    forget_in_logs(core, (), core.database.write(work))


# -- channels ----------------------------------------------------------------------------------------------------------


def drop_channel_data(connection: Connection, tenant: str, conversation: str) -> list[str]:
    """Drop what channels keep of a conversation; return the paths of its files, to be removed after the commit."""
    answers = select(channel_answer.c.id).where(
        channel_answer.c.tenant == tenant, channel_answer.c.conversation == conversation
    )
    # The rows stay: a message that comes a second time must not count again.
    mine = channel_update.c.answer.in_(answers)
    connection.execute(update(channel_update).where(mine).values(data=None, state="answered"))
    files = channel_file
    stored = and_(files.c.tenant == tenant, files.c.conversation == conversation)
    paths = list(connection.execute(select(files.c.path).where(stored)).scalars())
    places = channel_place
    bound = and_(places.c.tenant == tenant, places.c.conversation == conversation)
    connection.execute(update(places).where(bound).values(conversation=None, active=0.0))
    for table in (channel_answer, channel_conversation, channel_file):
        gone = and_(table.c.tenant == tenant, table.c.conversation == conversation)
        connection.execute(delete(table).where(gone))
    return paths


def remove_files(paths: Iterable[str]) -> None:
    """Remove files that came along with forgotten messages."""
    for path in paths:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s could not be removed: %s", path, error.strerror or error)
