"""Adapters for plugins that were written for another host, which run here unchanged.

`host/` holds thin modules under the names that such plugins import; `roots.toml` maps the names to them. To use those
names outside of a plugin, as in its tests, import `everlong.plugins.foreign`.
"""

from __future__ import annotations
