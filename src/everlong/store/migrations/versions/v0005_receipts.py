"""Receipts: what calls on the side of a conversation used and cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "receipt",
        sa.Column("id", Serial, primary_key=True, autoincrement=True),
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
