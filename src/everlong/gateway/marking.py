"""Cache markers on requests of clients that place none themselves.

Only where the provider takes them and the prompt is long enough to be cached; everywhere else, and where the client has
its own, bytes go on as they are. Markers are put in between the client's bytes; which of them, and where, the strategy
says.
"""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from everlong.caching import PromptCache
from everlong.caching.pace import Pauses
from everlong.gateway.inserting import NotAdded, added
from everlong.gateway.raw import Broken, spliced
from everlong.gateway.words import BYTES_PER_TOKEN, has_words

if TYPE_CHECKING:
    from everlong.config import PromptCachingSettings
    from everlong.gateway.drafts import Draft
    from everlong.gateway.lines import Line

__all__ = ["Marking"]

_log = logging.getLogger("everlong.gateway")

_MARKER = b'"cache_control"'
_MOST_BYTES = 24_000_000
"""Of bodies that are kept to be compared with the next ones, which takes about twice as much memory."""


class Marking:
    """Marks requests by the strategy of the settings."""

    def __init__(
        self,
        settings: PromptCachingSettings,
        most_bytes: int = _MOST_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._most = most_bytes
        self._pauses: dict[str, Pauses] = {}
        """By tenant, the pauses of its conversations."""
        self._held: OrderedDict[PromptCache, int] = OrderedDict()
        self._bytes = 0

    def marked_once(self, draft: Draft, model: str, provider: str) -> bytes:
        """Return a body with the markers of a first request; nothing of it is remembered."""
        return self.marked(_Unremembered(), draft, model, provider)

    def marked(
        self, line: Line | _Unremembered, draft: Draft, model: str, provider: str, tenant: str | None = None
    ) -> bytes:
        """A body with its markers; as it is while it says less than is cached, because a marker would do nothing.

        A conversation that has been marked stays so, without another look at its words.
        """
        body = draft.body
        cache = line.cache = line.cache or self._new(model, provider, tenant)
        cache.use(model)
        least = cache.choice.model_rules.minimum_tokens
        if cache.choice.strategy not in {"ledger", "system_and_3"} or len(body) < BYTES_PER_TOKEN * least:
            return body
        if _MARKER in body:
            return body
        try:
            request = _loaded(body)
            if not cache.has_begun and not has_words(request, least):
                return body
            if not isinstance(line, _Unremembered):
                self._hold(cache, len(body))
            return spliced(body, added(draft, request, cache.apply(request)))
        except (NotAdded, Broken):
            cache.forget()  # a marker of the client's in another spelling, say
        except Exception as error:  # noqa: BLE001 - a request that nobody understands is not kept from its model
            line.cache = None
            _log.error("a request could not be marked: %s", type(error).__name__)
        return body

    def _new(self, model: str, provider: str, tenant: str | None) -> PromptCache:
        pauses = None if tenant is None else self._pauses.setdefault(tenant, Pauses())
        return PromptCache(
            model,
            provider,
            settings=self._settings,
            clock=self._clock,
            warn=lambda _: None,
            immutable=True,
            pauses=pauses,
        )

    def _hold(self, cache: PromptCache, size: int) -> None:
        """Have those let go of their words that were not asked for longest."""
        self._bytes += size - self._held.pop(cache, 0)
        self._held[cache] = size
        while self._bytes > self._most and len(self._held) > 1:
            oldest, freed = self._held.popitem(last=False)
            oldest.let_go()
            self._bytes -= freed


@dataclass(slots=True)
class _Unremembered:
    """A conversation that is not known again."""

    cache: PromptCache | None = None


def _loaded(body: bytes) -> Any:
    """What a body says; that numbers may lose digits does not matter, because they are not written again."""
    try:
        return orjson.loads(body)
    except ValueError:  # half of a character, or numbers without end
        return json.loads(body)
