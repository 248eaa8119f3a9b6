"""Folders for files, by the names that plugins know."""

from __future__ import annotations

import os
from contextvars import ContextVar, Token
from pathlib import Path

from everlong.config.paths import user_config_path
from everlong.plugins.adapters.host_state import home

__all__ = [
    "OPENROUTER_BASE_URL",
    "display_hermes_home",
    "get_config_path",
    "get_default_hermes_root",
    "get_env_path",
    "get_hermes_dir",
    "get_hermes_home",
    "get_hermes_home_override",
    "get_process_hermes_home",
    "get_subprocess_home",
    "hermes_home_key",
    "reset_hermes_home_override",
    "set_hermes_home_override",
]

OPENROUTER_BASE_URL = "https://openrouter.ai/api/v1"

_override: ContextVar[str | None] = ContextVar("everlong_foreign_home", default=None)


def get_hermes_home() -> Path:
    """Return the folder for plugins' files: ``HERMES_HOME`` where it is set, else Everlong's data folder."""
    chosen = _override.get()
    return Path(chosen) if chosen else home()


get_aigenlabs_home = get_hermes_home


def get_process_hermes_home() -> Path:
    """Return the folder for plugins' files without `set_hermes_home_override`."""
    return home()


def get_default_hermes_root() -> Path:
    """Return the folder for plugins' files; Everlong has no profiles."""
    return home()


def set_hermes_home_override(path: str | Path | None) -> Token[str | None]:
    """Use another folder in this context, until `reset_hermes_home_override`."""
    return _override.set(str(path) if path is not None else None)


def reset_hermes_home_override(token: Token[str | None]) -> None:
    """Undo `set_hermes_home_override`."""
    _override.reset(token)


def get_hermes_home_override() -> str | None:
    """Return the folder that `set_hermes_home_override` set."""
    return _override.get()


def hermes_home_key(path: str | Path | None = None) -> str:
    """Return one text for one folder, however it is spelled."""
    return os.path.normcase(str((Path(path) if path is not None else get_hermes_home()).expanduser().resolve()))


def get_hermes_dir(new_subpath: str, old_name: str) -> Path:
    """Return a folder below the home: the old one where it has files, else the new one."""
    old = get_hermes_home() / old_name
    return old if old.is_dir() and any(old.iterdir()) else get_hermes_home() / new_subpath


def get_config_path() -> Path:
    """Return the path of Everlong's ``config.yaml``."""
    return user_config_path()


def get_env_path() -> Path:
    """Return the path of a file of environment variables, which Everlong does not read."""
    return get_hermes_home() / ".env"


def get_subprocess_home() -> str | None:
    """Return None: programs that plugins start have no home of their own."""
    return None


def display_hermes_home() -> str:
    """Return the folder for plugins' files, as shown to people."""
    path = str(get_hermes_home())
    user = str(Path.home())
    return "~" + path.removeprefix(user) if path.startswith(user) else path
