"""Text without keys and passwords, by the name that engines know."""

from __future__ import annotations

from typing import Any

from everlong.redaction import redact

__all__ = ["redact_sensitive_text"]


def redact_sensitive_text(text: str, **ignored: Any) -> str:
    """Return the text without keys, tokens and passwords."""
    del ignored
    return redact(text) if text else text
