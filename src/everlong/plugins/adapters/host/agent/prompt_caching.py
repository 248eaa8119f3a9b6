"""Cache markers, by the name that engines know."""

from __future__ import annotations

from everlong.caching import apply_anthropic_cache_control

__all__ = ["apply_anthropic_cache_control"]
