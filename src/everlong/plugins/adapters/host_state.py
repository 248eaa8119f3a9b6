"""The host of a plugin as the adapters see it: its settings, its models, and the hooks that plugins left.

A plugin asks for a configuration or a model without saying for whom. So its `Host` is the current one during each call
(`running_in`); outside of such calls, the user's own configuration counts.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.providers.auxiliary import AskModel
    from everlong.providers.connection import Connection

__all__ = [
    "Host",
    "adapter_of",
    "as_config",
    "current_host",
    "foreign_home",
    "home",
    "host_path",
    "running_in",
    "session_fact",
]

HOST = "everlong.plugins.adapters.host"


def host_path() -> Path:
    """Return the folder for ``PYTHONPATH`` with which a foreign plugin's own tests find ``agent`` and the rest."""
    return Path(__file__).with_name("host")


def adapter_of(name: str) -> str:
    """Return the full name of the adapter for the foreign module ``name``; empty where there is none."""
    known = _data()["modules"]
    head, tail = name, ""
    while head:
        if head in known:
            return f"{HOST}.{known[head]}{tail}"
        head, _, last = head.rpartition(".")
        tail = f".{last}{tail}"
    return ""


def foreign_home() -> Path | None:
    """Return the home folder that an environment variable of another host sets; None where it is not set."""
    for name in _data()["home"]["variables"]:
        if os.environ.get(name, "").strip():
            return Path(os.environ[name].strip()).expanduser()
    return None


def session_fact(variable: str) -> str:
    """Return the fact behind a session variable of another host: ``session_id``, ``conversation_id``, ``platform``."""
    return str(_data()["session"].get(variable, ""))


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("roots.toml").read_text(encoding="utf-8"))


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
    hooks: dict[str, list[Callable[..., Any]]] = field(default_factory=dict)
    """Hooks that plugins left with the manager of another host."""
    connections: dict[object, Connection] = field(default_factory=dict, repr=False)
    """Connections that were made before, by the plugin's wish."""


_current: ContextVar[Host | None] = ContextVar("everlong_plugin_host", default=None)
_outside: Host | None = None


def current_host() -> Host:
    """Return the host of the current call; outside of one, a host with the user's configuration."""
    global _outside  # noqa: PLW0603 - hooks and connections are kept when the configuration is read again
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
    from everlong.config.paths import data_home  # noqa: PLC0415 - as above

    return foreign_home() or data_home()


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
