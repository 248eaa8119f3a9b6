"""The provider's cache: markers on requests for Claude whose client has placed none, and the reasons of misses.

`CacheMarkers.marked`, called from `Gateway._make_body`, puts ``cache_control`` into a body, between the client's bytes.
``caching/prompt_cache.py`` chooses the places. Bodies go on unchanged if the provider takes no markers, if the prompt
is too short to be cached, or if the client has markers of its own. `CacheWatch` compares each request with the one
before and tells why it read less from the cache than it repeats.
"""

from __future__ import annotations

import json
import logging
import re
import time
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from everlong.caching import PromptCache
from everlong.caching.blocks import SWITCHES, Layout, head_blocks, message_blocks
from everlong.caching.misses import CacheTokens, Miss, Parts, find_miss
from everlong.caching.rules import cache_rules, model_rules, provider_of
from everlong.gateway.body import BrokenBody, Change, Draft, Stretch, dump_json, fields_at, items_at, parse_json, splice

if TYPE_CHECKING:
    from everlong.config import PromptCachingSettings
    from everlong.gateway.conversations import LiveConversation
    from everlong.providers.base import Reply

__all__ = ["BYTES_PER_TOKEN", "CacheMarkers", "CacheWatch", "NotAdded", "Sent", "find_additions"]

_log = logging.getLogger("everlong.gateway")

_MARKER_NAME = b'"cache_control"'
BYTES_PER_TOKEN = 4
"""Bytes per token of English prose; a shorter prompt than the shortest that is cached is not marked."""
_MOST_BYTES = 24_000_000
"""Bytes of bodies that are kept to be compared with the next ones; they take about twice as much memory."""


