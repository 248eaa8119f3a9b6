"""The schema of Everlong 0.1, from which later revisions go on.

Nothing runs this revision: new stores are made from `everlong.store.schema` and stamped, and stores of earlier
versions come here by `everlong.store.migrations.earlier`.
"""

from __future__ import annotations

revision = "0100"
down_revision = None


def upgrade() -> None:
    """Do nothing."""
