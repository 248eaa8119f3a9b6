"""Tables for the lossless engine: summaries of ranges of messages, and the edges between them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    """Create the tables, empty."""
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "summary",
        sa.Column("seq", serial, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("branch", serial, nullable=False),
        sa.Column("from_depth", sa.BigInteger, nullable=False),
        sa.Column("to_depth", sa.BigInteger, nullable=False),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("after", sa.LargeBinary(16)),
        sa.Column("last", sa.LargeBinary(16), nullable=False),
        sa.Column("digest", sa.LargeBinary(16)),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("source_tokens", sa.BigInteger, nullable=False),
        sa.Column("messages", sa.BigInteger, nullable=False),
        sa.Column("started", sa.Float(53)),
        sa.Column("ended", sa.Float(53)),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("quality", sa.Float(53), nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("replaced_by", sa.String),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_summary_last", "summary", ["last"])
    op.create_index("ix_summary_branch", "summary", ["branch", "to_depth"])
    op.create_index("ix_summary_state", "summary", ["tenant", "state"])
    op.create_table(
        "summary_child",
        sa.Column("parent", sa.String, primary_key=True),
        sa.Column("ord", sa.Integer, primary_key=True),
        sa.Column("child", sa.String, nullable=False),
    )
    op.create_index("ix_summary_child", "summary_child", ["child"])
