"""Add the graph of the lossless engine: summaries and their edges."""

from __future__ import annotations

from alembic import op

from everlong.store.schema import metadata, summary, summary_child

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    """Create the two tables."""
    metadata.create_all(op.get_bind(), tables=[summary, summary_child], checkfirst=False)
