"""Adapters that keep the agents of other frameworks inside their window.

Each has its module and is loaded only if it is used; all stand on `everlong.integrations.history`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.integrations.clients import wrap_client
    from everlong.integrations.google_adk import EverlongPlugin
    from everlong.integrations.langchain import EverlongMiddleware
    from everlong.integrations.langgraph import KeptModel
    from everlong.integrations.llama_index import EverlongMemory
    from everlong.integrations.openai_agents import EverlongFilter
    from everlong.integrations.pydantic_ai import EverlongHistory

__all__ = [
    "EverlongFilter",
    "EverlongHistory",
    "EverlongMemory",
    "EverlongMiddleware",
    "EverlongPlugin",
    "KeptModel",
    "wrap_client",
]

_HOMES = {
    "EverlongFilter": ("openai_agents", "openai-agents"),
    "EverlongHistory": ("pydantic_ai", "pydantic-ai"),
    "EverlongMemory": ("llama_index", "llama-index"),
    "EverlongMiddleware": ("langchain", "langchain"),
    "EverlongPlugin": ("google_adk", "google-adk"),
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
