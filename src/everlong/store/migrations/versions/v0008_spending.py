"""Spending: what each key of the gateway has spent or reserved in a day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "spending",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("dollars", sa.Float(53), nullable=False),
    )
