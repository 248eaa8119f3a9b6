"""The provider's cache: markers on requests for Claude whose client has placed none, and what finds misses.

`CacheMarkers.marked`, called from `Gateway._make_body`, puts ``cache_control`` into a body, between the client's bytes.
``caching/prompt_cache.py`` chooses the places. Bodies go on unchanged if the provider takes no markers, if the prompt
is too short to be cached, or if the client has markers of its own. `cached_prompt` is what misses are found by.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from everlong.caching import PromptCache
from everlong.caching.misses import CachedPrompt
from everlong.caching.rules import SECONDS, CacheRules
from everlong.gateway.body import BrokenBody, Change, Draft, Stretch, dump_json, fields_at, items_at, splice

if TYPE_CHECKING:
    from everlong.config import PromptCachingSettings
    from everlong.gateway.conversations import LiveConversation
    from everlong.gateway.requests import ConversationTurn, RelayedRequest
    from everlong.providers.base import Usage

__all__ = ["BYTES_PER_TOKEN", "CacheMarkers", "NotAdded", "cached_prompt", "find_additions"]

_log = logging.getLogger("everlong.gateway")

_MARKER_NAME = b'"cache_control"'
BYTES_PER_TOKEN = 4
"""Bytes per token of English prose; a shorter prompt than the shortest that is cached is not marked."""
_MOST_BYTES = 24_000_000
"""Bytes of bodies that are kept to be compared with the next ones; they take about twice as much memory."""


class CacheMarkers:
    """The marking of requests, by the strategy of the settings."""

    def __init__(self, settings: PromptCachingSettings) -> None:
        self._settings = settings
        self._held: OrderedDict[PromptCache, int] = OrderedDict()
        self._bytes = 0

    def marked_once(self, draft: Draft, model: str, provider: str) -> bytes:
        """Return a body with the markers of a first request, and remember nothing of it."""
        return self.marked(_Unremembered(), draft, model, provider)

    def marked(self, conversation: LiveConversation | _Unremembered, draft: Draft, model: str, provider: str) -> bytes:
        """Return a body with its markers; unchanged while it is too short to be cached."""
        body = draft.body
        cache = conversation.cache = conversation.cache or self._new(model, provider)
        cache.use(model)
        least = cache.choice.model_rules.minimum_tokens
        if cache.choice.strategy not in {"ledger", "system_and_3"} or len(body) < BYTES_PER_TOKEN * least:
            return body
        if _MARKER_NAME in body:
            return body
        try:
            request = _parse(body)
            if not isinstance(conversation, _Unremembered):
                self._hold(cache, len(body))
            return splice(body, find_additions(draft, request, cache.apply(request)))
        except (NotAdded, BrokenBody):
            cache.forget()  # a marker of the client's in another spelling, say
        except Exception as error:  # noqa: BLE001 - a request that nobody understands is not kept from its model
            conversation.cache = None
            _log.error("a request could not be marked: %s", type(error).__name__)
        return body

    def _new(self, model: str, provider: str) -> PromptCache:
        return PromptCache(model, provider, settings=self._settings)

    def _hold(self, cache: PromptCache, size: int) -> None:
        """Have the least recently used caches drop their words."""
        self._bytes += size - self._held.pop(cache, 0)
        self._held[cache] = size
        while self._bytes > _MOST_BYTES and len(self._held) > 1:
            oldest, freed = self._held.popitem(last=False)
            oldest.let_go()
            self._bytes -= freed


@dataclass(slots=True)
class _Unremembered:
    """A stand-in for a conversation that is not remembered."""

    cache: PromptCache | None = None


def _parse(body: bytes) -> Any:
    """Parse a body; numbers may lose digits, which does not matter because they are not written again."""
    try:
        return orjson.loads(body)
    except ValueError:  # half of a character, or numbers without end
        return json.loads(body)


# -- putting markers between the bytes of a body ------------------------------------------------------------------

_SPACE = b" \t\n\r"


class NotAdded(ValueError):  # noqa: N818 - what has happened is no mistake
    """A request was changed in another way than by additions."""


def find_additions(draft: Draft, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the changes that turn a body into the request after something was added to it."""
    for name, value in _differing(before, after):
        if name == "messages":
            if len(value) != len(before[name]) or len(value) != len(draft.ends):
                raise NotAdded("there are more or fewer messages")
            for number, (old, new) in enumerate(zip(before[name], value, strict=True)):
                if not _same(old, new):
                    yield from _inside(draft.body, draft.entry(number), old, new)
        else:
            yield from _inside(draft.body, draft.fields[name], before[name], value)
    new = _new(before, after)
    if new:
        place = draft.body.rindex(b"}")
        yield place, place, b"," + new


