"""The tree: contents, nodes, branches, views, turns, leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "content",
        sa.Column("seq", Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False, unique=True),
        sa.Column("bytes", sa.LargeBinary),
        sa.Column("codec", sa.SmallInteger, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("stub", sa.LargeBinary),
    )

    op.create_table(
        "node",
        sa.Column("seq", Serial, primary_key=True, autoincrement=True),
        sa.Column("id", sa.LargeBinary(16), nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("parent", sa.LargeBinary(16)),
        sa.Column("branch", Serial, nullable=False),
        sa.Column("depth", sa.BigInteger, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("tokens", sa.Integer),
        sa.Column("ts", sa.Float(53), nullable=False),
        sa.UniqueConstraint("branch", "depth"),
        sqlite_autoincrement=True,
    )

    op.create_table(
        "annex",
        sa.Column("seq", Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("branch", Serial, nullable=False),
        sa.Column("depth", sa.BigInteger, nullable=False),
        sa.Column("ord", sa.Integer, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("shown", sa.Boolean, nullable=False),
        sa.Column("first_ts", sa.Float(53), nullable=False),
        sa.UniqueConstraint("branch", "depth", "ord"),
    )

    op.create_table(
        "branch",
        sa.Column("id", Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("parent", Serial),
        sa.Column("fork_depth", sa.BigInteger, nullable=False),
        sa.Column("head", sa.LargeBinary(16), nullable=False),
        sa.Column("head_depth", sa.BigInteger, nullable=False),
        sa.Column("view_id", Serial),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("preamble", sa.LargeBinary(16)),
        sa.Column("ext_id", sa.String),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_branch_parent", "branch", ["parent"])
    op.create_index("ix_branch_ext_id", "branch", ["tenant", "ext_id"])
    op.create_table(
        "view",
        sa.Column("id", Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("branch", Serial, nullable=False),
        sa.Column("cover", sa.LargeBinary(16), nullable=False),
        sa.Column("cover_depth", sa.BigInteger, nullable=False),
        sa.Column("saw_depth", sa.BigInteger, nullable=False),
        sa.Column("prev", Serial),
        sa.Column("profile", sa.String, nullable=False),
        sa.Column("tokens", sa.Integer),
        sa.Column("system_suffix", sa.Text),
        sa.Column("preamble", sa.LargeBinary(16)),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_view_branch", "view", ["branch"])
    op.create_table(
        "view_item",
        sa.Column("seq", Serial, primary_key=True, autoincrement=True),
        sa.Column("view", Serial, nullable=False),
        sa.Column("ord", sa.Integer, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("from_depth", sa.BigInteger, nullable=False),
        sa.Column("to_depth", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary(16)),
        sa.UniqueConstraint("view", "ord"),
        sqlite_autoincrement=True,
    )

    op.create_table(
        "turn",
        sa.Column("id", Serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("branch", Serial, nullable=False),
        sa.Column("node", sa.LargeBinary(16), nullable=False),
        sa.Column("view_id", Serial),
        sa.Column("preamble", sa.LargeBinary(16)),
        sa.Column("model", sa.String),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("usage", sa.Text),
        sa.Column("reply", sa.LargeBinary(16)),
        sa.Column("echo_node", sa.LargeBinary(16)),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_index("ix_turn_node", "turn", ["node"])
    op.create_table(
        "lease",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.Float(53), nullable=False),
    )

    op.create_table(
        "pending",
        sa.Column("seq", Serial, primary_key=True, autoincrement=False),
    )
