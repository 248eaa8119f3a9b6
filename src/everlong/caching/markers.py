"""Cache markers on a request: put on and taken off, in each layout; copies only what changes.

`PromptCache` chooses the blocks and calls `with_markers`; the simple strategy
``system_and_3`` is `apply_anthropic_cache_control`. A text that must carry a marker becomes a list with that one text.
Nothing else about a request changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from everlong.caching.blocks import Block, Layout
from everlong.caching.rules import Ttl, takes_marker
from everlong.errors import ConfigError
from everlong.model import EPHEMERAL, Message, is_image, list_messages
from everlong.tokens.estimate import rough_tokens

__all__ = [
    "CacheMark",
    "apply_anthropic_cache_control",
    "cache_marker",
    "estimate_messages_tokens_rough",
    "strip_markers",
    "with_markers",
]

Role: TypeAlias = Literal["S", "R", "F", "W", "spare", "client", "automatic"]
_RECENT = 3
_IMAGE_CHARS = 6_000
"""The characters that a picture counts as, whatever the size of its data."""


class CacheMark(NamedTuple):
    """A marker to send: its block, its time to live, and its role."""

    at: int
    ttl: Ttl
    role: Role


def cache_marker(ttl: str = "5m") -> dict[str, str]:
    """Return the literal marker; five minutes are the default and not spelled out."""
    if ttl not in ("5m", "1h"):
        raise ConfigError(
            f"prompt_caching.cache_ttl is {ttl!r}, but must be 5m or 1h; providers keep a prompt for no other time",
            key="prompt_caching.cache_ttl",
        )
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": "1h"}


def apply_anthropic_cache_control(
    messages: Sequence[Message],
    cache_ttl: Literal["5m", "1h"] | str = "5m",
    native_anthropic: bool = False,
) -> list[Message]:
    """Return a deep copy of the messages with up to four markers: system prompt and last three messages.

    Existing markers are removed first. Messages that cannot carry a marker are passed over.

    >>> marked = apply_anthropic_cache_control(messages)
    >>> sum("cache_control" in str(message) for message in marked)
    4
    """
    # One by one, so that a message that is listed twice is marked once.
    return [copy.deepcopy(message) for message in mark_newest(messages, cache_ttl, native_anthropic)]


def mark_newest(messages: Sequence[Message], cache_ttl: str, native_anthropic: bool) -> list[Message]:
    """Return the messages with the markers of `apply_anthropic_cache_control`; those without one are the same objects.

    A request of the plain strategy is made anew for every call of a long session, so it copies no more than four.
    """
    marker = cache_marker(cache_ttl)
    marked: list[Message] = [_bare_message(message, texts=False) for message in list_messages(messages)]
    if marked and marked[0].get("role") == "system":
        marked[0] = _mark(marked[0], marker, native_anthropic=native_anthropic) or marked[0]
    left = _RECENT
    for at in range(len(marked) - 1, -1, -1):
        if not left:
            break
        if marked[at].get("role") != "system" and (
            made := _mark(marked[at], marker, native_anthropic=native_anthropic)
        ):
            marked[at] = made
            left -= 1
    return marked


def _mark(message: Message, marker: dict[str, str], *, native_anthropic: bool) -> Message | None:
    """Return a message with a marker; None if it cannot carry one."""
    content = message.get("content")
    if message.get("role") == "tool":
        return {**message, "cache_control": dict(marker)} if native_anthropic else None
    if not content:
        return {**message, "cache_control": dict(marker)}
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content, "cache_control": dict(marker)}]}
    if isinstance(content, list) and isinstance(content[-1], dict) and takes_marker(content[-1].get("type", "text")):
        return {**message, "content": [*content[:-1], {**content[-1], "cache_control": dict(marker)}]}
    return None


def estimate_messages_tokens_rough(messages: Sequence[Message]) -> int:
    """Return a rough token count, four characters to a token; `MessageCounter` is more exact.

    >>> estimate_messages_tokens_rough([{"role": "user", "content": "x" * 400}]) >= 100
    True
    """
    characters = sum(_characters(message) for message in list_messages(messages))
    return rough_tokens(characters)


def _characters(message: Any) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not any(isinstance(part, dict) and is_image(part) for part in content):
        return len(str(message))
    others = [part for part in content if not (isinstance(part, dict) and is_image(part))]
    return len(str({**message, "content": others})) + _IMAGE_CHARS * (len(content) - len(others))


CALLS = 1_000_000
"""Offset that tells the calls of an OpenAI-format message from its parts."""
_PRIVATE = frozenset({"cache_control", EPHEMERAL})


def with_markers(
    body: Mapping[str, Any],
    layout: Layout,
    blocks: Sequence[Block],
    marks: Sequence[CacheMark],
    touched: Iterable[int] = (),
) -> dict[str, Any]:
    """Return a request with these markers; ``touched`` blocks lose theirs, and their private keys.

    Everything neither marked nor touched is the very same object.
    """
    result = dict(body)
    wanted = {mark.at: mark.ttl for mark in marks}
    changed = sorted({*wanted, *touched})
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
        result["tools"] = [_mark_it(tool, tools[at]) if at in tools else tool for at, tool in enumerate(body["tools"])]
    if system:
        result["system"] = _mark_parts(body["system"], system)
    if messages:
        listed = result["messages"] = list(body["messages"])
        for index, places in messages.items():
            listed[index] = _mark_message(listed[index], layout, places)
    return result


def _mark_message(message: dict[str, Any], layout: Layout, places: Mapping[int, str | None]) -> dict[str, Any]:
    bare: dict[str, Any] = _bare_message(message, texts=False)
    if message.get("role") == "tool" and layout in ("openai", "openrouter"):
        ttl = places.get(-1)
        if ttl is None:
            return bare
        if layout == "openai":
            return {**bare, "cache_control": cache_marker(ttl)}
        content = bare.get("content")
        last = len(content) - 1 if isinstance(content, list) else -1
        return {**bare, "content": _mark_parts(content, {last: ttl})}
    parts = {place: ttl for place, ttl in places.items() if place < CALLS and ttl is not None}
    return {**bare, "content": _mark_parts(bare.get("content"), parts)} if parts else bare


def _mark_parts(content: Any, places: Mapping[int, str | None]) -> Any:
    """Return content with some parts marked; a text becomes a list for it."""
    if isinstance(content, str):
        ttl = places.get(-1)
        return content if ttl is None else [_mark_it(content, ttl)]
    if isinstance(content, list):
        return [_mark_it(part, places[at]) if at in places else part for at, part in enumerate(content)]
    return content


def _mark_it(value: Any, ttl: str | None) -> Any:
    """Return one tool or part with its own marker, or with none."""
    if isinstance(value, str):
        value = {"type": "text", "text": value}
    bare = _bare(value)
    return bare if ttl is None else {**bare, "cache_control": cache_marker(ttl)}


# -- taking them off -------------------------------------------------------------------------------------------------


def strip_markers(body: Mapping[str, Any], *, texts: bool = True) -> dict[str, Any]:
    """Return the request without markers and private keys.

    With ``texts``, a list with one plain text becomes that text again.
    """
    result = {key: value for key, value in body.items() if key != "cache_control"}
    if isinstance(result.get("tools"), list):
        result["tools"] = [_bare(tool) for tool in result["tools"]]
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
    parts = [_bare(part) for part in content]
    if texts and len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}:
        return parts[0]["text"]
    return parts


def _bare(value: Any) -> Any:
    """Return a dict without its marker, its private key, and the markers nested in a result."""
    if not isinstance(value, dict):
        return value
    if value.get("type") == "tool_result" and isinstance(value.get("content"), list):
        value = {**value, "content": [_bare(part) for part in value["content"]]}
    if not value.keys() & _PRIVATE:
        return value
    return {key: entry for key, entry in value.items() if key not in _PRIVATE}
