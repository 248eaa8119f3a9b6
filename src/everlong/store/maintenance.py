"""The maintenance of a store: garbage collection, retention by age and size, backup, vacuum, figures.

Garbage is everything that no session leads to. Nothing is removed that a session's branch still passes through, or
that is younger than a day, unless asked. Retention is off by default. This module never changes a message.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select, text, union, union_all, update

from everlong.errors import StoreError, StoreUnavailable
from everlong.store import leases
from everlong.store.database import in_batches
from everlong.store.paths import segments_to
from everlong.store.schema import (
    addition,
    alias,
    annex,
    branch,
    compaction,
    content,
    node,
    output,
    pending,
    pin,
    receipt,
    reply_name,
    session,
    summary,
    turn,
    vector_block,
    vector_pending,
    view,
    view_item,
)
from everlong.store.search.corpus import Corpus
from everlong.store.search.upkeep import IndexUpkeep, index_for
from everlong.store.sessions import Session, Sessions
from everlong.store.sqlite import copy_file
from everlong.store.summaries import drop_summaries

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.database import Database

DAY = 86_400.0
_LOCAL = "local"
"""The tenant of conversations without a gateway key."""


class CollectedGarbage(NamedTuple):
    """The number of branches, messages and contents that a collection removed."""

    branches: int
    messages: int
    contents: int


def tenants(database: Database) -> list[str]:
    """Return everybody who has something in a store: the user first, then the keys of gateways by name."""
    held = union(*(select(table.c.tenant) for table in (session, branch, content, turn)))
    with database.read() as connection:
        found = {str(name) for name in connection.execute(held).scalars()}
    return [_LOCAL, *sorted(found - {_LOCAL})]


def collect_garbage(core: StoreCore, min_age: float = DAY) -> CollectedGarbage:
    """Remove branches, or the ends of branches, that no session leads to and that were begun long enough ago."""

    def work(connection: Connection) -> CollectedGarbage:
        now = time.time()
        needed = _needed_depths(core, connection, now - min_age)
        branches = messages = 0
        rows = connection.execute(
            core.database.backend.locked(select(branch).where(branch.c.tenant == core.tenant).order_by(branch.c.id))
        ).all()
        for row in rows:
            keep = needed.get(row.id)
            if keep is not None and keep >= row.head_depth:
                continue
            messages += _cut_branch(core, connection, row, keep)
            branches += keep is None
        if messages:
            _clean_up_after_cuts(core, connection)
        contents = _delete_unused_contents(core, connection)
        leases.sweep(connection, now - DAY)
        return CollectedGarbage(branches, messages, contents)

    collected = core.database.write(work)
    purge_search(core)
    return collected


def _needed_depths(core: StoreCore, connection: Connection, before: float) -> dict[int, int]:
    """Return the depth to which sessions, their turns, young branches and the forks of those need each branch."""
    held = select(branch.c.id, branch.c.head_depth).where(branch.c.tenant == core.tenant)
    with_session = held.where(branch.c.id.in_(select(session.c.branch).where(session.c.tenant == core.tenant)))
    # What was asked and answered in a session stays with it: also what was taken back, and replies that broke off.
    of_session = turn.c.tenant == core.tenant, turn.c.session.is_not(None)
    asked = select(turn.c.branch, func.max(turn.c.depth)).where(*of_session).group_by(turn.c.branch)
    said = select(node.c.branch, func.max(node.c.depth)).join(turn, turn.c.echo_node == node.c.id).where(*of_session)
    young = held.where(branch.c.ts >= before)
    tops: dict[int, int] = {}
    for number, depth in connection.execute(union_all(with_session, young, asked, said.group_by(node.c.branch))):
        tops[number] = max(depth, tops.get(number, 0))
    needed: dict[int, int] = {}
    for number, depth in tops.items():
        for part in segments_to(connection, number, depth):
            needed[part.branch] = max(part.high, needed.get(part.branch, 0))
    _need_origins(core, connection, needed)
    return needed


def _need_origins(core: StoreCore, connection: Connection, needed: dict[int, int]) -> None:
    """Add the depths that a view saw, as long as a needed branch repeats the view: they may have to be forgotten."""
    source = view.alias()
    repeated = select(view.c.branch, source.c.branch.label("source"), source.c.saw_depth).join(
        source, source.c.id == view.c.origin
    )
    waiting = connection.execute(repeated.where(view.c.tenant == core.tenant)).all()
    while due := [row for row in waiting if row.branch in needed]:
        waiting = [row for row in waiting if row.branch not in needed]
        for row in due:
            for part in segments_to(connection, row.source, row.saw_depth):
                needed[part.branch] = max(part.high, needed.get(part.branch, 0))


def _cut_branch(core: StoreCore, connection: Connection, row: Any, keep: int | None) -> int:
    """Remove a branch's nodes below a depth, or all of it."""
    low = row.fork_depth if keep is None else keep
    doomed = select(node.c.seq).where(node.c.branch == row.id, node.c.depth > low)
    seqs = list(connection.execute(doomed).scalars())
    gone_views = select(view.c.id).where(view.c.branch == row.id, view.c.saw_depth > low)
    items = select(view_item.c.seq).where(view_item.c.view.in_(gone_views), view_item.c.digest.is_not(None))
    remove_from_search(core, connection, [*seqs, *(-seq for seq in connection.execute(items).scalars())])
    for table in (pin, output, alias):
        connection.execute(delete(table).where(table.c.node.in_(select(node.c.id).where(node.c.seq.in_(doomed)))))
    drop_summaries(connection, row.id, low)
    connection.execute(delete(node).where(node.c.branch == row.id, node.c.depth > low))
    shown = select(branch.c.id, branch.c.view_id).where(branch.c.view_id.in_(gone_views))
    for user in connection.execute(shown).all():
        connection.execute(update(branch).where(branch.c.id == user.id).values(view_id=None, epoch=branch.c.epoch + 1))
    doomed_views = list(connection.execute(gone_views).scalars())
    connection.execute(update(view).where(view.c.prev.in_(doomed_views)).values(prev=None))
    connection.execute(delete(view_item).where(view_item.c.view.in_(doomed_views)))
    connection.execute(delete(view).where(view.c.id.in_(doomed_views)))
    if keep is None:
        connection.execute(delete(annex).where(annex.c.branch == row.id))
        _cut_turns(connection, turn.c.branch == row.id)
        connection.execute(delete(compaction).where(compaction.c.branch == row.id, compaction.c.session.is_(None)))
        connection.execute(delete(branch).where(branch.c.id == row.id))
    else:
        connection.execute(delete(annex).where(annex.c.branch == row.id, annex.c.depth >= keep))
        _cut_turns(connection, turn.c.branch == row.id, turn.c.depth > keep)
        head = connection.execute(select(node.c.id).where(node.c.branch == row.id, node.c.depth == keep)).scalar_one()
        connection.execute(update(branch).where(branch.c.id == row.id).values(head=head, head_depth=keep))
    return len(seqs)


