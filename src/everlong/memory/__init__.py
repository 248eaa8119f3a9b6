"""The memory of an agent beyond one session: notes in a Markdown file, and one external provider.

Nothing is imported until it is used. The model that decides what is worth keeping is passed in as a function.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.memory.flush import Ask as Ask, Flushed as Flushed
    from everlong.memory.manager import MemoryManager as MemoryManager
    from everlong.memory.notes import NotesMemory as NotesMemory
    from everlong.memory.provider import (
        MemoryProvider as MemoryProvider,
        external_provider as external_provider,
    )

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "flush": "Ask Flushed",
        "manager": "MemoryManager",
        "notes": "NotesMemory",
        "provider": "MemoryProvider external_provider",
    },
)
