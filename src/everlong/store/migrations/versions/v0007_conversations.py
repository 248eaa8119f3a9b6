"""Conversations: roots of their own, names for what clients rewrite, and sessions that know what they are parts of.

What earlier versions joined is separated afterwards, by `everlong.store.conversion`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Id = sa.LargeBinary(16)

_AT_ONCE = 1_000


def upgrade() -> None:
    """Add the tables and columns, and say of every session which conversation it is a part of."""
    op.create_table(
        "alias",
        sa.Column("id", Id, primary_key=True),
        sa.Column("node", Id, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
    )
    op.create_index("ix_alias_node", "alias", ["node"])
    op.create_table(
        "addition",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("digest", Id, primary_key=True),
        sa.Column("place", sa.String, nullable=False),
        sa.Column("text", sa.Text),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.add_column("node", sa.Column("mark", Id))
    is_marked = sa.text("mark IS NOT NULL")
    op.create_index("ix_node_mark", "node", ["mark"], sqlite_where=is_marked, postgresql_where=is_marked)
    op.add_column("branch", sa.Column("root", Id))
    op.add_column("turn", sa.Column("reply_key", Id))
    op.create_index("ix_turn_reply_key", "turn", ["reply_key"])
    _make_sessions_anew()


def _make_sessions_anew() -> None:
    """Make the table of sessions without unique titles; SQLite cannot take such a rule from a table that is there."""
    connection = op.get_bind()
    connection.execute(sa.text("CREATE TABLE session_before AS SELECT * FROM session"))
    op.drop_table("session")
    made = op.create_table(
        "session",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("parent", sa.String),
        sa.Column("conversation", sa.String, nullable=False),
        sa.Column("branch", Serial),
        sa.Column("from_depth", sa.BigInteger, nullable=False),
        sa.Column("to_depth", sa.BigInteger),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("title", sa.String),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("platform", sa.String),
        sa.Column("user", sa.String),
        sa.Column("model", sa.String),
        sa.Column("system_prompt", Id),
        sa.Column("origin", sa.Text),
        sa.Column("client", sa.String),
        sa.Column("folder", sa.String),
        sa.Column("client_session", sa.String),
        sa.Column("works_for", sa.String),
        sa.Column("opened", sa.BigInteger),
        sa.Column("preamble", Id),
        sa.Column("started", sa.Float(53), nullable=False),
        sa.Column("active", sa.Float(53), nullable=False),
        sa.Column("ended", sa.Float(53)),
        sa.Column("end_reason", sa.String),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("api_calls", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.Float(53), nullable=False),
    )
    op.create_index("ix_session_title", "session", ["tenant", "title"])
    op.create_index("ix_session_conversation", "session", ["conversation"])
    op.create_index("ix_session_client", "session", ["tenant", "client_session"])
    op.create_index("ix_session_active", "session", ["tenant", "active"])
    op.create_index("ix_session_parent", "session", ["parent"])
    op.create_index("ix_session_branch", "session", ["branch"])
    op.create_index("ix_session_started", "session", ["tenant", "started"])
    rows = list(_sessions(connection))
    for start in range(0, len(rows), _AT_ONCE):
        connection.execute(made.insert(), rows[start : start + _AT_ONCE])
    op.drop_table("session_before")


def _sessions(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Yield the rows of the new table."""
    before = connection.execute(sa.text("SELECT * FROM session_before")).mappings().all()
    lineages = _lineages([(row["id"], row["parent"], row["started"]) for row in before])
    last = _last_words(connection)
    for row in before:
        about = _about(row["origin"])
        parent, conversation = lineages[row["id"]]
        is_recognised = row["platform"] == "gateway" or "import" in about
        ended = row["started"] if row["ended"] is None else row["ended"]
        yield {
            **row,
            "parent": parent,
            "conversation": conversation,
            "kind": "main",
            "client": about.get("client") if isinstance(about.get("client"), str) else None,
            "folder": None,
            "client_session": about.get("client_session") if isinstance(about.get("client_session"), str) else None,
            "works_for": None,
            "opened": 0 if is_recognised else None,
            "preamble": None,
            "active": last.get(row["id"], ended),
        }


def _about(origin: str | None) -> dict[str, Any]:
    found = json.loads(origin) if origin else {}
    return found if isinstance(found, dict) else {}


def _lineages(rows: list[tuple[str, str | None, float]]) -> dict[str, tuple[str | None, str]]:
    """Return for each session the one that it continues, and the first of its lineage.

    Where a session that others continue was deleted, the oldest of those is the first one now.
    """
    parents = {ident: parent for ident, parent, _ in rows}
    started = {ident: (when, ident) for ident, _, when in rows}
    orphans: dict[str, list[str]] = {}
    for ident, parent in parents.items():
        if parent is not None and parent not in parents:
            orphans.setdefault(parent, []).append(ident)
    for lost in orphans.values():
        lost.sort(key=lambda ident: started[ident])
        parents[lost[0]] = None
        parents |= {later: earlier for earlier, later in pairwise(lost)}
    first: dict[str, str] = {}
    for ident in sorted(parents, key=lambda one: started[one]):
        way = [ident]
        while way[-1] not in first and (above := parents[way[-1]]) is not None:
            if above in way:  # a circle, which nobody makes by following the rules
                parents[way[-1]] = None
                break
            way.append(above)
        for one in way:
            first[one] = first.get(way[-1], way[-1])
    return {ident: (parent, first[ident]) for ident, parent in parents.items()}


def _last_words(connection: sa.Connection) -> dict[str, float]:
    """Return when something was last said in each session, or called on its side."""
    said = connection.execute(
        sa.text(
            "SELECT session, MAX(at) AS at FROM (SELECT session, COALESCE(ended, ts) AS at FROM turn"
            " UNION ALL SELECT session, ts AS at FROM receipt) AS calls WHERE session IS NOT NULL GROUP BY session"
        )
    )
    return {row.session: row.at for row in said}
