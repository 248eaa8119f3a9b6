"""Sessions, the compaction history, pins and tombstones."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "session",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("parent", sa.String),
        sa.Column("branch", Serial),
        sa.Column("from_depth", sa.BigInteger, nullable=False),
        sa.Column("to_depth", sa.BigInteger),
        sa.Column("title", sa.String),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("platform", sa.String),
        sa.Column("user", sa.String),
        sa.Column("model", sa.String),
        sa.Column("system_prompt", sa.LargeBinary(16)),
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
        sa.Column("id", Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("session", sa.String),
        sa.Column("child", sa.String),
        sa.Column("branch", Serial, nullable=False),
        sa.Column("view_id", Serial),
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
        sa.Column("node", sa.LargeBinary(16), primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )

    op.create_table(
        "tombstone",
        sa.Column("block", sa.LargeBinary(16), primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_index("ix_tombstone_tenant", "tombstone", ["tenant"])
