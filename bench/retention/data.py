"""The conversations that are measured: from a folder of ``*.jsonl`` files, or the shipped session.

Every conversation has a kind, by the file that it came from, and falls into one half of a fixed split, by its id: tune
on ``dev``, look at ``test`` for what tuning was worth.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from everlong.model import Message, leading_system_count

CUTS = (0.35, 0.5, 0.65, 0.8)
CHAINS = {
    1: (0.8,),
    3: (0.4, 0.6, 0.8),
    5: (0.2, 0.35, 0.5, 0.65, 0.8),
    20: tuple(0.1 + 0.7 * step / 19 for step in range(20)),
}
"""The places of the compactions of a chain, by their number."""
LEAST_MESSAGES = 12
"""A shorter conversation has no past to lose."""
_SALT = 10
"""Parts the conversations of each kind about evenly."""
_KINDS = {"claude_code": "coding", "mini_swe": "coding", "pi": "coding", "tau_airline": "tau_airline"}


@dataclass(frozen=True, slots=True)
class Conversation:
    """One recorded conversation."""

    name: str
    kind: str
    messages: list[Message]

    @property
    def split(self) -> str:
        """``dev`` or ``test``, the same on every machine."""
        return "test" if hashlib.sha256(f"{_SALT}:{self.name}".encode()).digest()[0] % 2 else "dev"


def load(folder: Path | None) -> list[Conversation]:
    """Return all conversations of a folder; none if the folder is missing or empty."""
    return [] if folder is None or not folder.is_dir() else list(_read(folder))


def shipped() -> list[Conversation]:
    """Return the session that comes with the package."""
    from everlong.cli.demo import load_session  # noqa: PLC0415 - needed without data only

    return [Conversation("shipped session", "demo", load_session()[0])]


def _read(folder: Path) -> Iterator[Conversation]:
    for path in sorted(folder.glob("*.jsonl")):
        kind = next((kind for start, kind in _KINDS.items() if path.stem.startswith(start)), "other")
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                entry = json.loads(line) if line.strip() else {}
                if isinstance(entry, dict) and isinstance(entry.get("messages"), list):
                    yield Conversation(str(entry.get("id") or f"{path.stem}:{number}"), kind, entry["messages"])


def cuts(messages: Sequence[Message], shares: Sequence[float]) -> list[int]:
    """Return the cuts of a conversation: at these shares of its messages, moved on to the next request of a host."""
    start = leading_system_count(messages)
    if len(messages) - start < LEAST_MESSAGES:
        return []
    found: dict[int, None] = {}
    for share in shares:
        wanted = start + round(share * (len(messages) - start))
        cut = next((i for i in range(wanted, len(messages)) if messages[i].get("role") == "assistant"), None)
        if cut is not None:
            found[cut] = None
    return list(found)
