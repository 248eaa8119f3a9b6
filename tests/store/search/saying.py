"""Helpers: say texts in a store, index them or not, and get back what a search finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everlong.store import Branch, Store
from everlong.store.search import Filters
from everlong.store.search.corpus import load_documents


class Sayer:
    """Says things in conversations of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.conversations = 0

    def say(self, *texts: str, times: Sequence[float] | None = None) -> Branch:
        """A conversation of its own with these texts, by user and assistant in turn."""
        self.conversations += 1
        messages = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]
        return self.store.record(messages, times=times)

    def drain(self) -> None:
        """Index all that is stored."""
        while self.store.searcher.index_pending():
            pass

    def texts(self, query: str, *, limit: int = 10, **options: Any) -> list[str]:
        """The texts of all that a search finds, over as many pages as there are."""
        found: list[str] = []
        cursor = None
        while True:
            page = self.store.search(query, limit=limit, cursor=cursor, **options)
            found += [self.text_of(hit.seq) for hit in page.hits]
            cursor = page.cursor
            if cursor is None:
                return found

    def text_of(self, seq: int) -> str:
        """What a document says."""
        with self.store.database.read() as connection:
            return load_documents(connection, [seq])[seq].text


class Said(Sayer):
    """Says things and leaves them pending, or indexes them at once."""

    def __init__(self, store: Store, *, is_indexed: bool) -> None:
        super().__init__(store)
        self.is_indexed = is_indexed

    def say(self, *texts: str, times: Sequence[float] | None = None) -> Branch:
        branch = super().say(*texts, times=times)
        if self.is_indexed:
            self.drain()
        return branch


def within(**filters: Any) -> dict[str, Any]:
    """Filters as an option of a search."""
    return {"filters": Filters(**filters)}
