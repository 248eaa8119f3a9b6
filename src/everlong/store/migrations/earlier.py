"""Schema steps of the versions before 0.1, which `everlong.store.upgrade` runs on stores stamped 0001 to 0008.

They are frozen: they describe the schema of their time, not that of `everlong.store.schema`. The conversations that
those versions joined are separated afterwards, by `everlong.store.migrations.separation`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from alembic.operations import Operations

_Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_Id = sa.LargeBinary(16)

_ROWS_AT_ONCE = 1_000
_LONGEST_NAME = 200


def run_steps(connection: sa.Connection, after: str | None = None, to: str | None = None) -> None:
    """Run the steps after one version (None: all of them) up to and including another (None: the last)."""
    from alembic.operations import Operations  # noqa: PLC0415 - takes longer to load than opening a store
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415 - as above

    operations = Operations(MigrationContext.configure(connection))
    for version, step in STEPS.items():
        if (after is None or version > after) and (to is None or version <= to):
            step(operations)


def _create_tree(op: Operations) -> None:
    """Create the tree: contents, nodes, branches, views, turns and leases."""
    op.create_table(
        "content",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("digest", _Id, nullable=False, unique=True),
        sa.Column("bytes", sa.LargeBinary),
        sa.Column("codec", sa.SmallInteger, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("stub", sa.LargeBinary),
    )
    op.create_table(
        "node",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("id", _Id, nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("parent", _Id),
        sa.Column("branch", _Serial, nullable=False),
        sa.Column("depth", sa.BigInteger, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("digest", _Id, nullable=False),
        sa.Column("tokens", sa.Integer),
        sa.Column("ts", sa.Float(53), nullable=False),
        sa.UniqueConstraint("branch", "depth"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "annex",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("branch", _Serial, nullable=False),
        sa.Column("depth", sa.BigInteger, nullable=False),
        sa.Column("ord", sa.Integer, nullable=False),
        sa.Column("digest", _Id, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("shown", sa.Boolean, nullable=False),
        sa.Column("first_ts", sa.Float(53), nullable=False),
        sa.UniqueConstraint("branch", "depth", "ord"),
    )
    op.create_table(
        "branch",
        sa.Column("id", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("parent", _Serial),
        sa.Column("fork_depth", sa.BigInteger, nullable=False),
        sa.Column("head", _Id, nullable=False),
        sa.Column("head_depth", sa.BigInteger, nullable=False),
        sa.Column("view_id", _Serial),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("preamble", _Id),
        sa.Column("ext_id", sa.String),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_branch_parent", "branch", ["parent"])
    op.create_index("ix_branch_ext_id", "branch", ["tenant", "ext_id"])
    op.create_table(
        "view",
        sa.Column("id", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("branch", _Serial, nullable=False),
        sa.Column("cover", _Id, nullable=False),
        sa.Column("cover_depth", sa.BigInteger, nullable=False),
        sa.Column("saw_depth", sa.BigInteger, nullable=False),
        sa.Column("prev", _Serial),
        sa.Column("profile", sa.String, nullable=False),
        sa.Column("tokens", sa.Integer),
        sa.Column("system_suffix", sa.Text),
        sa.Column("preamble", _Id),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_view_branch", "view", ["branch"])
    op.create_table(
        "view_item",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("view", _Serial, nullable=False),
        sa.Column("ord", sa.Integer, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("from_depth", sa.BigInteger, nullable=False),
        sa.Column("to_depth", sa.BigInteger, nullable=False),
        sa.Column("digest", _Id),
        sa.UniqueConstraint("view", "ord"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "turn",
        sa.Column("id", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("branch", _Serial, nullable=False),
        sa.Column("node", _Id, nullable=False),
        sa.Column("view_id", _Serial),
        sa.Column("preamble", _Id),
        sa.Column("model", sa.String),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("usage", sa.Text),
        sa.Column("reply", _Id),
        sa.Column("echo_node", _Id),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_index("ix_turn_node", "turn", ["node"])
    op.create_table(
        "lease",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.Float(53), nullable=False),
    )
    op.create_table(
        "pending",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=False),
    )


def _create_sessions(op: Operations) -> None:
    """Create sessions, the compaction history, pins and tombstones."""
    op.create_table(
        "session",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("parent", sa.String),
        sa.Column("branch", _Serial),
        sa.Column("from_depth", sa.BigInteger, nullable=False),
        sa.Column("to_depth", sa.BigInteger),
        sa.Column("title", sa.String),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("platform", sa.String),
        sa.Column("user", sa.String),
        sa.Column("model", sa.String),
        sa.Column("system_prompt", _Id),
        sa.Column("origin", sa.Text),
        sa.Column("started", sa.Float(53), nullable=False),
        sa.Column("ended", sa.Float(53)),
        sa.Column("end_reason", sa.String),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("api_calls", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.Float(53), nullable=False),
        sa.UniqueConstraint("tenant", "title"),
    )
    op.create_index("ix_session_parent", "session", ["parent"])
    op.create_index("ix_session_branch", "session", ["branch"])
    op.create_index("ix_session_started", "session", ["tenant", "started"])
    op.create_table(
        "compaction",
        sa.Column("id", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("session", sa.String),
        sa.Column("child", sa.String),
        sa.Column("branch", _Serial, nullable=False),
        sa.Column("view_id", _Serial),
        sa.Column("ts", sa.Float(53), nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("engine", sa.String, nullable=False),
        sa.Column("model", sa.String),
        sa.Column("summarizer", sa.String),
        sa.Column("tokens_before", sa.Integer),
        sa.Column("tokens_after", sa.Integer),
        sa.Column("messages_before", sa.Integer, nullable=False),
        sa.Column("messages_after", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Float(53), nullable=False),
        sa.Column("cost", sa.Float(53)),
        sa.Column("fallback", sa.String),
        sa.Column("quality", sa.Float(53)),
        sa.Column("report", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_compaction_session", "compaction", ["session"])
    op.create_index("ix_compaction_branch", "compaction", ["branch"])
    op.create_table(
        "pin",
        sa.Column("node", _Id, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_table(
        "tombstone",
        sa.Column("block", _Id, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_index("ix_tombstone_tenant", "tombstone", ["tenant"])


def _create_turns(op: Operations) -> None:
    """Replace the table of turns, to which no earlier version wrote, and add a column to views."""
    op.drop_table("turn")
    op.create_table(
        "turn",
        sa.Column("id", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("session", sa.String),
        sa.Column("branch", _Serial, nullable=False),
        sa.Column("node", _Id, nullable=False),
        sa.Column("depth", sa.BigInteger, nullable=False),
        sa.Column("view_id", _Serial),
        sa.Column("preamble", _Id),
        sa.Column("model", sa.String),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("usage", sa.Text),
        sa.Column("cost", sa.Float(53), nullable=False),
        sa.Column("reply", _Id),
        sa.Column("echo_node", _Id),
        sa.Column("ts", sa.Float(53), nullable=False),
        sa.Column("ended", sa.Float(53)),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_turn_branch", "turn", ["branch", "depth"])
    op.create_index("ix_turn_session", "turn", ["session"])
    op.create_index("ix_turn_status", "turn", ["tenant", "status"])
    op.add_column("view", sa.Column("origin", _Serial))


def _create_outputs(op: Operations) -> None:
    """Create the table of whole tool outputs, of which messages show only a part."""
    op.create_table(
        "output",
        sa.Column("seq", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("node", _Id, nullable=False),
        sa.Column("digest", _Id, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
        sa.UniqueConstraint("node", "digest"),
    )
    op.create_index("ix_output_digest", "output", ["tenant", "digest"])


def _create_receipts(op: Operations) -> None:
    """Create the table of receipts: usage and cost of calls on the side of a conversation."""
    op.create_table(
        "receipt",
        sa.Column("id", _Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("session", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("model", sa.String),
        sa.Column("usage", sa.Text, nullable=False),
        sa.Column("cost", sa.Float(53)),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_receipt_session", "receipt", ["session"])
    op.create_index("ix_receipt_ts", "receipt", ["tenant", "ts"])


def _create_reply_names(op: Operations) -> None:
    """Create the table of reply names, and fill it with the names found in the usage of turns."""
    names = op.create_table(
        "reply_name",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("turn", _Serial, primary_key=True, autoincrement=False),
    )
    op.create_index("ix_reply_name_turn", "reply_name", ["turn"])
    connection, last = op.get_bind(), 0
    query = sa.text(
        "SELECT id, tenant, usage FROM turn WHERE id > :last AND reply IS NOT NULL"
        " AND (usage LIKE '%\"response_id\"%' OR usage LIKE '%\"conversation_id\"%') ORDER BY id LIMIT :most"
    )
    while rows := connection.execute(query, {"last": last, "most": _ROWS_AT_ONCE}).all():
        last = rows[-1].id
        found = [{"tenant": row.tenant, "name": name, "turn": row.id} for row in rows for name in _names_in(row.usage)]
        if found:
            connection.execute(names.insert(), found)


def _names_in(usage: str) -> set[str]:
    figures = json.loads(usage)
    names = (figures.get("response_id"), figures.get("conversation_id"))
    return {name for name in names if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()}


def _create_conversations(op: Operations) -> None:
    """Add the tables and columns of conversations, and assign every session to a conversation."""
    op.create_table(
        "alias",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("node", _Id, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
    )
    op.create_index("ix_alias_node", "alias", ["node"])
    op.create_table(
        "addition",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("digest", _Id, primary_key=True),
        sa.Column("place", sa.String, nullable=False),
        sa.Column("text", sa.Text),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.add_column("node", sa.Column("mark", _Id))
    is_marked = sa.text("mark IS NOT NULL")
    op.create_index("ix_node_mark", "node", ["mark", "seq"], sqlite_where=is_marked, postgresql_where=is_marked)
    op.add_column("branch", sa.Column("root", _Id))
    op.add_column("turn", sa.Column("reply_key", _Id))
    op.create_index("ix_turn_reply_key", "turn", ["reply_key"])
    _replace_sessions(op)


def _replace_sessions(op: Operations) -> None:
    """Replace the table of sessions by one without unique titles; SQLite cannot drop a constraint."""
    connection = op.get_bind()
    connection.execute(sa.text("CREATE TABLE session_before AS SELECT * FROM session"))
    op.drop_table("session")
    table = op.create_table(
        "session",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("parent", sa.String),
        sa.Column("conversation", sa.String, nullable=False),
        sa.Column("branch", _Serial),
        sa.Column("from_depth", sa.BigInteger, nullable=False),
        sa.Column("to_depth", sa.BigInteger),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("title", sa.String),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("platform", sa.String),
        sa.Column("user", sa.String),
        sa.Column("model", sa.String),
        sa.Column("system_prompt", _Id),
        sa.Column("origin", sa.Text),
        sa.Column("client", sa.String),
        sa.Column("folder", sa.String),
        sa.Column("client_session", sa.String),
        sa.Column("works_for", sa.String),
        sa.Column("opened", sa.BigInteger),
        sa.Column("preamble", _Id),
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
    op.create_index("ix_session_client", "session", ["tenant", "client_session", "started"])
    op.create_index("ix_session_active", "session", ["tenant", "active"])
    op.create_index("ix_session_parent", "session", ["parent"])
    op.create_index("ix_session_branch", "session", ["branch"])
    op.create_index("ix_session_started", "session", ["tenant", "started"])
    rows = list(_session_rows(connection))
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        connection.execute(table.insert(), rows[start : start + _ROWS_AT_ONCE])
    op.drop_table("session_before")


def _session_rows(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Yield the rows of the new table of sessions."""
    before = connection.execute(sa.text("SELECT * FROM session_before")).mappings().all()
    lineages = _lineages([(row["id"], row["parent"], row["started"]) for row in before])
    active = _last_active(connection)
    for row in before:
        origin = _decode_origin(row["origin"])
        parent, conversation = lineages[row["id"]]
        is_recognised = row["platform"] == "gateway" or "import" in origin
        ended = row["started"] if row["ended"] is None else row["ended"]
        yield {
            **row,
            "parent": parent,
            "conversation": conversation,
            "kind": "main",
            "client": origin.get("client") if isinstance(origin.get("client"), str) else None,
            "folder": None,
            "client_session": origin.get("client_session") if isinstance(origin.get("client_session"), str) else None,
            "works_for": None,
            "opened": 0 if is_recognised else None,
            "preamble": None,
            "active": active.get(row["id"], ended),
        }


