"""The schema of the store, for SQLite and PostgreSQL alike; the search keeps its own index tables.

A conversation is a path through a tree of nodes. The identity of a message (`node`) and its bytes (`content`) are
separate; a compaction is a `view` over a stretch of nodes and never changes one. Depths count blocks; a range of depths
is open below and closed above: ``(from_depth, to_depth]``.
"""

from __future__ import annotations

from functools import cache

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

# SQLite numbers rows by itself only where the key is declared as plain INTEGER.
# (A number is never used a second time where others may remember it: `sqlite_autoincrement`.)
_Serial = BigInteger().with_variant(Integer, "sqlite")
_Id = LargeBinary(16)
_Digest = LargeBinary(16)

content = Table(
    "content",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("digest", _Digest, nullable=False, unique=True),  # keyed by tenant, so unique among all tenants
    Column("bytes", LargeBinary),  # a message as JSON in UTF-8; null once it is forgotten
    Column("codec", SmallInteger, nullable=False),  # 0 plain, 1 zstd
    Column("state", String, nullable=False),  # live or forgotten
    Column("stub", LargeBinary),  # of a forgotten one: its shape without words, and the hashes of its blocks
)

node = Table(
    "node",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("id", _Id, nullable=False, unique=True),
    Column("tenant", String, nullable=False),
    Column("parent", _Id),  # null for the first message
    Column("branch", _Serial, nullable=False),
    Column("depth", BigInteger, nullable=False),
    Column("role", String, nullable=False),
    Column("digest", _Digest, nullable=False),
    Column("ts", Float(53), nullable=False),
    Column("mark", _Id),  # the id by which stateless requests find it, where that is another one
    UniqueConstraint("branch", "depth"),
    sqlite_autoincrement=True,
)

_marks = Index("ix_node_mark", node.c.mark, node.c.seq)  # of those that have one; see `create_tables`

alias = Table(  # further ids by which stateless requests find a message: clients rewrite what they sent before
    "alias",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("node", _Id, primary_key=True),
    Column("tenant", String, nullable=False),
    Index("ix_alias_node", "node"),
)

annex = Table(  # messages that are stored but identify nothing; `ord` counts them after the node at `depth`
    "annex",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("branch", _Serial, nullable=False),
    Column("depth", BigInteger, nullable=False),
    Column("ord", Integer, nullable=False),
    Column("digest", _Digest, nullable=False),
    Column("kind", String, nullable=False),  # system, reminder, thinking, empty or variant
    Column("shown", Boolean, nullable=False),  # whether it stands in the conversation or only beside it
    Column("first_ts", Float(53), nullable=False),
    UniqueConstraint("branch", "depth", "ord"),
)

branch = Table(
    "branch",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("parent", _Serial),
    Column("fork_depth", BigInteger, nullable=False),
    Column("head", _Id, nullable=False),
    Column("head_depth", BigInteger, nullable=False),
    Column("view_id", _Serial),
    Column("epoch", BigInteger, nullable=False),  # counts the views that were in force
    Column("preamble", _Digest),  # the system messages and tools that it was last sent with
    Column("ts", Float(53), nullable=False),
    Column("root", _Id),  # the node before its first message; null for that of lists that are known by their words
    Index("ix_branch_parent", "parent"),
    sqlite_autoincrement=True,
)

view = Table(
    "view",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("branch", _Serial, nullable=False),
    Column("cover_depth", BigInteger, nullable=False),
    Column("saw_depth", BigInteger, nullable=False),
    Column("prev", _Serial),
    Column("profile", String, nullable=False),
    Column("system_suffix", Text),
    Column("preamble", _Digest),  # set where an engine rewrote the system messages rather than add to them
    Column("state", String, nullable=False),  # good, degraded or void
    Column("ts", Float(53), nullable=False),
    Column("origin", _Serial),  # the view of another branch that this one repeats
    Index("ix_view_branch", "branch"),
    sqlite_autoincrement=True,
)

view_item = Table(
    "view_item",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("view", _Serial, nullable=False),
    Column("ord", Integer, nullable=False),
    Column("kind", String, nullable=False),  # keep, edit or new
    Column("from_depth", BigInteger, nullable=False),
    Column("to_depth", BigInteger, nullable=False),
    Column("digest", _Digest),
    UniqueConstraint("view", "ord"),
    sqlite_autoincrement=True,
)

