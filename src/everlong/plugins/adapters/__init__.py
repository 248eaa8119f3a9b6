"""Running plugins that were written for another host, unchanged.

`host/` holds thin modules under the names that such plugins import; `names` says which names lead there. Knows the
other host's public names only, and nothing of how plugins are found or kept in bounds. To use those names outside of a
plugin, as in its tests, import `everlong.plugins.foreign`.
"""

from __future__ import annotations
