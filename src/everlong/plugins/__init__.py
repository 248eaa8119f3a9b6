"""Plugins: other people's context engines, commands, tools and memory providers.

Knows folders, packages and what they register; knows nothing of the agent, the chat or the command line. Nothing is
imported until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.plugins.context import PluginContext
    from everlong.plugins.manager import Plugins

__all__ = ["PluginContext", "Plugins"]

_LATER = {"PluginContext": "context", "Plugins": "manager"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only needed here

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value  # from now on found without this function
    return value
