"""The configuration, by the names that plugins know. It is Everlong's, and plugins read it only."""

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
    """Everlong's settings as one dict: its sections, ``model``, and each plugin's own section by its name."""
    return as_config()


load_config_readonly = load_config
read_raw_config = load_config


def cfg_get(config: Any, *keys: str, default: Any = None) -> Any:
    """A value in nested sections; the default where a section on the way is missing."""
    for key in keys:
        if not isinstance(config, Mapping) or key not in config:
            return default
        config = config[key]
    return default if config is None else config


def save_config(config: Mapping[str, Any], *ignored: Any, **also_ignored: Any) -> None:
    """Refuse: people write the configuration, plugins do not."""
    del config, ignored, also_ignored
    raise PluginError("a plugin wanted to write the configuration; do it yourself with `everlong config set KEY VALUE`")


def save_env_value(name: str, value: str) -> None:
    """Refuse: keys are kept by `everlong auth`, and variables by whoever sets them."""
    del value
    raise PluginError(f"a plugin wanted to keep the variable {name}; set it in your environment yourself")


def get_env_value(name: str, default: str | None = None) -> str | None:
    """An environment variable."""
    return os.environ.get(name, default)


def load_env() -> dict[str, str]:
    """The environment variables."""
    return dict(os.environ)


def ensure_hermes_home() -> Path:
    """The plugins' home, made where it is missing."""
    get_hermes_home().mkdir(parents=True, exist_ok=True)
    return get_hermes_home()