turn = Table(
    "turn",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("session", String),
    Column("branch", _Serial, nullable=False),
    Column("node", _Id, nullable=False),  # the last message of the request
    Column("depth", BigInteger, nullable=False),
    Column("view_id", _Serial),  # the view in force when it was sent; kept as a fact when the view is gone
    Column("preamble", _Digest),
    Column("model", String),
    Column("status", String, nullable=False),  # open, done, failed or cancelled
    Column("error", Text),
    Column("usage", Text),  # JSON, as the provider told it
    Column("cost", Float(53), nullable=False),  # US dollars
    Column("reply", _Digest),
    Column("echo_node", _Id),  # the reply as a message of the conversation
    Column("ts", Float(53), nullable=False),
    Column("ended", Float(53)),
    Column("reply_key", _Digest),  # the hash of the reply's first block, by which a client's repetition finds it
    Index("ix_turn_branch", "branch", "depth"),
    Index("ix_turn_session", "session"),
    Index("ix_turn_reply_key", "reply_key"),
    Index("ix_turn_status", "tenant", "status", "ts"),
    sqlite_autoincrement=True,
)

reply_name = Table(  # what those who gave replies call them, so that later requests can name what they follow
    "reply_name",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("turn", _Serial, primary_key=True, autoincrement=False),
    Index("ix_reply_name_turn", "turn"),
)

session = Table(
    "session",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("parent", String),
    Column("conversation", String, nullable=False),  # the first session of its lineage, which people know it by
    Column("branch", _Serial),
    Column("from_depth", BigInteger, nullable=False),
    Column("to_depth", BigInteger),  # null while an open session ends where its branch ends
    Column("kind", String, nullable=False),  # main, side (a title, a quota) or agent (works for another one)
    Column("title", String),
    Column("source", String, nullable=False),
    Column("platform", String),
    Column("user", String),
    Column("model", String),
    Column("system_prompt", _Digest),
    Column("origin", Text),  # JSON: what the platform wants to know again
    Column("client", String),  # the program that it came from
    Column("folder", String),  # the directory that it is about
    Column("client_session", String),  # what its client calls it
    Column("works_for", String),  # the conversation that had it begun, or that it was forked from
    Column("opened", BigInteger),  # how deep its first request reached; null where its host knows it by name
    Column("preamble", _Digest),  # the system messages and tools of its first request
    Column("started", Float(53), nullable=False),
    Column("active", Float(53), nullable=False),  # when something was last said in it
    Column("ended", Float(53)),
    Column("end_reason", String),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("api_calls", BigInteger, nullable=False),
    Column("cost", Float(53), nullable=False),  # US dollars
    Index("ix_session_title", "tenant", "title"),
    Index("ix_session_conversation", "conversation"),
    Index("ix_session_client", "tenant", "client_session", "started"),
    Index("ix_session_active", "tenant", "active"),
    Index("ix_session_parent", "parent"),
    Index("ix_session_branch", "branch"),
    Index("ix_session_started", "tenant", "started"),
)

compaction = Table(
    "compaction",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("session", String),
    Column("child", String),
    Column("branch", _Serial, nullable=False),
    Column("view_id", _Serial),
    Column("ts", Float(53), nullable=False),
    Column("reason", String, nullable=False),
    Column("engine", String, nullable=False),
    Column("model", String),
    Column("summarizer", String),
    Column("tokens_before", Integer),
    Column("tokens_after", Integer),
    Column("messages_before", Integer, nullable=False),
    Column("messages_after", Integer, nullable=False),
    Column("seconds", Float(53), nullable=False),
    Column("cost", Float(53)),
    Column("fallback", String),  # why another summary took the place of the chosen one; null where none did
    Column("quality", Float(53)),
    Column("report", Text),  # JSON: the engine's own report
    Index("ix_compaction_session", "session"),
    Index("ix_compaction_branch", "branch"),
    sqlite_autoincrement=True,
)

