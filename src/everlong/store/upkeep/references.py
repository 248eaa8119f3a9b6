"""The references of the store: which column names a row of which other table, and what goes with that row.

Everything that deletes or checks works from this one table: `remove` takes along what belongs to a deleted row,
`drop_unused` deletes words that nothing names any more, and `verify` follows every reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, select, update

from everlong.store.database import in_batches
from everlong.store.schema import (
    alias,
    annex,
    branch,
    compaction,
    content,
    node,
    output,
    receipt,
    reply_name,
    session,
    summary,
    summary_child,
    turn,
    view,
    view_item,
)


class Reference(NamedTuple):
    """A column that names a row of a table, and how the owner of a lost one is told: the sentence ends "not there"."""

    column: Column[Any]
    target: Column[Any]
    owner: Column[Any] | None = None
    sentence: str = ""
    """Empty where nobody checks it: the row has no tenant, or the column tells what once was."""
    is_placed: ColumnElement[bool] | None = None
    """True for rows whose column must name something."""
    goes: Literal["row", "name", ""] = ""
    """What goes when the target is removed: the whole row, or the name in the column."""


REFERENCES: tuple[Reference, ...] = (
    Reference(view_item.c.digest, content.c.digest, view_item.c.view, "the content of an item of view {0} is"),
    Reference(annex.c.digest, content.c.digest, annex.c.branch, "the content of a message beside branch {0} is"),
    Reference(branch.c.preamble, content.c.digest, branch.c.id, "the system messages of branch {0} are"),
    Reference(session.c.preamble, content.c.digest, session.c.id, "the first prompt and tools of session {0} are"),
    Reference(session.c.system_prompt, content.c.digest, session.c.id, "the system prompt of session {0} is"),
    Reference(output.c.digest, content.c.digest, output.c.node, "the whole output of message {0} is"),
    Reference(turn.c.preamble, content.c.digest, turn.c.id, "the system prompt of turn {0} is"),
    Reference(turn.c.reply, content.c.digest, turn.c.id, "the reply of turn {0} is"),
    Reference(view.c.preamble, content.c.digest, view.c.id, "the system messages of view {0} are"),
    Reference(alias.c.node, node.c.id, alias.c.node, "message {0}, which has a further name, is", goes="row"),
    Reference(output.c.node, node.c.id, output.c.node, "message {0}, with which an output is kept, is", goes="row"),
    Reference(turn.c.node, node.c.id, turn.c.id, "the message after which turn {0} was sent is", turn.c.depth > 0),
    Reference(turn.c.echo_node, node.c.id, turn.c.id, "the repeated reply of turn {0} is"),
    Reference(branch.c.view_id, view.c.id, branch.c.id, "the view that branch {0} shows is"),
    Reference(view.c.prev, view.c.id, view.c.id, "the view that view {0} follows is", goes="name"),
    Reference(view.c.origin, view.c.id, view.c.id, "the view that view {0} repeats is"),
    Reference(session.c.branch, branch.c.id, session.c.id, "the branch of session {0} is"),
    Reference(session.c.parent, session.c.id, session.c.id, "the session that session {0} goes on from is"),
    Reference(turn.c.session, session.c.id, turn.c.id, "the session of turn {0} is", goes="name"),
    Reference(receipt.c.session, session.c.id, receipt.c.session, "session {0}, which has a receipt, is", goes="row"),
    Reference(reply_name.c.turn, turn.c.id, reply_name.c.turn, "turn {0}, whose reply has a name, is", goes="row"),
    Reference(view_item.c.view, view.c.id, goes="row"),
    Reference(summary_child.c.parent, summary.c.id, goes="row"),
    Reference(compaction.c.session, session.c.id, goes="row"),
)
"""All but the contents of messages and summaries, which are checked with their hashes."""

USERS_OF_CONTENT = (node.c.digest, summary.c.digest, *(r.column for r in REFERENCES if r.target is content.c.digest))


def remove(connection: Connection, table: Table, *where: ColumnElement[bool]) -> None:
    """Delete rows with everything that belongs to them."""
    belonging = [one for one in REFERENCES if one.goes and one.target.table is table]
    gone = list(connection.execute(select(belonging[0].target).where(*where)).scalars()) if belonging else []
    for one in belonging:
        for some in in_batches(gone):
            if one.goes == "row":
                remove(connection, one.column.table, one.column.in_(some))
            else:
                connection.execute(update(one.column.table).where(one.column.in_(some)).values({one.column.name: None}))
    connection.execute(delete(table).where(*where))


def drop_unused(
    connection: Connection, digests: Iterable[bytes], after: Mapping[Column[Any], int] | None = None
) -> int:
    """Delete those of some contents that nothing names any more; return how many.

    Args:
        connection: the transaction.
        digests: the contents.
        after: for some of the columns the number of a row; no row up to it names one of the contents.
    """
    known = after or {}
    unused = set(digests)
    for column in USERS_OF_CONTENT:
        later = [column.table.c.seq > known[column]] if column in known else []
        for some in in_batches(sorted(unused)):
            found = connection.execute(select(column).where(column.in_(some), *later)).scalars()
            unused -= {bytes(digest) for digest in found}
    for some in in_batches(sorted(unused)):
        connection.execute(delete(content).where(content.c.digest.in_(some)))
    return len(unused)
