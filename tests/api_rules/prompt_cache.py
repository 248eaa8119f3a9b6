"""The prompt cache as the providers run it: what a request reads and writes, and how long entries live.

Anthropic: an entry is written only at a marker and found by walking back from a marker over 20 positions, its own
included; a run of calls and a run of results count as one. OpenAI: every prefix that was sent lately, in steps of 128
tokens. Written from the documentation, apart from the code that places markers.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from everlong.testing.server.exchange import MESSAGE_TOKENS, TOOL_TOKENS, Api, CacheCharge, count_text, count_value
from tests.api_rules.seals import unseal

LOOK_BACK = 20
SECONDS = {"5m": 300.0, "1h": 3600.0}
_MINIMUM = (
    (re.compile(r"(opus|sonnet|haiku)-5-5|opus-5|fable-5|mythos-5"), 512),
    (re.compile(r"opus-4-7"), 2_048),
    (re.compile(r"opus-4-[56]|haiku-4-5"), 4_096),
)
_DEFAULT_MINIMUM = 1_024
_OPENAI_STEP = 128
_OPENAI_SECONDS = 600.0
_OPENAI_LATER_SECONDS = 1_800.0
_OPENAI_LATER = re.compile(r"gpt-(5\.([6-9]|\d\d)|[6-9])")
"""Models that bill for writing, from GPT-5.6 on."""

Ttl = Literal["5m", "1h"]


@dataclass(frozen=True, slots=True)
class CacheBlock:
    """One piece of a prompt: the hash of everything up to its end, its tokens, its position, its marker."""

    prefix: str
    tokens: int
    position: int
    ttl: Ttl | None = None
    is_breakpoint: bool = False
    """True where OpenAI's newer models write by themselves: the latest user message or tool result."""


@dataclass(slots=True)
class _StoredPrefix:
    expires: float
    seconds: float