summary = Table(  # the graph of the lossless engine: summaries of ranges of messages, and of lower summaries
    "summary",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("tenant", String, nullable=False),
    Column("branch", _Serial, nullable=False),  # that of its last message
    Column("from_depth", BigInteger, nullable=False),
    Column("to_depth", BigInteger, nullable=False),
    Column("level", Integer, nullable=False),  # 0 for one of messages
    Column("after", _Id),  # the message before its first one; null where it begins the conversation
    Column("last", _Id, nullable=False),
    Column("digest", _Digest),  # its text; null once it is forgotten
    Column("tokens", Integer, nullable=False),
    Column("source_tokens", BigInteger, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("started", Float(53)),  # the time of its first message
    Column("ended", Float(53)),
    Column("model", String, nullable=False),
    Column("quality", Float(53), nullable=False),
    Column("state", String, nullable=False),  # good, degraded, replaced or void
    Column("replaced_by", String),
    Column("ts", Float(53), nullable=False),
    Index("ix_summary_last", "last"),
    Index("ix_summary_branch", "branch", "to_depth"),
    Index("ix_summary_state", "tenant", "state"),
    sqlite_autoincrement=True,
)

summary_child = Table(  # the edges of the graph; those of the lowest level are ranges of messages
    "summary_child",
    metadata,
    Column("parent", String, primary_key=True),
    Column("ord", Integer, primary_key=True),
    Column("child", String, nullable=False),
    Index("ix_summary_child", "child"),
)

lease = Table(
    "lease",
    metadata,
    Column("key", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("expires", Float(53), nullable=False),
)

log_file = Table(  # how far the logs of other clients are imported; no word of what they say
    "log_file",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("file", String, primary_key=True),
    Column("client", String, nullable=False),
    Column("size", BigInteger, nullable=False),  # of the file when it was last read to its end
    Column("mtime", BigInteger, nullable=False),  # its time then, in nanoseconds
    Column("inode", String, nullable=False),
    Column("state", Text, nullable=False),  # JSON: how far a database was read
)

tombstone = Table(  # blocks that were forgotten: a message that carries one is never stored again
    "tombstone",
    metadata,
    Column("block", _Digest, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("ts", Float(53), nullable=False),
    Index("ix_tombstone_tenant", "tenant"),
)

output = Table(  # the whole output of a tool, of which a message has only a part; its words are a content
    "output",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("node", _Id, nullable=False),
    Column("digest", _Digest, nullable=False),
    Column("ts", Float(53), nullable=False),
    UniqueConstraint("node", "digest"),
    Index("ix_output_digest", "tenant", "digest"),
)

receipt = Table(  # what a call on the side of a session used: figures, no words
    "receipt",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("session", String, nullable=False),
    Column("kind", String, nullable=False),  # summary, memory or plugin
    Column("model", String),
    Column("usage", Text, nullable=False),  # JSON, as the provider told it
    Column("cost", Float(53)),  # US dollars; null where the price was not known
    Column("ts", Float(53), nullable=False),
    Index("ix_receipt_session", "session"),
    Index("ix_receipt_ts", "tenant", "ts"),
    sqlite_autoincrement=True,
)

noted_window = Table(  # the windows that providers named when they refused a request as too long
    "noted_window",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("model", String, primary_key=True),  # with its provider and address
    Column("tokens", BigInteger, nullable=False),
    Column("ts", Float(53), nullable=False),
)

spending = Table(  # what tenants with a limit in dollars have spent or reserved on the newest day of theirs
    "spending",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("day", BigInteger, nullable=False),  # since 1970, in UTC
    Column("dollars", Float(53), nullable=False),
)

pending = Table(  # stored but not indexed yet: a node's seq, or minus the seq of a view's item
    "pending",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
)

vector_state = Table(  # the model whose vectors are kept; no row as long as nobody has searched by meaning
    "vector_state",
    metadata,
    Column("model", String, primary_key=True),
    Column("removed", BigInteger, nullable=False),  # grows whenever vectors are removed
)

vector = Table(
    "vector",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("seq", BigInteger, nullable=False, unique=True),  # the number of its message
    Column("tenant", String, nullable=False),
    Column("model", String, nullable=False),
    Column("numbers", LargeBinary, nullable=False),  # two bytes for each number of the vector; none for no text
    Index("ix_vector_tenant", "tenant", "id"),
    sqlite_autoincrement=True,
)

channel_place = Table(  # a chat or a topic of a messaging service, and the conversation that it is about
    "channel_place",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("platform", String, primary_key=True),
    Column("chat", String, primary_key=True),
    Column("topic", String, primary_key=True),  # empty where the chat has none
    Column("conversation", String),  # null before the first message, and after a reset
    Column("model", String),  # chosen there with /model
    Column("active", Float(53), nullable=False),
    Index("ix_channel_place_conversation", "tenant", "conversation"),
)

channel_conversation = Table(  # every conversation that a place was ever about: what can be found and resumed there
    "channel_conversation",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("platform", String, primary_key=True),
    Column("chat", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("conversation", String, primary_key=True),
    Column("ts", Float(53), nullable=False),
)

channel_update = Table(  # what came in; a row stays when its words are gone, so that it never counts twice
    "channel_update",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("platform", String, nullable=False),
    Column("ident", String, nullable=False),  # the bot, and the platform's id of the event
    Column("kind", String, nullable=False),  # message, edit, deletion or move
    Column("chat", String, nullable=False),
    Column("topic", String, nullable=False),
    Column("person", String, nullable=False),
    Column("message", String, nullable=False),
    Column("state", String, nullable=False),  # waiting, working, answered or dropped
    Column("answer", _Serial),
    Column("data", Text),  # JSON: the event; null once it is part of a conversation
    Column("ts", Float(53), nullable=False),
    UniqueConstraint("tenant", "platform", "ident"),
    Index("ix_channel_update_place", "tenant", "platform", "chat", "topic", "state"),
    Index("ix_channel_update_message", "tenant", "platform", "chat", "message"),
    Index("ix_channel_update_answer", "answer"),
    sqlite_autoincrement=True,
)

channel_answer = Table(  # what goes out: an answer of the agent or of a command
    "channel_answer",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("platform", String, nullable=False),
    Column("chat", String, nullable=False),
    Column("topic", String, nullable=False),
    Column("kind", String, nullable=False),  # turn, command or notice
    Column("state", String, nullable=False),  # working, ready, delivered or failed
    Column("conversation", String),
    Column("depth", BigInteger),
    Column("replies_to", String, nullable=False),
    Column("text", Text),  # null until it is ready, and again once it is delivered
    Column("messages", Text, nullable=False),  # JSON: the ids of the platform's messages, in order
    Column("done", Integer, nullable=False),  # how many of these have their final words
    Column("ts", Float(53), nullable=False),
    Index("ix_channel_answer_state", "tenant", "platform", "state"),
    Index("ix_channel_answer_conversation", "tenant", "conversation"),
    sqlite_autoincrement=True,
)

channel_file = Table(  # a file that came in and lies in the workspace
    "channel_file",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("conversation", String, nullable=False),
    Column("path", String, nullable=False),
    Column("ts", Float(53), nullable=False),
    Index("ix_channel_file_conversation", "tenant", "conversation"),
    sqlite_autoincrement=True,
)

channel_guest = Table(  # people and chats that were let in besides those of the settings
    "channel_guest",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("platform", String, primary_key=True),
    Column("kind", String, primary_key=True),  # user or chat
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("ts", Float(53), nullable=False),
)

channel_code = Table(  # the code by which one person is let in
    "channel_code",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("platform", String, primary_key=True),
    Column("digest", _Digest, nullable=False),
    Column("expires", Float(53), nullable=False),
    Column("tries", Integer, nullable=False),  # wrong ones since it was made
)


def create_tables(connection: Connection) -> None:
    """Create all tables in an empty database."""
    # Here and not at the index: where a table names a dialect, SQLAlchemy loads it, also if another one is used.
    _marks.dialect_options[connection.dialect.name]["where"] = text("mark IS NOT NULL")
    if connection.dialect.name == "sqlite":
        for statement in _sqlite_statements():
            connection.exec_driver_sql(statement)
    else:
        metadata.create_all(connection, checkfirst=False)


@cache
def _sqlite_statements() -> tuple[str, ...]:
    """Return what creates all tables in a SQLite file; to compile it takes longer than to run it."""
    from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - is loaded where it is used
    from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement  # noqa: PLC0415 - seldom needed

    made: list[ExecutableDDLElement] = []
    for table in metadata.sorted_tables:
        made.append(CreateTable(table))
        made += [CreateIndex(index) for index in sorted(table.indexes, key=lambda one: str(one.name))]
    dialect = sqlite.dialect()
    return tuple(str(statement.compile(dialect=dialect)) for statement in made)
