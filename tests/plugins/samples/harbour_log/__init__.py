"""A context engine in a folder: modules with relative imports, a sub-package, a tool of its own."""

from .engine import HarbourLog

__all__ = ["HarbourLog"]
