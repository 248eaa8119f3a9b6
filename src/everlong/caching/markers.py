"""Putting cache markers on a request and taking them off again, in each layout; copies only what it changes.

Which blocks are marked is decided elsewhere. A text that must carry a marker becomes a list with that one text; nothing
else about a request changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everlong.caching.blocks import CACHE_POINT, Block, Layout
from everlong.caching.ledger import Mark
from everlong.caching.reference import cache_marker
from everlong.model import EPHEMERAL

__all__ = ["strip_markers", "with_markers"]

CALLS = 1_000_000
"""Calls of an OpenAI-format message are told from its parts by this."""
_PRIVATE = frozenset({"cache_control", EPHEMERAL})


def with_markers(
    body: Mapping[str, Any], layout: Layout, blocks: Sequence[Block], marks: Sequence[Mark], touched: Iterable[int] = ()
) -> dict[str, Any]:
    """A request with these markers; blocks in ``touched`` lose the markers and private keys that they have.

    Whatever is neither marked nor touched is the very same object.
    """
    result = dict(body)
    wanted = {mark.at: mark.ttl for mark in marks}
    changed = sorted({*wanted, *touched})
    if layout == "bedrock":
        return _with_points(result, blocks, wanted, changed)
    tools: dict[int, str | None] = {}
    system: dict[int, str | None] = {}
    messages: dict[int, dict[int, str | None]] = {}
    for at in changed:
        block, ttl = blocks[at], wanted.get(at)
        if block.tier == "tools":
            tools[block.message] = ttl
        elif layout == "anthropic" and block.tier == "system":
            system[block.part] = ttl
        else:
            part = block.part if block.kind != "tool_use" or layout == "anthropic" else CALLS + block.part
            messages.setdefault(block.message, {})[part] = ttl
    if tools:
        result["tools"] = [_marked(tool, tools[at]) if at in tools else tool for at, tool in enumerate(body["tools"])]
    if system:
        result["system"] = _with_parts(body["system"], system)
    if messages:
        listed = result["messages"] = list(body["messages"])
        for index, places in messages.items():
            listed[index] = _message(listed[index], layout, places)
    return result


def _message(message: dict[str, Any], layout: Layout, places: Mapping[int, str | None]) -> dict[str, Any]:
    bare: dict[str, Any] = _bare_message(message, texts=False)
    if message.get("role") == "tool" and layout in ("openai", "openrouter"):
        ttl = places.get(-1)
        if ttl is None:
            return bare
        if layout == "openai":
            return {**bare, "cache_control": cache_marker(ttl)}
        content = bare.get("content")
        last = len(content) - 1 if isinstance(content, list) else -1
        return {**bare, "content": _with_parts(content, {last: ttl})}
    parts = {place: ttl for place, ttl in places.items() if place < CALLS and ttl is not None}
    return {**bare, "content": _with_parts(bare.get("content"), parts)} if parts else bare


def _with_parts(content: Any, places: Mapping[int, str | None]) -> Any:
    """Content with some parts marked; a text becomes a list for it."""
    if isinstance(content, str):
        ttl = places.get(-1)
        return content if ttl is None else [_marked(content, ttl)]
    if isinstance(content, list):
        return [_marked(part, places[at]) if at in places else part for at, part in enumerate(content)]
    return content


def _marked(value: Any, ttl: str | None) -> Any:
    """One tool or part with a marker of its own, or with none."""
    if isinstance(value, str):
        value = {"type": "text", "text": value}
    bare = _bare(value)
    return bare if ttl is None else {**bare, "cache_control": cache_marker(ttl)}


# -- Bedrock ---------------------------------------------------------------------------------------------------------


def _with_points(
    body: dict[str, Any], blocks: Sequence[Block], wanted: Mapping[int, str], changed: Iterable[int]
) -> dict[str, Any]:
    by_list: dict[tuple[str, int], dict[int, str]] = {}
    for at in changed:
        block = blocks[at]
        key = (block.tier, block.message if block.tier == "messages" else 0)
        place = block.message if block.tier == "tools" else block.part
        by_list.setdefault(key, {})
        if at in wanted:
            by_list[key][place] = wanted[at]
    for (tier, index), points in by_list.items():
        if tier == "tools":
            config = body["toolConfig"]
            body["toolConfig"] = {**config, "tools": _pointed(config["tools"], points)}
        elif tier == "system":
            body["system"] = _pointed(body["system"], points)
        else:
            message = body["messages"][index]
            pointed = {**message, "content": _pointed(message["content"], points)}
            body["messages"] = [*body["messages"][:index], pointed, *body["messages"][index + 1 :]]
    return body


def _pointed(parts: Sequence[Any], points: Mapping[int, str]) -> list[Any]:
    result: list[Any] = []
    for place, part in enumerate(parts):
        if _is_point(part):
            continue
        result.append(_bare(part))
        if place in points:
            point = {"type": "default"} if points[place] == "5m" else {"type": "default", "ttl": "1h"}
            result.append({CACHE_POINT: point})
    return result


def _is_point(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {CACHE_POINT}


# -- taking them off -------------------------------------------------------------------------------------------------


def strip_markers(body: Mapping[str, Any], *, texts: bool = True) -> dict[str, Any]:
    """The request without markers and private keys; with ``texts``, a list with one plain text is that text again."""
    result = {key: value for key, value in body.items() if key != "cache_control"}
    if isinstance(result.get("tools"), list):
        result["tools"] = [_bare(tool) for tool in result["tools"]]
    config = result.get("toolConfig")
    if isinstance(config, Mapping) and isinstance(config.get("tools"), list):
        result["toolConfig"] = {**config, "tools": [tool for tool in config["tools"] if not _is_point(tool)]}
    if "system" in result:
        result["system"] = _bare_content(result["system"], texts=texts)
    if isinstance(result.get("messages"), list):
        result["messages"] = [_bare_message(message, texts=texts) for message in result["messages"]]
    return result


def _bare_message(message: Any, *, texts: bool) -> Any:
    if not isinstance(message, dict):
        return message
    bare = _bare(message)
    if isinstance(bare.get("content"), list):
        bare = {**bare, "content": _bare_content(bare["content"], texts=texts)}
    if isinstance(bare.get("tool_calls"), list):
        bare = {**bare, "tool_calls": [_bare(call) for call in bare["tool_calls"]]}
    return bare


def _bare_content(content: Any, *, texts: bool) -> Any:
    if not isinstance(content, list):
        return content
    parts = [_bare(part) for part in content if not _is_point(part)]
    if texts and len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}:
        return parts[0]["text"]
    return parts


def _bare(value: Any) -> Any:
    """A dict without its marker, its private key, and the markers of what is nested in a result."""
    if not isinstance(value, dict):
        return value
    if value.get("type") == "tool_result" and isinstance(value.get("content"), list):
        value = {**value, "content": [_bare(part) for part in value["content"]]}
    if not value.keys() & _PRIVATE:
        return value
    return {key: entry for key, entry in value.items() if key not in _PRIVATE}
