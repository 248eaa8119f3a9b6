"""Adapters that keep the agents of other frameworks inside their window.

`EverlongMiddleware` is for LangChain, `EverlongFilter` for the OpenAI Agents SDK; both use
`everlong.integrations.history`. Each is loaded only if it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everlong.extras import install_command

if TYPE_CHECKING:
    from everlong.integrations.langchain import EverlongMiddleware
    from everlong.integrations.openai_agents import EverlongFilter

__all__ = ["EverlongFilter", "EverlongMiddleware"]

_HOMES = {"EverlongFilter": ("openai_agents", "openai-agents"), "EverlongMiddleware": ("langchain", "langchain")}
"""The module of each name, and the extra that it needs."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _HOMES[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs a package that is not installed: {install_command(extra)}") from error
