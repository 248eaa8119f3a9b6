"""The endpoints that a user has added."""

from __future__ import annotations

from typing import Any

from everlong.plugins.adapters.host_state import current_host

__all__ = ["_get_named_custom_provider"]


def _get_named_custom_provider(name: str) -> dict[str, Any] | None:
    """Return an endpoint of the user's own (``providers.NAME``), if there is one of that name."""
    found = current_host().settings.providers.get(name)
    return {"name": name, "base_url": found.base_url or ""} if found is not None else None