def _cut_turns(connection: Connection, *which: ColumnElement[bool]) -> None:
    """Remove turns with their names."""
    connection.execute(delete(reply_name).where(reply_name.c.turn.in_(select(turn.c.id).where(*which))))
    connection.execute(delete(turn).where(*which))


def _clean_up_after_cuts(core: StoreCore, connection: Connection) -> None:
    """Delete everything that pointed at removed messages."""
    gone = turn.c.echo_node.is_not(None), ~exists().where(node.c.id == turn.c.echo_node)
    connection.execute(update(turn).where(turn.c.tenant == core.tenant, *gone).values(echo_node=None))
    drop_additions(core, connection)


def drop_additions(core: StoreCore, connection: Connection) -> None:
    """Delete known additions of clients that no stored message has any more."""
    query = select(addition.c.digest, addition.c.text).where(
        addition.c.tenant == core.tenant, addition.c.text.is_not(None)
    )
    left = {bytes(row.digest): str(row.text).strip() for row in connection.execute(query)}
    if not left:
        return
    # It was learnt from a message that has a second name since, or stands in one that is kept as it was sent.
    learnt = select(node.c.digest).join(alias, alias.c.node == node.c.id).where(node.c.tenant == core.tenant)
    kept = select(annex.c.digest).where(annex.c.tenant == core.tenant, annex.c.kind == "addition")
    digests = [bytes(digest) for digest in connection.execute(union(learnt, kept)).scalars()]
    for some in in_batches(digests):
        for message in core.reader.values(connection, some).values():
            words = "\n".join(_texts(message))
            left = {digest: text for digest, text in left.items() if text not in words}
            if not left:
                return
    for digest in left:
        connection.execute(delete(addition).where(addition.c.tenant == core.tenant, addition.c.digest == digest))


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _delete_unused_contents(core: StoreCore, connection: Connection) -> int:
    used = union_all(
        select(node.c.digest),
        select(annex.c.digest),
        select(output.c.digest),
        select(summary.c.digest).where(summary.c.digest.is_not(None)),
        select(view_item.c.digest).where(view_item.c.digest.is_not(None)),
        select(branch.c.preamble).where(branch.c.preamble.is_not(None)),
        select(view.c.preamble).where(view.c.preamble.is_not(None)),
        select(session.c.system_prompt).where(session.c.system_prompt.is_not(None)),
        select(session.c.preamble).where(session.c.preamble.is_not(None)),
        select(turn.c.preamble).where(turn.c.preamble.is_not(None)),
        select(turn.c.reply).where(turn.c.reply.is_not(None)),
    )
    unused = delete(content).where(content.c.tenant == core.tenant, content.c.digest.not_in(used))
    return connection.execute(unused).rowcount


