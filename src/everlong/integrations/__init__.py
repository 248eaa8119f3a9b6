"""Adapters that keep the agents of other frameworks inside their window.

Each has its module and is loaded only if it is used; all stand on `everlong.integrations.history`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.integrations.clients import wrap_client
    from everlong.integrations.langchain import EverlongMiddleware
    from everlong.integrations.langgraph import KeptModel

__all__ = [
    "EverlongMiddleware",
    "KeptModel",
    "wrap_client",
]

_HOMES = {
    "EverlongMiddleware": ("langchain", "langchain"),
    "KeptModel": ("langgraph", "langgraph"),
    "wrap_client": ("clients", "openai"),
}
"""The module of each name, and the extra that it needs."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _HOMES[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs a package that is not installed: {install_command(extra)}") from error
