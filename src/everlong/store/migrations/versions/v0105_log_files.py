"""The table that says how far the logs of other clients are imported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0105"
down_revision = "0104"


def upgrade() -> None:
    """Create the table, empty: the next run reads every log once, and adds only what is new."""
    op.create_table(
        "log_file",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("file", sa.String, primary_key=True),
        sa.Column("client", sa.String, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime", sa.BigInteger, nullable=False),
        sa.Column("inode", sa.String, nullable=False),
        sa.Column("read_to", sa.BigInteger, nullable=False),
        sa.Column("mark", sa.LargeBinary),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
