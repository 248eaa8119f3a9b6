"""The references of the store: which column names a row of which other table."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, select

from everlong.store.schema import (
    alias,
    annex,
    branch,
    content,
    node,
    output,
    pin,
    receipt,
    reply_name,
    session,
    summary,
    turn,
    view,
    view_item,
)


class Reference(NamedTuple):
    """A column that names a row of a table, and how the owner of a lost one is told: the sentence ends "not there"."""

    column: Column[Any]
    target: Column[Any]
    owner: Column[Any]
    sentence: str
    is_placed: ColumnElement[bool] | None = None
    """True for rows whose column must name something."""


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
    Reference(view.c.cover, node.c.id, view.c.id, "the last message that view {0} covers is", view.c.cover_depth > 0),
    Reference(alias.c.node, node.c.id, alias.c.node, "message {0}, which has a further name, is"),
    Reference(pin.c.node, node.c.id, pin.c.node, "message {0}, which is pinned, is"),
    Reference(output.c.node, node.c.id, output.c.node, "message {0}, with which an output is kept, is"),
    Reference(turn.c.node, node.c.id, turn.c.id, "the message after which turn {0} was sent is", turn.c.depth > 0),
    Reference(turn.c.echo_node, node.c.id, turn.c.id, "the repeated reply of turn {0} is"),
    Reference(branch.c.view_id, view.c.id, branch.c.id, "the view that branch {0} shows is"),
    Reference(view.c.prev, view.c.id, view.c.id, "the view that view {0} follows is"),
    Reference(view.c.origin, view.c.id, view.c.id, "the view that view {0} repeats is"),
    Reference(session.c.branch, branch.c.id, session.c.id, "the branch of session {0} is"),
    Reference(session.c.parent, session.c.id, session.c.id, "the session that session {0} goes on from is"),
    Reference(turn.c.session, session.c.id, turn.c.id, "the session of turn {0} is"),
    Reference(receipt.c.session, session.c.id, receipt.c.session, "session {0}, of which there is a receipt, is"),
    Reference(reply_name.c.turn, turn.c.id, reply_name.c.turn, "turn {0}, whose reply has a name, is"),
)
"""All but the contents of messages and summaries, which are checked with their hashes."""

USERS_OF_CONTENT = (node.c.digest, summary.c.digest, *(r.column for r in REFERENCES if r.target is content.c.digest))


def is_used(connection: Connection, digest: bytes) -> bool:
    """Return whether anything that can still be shown uses a content."""
    for column in (one for one in USERS_OF_CONTENT if one is not summary.c.digest):  # whose words are told apart
        query = select(column).where(column == digest)
        if column.table is view_item:
            query = query.join(view, view.c.id == view_item.c.view).where(view.c.state != "void")
        if connection.execute(query.limit(1)).first() is not None:
            return True
    return False