def remove_from_search(core: StoreCore, connection: Connection, seqs: list[int]) -> None:
    """Take documents out of the index, and off the list of those that wait for it, while their contents still exist.

    Their terms stand in the index's own pages until `purge_search`, which follows the transaction.
    """
    _upkeep(core).forget(connection, seqs)
    for some in in_batches(seqs):
        connection.execute(delete(pending).where(pending.c.seq.in_(some)))


def purge_search(core: StoreCore) -> None:
    """Leave no trace of removed documents in the pages of the index; others can write meanwhile.

    Goes on with a purge that was interrupted.
    """
    _upkeep(core).purge()


def _upkeep(core: StoreCore) -> IndexUpkeep:
    return IndexUpkeep(core.database, index_for(core.database), Corpus(core.database))


def retain(core: StoreCore, *, days: float | None = None, max_bytes: int | None = None) -> list[str]:
    """Delete conversations that ended long ago, then the oldest ones until the store is small enough.

    Returns:
        The ids of the deleted sessions, which are the parts of those conversations.
    """
    gone: list[str] = []
    if days is not None:
        limit = time.time() - days * DAY
        for parts in _ended_conversations(core):
            if all(one.ended is not None and one.ended < limit for one in parts):
                gone += _delete_conversation(core, parts)
        if gone:
            vacuum(core)
    if max_bytes is not None:
        ended = _ended_conversations(core)
        while ended and size_of(core) > max_bytes:
            gone += _delete_conversation(core, ended.pop(0))
            vacuum(core)
    return gone


def _ended_conversations(core: StoreCore) -> list[list[Session]]:
    """Return the parts of each conversation that has ended, the oldest conversation first."""
    found: dict[str, list[Session]] = {}
    for one in reversed(Sessions(core).newest()):
        found.setdefault(one.conversation, []).append(one)
    return [parts for parts in found.values() if all(one.ended is not None for one in parts)]


def _delete_conversation(core: StoreCore, parts: list[Session]) -> list[str]:
    """Delete the parts of a conversation; return their ids."""
    for one in parts:
        Sessions(core).delete(one.id)
    return [one.id for one in parts]


def vacuum(core: StoreCore, min_age: float = DAY) -> CollectedGarbage:
    """Remove garbage and give the room back to the disk."""
    collected = collect_garbage(core, min_age)
    with core.database.translating(), core.database.engine.connect() as connection:
        raw = connection.connection.driver_connection
        if isinstance(raw, sqlite3.Connection):
            raw.execute("VACUUM")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            with connection.execution_options(isolation_level="AUTOCOMMIT") as alone:
                alone.execute(text("VACUUM"))
    return collected


def backup(core: StoreCore, path: Path) -> None:
    """Copy a SQLite store into a new file while others go on writing; a whole copy or none."""
    if core.database.backend.name != "sqlite":
        raise StoreError("a PostgreSQL store is backed up with its own tools, such as pg_dump")
    if path.exists():
        raise StoreError(f"{path} is there already; name a new file for the backup")
    try:
        copy_file(core.database.engine, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(f"the backup to {path} failed: {error}; the store itself is untouched") from error


def size_of(core: StoreCore) -> int:
    """Return how many bytes the database takes on the disk."""
    with core.database.read() as connection:
        if core.database.backend.name == "sqlite":
            pages = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
            return pages * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def stats(core: StoreCore) -> dict[str, int]:
    """Return figures for people: how many of everything, and how large it is."""
    tables = {"messages": node, "contents": content, "branches": branch, "views": view, "sessions": session}
    with core.database.read() as connection:
        found = {
            name: connection.execute(
                select(func.count()).select_from(table).where(table.c.tenant == core.tenant)
            ).scalar_one()
            for name, table in (tables | {"compactions": compaction, "outputs": output, "receipts": receipt}).items()
        }
        found["pending"] = connection.execute(select(func.count()).select_from(pending)).scalar_one()
        held = select(func.coalesce(func.sum(vector_block.c.rows), 0)).where(vector_block.c.tenant == core.tenant)
        found["vectors"] = int(connection.execute(held).scalar_one())
        found["unembedded"] = connection.execute(select(func.count()).select_from(vector_pending)).scalar_one()
    return {**found, "bytes": size_of(core)}
