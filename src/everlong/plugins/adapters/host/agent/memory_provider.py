"""The base class of memory providers, by the name it has elsewhere; it is Everlong's own."""

from __future__ import annotations

from everlong.memory.provider import MemoryProvider

__all__ = ["MemoryProvider"]
