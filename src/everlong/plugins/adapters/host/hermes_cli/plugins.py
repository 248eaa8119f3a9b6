"""The manager that some plugins reach for to leave hooks; what they leave is kept for whoever runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everlong.plugins.adapters.host_state import current_host

__all__ = ["get_plugin_manager", "has_hook", "invoke_hook"]


class _Manager:
    """As much of a plugin manager as plugins use."""

    @property
    def _hooks(self) -> dict[str, list[Callable[..., Any]]]:
        return current_host().hooks

    def register_hook(self, name: str, callback: Callable[..., Any]) -> None:
        """Leave a hook."""
        self._hooks.setdefault(name, []).append(callback)

    def has_hook(self, name: str) -> bool:
        """Whether anybody left a hook of that name."""
        return bool(self._hooks.get(name))

    def invoke_hook(self, name: str, **facts: Any) -> list[Any]:
        """What the hooks of a name say to these facts."""
        return [said for hook in list(self._hooks.get(name, ())) if (said := hook(**facts)) is not None]

    def list_plugins(self) -> list[dict[str, Any]]:
        """No other plugin is shown to a plugin."""
        return []


_manager = _Manager()


def get_plugin_manager() -> _Manager:
    """The manager."""
    return _manager


def has_hook(name: str) -> bool:
    """Whether anybody left a hook of that name."""
    return _manager.has_hook(name)


def invoke_hook(name: str, **facts: Any) -> list[Any]:
    """What the hooks of a name say to these facts."""
    return _manager.invoke_hook(name, **facts)
