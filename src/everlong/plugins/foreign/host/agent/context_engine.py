"""The base class of context engines, by the name it has elsewhere; it is Everlong's own."""

from __future__ import annotations

from everlong.context.engine import ContextEngine

__all__ = ["ContextEngine"]
