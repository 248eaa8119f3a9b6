"""The environment in which Alembic runs revisions: a connection that is already in a transaction."""

from __future__ import annotations

from alembic import context

from everlong.store.upgrade import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
