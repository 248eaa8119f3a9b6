"""The tables of channels: places, what came in, what goes out, questions, reminders, and who was let in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0104"
down_revision = "0103"


def upgrade() -> None:
    """Create the tables, empty."""
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "channel_place",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("platform", sa.String, primary_key=True),
        sa.Column("chat", sa.String, primary_key=True),
        sa.Column("topic", sa.String, primary_key=True),
        sa.Column("conversation", sa.String),
        sa.Column("model", sa.String),
        sa.Column("notes", sa.Text),
        sa.Column("seen", sa.String, nullable=False),
        sa.Column("active", sa.Float(53), nullable=False),
    )
    op.create_index("ix_channel_place_conversation", "channel_place", ["tenant", "conversation"])
    op.create_table(
        "channel_conversation",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("platform", sa.String, primary_key=True),
        sa.Column("chat", sa.String, primary_key=True),
        sa.Column("topic", sa.String, primary_key=True),
        sa.Column("conversation", sa.String, primary_key=True),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_table(
        "channel_update",
        sa.Column("id", serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("platform", sa.String, nullable=False),
        sa.Column("ident", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("chat", sa.String, nullable=False),
        sa.Column("topic", sa.String, nullable=False),
        sa.Column("person", sa.String, nullable=False),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("answer", serial),
        sa.Column("data", sa.Text),
        sa.Column("ts", sa.Float(53), nullable=False),
        sa.UniqueConstraint("tenant", "platform", "ident"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_channel_update_place", "channel_update", ["tenant", "platform", "chat", "topic", "state"])
    op.create_index("ix_channel_update_message", "channel_update", ["tenant", "platform", "chat", "message"])
    op.create_index("ix_channel_update_answer", "channel_update", ["answer"])
    op.create_table(
        "channel_answer",
        sa.Column("id", serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("platform", sa.String, nullable=False),
        sa.Column("chat", sa.String, nullable=False),
        sa.Column("topic", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("conversation", sa.String),
        sa.Column("branch", serial),
        sa.Column("depth", sa.BigInteger),
        sa.Column("replies_to", sa.String, nullable=False),
        sa.Column("text", sa.Text),
        sa.Column("messages", sa.Text, nullable=False),
        sa.Column("done", sa.Integer, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_channel_answer_state", "channel_answer", ["tenant", "platform", "state"])
    op.create_index("ix_channel_answer_conversation", "channel_answer", ["tenant", "conversation"])
    op.create_table(
        "channel_file",
        sa.Column("id", serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("conversation", sa.String, nullable=False),
        sa.Column("path", sa.String, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_channel_file_conversation", "channel_file", ["tenant", "conversation"])
    op.create_table(
        "channel_question",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("platform", sa.String, nullable=False),
        sa.Column("chat", sa.String, nullable=False),
        sa.Column("topic", sa.String, nullable=False),
        sa.Column("person", sa.String, nullable=False),
        sa.Column("message", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("expires", sa.Float(53), nullable=False),
    )
    op.create_index("ix_channel_question_state", "channel_question", ["tenant", "platform", "state"])
    op.create_table(
        "channel_reminder",
        sa.Column("id", serial, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("platform", sa.String, nullable=False),
        sa.Column("chat", sa.String, nullable=False),
        sa.Column("topic", sa.String, nullable=False),
        sa.Column("conversation", sa.String),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("due", sa.Float(53), nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_channel_reminder_due", "channel_reminder", ["tenant", "platform", "due"])
    op.create_index("ix_channel_reminder_conversation", "channel_reminder", ["tenant", "conversation"])
    op.create_table(
        "channel_guest",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("platform", sa.String, primary_key=True),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("ts", sa.Float(53), nullable=False),
    )
    op.create_table(
        "channel_code",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("platform", sa.String, primary_key=True),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("expires", sa.Float(53), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
    )
