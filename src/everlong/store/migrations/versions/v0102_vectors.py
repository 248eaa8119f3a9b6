"""Tables for the search by meaning: the model, the messages that wait for their vectors, and blocks of vectors."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0102"
down_revision = "0101"


def upgrade() -> None:
    """Create the tables, empty."""
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "vector_state",
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("is_listed", sa.Boolean, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_table("vector_pending", sa.Column("seq", serial, primary_key=True, autoincrement=False))
    op.create_table(
        "vector_block",
        sa.Column("id", serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("low", sa.BigInteger, nullable=False),
        sa.Column("high", sa.BigInteger, nullable=False),
        sa.Column("seqs", sa.LargeBinary, nullable=False),
        sa.Column("scales", sa.LargeBinary, nullable=False),
        sa.Column("vectors", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_vector_block_tenant", "vector_block", ["tenant", "model"])
