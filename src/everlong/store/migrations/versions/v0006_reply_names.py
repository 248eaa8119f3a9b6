"""Names of replies: what a later request may call the turn that it goes on from."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_AT_ONCE = 1_000
_LONGEST = 200


def upgrade() -> None:
    """Make the table, and fill it with the names that turns had among what they used."""
    names = op.create_table(
        "reply_name",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("turn", Serial, primary_key=True, autoincrement=False),
    )
    op.create_index("ix_reply_name_turn", "reply_name", ["turn"])
    connection, last = op.get_bind(), 0
    told = sa.text(
        "SELECT id, tenant, usage FROM turn WHERE id > :last AND reply IS NOT NULL"
        " AND (usage LIKE '%\"response_id\"%' OR usage LIKE '%\"conversation_id\"%') ORDER BY id LIMIT :most"
    )
    while rows := connection.execute(told, {"last": last, "most": _AT_ONCE}).all():
        last = rows[-1].id
        found = [{"tenant": row.tenant, "name": name, "turn": row.id} for row in rows for name in _names_in(row.usage)]
        if found:
            connection.execute(names.insert(), found)


def _names_in(usage: str) -> set[str]:
    told = json.loads(usage)
    names = (told.get("response_id"), told.get("conversation_id"))
    return {name for name in names if isinstance(name, str) and 0 < len(name) <= _LONGEST and name.isprintable()}
