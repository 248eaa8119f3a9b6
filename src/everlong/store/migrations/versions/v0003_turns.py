"""Turns with their session, cost and end; views that were carried over to a fork."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the table of turns anew, which no earlier version wrote to, and add a column to views."""
    op.drop_table("turn")
    op.create_table(
        "turn",
        sa.Column("id", Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("session", sa.String),
        sa.Column("branch", Serial, nullable=False),
        sa.Column("node", sa.LargeBinary(16), nullable=False),
        sa.Column("depth", sa.BigInteger, nullable=False),
        sa.Column("view_id", Serial),
        sa.Column("preamble", sa.LargeBinary(16)),
        sa.Column("model", sa.String),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("usage", sa.Text),
        sa.Column("cost", sa.Float(53), nullable=False),
        sa.Column("reply", sa.LargeBinary(16)),
        sa.Column("echo_node", sa.LargeBinary(16)),
        sa.Column("ts", sa.Float(53), nullable=False),
        sa.Column("ended", sa.Float(53)),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_turn_branch", "turn", ["branch", "depth"])
    op.create_index("ix_turn_session", "turn", ["session"])
    op.create_index("ix_turn_status", "turn", ["tenant", "status"])
    op.add_column("view", sa.Column("origin", Serial))
