"""The core of a store: its database, its tenant, and the reader and writer of messages.

Everything that manages a part of a store (sessions, turns, views) works on the core, and never on the whole store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from everlong.context.engine import MESSAGE_TAG
from everlong.errors import NotStored
from everlong.model import HashChain, Message
from everlong.store.checkpoints import Checkpoints
from everlong.store.database import Database
from everlong.store.paths import Entry, Reader, segments_to
from everlong.store.schema import branch as branches
from everlong.store.tree import Branch, Recorder


class StoreCore:
    """One tenant's part of a database, with the reader and the writer of its messages."""

    def __init__(
        self, database: Database, tenant: str = "local", *, redact: Callable[[Message], Message] | None = None
    ) -> None:
        self.database = database
        self.tenant = tenant
        self.chain = HashChain(tenant)
        self.checkpoints = Checkpoints(self.chain)
        self.redact = redact
        """Takes the secrets out of a message; None if they are stored."""
        self.recorder = Recorder(database)
        self.reader = Reader(database, tenant)

    def cleaned(self, message: Message) -> Message:
        """Return a message as it may be stored: without our own tag and, if the store redacts, without secrets."""
        if MESSAGE_TAG in message:
            message = {key: value for key, value in message.items() if key != MESSAGE_TAG}
        return message if self.redact is None else self.redact(message)

    def cleaned_text(self, text: str) -> str:
        """Return a text as it may be stored: without secrets, if the store redacts them."""
        return str(self.cleaned({"role": "tool", "content": text})["content"])

    def cleaned_tools(self, tools: Any) -> list[Any] | None:
        """Return the tools of a request as they may be stored, without secrets as well; None if it has none."""
        return self.cleaned({"tools": list(tools)})["tools"] if tools and isinstance(tools, list | tuple) else None

    def branch(self, number: int, depth: int | None = None) -> Branch:
        """Return a branch at its newest end, or at a depth where a message ends; 0 is before the first one."""
        with self.database.read() as connection:
            row = connection.execute(
                select(branches.c.head, branches.c.head_depth, branches.c.root).where(
                    branches.c.id == number, branches.c.tenant == self.tenant
                )
            ).first()
        if row is None:
            raise NotStored(f"there is no branch {number} in {self.database.backend.where}")
        if depth == 0:
            return Branch(number, self.chain.root().id if row.root is None else bytes(row.root), 0)
        if depth is None or depth == row.head_depth:
            return Branch(number, bytes(row.head), row.head_depth)
        entry = next((entry for entry in self.entries(Branch(number, b"", depth), depth - 1) if entry.id), None)
        if entry is None or entry.id is None:
            raise NotStored(f"no message of branch {number} ends at depth {depth}")
        return Branch(number, entry.id, depth)

    def entries(self, at: Branch, low: int = -1, high: int | None = None) -> list[Entry]:
        """Return the stored messages that lead to a place, with their numbers and times, without any view."""
        with self.database.read() as connection:
            path = segments_to(connection, at.id, at.depth)
            return self.reader.entries(connection, path, low, at.depth if high is None else high)
