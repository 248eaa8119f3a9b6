"""The table for the evidence of compactions: prompts, answers and figures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0103"
down_revision = "0102"


def upgrade() -> None:
    """Create the table, empty: earlier compactions have left no evidence."""
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "evidence",
        sa.Column("compaction", serial, primary_key=True, autoincrement=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("bytes", sa.LargeBinary, nullable=False),
        sa.Column("codec", sa.SmallInteger, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_index("ix_evidence_tenant", "evidence", ["tenant"])
