"""The Alembic revisions of the schema since 0.1."""
