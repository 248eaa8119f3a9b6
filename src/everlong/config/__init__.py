"""Settings: their typed models, their sources, and changing a file of them.

Importing this package loads plain values only. The models that check them, and the code that reads and writes files,
are loaded when first used.
"""

from typing import TYPE_CHECKING

from everlong.config.arguments import caching_values, compression_values
from everlong.config.paths import (
    config_home,
    data_home,
    project_config_path,
    user_config_path,
)
from everlong.config.values import CachingValues, CompressionValues
from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.config.edit import set_value as set_value, unset_value as unset_value
    from everlong.config.listing import catalog as catalog
    from everlong.config.load import LoadedSettings as LoadedSettings, Origin as Origin, load_settings as load_settings
    from everlong.config.settings import (
        AgentSettings as AgentSettings,
        CompressionSettings as CompressionSettings,
        ModelSettings as ModelSettings,
        PromptCachingSettings as PromptCachingSettings,
        ProviderSettings as ProviderSettings,
        SearchSettings as SearchSettings,
        Settings as Settings,
        StoreSettings as StoreSettings,
    )

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "edit": "set_value unset_value",
        "listing": "catalog",
        "load": "LoadedSettings Origin load_settings",
        "settings": (
            "AgentSettings CompressionSettings ModelSettings PromptCachingSettings ProviderSettings "
            "SearchSettings Settings StoreSettings"
        ),
    },
)
__all__ += [
    "CachingValues",
    "CompressionValues",
    "caching_values",
    "compression_values",
    "config_home",
    "data_home",
    "project_config_path",
    "user_config_path",
]
