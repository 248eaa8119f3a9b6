"""Settings of plugins: which are loaded and where they are found, beside one free section per plugin."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from everlong.config.fields import Names, setting

__all__ = ["PluginsSettings"]


class PluginsSettings(BaseModel):
    """Where plugins are, which are loaded, and a section for each that only the plugin itself understands."""

    model_config = ConfigDict(extra="allow", frozen=True)

    enabled: Names = setting(
        [],
        "a list of plugin names",
        "General plugins to load: their commands, tools, hooks and memory providers; nothing is loaded unnamed.",
    )
    paths: Names = setting(
        [], "a list of folders", "Further folders to look for plugins in, besides your own and the project's."
    )

    @property
    def sections(self) -> dict[str, Any]:
        """What stands below each other name, as it was written."""
        return dict(self.__pydantic_extra__ or {})

    def section(self, name: str) -> dict[str, Any]:
        """A plugin's own settings; empty where there are none, or no mapping."""
        found = self.sections.get(name)
        return dict(found) if isinstance(found, dict) else {}
