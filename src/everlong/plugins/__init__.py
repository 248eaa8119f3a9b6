"""Plugins: other people's context engines. Nothing is imported until it is used."""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.plugins.manager import PluginContext as PluginContext, Plugins as Plugins

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {"manager": "PluginContext Plugins"},
)
