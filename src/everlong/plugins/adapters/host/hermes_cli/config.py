"""Everlong's configuration, by the names that plugins know; plugins can only read it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everlong.errors import PluginError
from everlong.plugins.adapters.host.hermes_constants import get_aigenlabs_home, get_config_path, get_hermes_home
from everlong.plugins.adapters.host_state import as_config

__all__ = [
    "cfg_get",
    "get_aigenlabs_home",
    "get_config_path",
    "get_env_value",
    "get_hermes_home",
    "load_config",
    "load_config_readonly",
    "load_env",
    "read_raw_config",
    "save_config",
    "save_env_value",
]


def load_config() -> dict[str, Any]:
    """Return the settings as one dict: Everlong's sections, ``model``, and each plugin's section by its name."""
    return as_config()


load_config_readonly = load_config
read_raw_config = load_config


def cfg_get(config: Any, *keys: str, default: Any = None) -> Any:
    """Return a value in nested sections; the default where a section is missing."""
    for key in keys:
        if not isinstance(config, Mapping) or key not in config:
            return default
        config = config[key]
    return default if config is None else config


def save_config(config: Mapping[str, Any], *ignored: Any, **also_ignored: Any) -> None:
    """Raise a `PluginError`: plugins must not write the configuration."""
    del config, ignored, also_ignored
    raise PluginError("a plugin wanted to write the configuration; do it yourself with `everlong config set KEY VALUE`")


def save_env_value(name: str, value: str) -> None:
    """Raise a `PluginError`: `everlong auth` keeps keys, and users set variables."""
    del value
    raise PluginError(f"a plugin wanted to keep the variable {name}; set it in your environment yourself")


def get_env_value(name: str, default: str | None = None) -> str | None:
    """Return an environment variable."""
    return os.environ.get(name, default)


def load_env() -> dict[str, str]:
    """Return the environment variables."""
    return dict(os.environ)


def ensure_hermes_home() -> Path:
    """Make the plugins' home folder if it is missing, and return it."""
    get_hermes_home().mkdir(parents=True, exist_ok=True)
    return get_hermes_home()
