"""What the adapters know of the program around them: its settings, its models, and the hooks that plugins left.

A plugin asks for a configuration or a model without saying for whom. Whoever runs an engine says it, by making its
`Host` the current one around each call (`guard`); outside of that, the user's own configuration counts. Knows no
engine and no agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.plugins.adapters.names import foreign_home

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.providers.auxiliary import AskModel
    from everlong.providers.connection import Connection

__all__ = ["Host", "current_host", "home", "running_in"]


@dataclass
class Host:
    """The program that a plugin runs in, as far as the plugin may use it."""

    settings: Settings
    main: Callable[[], Connection | None] = lambda: None
    """The model of the conversation, if there is one."""
    ask: AskModel | None = None
    """How models are asked, where calls are to be counted and can be stopped."""
    session: dict[str, str] = field(default_factory=dict)
    """``session_id``, ``conversation_id`` and ``platform`` of the conversation."""
    hooks: dict[str, list[Callable[..., Any]]] = field(default_factory=dict)
    """Hooks that plugins put straight into the manager that they believe to be there."""
    connections: dict[object, Connection] = field(default_factory=dict, repr=False)
    """Models that were asked before, by what they were asked for with."""


_current: ContextVar[Host | None] = ContextVar("everlong_plugin_host", default=None)
_outside: Host | None = None


def current_host() -> Host:
    """The host of the call that is under way; else one that has the user's configuration as it is now."""
    global _outside  # noqa: PLW0603 - hooks and connections outlive one look at the configuration
    found = _current.get()
    if found is not None:
        return found
    from everlong.config import load_settings  # noqa: PLC0415 - only where a plugin asks

    settings = load_settings().settings
    _outside = Host(settings) if _outside is None else replace(_outside, settings=settings)
    return _outside


@contextmanager
def running_in(host: Host | None) -> Iterator[None]:
    """In a ``with`` block, what plugins ask for is answered by this host."""
    token = _current.set(host)
    try:
        yield
    finally:
        _current.reset(token)


def home() -> Path:
    """The folder in which a foreign plugin keeps its files: what its own host's variable says, else Everlong's."""
    from everlong.config.paths import data_home  # noqa: PLC0415 - as above

    return foreign_home() or data_home()
