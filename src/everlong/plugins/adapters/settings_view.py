"""Everlong's configuration in the shape that plugins of another host read: one dict of sections."""

from __future__ import annotations

from typing import Any

from everlong.plugins.adapters.host_state import current_host

__all__ = ["as_config"]


def as_config() -> dict[str, Any]:
    """A new dict each time: Everlong's sections, ``model`` as its own section, each plugin's section by its name."""
    settings = current_host().settings
    values = settings.model_dump(mode="json")
    own = settings.plugins.sections
    chosen = settings.agent.model or ""
    provider, colon, model = chosen.partition(":")
    known = settings.models.get(chosen) or settings.models.get(model)
    values["model"] = {
        "default": model if colon else chosen,
        "provider": provider if colon else "",
        "context_length": known.context_length if known is not None else None,
    }
    values["plugins"] = {**dict(values["plugins"]), "entries": own}
    return {**{name: section for name, section in own.items() if name not in values}, **values}