class ServerCache:
    """The cache of one organization."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[str, _StoredPrefix] = {}
        self._lock = threading.Lock()

    def anthropic(self, blocks: list[CacheBlock], model: str) -> CacheCharge:
        """Bill a request by its markers, and remember what they write."""
        with self._lock:
            now = self._clock()
            ends = _ends(blocks)
            markers = [at for at, block in enumerate(blocks) if block.ttl is not None]
            hit = -1
            for marker in markers:
                found = self._find_hit(blocks, marker, now)
                if found is not None:
                    entry = self._entries[blocks[found].prefix]
                    entry.expires = now + entry.seconds
                    hit = max(hit, found)
            return self._write(blocks, ends, [at for at in markers if ends[at] >= minimum(model)], hit, now)

    def _find_hit(self, blocks: list[CacheBlock], marker: int, now: float) -> int | None:
        for at in range(marker, -1, -1):
            if blocks[marker].position - blocks[at].position >= LOOK_BACK:
                return None
            entry = self._entries.get(blocks[at].prefix)
            if entry is not None and entry.expires > now:
                return at
        return None

    def _write(
        self, blocks: list[CacheBlock], ends: list[int], markers: list[int], hit: int, now: float
    ) -> CacheCharge:
        read = ends[hit] if hit >= 0 else 0
        paid = {"5m": 0, "1h": 0}
        upto = read
        for at in markers:
            ttl = blocks[at].ttl or "5m"
            if at > hit:
                paid[ttl] += ends[at] - upto
                upto = ends[at]
                self._entries[blocks[at].prefix] = _StoredPrefix(now + SECONDS[ttl], SECONDS[ttl])
            elif blocks[at].prefix not in self._entries or self._entries[blocks[at].prefix].expires <= now:
                # Inside what was read: the entry is there again at no cost.
                self._entries[blocks[at].prefix] = _StoredPrefix(now + SECONDS[ttl], SECONDS[ttl])
        return CacheCharge(ends[-1] if ends else 0, read, paid["5m"], paid["1h"])

    def openai(self, blocks: list[CacheBlock], model: str) -> CacheCharge:
        """Bill a request by the longest prefix that was sent lately."""
        later = bool(_OPENAI_LATER.search(model))
        seconds = _OPENAI_LATER_SECONDS if later else _OPENAI_SECONDS
        with self._lock:
            now = self._clock()
            ends = _ends(blocks)
            hit = max((at for at, block in enumerate(blocks) if self._is_live(block.prefix, now)), default=-1)
            read = ends[hit] if hit >= 0 else 0
            read = 0 if read < _DEFAULT_MINIMUM else read - (0 if later else read % _OPENAI_STEP)
            if hit >= 0:
                self._entries[blocks[hit].prefix].expires = now + seconds
            written = 0
            for at, block in enumerate(blocks):
                if ends[at] >= _DEFAULT_MINIMUM and at > hit and (block.is_breakpoint or not later):
                    self._entries[block.prefix] = _StoredPrefix(now + seconds, seconds)
                    written = ends[at] - read if later else 0
            return CacheCharge(ends[-1] if ends else 0, read, written)

    def _is_live(self, prefix: str, now: float) -> bool:
        entry = self._entries.get(prefix)
        return entry is not None and entry.expires > now


def minimum(model: str) -> int:
    """Return the least prefix that a model caches, in tokens."""
    return next((tokens for pattern, tokens in _MINIMUM if pattern.search(model)), _DEFAULT_MINIMUM)


def _ends(blocks: list[CacheBlock]) -> list[int]:
    total = 0
    return [total := total + block.tokens for block in blocks]


def blocks_of(api: Api, body: Mapping[str, Any]) -> list[CacheBlock]:
    """Return the blocks of a prompt in any of the formats."""
    if api == "anthropic":
        return anthropic_blocks_of(body)
    return responses_blocks_of(body) if api == "responses" else openai_blocks_of(body)


class _Chain:
    """A running hash over a prompt, block by block; markers are not hashed."""

    def __init__(self, *salt: Any) -> None:
        self.blocks: list[CacheBlock] = []
        self._hash = hashlib.sha256()
        self._position = -1
        self._kind = ""
        self.salt(*salt)

    def salt(self, *values: Any) -> None:
        self._hash.update(json.dumps(values, sort_keys=True).encode() + b"\1")

    def add(
        self, value: Any, *, tokens: int = 0, kind: str = "", marker: Any = None, breakpoint_: bool = False
    ) -> None:
        bare = {name: item for name, item in value.items() if name != "cache_control"}
        self._hash.update(json.dumps(bare, sort_keys=True).encode() + b"\2")
        if kind not in {"tool_use", "tool_result"} or kind != self._kind:
            self._position += 1
        self._kind = kind
        ttl = marker.get("ttl", "5m") if isinstance(marker, dict) else None
        self.blocks.append(
            CacheBlock(self._hash.copy().hexdigest(), tokens + count_value(bare), self._position, ttl, breakpoint_)
        )


def anthropic_blocks_of(body: Mapping[str, Any]) -> list[CacheBlock]:
    """Return the blocks of an Anthropic prompt in cache order."""
    chain = _Chain(body.get("model"))
    for tool in body.get("tools") or []:
        chain.add(tool, tokens=TOOL_TOKENS, marker=tool.get("cache_control"))
    chain.salt("system", body.get("speed"))
    system = body.get("system")
    for block in [{"type": "text", "text": system}] if isinstance(system, str) and system else system or []:
        chain.add(block, marker=block.get("cache_control"))
    messages = body.get("messages") or []
    effort = (body.get("output_config") or {}).get("effort")
    chain.salt("messages", body.get("tool_choice"), _has_image(messages), body.get("thinking"), effort)
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        chain.salt(message["role"])
        for index, block in enumerate(blocks):
            overhead = MESSAGE_TOKENS if index == 0 else 0
            chain.add(block, tokens=overhead, kind=block["type"], marker=block.get("cache_control"))
    automatic = body.get("cache_control")
    if isinstance(automatic, dict) and chain.blocks:
        chain.blocks[-1] = replace(chain.blocks[-1], ttl=automatic.get("ttl", "5m"))
    return chain.blocks


def _has_image(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("type") == "image" or any(map(_has_image, value.values()))
    return isinstance(value, list) and any(map(_has_image, value))


def openai_blocks_of(body: Mapping[str, Any]) -> list[CacheBlock]:
    """Return the tools and messages of an OpenAI prompt, one block each."""
    chain = _Chain(body.get("model"), body.get("prompt_cache_key"))
    messages = body.get("messages") or []
    spoken = [at for at, message in enumerate(messages) if message["role"] in {"user", "tool"}]
    for tool in body.get("tools") or []:
        chain.add(tool, tokens=TOOL_TOKENS)
    for at, message in enumerate(messages):
        chain.add(message, tokens=MESSAGE_TOKENS, breakpoint_=bool(spoken) and at == spoken[-1])
    return chain.blocks


def responses_blocks_of(body: Mapping[str, Any]) -> list[CacheBlock]:
    """Return the instructions, tools and items of a Responses prompt, one block each."""
    chain = _Chain(body.get("model"), body.get("prompt_cache_key"))
    given = body.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    spoken = [at for at, item in enumerate(items) if _is_spoken(item)]
    if body.get("instructions"):
        chain.add({"content": body["instructions"]}, tokens=MESSAGE_TOKENS)
    for tool in body.get("tools") or []:
        chain.add(tool, tokens=TOOL_TOKENS)
    for at, item in enumerate(items):
        if item.get("type") == "compaction_trigger":
            continue
        chain.add(
            {name: value for name, value in item.items() if name != "encrypted_content"},
            tokens=MESSAGE_TOKENS + _encrypted_tokens(item),
            breakpoint_=bool(spoken) and at == spoken[-1],
        )
    return chain.blocks


def _encrypted_tokens(item: Mapping[str, Any]) -> int:
    """Return the tokens billed for encrypted content: the words thought, or a share of what was compacted."""
    content = item.get("encrypted_content")
    thought, compacted = unseal("rs", content), unseal("cmp", content)
    return count_text(thought or "") + count_text(compacted or "") // 4


def _is_spoken(item: Mapping[str, Any]) -> bool:
    return item.get("role") == "user" or str(item.get("type")).endswith("_output")
