"""Answers of tools as JSON, by the names that plugins know."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["tool_error", "tool_result"]


def tool_error(message: object, **more: Any) -> str:
    """Return a failure as JSON for the model."""
    return json.dumps({"error": str(message), **more}, ensure_ascii=False, default=str)


def tool_result(data: Any = None, **more: Any) -> str:
    """Return a result as JSON for the model."""
    return json.dumps(more if data is None else data, ensure_ascii=False, default=str)
