"""Which version of the schema this is, and how an older database becomes one of it.

Alembic does the work and is loaded only then, because loading it takes longer than opening a store. The revisions are
in ``migrations/versions``; this module knows their numbers and nothing of their content.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

VERSION_TABLE = "everlong_version"

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""All revisions, oldest first; a test compares them with the files."""

HEAD = REVISIONS[-1]

CONVERSATIONS = "0007"
"""Before this revision, conversations that began alike were joined."""

MIGRATIONS = Path(__file__).parent / "migrations"


def is_known(version: str) -> bool:
    """Whether a version is one that this code can bring up to date."""
    return version in REVISIONS


def upgrade(connection: Connection, to: str = "head") -> None:
    """Run all revisions that the database has not seen, in the connection's own transaction."""
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, to)
