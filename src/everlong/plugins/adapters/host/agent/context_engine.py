"""The base class of context engines, by the name it has elsewhere; it is Everlong's own."""

from __future__ import annotations

from typing import Any

from everlong.context.engine import ContextEngine
from everlong.redaction import redact

__all__ = ["ContextEngine", "automatic_compaction_status_message", "sanitize_memory_context"]

MEMORY_CONTEXT_MAX_CHARS = 6_000
_CUT = "\n…\n"


def sanitize_memory_context(memory_context: str) -> str:
    """Return a memory provider's text without secrets; a long one loses its middle."""
    text = redact(memory_context.strip())
    if len(text) <= MEMORY_CONTEXT_MAX_CHARS:
        return text
    half = (MEMORY_CONTEXT_MAX_CHARS - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]


def automatic_compaction_status_message(engine: Any, *, phase: str, default_message: str, **facts: Any) -> str | None:
    """Return the status message of a compaction: the engine's own, the default, or None."""
    if not getattr(engine, "emit_automatic_compaction_status", True):
        return None
    own = getattr(engine, "get_automatic_compaction_status_message", None)
    text = own(phase=phase, default_message=default_message, **facts) if callable(own) else default_message
    return (str(text).strip() or None) if text is not None else None
