"""The plugin manager with which some plugins register hooks; the host takes them over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everlong.plugins.adapters.host_state import current_host

__all__ = ["get_plugin_manager", "has_hook", "invoke_hook"]


class _Manager:
    """The methods of a plugin manager that plugins use."""

    @property
    def _hooks(self) -> dict[str, list[Callable[..., Any]]]:
        return current_host().hooks

    def register_hook(self, name: str, callback: Callable[..., Any]) -> None:
        """Register a hook."""
        self._hooks.setdefault(name, []).append(callback)

    def has_hook(self, name: str) -> bool:
        """Return whether there is a hook of that name."""
        return bool(self._hooks.get(name))

    def invoke_hook(self, name: str, **facts: Any) -> list[Any]:
        """Call the hooks of a name with facts, and return their answers without the Nones."""
        return [said for hook in list(self._hooks.get(name, ())) if (said := hook(**facts)) is not None]

    def list_plugins(self) -> list[dict[str, Any]]:
        """Return no plugins: a plugin sees no other."""
        return []


_manager = _Manager()


def get_plugin_manager() -> _Manager:
    """Return the manager."""
    return _manager


def has_hook(name: str) -> bool:
    """Return whether there is a hook of that name."""
    return _manager.has_hook(name)


def invoke_hook(name: str, **facts: Any) -> list[Any]:
    """Call the hooks of a name with facts, and return their answers without the Nones."""
    return _manager.invoke_hook(name, **facts)