def _decode_origin(origin: str | None) -> dict[str, Any]:
    found = json.loads(origin) if origin else {}
    return found if isinstance(found, dict) else {}


def _lineages(rows: list[tuple[str, str | None, float]]) -> dict[str, tuple[str | None, str]]:
    """Return for each session its parent and the first session of its lineage.

    Where the parent was deleted, the oldest of its children becomes the first of the lineage.
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
            if above in way:  # a circle, which no correct program makes
                parents[way[-1]] = None
                break
            way.append(above)
        for one in way:
            first[one] = first.get(way[-1], way[-1])
    return {ident: (parent, first[ident]) for ident, parent in parents.items()}


def _last_active(connection: sa.Connection) -> dict[str, float]:
    """Return the time of the last turn or receipt of each session."""
    rows = connection.execute(
        sa.text(
            "SELECT session, MAX(at) AS at FROM (SELECT session, COALESCE(ended, ts) AS at FROM turn"
            " UNION ALL SELECT session, ts AS at FROM receipt) AS calls WHERE session IS NOT NULL GROUP BY session"
        )
    )
    return {row.session: row.at for row in rows}


def _create_spending(op: Operations) -> None:
    """Create the table of daily spending."""
    op.create_table(
        "spending",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("dollars", sa.Float(53), nullable=False),
    )


STEPS: dict[str, Callable[[Operations], None]] = {
    "0001": _create_tree,
    "0002": _create_sessions,
    "0003": _create_turns,
    "0004": _create_outputs,
    "0005": _create_receipts,
    "0006": _create_reply_names,
    "0007": _create_conversations,
    "0008": _create_spending,
}
"""The step that leads to each version, oldest first."""
