"""How far a store was checked: the newest message and content of a check, and a file that remembers it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, func, select

from everlong.config.files import write_whole
from everlong.store.schema import content, node

if TYPE_CHECKING:
    from everlong.store.core import StoreCore


class VerifiedMark(NamedTuple):
    """The numbers of the newest message and the newest content that a check has seen, or will see."""

    node: int
    content: int


def newest_mark(core: StoreCore) -> VerifiedMark:
    """Return the numbers of a tenant's newest message and content."""
    with core.database.read() as connection:
        return mark_of(connection, core.tenant)


def mark_of(connection: Connection, tenant: str) -> VerifiedMark:
    """Return the same on a connection."""
    newest = (select(func.max(table.c.seq)).where(table.c.tenant == tenant) for table in (node, content))
    return VerifiedMark(*(connection.execute(query).scalar() or 0 for query in newest))


class VerificationLog:
    """A file that says how far stores were found to be whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, core: StoreCore, newest: VerifiedMark) -> VerifiedMark | None:
        """Return how far a tenant's part of a store was checked; None if that is not known, or it was replaced."""
        known = self._load().get(self._key(core))
        if not (isinstance(known, list) and len(known) == 2 and all(type(one) is int for one in known)):
            return None
        mark = VerifiedMark(*known)
        return mark if mark.node <= newest.node and mark.content <= newest.content else None

    def note(self, core: StoreCore, mark: VerifiedMark | None) -> None:
        """Note how far it was checked; None if something was wrong."""
        kept = {name: known for name, known in self._load().items() if name != self._key(core)}
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._path, json.dumps(kept if mark is None else {**kept, self._key(core): list(mark)}))

    def _key(self, core: StoreCore) -> str:
        return f"{core.database.backend.where} {core.tenant}"

    def _load(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
