"""What an agent remembers beyond one session: notes in Markdown files, and one external provider.

Nothing is imported until it is used. This package knows neither stores nor model APIs; a model that decides what is
worth keeping is handed in as a function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.memory.external import external_provider, installed_providers
    from everlong.memory.flush import Ask, Flushed
    from everlong.memory.manager import MemoryManager
    from everlong.memory.notes import Found, NotesMemory, Target
    from everlong.memory.provider import MemoryProvider

__all__ = [
    "Ask",
    "Flushed",
    "Found",
    "MemoryManager",
    "MemoryProvider",
    "NotesMemory",
    "Target",
    "external_provider",
    "installed_providers",
]

_LATER = {
    "Ask": "flush",
    "Flushed": "flush",
    "Found": "notes",
    "MemoryManager": "manager",
    "MemoryProvider": "provider",
    "NotesMemory": "notes",
    "Target": "notes",
    "external_provider": "external",
    "installed_providers": "external",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only needed here

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value  # from now on found without this function
    return value
