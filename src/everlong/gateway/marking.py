"""Cache markers on requests of clients that place none themselves.

Only where the provider takes them; everywhere else, and where the client has its own, bytes go on as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from everlong.caching import PromptCache
from everlong.gateway.raw import dumped

if TYPE_CHECKING:
    from everlong.config import PromptCachingSettings
    from everlong.gateway.lines import Line

__all__ = ["marked"]

_MARKER = b'"cache_control"'
_LARGE = re.compile(rb"[:,\[\s]-?\d{19}")
"""A number that would not come back as it was, or a text that looks like one."""
_BYTES = 3
"""A prompt of fewer for each token of the least that is cached is left alone: a marker would do nothing."""


def marked(line: Line, body: bytes, model: str, provider: str, settings: PromptCachingSettings) -> bytes:
    """The body with markers by the strategy of the settings."""
    if line.cache is None:
        line.cache = PromptCache(model, provider, settings=settings, warn=lambda _: None)
    choice = line.cache.choice
    if choice.strategy not in {"ledger", "system_and_3"} or len(body) < _BYTES * choice.model_rules.minimum_tokens:
        return body
    if _MARKER in body or _LARGE.search(body) is not None:
        return body
    try:
        request = orjson.loads(body)
    except ValueError:
        return body
    return dumped(line.cache.apply(request))