class CacheMarkers:
    """The marking of requests, by the strategy of the settings."""

    def __init__(
        self,
        settings: PromptCachingSettings,
        most_bytes: int = _MOST_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._most = most_bytes
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
        return PromptCache(model, provider, settings=self._settings, clock=self._clock)

    def _hold(self, cache: PromptCache, size: int) -> None:
        """Have the least recently used caches drop their words."""
        self._bytes += size - self._held.pop(cache, 0)
        self._held[cache] = size
        while self._bytes > self._most and len(self._held) > 1:
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


_MARKER_FIELD = re.compile(rb',?\s*"cache_control"\s*:\s*\{[^{}]*\}')
_HOUR = re.compile(rb'\s*:\s*\{[^{}]*"ttl"\s*:\s*"1h"')
_MOST_MESSAGES = 1_000_000
"""Messages of which digests are kept, of all conversations together; each takes about 24 bytes."""
_UNSEEN = frozenset({"id", "status"})
"""Fields of an item that no model sees."""
_ROUTING = ("prompt_cache_key",)
"""Fields that choose the cache."""
_NEWEST = 4
"""Messages at the end of a first request that may come again in another shape: clients move their markers."""


class Sent(NamedTuple):
    """A request as it was sent."""

    draft: Draft
    """The body before the gateway's own markers were put in."""
    body: bytes
    model: str
    provider: str
    """The provider whose caching rules hold."""
    layout: Layout
    lead: int
    """Entries at the beginning that are system messages."""
    view: int | None
    at: float
    is_items: bool = False
    """True if the list holds items of the Responses API, whose system prompt is called instructions."""


class _Known(NamedTuple):
    """The memory of a conversation's last request."""

    parts: Parts
    tokens: CacheTokens
    raw: array[int]
    """For each entry the checksum of its bytes without markers."""
    entries: array[int]
    """For each entry the digest of its content; 0 if only its bytes are known."""
    counts: array[int]
    heads: Mapping[str, tuple[int, list[int]]]
    """The checksum of tools and system prompt, and the digests of their blocks."""


class CacheWatch:
    """A watch over the provider's cache, which remembers the last requests of many conversations."""

    def __init__(self, most_messages: int = _MOST_MESSAGES) -> None:
        self._most = most_messages
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._openings: dict[tuple[str, int, int], tuple[str, str]] = {}
        """By a tenant and the first question and reply, the conversation that went on from them last."""
        self._messages = 0

    def compare(self, tenant: str, branch: str, sent: Sent, reply: Reply) -> Miss | None:
        """Take in a request that was answered on a branch; return why it missed the cache, if it did.

        If it begins a conversation of its own because an earlier message was edited, it is compared with the request
        that it shares its beginning with.
        """
        key = (tenant, branch)
        opening = _opening(tenant, sent)
        before = self._known.get(key) or self._known.get(self._openings.get(opening, key))
        usage = reply.usage
        tokens = CacheTokens(usage.prompt_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        try:
            known = _known(sent, tokens, before)
        except Exception as error:  # noqa: BLE001 - whatever a client makes up, its answer is there
            _log.warning("a request could not be compared with the one before it: %s", type(error).__name__)
            self.forget(tenant, branch)
            return None
        self._keep(key, known)
        if opening[2]:
            self._openings[opening] = key
        if before is None:
            return None
        rules = cache_rules(provider_of(sent.provider, model=sent.model), sent.model)
        old = replace(before.parts, messages=_comparable(before, known))
        miss = find_miss((old, before.tokens), (known.parts, tokens), rules, model_rules(sent.model))
        return None if miss is None else replace(miss, diagnosis=_diagnosis(reply.raw))

    def forget(self, tenant: str, branch: str) -> None:
        """Forget a conversation, because its client does not go on from the request that was sent last."""
        gone = self._known.pop((tenant, branch), None)
        self._messages -= 0 if gone is None else len(gone.raw)

    def _keep(self, key: tuple[str, str], known: _Known) -> None:
        self.forget(*key)
        self._known[key] = known
        self._messages += len(known.raw)
        while self._messages > self._most and len(self._known) > 1:
            self.forget(*next(iter(self._known)))
        if len(self._openings) > 2 * len(self._known) + 100:
            self._openings = {opening: key for opening, key in self._openings.items() if key in self._known}


def _opening(tenant: str, sent: Sent) -> tuple[str, int, int]:
    """Return the key of a conversation's first question and reply; it ends in 0 if there is no reply yet."""
    draft = sent.draft
    if len(draft.ends) < sent.lead + 3:
        return tenant, 0, 0
    first, second = (_checksum(draft.body, draft.entry(sent.lead + number)) for number in (0, 1))
    return tenant, first, second


def _comparable(before: _Known, now: _Known) -> Sequence[int]:
    """Return the digests of the messages before; if their bytes are the same as now, the digests of now."""
    lead = len(before.entries) - len(before.parts.messages)
    found = array("Q", before.entries)
    for at in range(min(len(before.raw), len(now.raw))):
        if before.raw[at] == now.raw[at]:
            found[at] = now.entries[at]
    return found[lead:]


def _known(sent: Sent, tokens: CacheTokens, before: _Known | None) -> _Known:
    draft, whole = sent.draft, memoryview(sent.draft.body)
    raw, entries, counts = array("Q"), array("Q"), array("Q")
    is_marked = _MARKER_NAME in draft.body
    for number in range(len(draft.ends)):
        start, end = draft.entry(number)
        if is_marked:
            checksum = _checksum(draft.body, (start, end))
        else:
            checksum = zlib.crc32(whole[start:end]) | ((end - start) << 32)
        raw.append(checksum)
        if before is not None and number < len(before.raw) and before.raw[number] == checksum:
            entries.append(before.entries[number])
            counts.append(before.counts[number])
        elif before is not None or number >= len(draft.ends) - _NEWEST or number < sent.lead:
            digests = _digests(number, parse_json(draft.body[start:end]), sent)
            entries.append(int.from_bytes(blake2b(b"".join(digests), digest_size=8).digest()) or 1)
            counts.append(len(digests))
        else:
            entries.append(0)
            counts.append(0)
    heads = {name: _head(name, sent, before) for name in ("tools", "system")}
    parts = Parts(
        sent.at,
        sent.model,
        heads["tools"][1],
        [*heads["system"][1], *entries[: sent.lead]],
        {
            name: zlib.crc32(whole[slice(*draft.fields[name])])
            for name in (*SWITCHES, *(_ROUTING if sent.is_items else ()))
            if name in draft.fields and draft.body[slice(*draft.fields[name])] != b"null"
        },
        entries[sent.lead :],
        counts[sent.lead :],
        sent.view,
        ["1h" if _HOUR.match(sent.body, place) else "5m" for place in _markers(sent.body)],
    )
    return _Known(parts, tokens, raw, entries, counts, heads)


def _digests(number: int, entry: Any, sent: Sent) -> list[bytes]:
    """Return the digests of an entry's blocks; an item is one block, without its name and state."""
    if not sent.is_items:
        return [block.digest for block in message_blocks(number, entry, sent.layout, _uncounted)]
    told = {name: value for name, value in entry.items() if name not in _UNSEEN and value is not None}
    content = told.get("content")
    if isinstance(content, str):
        kind = "output_text" if told.get("role") == "assistant" else "input_text"
        told["content"] = [{"type": kind, "text": content}]
    told.setdefault("type", "message")
    return [blake2b(dump_json(dict(sorted(told.items()))), digest_size=16).digest()]


def _checksum(body: bytes, place: Stretch) -> int:
    """Return a checksum of an entry's bytes without cache markers, which clients move along."""
    part = body[slice(*place)]
    bare = _MARKER_FIELD.sub(b"", part) if _MARKER_NAME in part else part
    return zlib.crc32(bare) | (len(bare) << 32)


def _markers(body: bytes) -> Iterator[int]:
    """Yield the places behind the names of the markers in a body."""
    place = body.find(_MARKER_NAME)
    while place >= 0:
        place += len(_MARKER_NAME)
        yield place
        place = body.find(_MARKER_NAME, place)


def _head(name: str, sent: Sent, before: _Known | None) -> tuple[int, list[int]]:
    is_instructions = sent.is_items and name == "system"
    place = sent.draft.fields.get("instructions" if is_instructions else name)
    if place is None:
        return 0, []
    data = sent.draft.body[slice(*place)]
    checksum = zlib.crc32(data) | (len(data) << 32)
    if before is not None and before.heads[name][0] == checksum:
        return before.heads[name]
    if is_instructions:
        return checksum, [checksum]
    blocks = head_blocks({name: parse_json(data)}, sent.layout, _uncounted)
    return checksum, [int.from_bytes(block.digest[:8]) for block in blocks]


def _uncounted(text: str) -> int:
    del text
    return 0


def _diagnosis(answer: Mapping[str, Any]) -> str:
    """Return the provider's own reason, if the client asked for one."""
    found = answer.get("diagnostics")
    reason = found.get("cache_miss_reason") if isinstance(found, Mapping) else None
    kind = reason.get("type") if isinstance(reason, Mapping) else reason
    return kind[:100] if isinstance(kind, str) and kind.isprintable() else ""
