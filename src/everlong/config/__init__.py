"""Settings: typed models, where their values come from, and how a file of them is changed.

Importing this package loads plain values only; the models that check them, and the reading and writing of files, are
loaded when first used. It knows nothing of what the settings are used for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everlong.config.paths import (
    config_home,
    data_home,
    new_project_config_path,
    project_config_path,
    user_config_path,
)
from everlong.config.values import CachingValues, CompressionValues, caching_values, compression_values

if TYPE_CHECKING:
    from everlong.config.agent_settings import AgentSettings
    from everlong.config.edit import set_value
    from everlong.config.listing import SettingInfo, catalog
    from everlong.config.load import LoadedSettings, Origin, load_settings
    from everlong.config.plugin_settings import PluginsSettings
    from everlong.config.settings import (
        AuxiliaryCompressionSettings,
        AuxiliarySettings,
        CompressionSettings,
        ContextSettings,
        MemorySettings,
        ModelSettings,
        PromptCachingSettings,
        ProviderSettings,
        Settings,
        StoreSettings,
    )

__all__ = [
    "AgentSettings",
    "AuxiliaryCompressionSettings",
    "AuxiliarySettings",
    "CachingValues",
    "CompressionSettings",
    "CompressionValues",
    "ContextSettings",
    "LoadedSettings",
    "MemorySettings",
    "ModelSettings",
    "Origin",
    "PluginsSettings",
    "PromptCachingSettings",
    "ProviderSettings",
    "SettingInfo",
    "Settings",
    "StoreSettings",
    "caching_values",
    "catalog",
    "compression_values",
    "config_home",
    "data_home",
    "load_settings",
    "new_project_config_path",
    "project_config_path",
    "set_value",
    "user_config_path",
]

_LATER = {
    "AgentSettings": "agent_settings",
    "AuxiliaryCompressionSettings": "settings",
    "AuxiliarySettings": "settings",
    "CompressionSettings": "settings",
    "ContextSettings": "settings",
    "MemorySettings": "settings",
    "ModelSettings": "settings",
    "PromptCachingSettings": "settings",
    "ProviderSettings": "settings",
    "Settings": "settings",
    "StoreSettings": "settings",
    "LoadedSettings": "load",
    "Origin": "load",
    "PluginsSettings": "plugin_settings",
    "SettingInfo": "listing",
    "catalog": "listing",
    "load_settings": "load",
    "set_value": "edit",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only needed here

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value  # from now on found without this function
    return value
