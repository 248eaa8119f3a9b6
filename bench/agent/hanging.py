"""A memory provider that never answers when a compaction is about to happen."""

from __future__ import annotations

import threading

from everlong.memory import MemoryProvider
from everlong.model import Message

__all__ = ["ENTERED", "Hanging", "offered_in"]

ENTERED: list[int] = []
"""The length of each conversation about which it was asked."""


class Hanging(MemoryProvider):
    """Blocks for good."""

    @property
    def name(self) -> str:
        """The provider's name."""
        return "hanging"

    def on_pre_compress(self, messages: list[Message]) -> str:
        """Wait for something that does not happen."""
        ENTERED.append(len(messages))
        threading.Event().wait()
        return ""


def offered_in() -> dict[str, str]:
    """Return the files of a package that offers it, by name, for a folder on the path of a process."""
    return {
        "hanging-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hanging\nVersion: 1.0\n",
        "hanging-1.0.dist-info/entry_points.txt": "[everlong.memory]\nhanging = bench.agent.hanging:Hanging\n",
    }
