"""The watch over the provider's cache: why a request read less from it than it repeats of the one before."""

from __future__ import annotations

import logging
import re
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from everlong.caching.blocks import SWITCHES, Layout, head_blocks, message_blocks
from everlong.caching.misses import CacheTokens, Miss, Parts, find_miss
from everlong.caching.rules import cache_rules, model_rules, provider_of
from everlong.gateway.body import Draft, Stretch, dump_json, parse_json

if TYPE_CHECKING:
    from everlong.providers.base import Reply

__all__ = ["CacheWatch", "Sent"]

_log = logging.getLogger("everlong.gateway")


_MARKER_NAME = b'"cache_control"'
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


_Stem: TypeAlias = tuple[int, int, int]
"""The number of entries before the newest, their length, and the checksum of all their bytes."""
_NO_STEM: _Stem = (0, 0, 0)


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
    stem: _Stem


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
    same = 0 if before is None else _count_same(draft, whole, before.stem)
    raw, entries, counts = array("Q"), array("Q"), array("Q")
    if before is not None:
        raw, entries, counts = before.raw[:same], before.entries[:same], before.counts[:same]
    is_marked = _MARKER_NAME in draft.body
    for number in range(same, len(draft.ends)):
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
    stem = _stem(draft, whole, before.stem if before is not None and same else _NO_STEM)
    return _Known(parts, tokens, raw, entries, counts, heads, stem)


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


def _stem(draft: Draft, whole: memoryview, known: _Stem) -> _Stem:
    """Return the stem by which a later body is known to begin with the same entries, except for the newest.

    It begins with a known stem, whose checksum goes on from there.
    """
    count = max(0, len(draft.ends) - _NEWEST)
    if count < known[0]:
        known = _NO_STEM
    end = draft.ends[count - 1] if count else draft.start
    return count, end - draft.start, zlib.crc32(whole[draft.start + known[1] : end], known[2])


def _count_same(draft: Draft, whole: memoryview, stem: _Stem) -> int:
    """Return how many entries of a body are the same as in an earlier one, by one checksum of them all."""
    count, length, checksum = stem
    if len(draft.ends) < count or (draft.ends[count - 1] if count else draft.start) - draft.start != length:
        return 0
    return count if zlib.crc32(whole[draft.start : draft.start + length]) == checksum else 0


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
