"""A store with conversations of two folders, and servers that show them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from everlong.mcp.history import History
from everlong.model import Message
from everlong.store import Store

HERE, THERE = "/work/harbour", "/work/secret"


class Said:
    """Conversations that are told to a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def talk(self, *texts: str, folder: str | None = HERE, client: str = "opencode", title: str | None = None) -> str:
        """Store texts of user and assistant in turn; return the id of the conversation."""
        roles = ("user", "assistant")
        return self.hold(
            [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)], folder, client, title
        )

    def hold(
        self, messages: Sequence[Message], folder: str | None = HERE, client: str = "opencode", title: str | None = None
    ) -> str:
        """Store messages as a conversation of a client; return its id."""
        one = self.store.sessions.start(platform="gateway", client=client, folder=folder, title=title)
        at = self.store.record(list(messages), conversation=one.id)
        return self.store.sessions.attach(one.id, at).id

    def history(self, folder: str | None = HERE, tokens: int = 2_000) -> History:
        """Return what may be seen in a folder; None for all."""
        return History(self.store, None if folder is None else [folder], answer_tokens=tokens)


@pytest.fixture
def said(store: Store) -> Said:
    """Somebody who tells it conversations."""
    return Said(store)
