"""The host of a plugin: its settings and its models.

A plugin asks for a configuration or a model without saying for whom. So its `Host` is the current one during each call
(`running_in`); outside of such calls, the user's own configuration counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.config.paths import data_home

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.providers.auxiliary import AskModel
    from everlong.providers.connection import Connection

__all__ = ["Host", "as_config", "current_host", "home", "running_in"]

_HOME_VARIABLES = ("HERMES_HOME", "AIGENLABS_HOME")
"""Environment variables that name another host's home; the first that is set is taken."""


@dataclass
class Host:
    """The program that a plugin runs in, as far as the plugin may use it."""

    settings: Settings
    main: Callable[[], Connection | None] = lambda: None
    """Returns the model of the conversation, if there is one."""
    ask: AskModel | None = None
    """Asks a model, where calls are to be counted and can be stopped."""
    check: Callable[[], None] | None = None
    """Called during a compaction; ends it by raising, as where the user interrupts."""
    session: dict[str, str] = field(default_factory=dict)
    """``session_id``, ``conversation_id`` and ``platform`` of the conversation."""
    connections: dict[object, Connection] = field(default_factory=dict, repr=False)
    """Connections that were made before, by the plugin's wish."""


_current: ContextVar[Host | None] = ContextVar("everlong_plugin_host", default=None)
_outside: Host | None = None


def current_host() -> Host:
    """Return the host of the current call; outside of one, a host with the user's configuration."""
    global _outside  # noqa: PLW0603 - connections are kept when the configuration is read again
    found = _current.get()
    if found is not None:
        return found
    from everlong.config import load_settings  # noqa: PLC0415 - only where a plugin asks

    settings = load_settings().settings
    _outside = Host(settings) if _outside is None else replace(_outside, settings=settings)
    return _outside


@contextmanager
def running_in(host: Host | None) -> Iterator[None]:
    """Make a host the current one in a ``with`` block."""
    token = _current.set(host)
    try:
        yield
    finally:
        _current.reset(token)


def home() -> Path:
    """Return the folder for a foreign plugin's files: that of its own host's variable, else Everlong's."""
    chosen = (os.environ.get(name, "").strip() for name in _HOME_VARIABLES)
    return next((Path(path).expanduser() for path in chosen if path), None) or data_home()


def as_config() -> dict[str, Any]:
    """Return the settings as a new dict: Everlong's sections, ``model``, and each plugin's section by its name."""
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
