"""Adapters for plugins that were written for another host, which run here unchanged.

`host/` holds thin modules under the names that such plugins import; `roots.toml` maps the names to them. A
plugin's own tests have that folder on their ``PYTHONPATH`` (`host_path`).
"""

from __future__ import annotations
