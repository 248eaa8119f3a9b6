"""The schema of the first release, from which later revisions go on.

Nothing runs this revision: new stores are made from `everlong.store.schema` and stamped with the newest one.
"""

from __future__ import annotations

revision = "0200"
down_revision = None


def upgrade() -> None:
    """Do nothing."""
