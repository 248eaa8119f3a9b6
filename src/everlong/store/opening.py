"""The opening of the store that the settings name, with their rules for secrets and retention."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from everlong.arguments import refuse
from everlong.config.paths import data_home
from everlong.model import Message
from everlong.redaction import redact_values
from everlong.store.store import Store
from everlong.store.upgrade import open_database
from everlong.store.upkeep.retention import retain

if TYPE_CHECKING:
    from everlong.config.settings import StoreSettings
    from everlong.store.search.vectors import Embedder

FILE_NAME = "store.db"


def default_path() -> Path:
    """Return the path of the store if no setting names another."""
    return data_home() / FILE_NAME


def location(settings: StoreSettings) -> str | Path:
    """Return the url or the path of the store that the settings of the ``store`` section name."""
    return settings.url or default_path()


def open_store(
    settings: StoreSettings | str | Path | None = None,
    tenant: str = "local",
    *,
    waits_for_disk: bool = True,
    embedder: Embedder | None = None,
) -> Store:
    """Open a store by its path or url, or the one that the settings of the ``store`` section name; else the user's own.

    Whoever has what it stores in a journal, too, need not wait for the disk with every commit.
    With an ``embedder``, questions also find messages by their meaning.

    >>> with open_store("mine.db") as store:
    ...     len(store.context(store.record([{"role": "user", "content": "hi"}])))
    1
    """
    if settings is None or isinstance(settings, str | Path):
        where = settings or default_path()
        return Store(open_database(where, waits_for_disk=waits_for_disk), tenant, embedder=embedder)
    if not hasattr(settings, "url"):
        refuse("settings", settings, "a path, a url, StoreSettings, or None")
    return Store(
        open_database(location(settings), waits_for_disk=waits_for_disk),
        tenant,
        redact=redacted_message if settings.redact else None,
        embedder=embedder,
    )


def apply_retention(store: Store, settings: StoreSettings) -> list[str]:
    """Delete what the settings say is too old or too much; return the ids of the deleted sessions."""
    size = settings.retention_megabytes
    if settings.retention_days is None and size is None:
        return []
    return retain(store, days=settings.retention_days, max_bytes=None if size is None else size * 1_000_000)


def redacted_message(message: Message) -> Message:
    """Return a copy of a message with every secret in it replaced by a mark."""
    result: Message = redact_values(message)
    return result
