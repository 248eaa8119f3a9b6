"""Cache markers on requests of clients that place none themselves.

Only where the provider takes them; everywhere else, and where the client has its own, bytes go on as they are. Markers
are put in between the client's bytes; which of them, and where, the strategy says.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import orjson

from everlong.caching import PromptCache
from everlong.gateway.inserting import NotAdded, added
from everlong.gateway.raw import Broken, spliced

if TYPE_CHECKING:
    from everlong.config import PromptCachingSettings
    from everlong.gateway.drafts import Draft
    from everlong.gateway.lines import Line

__all__ = ["marked"]

_log = logging.getLogger("everlong.gateway")

_MARKER = b'"cache_control"'
_BYTES = 3
"""A prompt of fewer for each token of the least that is cached is left alone: a marker would do nothing."""


def marked(line: Line, draft: Draft, model: str, provider: str, settings: PromptCachingSettings) -> bytes:
    """The body with markers by the strategy of the settings."""
    body = draft.body
    if line.cache is None:
        line.cache = PromptCache(model, provider, settings=settings, warn=lambda _: None)
    choice = line.cache.choice
    if choice.strategy not in {"ledger", "system_and_3"} or len(body) < _BYTES * choice.model_rules.minimum_tokens:
        return body
    if _MARKER in body:
        return body
    try:
        request = _loaded(body)
        return spliced(body, added(draft, request, line.cache.apply(request)))
    except (NotAdded, Broken):
        line.cache.forget()  # a marker of the client's in another spelling, say
    except Exception as error:  # noqa: BLE001 - a request that nobody understands is not kept from its model
        line.cache = None
        _log.error("a request could not be marked: %s", type(error).__name__)
    return body


def _loaded(body: bytes) -> Any:
    """What a body says; that numbers may lose digits does not matter, because they are not written again."""
    try:
        return orjson.loads(body)
    except ValueError:  # half of a character, or numbers without end
        return json.loads(body)