def _inside(body: bytes, place: Stretch, before: Any, after: Any) -> Iterator[Change]:
    end = place[1]
    if isinstance(before, str):
        yield from _wrap_text(place, before, after)
    elif isinstance(before, dict) and isinstance(after, dict):
        differing = _differing(before, after)
        places = fields_at(body, place) if differing else {}
        for name, value in differing:
            yield from _inside(body, places[name], before[name], value)
        if new := _new(before, after):
            yield end - 1, end - 1, b"," + new if before else new
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        changed = [number for number, old in enumerate(before) if not _same(old, after[number])]
        if changed == [len(before) - 1] and _is_longer(before[-1], after[-1]):
            last = _last_end(body, end)  # nearly always this one, whose end is found without reading the others
            yield from _inside(body, (last, last), before[-1], after[-1])
            return
        items = items_at(body, place)
        for number in changed:
            yield from _inside(body, items[number], before[number], after[number])
    else:
        raise NotAdded(f"a {type(before).__name__} has become another value")


def _last_end(body: bytes, end: int) -> int:
    """Return the end of a list's last item."""
    last = end - 1
    while body[last - 1] in _SPACE:
        last -= 1
    return last


def _wrap_text(place: Stretch, before: str, after: Any) -> Iterator[Change]:
    """Yield the changes that turn a text into a list with that text."""
    part = after[0] if isinstance(after, list) and len(after) == 1 else None
    if not isinstance(part, dict) or part.get("type") != "text" or part.get("text") != before:
        raise NotAdded("a text has become something else")
    rest = _new({"type": 0, "text": 0}, part)
    yield place[0], place[0], b'[{"type":"text","text":'
    yield place[1], place[1], (b"," + rest if rest else b"") + b"}]"


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields whose values have changed."""
    if before.keys() - after.keys():
        raise NotAdded("something was taken out")
    return [(name, after[name]) for name, value in before.items() if not _same(value, after[name])]


def _new(before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes:
    """Return the new fields, as they are written into an object."""
    return b",".join(dump_json(name) + b":" + dump_json(value) for name, value in after.items() if name not in before)


def _is_longer(before: Any, after: Any) -> bool:
    """Return whether an object only got more fields."""
    return isinstance(before, dict) and isinstance(after, dict) and not _differing(before, after)


def _same(before: Any, after: Any) -> bool:
    return before is after or bool(before == after)


_MARKER_FIELD = re.compile(rb'(?:,\s*+)?"cache_control"\s*+:\s*+\{[^{}]*+\}')


def cached_prompt(
    relayed: RelayedRequest, turn: ConversationTurn, draft: Draft, usage: Usage, rules: CacheRules
) -> CachedPrompt:
    """Return an answered request as the next one of its conversation is compared with it.

    The ``draft`` is its body before the gateway's own markers were put in.
    """
    lead, is_hour = turn.conversation.lead, b'"1h"' in (relayed.sent_body or b"")
    entries = [_checksum(draft.body, draft.entry(number)) for number in range(len(draft.ends))]
    heads = {
        name: _checksum(draft.body, draft.fields.get(name, (0, 0))) for name in ("tools", "system", "instructions")
    }
    return CachedPrompt(
        turn.began,
        SECONDS["1h"] if is_hour else rules.ttl_seconds,
        turn.model,
        heads["tools"],
        (heads["system"], heads["instructions"], *entries[:lead]),
        array("L", entries[lead:]),
        relayed.view,
        usage.prompt_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )


def _checksum(body: bytes, place: Stretch) -> int:
    """Return a checksum of bytes without cache markers, which clients move along."""
    part = body[slice(*place)]
    return zlib.crc32(_MARKER_FIELD.sub(b"", part) if _MARKER_NAME in part else part)
