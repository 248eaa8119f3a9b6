"""Whole outputs of tools, kept beside messages that show only a part of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "output",
        sa.Column("seq", Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("node", sa.LargeBinary(16), nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
        sa.UniqueConstraint("node", "digest"),
    )
    op.create_index("ix_output_digest", "output", ["tenant", "digest"])
