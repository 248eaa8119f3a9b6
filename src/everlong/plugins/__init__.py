"""Plugins: other people's context engines, commands, tools and memory providers.

The agent, the gateway and the command line use what plugins register. Nothing is imported until it is used.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.plugins.context import PluginContext as PluginContext
    from everlong.plugins.manager import Plugins as Plugins

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "context": "PluginContext",
        "manager": "Plugins",
    },
)
