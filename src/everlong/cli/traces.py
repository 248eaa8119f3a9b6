"""Traces of what was said outside of the store: the gateway's journal, and what was typed in the chat.

The store itself takes care of its own content, index, titles and logs. Forgetting comes here for the rest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["forget_traces", "old_copies", "store_journal"]

_ENTRY = re.compile(r"(?m)^(?:# .*\n)?(?:\+.*\n?)+")
"""One entry of the chat's history: a line with its time, then its lines, each after a plus."""


def store_journal(store: Store) -> None:
    """Store what gateways that run no more left in their journals, so that it can be found and forgotten."""
    from everlong.gateway.upkeep import store_left_behind  # noqa: PLC0415 - keeps `everlong --help` quick

    store_left_behind(lambda tenant: _of_tenant(store, tenant))


def forget_traces(store: Store, text: str | None = None) -> None:
    """Take what the store has forgotten out of the journals and of the chat's history; there also what holds a text."""
    from everlong.config.paths import data_home  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.gateway.upkeep import clean_journal  # noqa: PLC0415 - as above

    clean_journal(lambda tenant: _of_tenant(store, tenant))
    _clean_history(store, data_home() / "chat_history", text)


def old_copies(store: Store) -> list[Path]:
    """Return the copies of a store's file that were made before it was brought up to date."""
    from everlong.store.sqlite import SQLite  # noqa: PLC0415 - keeps `everlong --help` quick

    backend = store.database.backend
    if not isinstance(backend, SQLite):
        return []
    return sorted(backend.path.parent.glob(f"{backend.path.name}.before-*.bak"))


def _of_tenant(store: Store, tenant: str) -> Store:
    from everlong.store import Store as Opened  # noqa: PLC0415 - keeps `everlong --help` quick

    return Opened(store.database, tenant)


def _clean_history(store: Store, path: Path, text: str | None) -> None:
    from everlong.config.atomic import write_whole  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.store.forgotten import forgotten_among  # noqa: PLC0415 - as above

    try:
        told = path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # nothing was typed yet
        return
    with store.database.read() as connection:

        def left(entry: re.Match[str]) -> str:
            lines = [line[1:] for line in entry[0].splitlines() if line.startswith("+")]
            typed = "\n".join(lines)
            blocks = store.chain.trace([store.cleaned({"role": "user", "content": typed})]).blocks
            is_gone = bool(forgotten_among(connection, store.tenant, blocks))
            return "" if is_gone or (text and text.casefold() in typed.casefold()) else entry[0]

        kept = _ENTRY.sub(left, told)
    if kept != told:
        write_whole(path, kept)
