"""The blocks of a request: what a provider's cache counts, hashes and lets carry a marker; `RequestView` keeps them.

A request is a plain dict in one of three layouts. Its blocks are read in the order in which providers hash them: tools,
system, messages. A block's digest covers what the model sees: not markers, private keys, or whether a text stands in a
list. The order of keys inside a call's input or a tool's schema counts, as it does on the wire.

A `RequestView` keeps the blocks from one request to the next, so that a request that only grew costs what it grew by.
The message list is compared with the last request's: by identity if a host keeps its message objects, else by value. So
a host must not change a message that it has sent in place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

from everlong.caching.rules import takes_marker
from everlong.model import (
    ADDED,
    CLEARED_RESULT,
    EPHEMERAL,
    REASONING_FIELDS,
    SUMMARY_STARTS,
    Message,
    is_image,
    is_reasoning,
    leading_system_count,
)
from everlong.model.identity import is_reminder
from everlong.tokens import MessageCounter
from everlong.tokens.estimate import rough_tokens
from everlong.tokens.media import media_tokens

__all__ = [
    "Block",
    "Count",
    "Layout",
    "RequestView",
    "layout_of",
    "rough_count",
    "switches_of",
]

Layout: TypeAlias = Literal["anthropic", "openai", "openrouter"]
"""``anthropic``: a Messages body. ``openai``: OpenAI-format messages on their way to Anthropic, where a marker on a
``tool`` message becomes one on its result. ``openrouter``: OpenAI-format messages, markers on content parts only."""

Tier: TypeAlias = Literal["tools", "system", "messages"]
Count: TypeAlias = Callable[[str], int]

FRONTIER_STARTS = (*SUMMARY_STARTS, CLEARED_RESULT)
"""Beginnings of texts that stand where history was edited: a summary, or a cleared result."""

_UNSENT = frozenset({"cache_control", "_anthropic", "_openai", ADDED, EPHEMERAL})
_MESSAGE_KEYS = frozenset({"role", "content", "tool_calls", *REASONING_FIELDS, *_UNSENT})


class Block(NamedTuple):
    """One block of a request, and its place."""

    tier: Tier
    kind: str
    digest: bytes
    tokens: int
    message: int
    """The index in the list of its tier."""
    part: int
    """The index in the message's content; -1 for a plain text, a tool, or a whole ``tool`` message."""
    can_mark: bool
    marker: str | None
    """The time to live of the marker that it already carries."""
    is_ephemeral: bool = False
    is_frontier: bool = False
    is_input: bool = False
    """True if it comes from the user's side: a message or a result."""


def rough_count(text: str) -> int:
    """Return a text's tokens by characters, four to a token."""
    return rough_tokens(len(text))


def layout_of(provider: str, body: Mapping[str, Any]) -> Layout:
    """Return the layout of a request to a provider."""
    if provider == "openrouter":
        return "openrouter"
    if body.get("system") is not None:
        return "anthropic"
    if any(isinstance(tool, dict) and "function" in tool for tool in _as_list(body.get("tools"))):
        return "openai"
    for message in body.get("messages") or ():
        if message.get("role") in ("system", "developer", "tool", "function") or "tool_calls" in message:
            return "openai"
    return "anthropic"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# -- tools and system ------------------------------------------------------------------------------------------------


def head_blocks(body: Mapping[str, Any], layout: Layout, count: Count) -> list[Block]:
    """Return the blocks of the tools, and of a system prompt beside the messages."""
    blocks = [_tool_block(at, tool, layout, count) for at, tool in enumerate(_as_list(body.get("tools")))]
    if layout == "anthropic":
        system = body.get("system")
        content = [(-1, system)] if isinstance(system, str) else list(enumerate(_as_list(system)))
        blocks += [_part_block("system", "system", 0, at, part, count) for at, part in content]
    return blocks


def _tool_block(at: int, tool: Any, layout: Layout, count: Count) -> Block:
    is_dict = isinstance(tool, dict)
    text = _json(_strip_private(tool))
    can_mark = layout in ("anthropic", "openai") and is_dict and not tool.get("defer_loading")
    return Block("tools", "tool", _hash("tool", text), count(text), at, -1, can_mark, _ttl(tool))


# -- messages --------------------------------------------------------------------------------------------------------


def message_blocks(at: int, message: Message, layout: Layout, count: Count, *, leads: bool = False) -> list[Block]:
    """Return the blocks of one message; ``leads`` marks a system message before all others."""
    if layout == "anthropic":
        role, own = str(message.get("role")), _ttl(message)
        blocks = [_part_block("messages", role, at, place, part, count) for place, part in _contents(message)]
        blocks = blocks or [Block("messages", "empty", _hash(role, "empty"), 0, at, -1, False, None)]
        if own:  # a misplaced marker, which some clients send
            blocks[-1] = blocks[-1]._replace(marker=blocks[-1].marker or own)
    else:
        blocks = list(_openai_blocks(at, message, layout, count, leads=leads))
    if message.get(EPHEMERAL):
        blocks = [block._replace(is_ephemeral=True, can_mark=False) for block in blocks]
    if message.get("role") in ("user", "tool"):
        blocks = [block._replace(is_input=True) for block in blocks]
    return blocks


def _contents(message: Message) -> list[tuple[int, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [(-1, content)]
    return list(enumerate(_as_list(content)))


def _openai_blocks(at: int, message: Message, layout: Layout, count: Count, *, leads: bool) -> Iterator[Block]:
    role = str(message.get("role"))
    tier: Tier = "system" if leads else "messages"
    if role == "tool":
        yield _result_block(at, message, layout, count)
        return
    for field in REASONING_FIELDS:
        if thought := message.get(field):
            text = thought if isinstance(thought, str) else _json(thought)
            yield Block(tier, "thinking", _hash(role, field, text), count(text), at, -1, False, None)
    own = _ttl(message)
    extra = _json({key: value for key, value in message.items() if key not in _MESSAGE_KEYS})
    contents = _contents(message)
    for place, part in contents:
        block = _part_block(tier, role, at, place, part, count)
        if place in (-1, 0) and extra != "{}":
            block = block._replace(digest=_hash(block.digest.hex(), extra))
        if own and place == contents[-1][0]:  # the plain strategy marks messages without parts this way
            block = block._replace(marker=block.marker or own)
        yield block
    calls = _as_list(message.get("tool_calls"))
    for place, call in enumerate(calls):
        text = _json(_strip_private(call))
        marker = _ttl(call) or (own if not contents and place == len(calls) - 1 else None)
        yield Block(tier, "tool_use", _hash(role, "call", text), count(text), at, place, False, marker)
    if not contents and not calls:
        yield Block(tier, "empty", _hash(role, "empty", extra), 0, at, -1, False, own)


def _result_block(at: int, message: Message, layout: Layout, count: Count) -> Block:
    """Return a ``tool`` message as one block, whatever is nested in it."""
    content = message.get("content")
    parts = [_strip_private(part) for part in content] if isinstance(content, list) else content
    if isinstance(parts, list) and len(parts) == 1 and _is_plain_text(parts[0]):
        parts = parts[0]["text"]
    rest = {key: value for key, value in message.items() if key != "content" and key not in _UNSENT}
    text = parts if isinstance(parts, str) else _json(parts)
    marker = _ttl(message) or next((ttl for part in _as_list(content) if (ttl := _ttl(part))), None)
    can_mark = True
    if layout == "openrouter":  # the last part carries the marker, so there must be one
        can_mark = (
            _can_carry_marker(content[-1])
            if isinstance(content, list) and content
            else bool(str(content or "").strip())
        )
    return Block(
        "messages",
        "image"
        if isinstance(content, list) and any(isinstance(p, dict) and is_image(p) for p in content)
        else "tool_result",
        _hash("tool", _json(rest), text),
        _tokens(message, text, count),
        at,
        -1,
        can_mark,
        marker,
        is_frontier=text.startswith(FRONTIER_STARTS),
    )


def _part_block(tier: Tier, role: str, at: int, place: int, part: Any, count: Count) -> Block:
    """Return the block of one content part, in the layouts that have parts."""
    if isinstance(part, str) or _is_plain_text(part):
        text = part if isinstance(part, str) else part["text"]
        is_ephemeral = isinstance(part, dict) and bool(part.get(EPHEMERAL))
        is_loose = isinstance(part, str) and place >= 0  # no API takes a bare text in a list
        can_mark = bool(text.strip()) and not (is_ephemeral or is_loose or is_reminder(text))
        frontier = text.startswith(FRONTIER_STARTS)
        found = _hash(role, "text", text)
        return Block(tier, "text", found, count(text), at, place, can_mark, _ttl(part), is_ephemeral, frontier)
    kind = str(part.get("type", "text")) if isinstance(part, dict) else "text"
    is_ephemeral = isinstance(part, dict) and bool(part.get(EPHEMERAL))
    can_mark = _can_carry_marker(part) and not is_ephemeral
    text = _json(_strip_private(part))
    inner = _as_list(part.get("content")) if isinstance(part, dict) else []
    has_image = any(isinstance(one, dict) and is_image(one) for one in (part, *inner))
    shown = "image" if has_image else kind
    frontier = kind == "tool_result" and _result_text(part).startswith(FRONTIER_STARTS)
    size = _tokens(part, text, count)
    return Block(tier, shown, _hash(role, text), size, at, place, can_mark, _ttl(part), is_ephemeral, frontier)


def _tokens(part: Any, text: str, count: Count) -> int:
    """Return the tokens of a block; pictures and files count as a model sees them, not as base64."""
    if not isinstance(part, dict):
        return count(text)
    media = media_tokens(part)
    if media is not None:
        return media
    inner = _as_list(part.get("content"))
    if not any(isinstance(nested, dict) and media_tokens(nested) is not None for nested in inner):
        return count(text)
    return sum(_tokens(nested, _json(_strip_private(nested)), count) for nested in inner)


def _can_carry_marker(part: Any) -> bool:
    if not isinstance(part, dict) or is_reasoning(part):
        return False
    kind = part.get("type")
    if kind == "text":
        return bool(str(part.get("text") or "").strip())
    return takes_marker(kind) or _ttl(part) is not None  # trust a client that marks an unknown type


def _result_text(part: dict[str, Any]) -> str:
    content = part.get("content")
    if isinstance(content, str):
        return content
    first = content[0] if isinstance(content, list) and content else None
    return str(first.get("text", "")) if isinstance(first, dict) else ""


# -- bytes -----------------------------------------------------------------------------------------------------------


def _is_plain_text(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
        and part.keys() <= {"type", "text", *_UNSENT}
    )


def _strip_private(value: Any) -> Any:
    """Return a dict without markers and private keys, its own keys sorted; nested keys keep their order."""
    if not isinstance(value, dict):
        return value
    sent = {key: value[key] for key in sorted(value, key=str) if key not in _UNSENT}
    content = sent.get("content")
    if isinstance(content, list):  # the model does not see markers on nested parts either
        sent["content"] = [_strip_private(part) for part in content]
    return sent


def _ttl(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    marker = value.get("cache_control")
    if marker is None and value.get("type") == "tool_result":
        return next((ttl for part in _as_list(value.get("content")) if (ttl := _ttl(part))), None)
    if not isinstance(marker, dict):
        return None
    return "1h" if marker.get("ttl") == "1h" else "5m"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError):
        return f"{type(value).__name__} that no JSON can hold"


def _hash(*texts: str) -> bytes:
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


# -- a session's latest request ----------------------------------------------------------------------------------------


_SYSTEM_SWITCHES = ("speed",)
"""Fields that invalidate what is cached from the system prompt on, without being part of it."""
_MESSAGE_SWITCHES = (
    "tool_choice",
    "parallel_tool_calls",
    "thinking",
    "reasoning",
    "reasoning_effort",
    "output_config",
)


class RequestView:
    """The blocks of a session's latest request, with the hash of every prefix and its size in tokens.

    ``blocks[i]`` ends the prefix with the hash ``chain[i]`` and ``sizes[i]`` tokens. With a ``counter``, the blocks of
    a message, and those of the tools, add up to what it counts.
    """

    def __init__(self, root: str, count: Count = rough_count, counter: MessageCounter | None = None) -> None:
        self.blocks: list[Block] = []
        self.chain: list[bytes] = []
        self.sizes: list[int] = []
        self.kept = 0
        """The number of leading blocks that are the same as in the request before."""
        self.head = 0
        """The number of blocks before the first message that is no system prompt."""
        self.frontiers: list[int] = []
        """Blocks where history was edited: summaries and cleared results."""
        self.ephemerals: list[int] = []
        """Blocks that only this request has."""
        self.marked: list[int] = []
        """Blocks that the client marked itself."""
        self._root = link(b"", root.encode("utf-8", "surrogatepass"))
        self._count = count
        self._counter = counter
        self._front: tuple[Any, ...] = ()
        self._switches = ("", "")
        self._had_images = False
        self._messages: list[Message] = []
        self._starts = [0]
        """The first block of each message, and the end of the last one."""

    def update(self, body: Mapping[str, Any], layout: Layout) -> None:
        """Read the next request; messages that are the same as before are not read again."""
        messages = list(body.get("messages") or ())
        leading = 0 if layout == "anthropic" else leading_system_count(messages)
        front = (layout, leading, body.get("tools"), body.get("system"))
        before, is_same = self.blocks, _equal([front], [self._front])
        if not is_same:
            self._front, self._messages = front, []
            self.blocks = head_blocks(body, layout, self._count)
            if self._counter is not None and body.get("tools") and layout != "anthropic":
                self.blocks = _fit(self.blocks, self._counter.count_tools(body["tools"]))
            self._starts = [len(self.blocks)]
        # Nearly always a comparison by identity.
        same = _first_difference(self._messages, messages, min(len(self._messages), len(messages)))
        self._starts = self._starts[: same + 1]
        self.blocks = self.blocks[: self._starts[-1]]
        for at in range(same, len(messages)):
            added = message_blocks(at, messages[at], layout, self._count, leads=at < leading)
            self.blocks += added if self._counter is None else _fit(added, self._counter.count(messages[at]))
            self._starts.append(len(self.blocks))
        self.kept = self._starts[same] if is_same else _common_length(before, self.blocks)
        self.head, self._messages = self._starts[leading], messages
        self.frontiers = [at for at, block in enumerate(self.blocks) if block.is_frontier]
        self.ephemerals = [at for at, block in enumerate(self.blocks) if block.is_ephemeral]
        self.marked = [at for at, block in enumerate(self.blocks) if block.marker]
        self._link(switches_of(body), has_images=any(block.kind == "image" for block in self.blocks))

    def _link(self, switches: tuple[str, str], *, has_images: bool) -> None:
        """Derive the prefix hashes that changed; a switch counts from the tier on that it invalidates."""
        if switches != self._switches:
            self.kept = 0
        elif has_images != self._had_images:
            self.kept = min(self.kept, self.head)
        self._switches, self._had_images = switches, has_images
        del self.chain[self.kept :], self.sizes[self.kept :]
        last = self.chain[-1] if self.chain else self._root
        size = self.sizes[-1] if self.sizes else 0
        for at in range(len(self.chain), len(self.blocks)):
            block = self.blocks[at]
            if switches[0] and block.tier != "tools" and (at == 0 or self.blocks[at - 1].tier == "tools"):
                last = link(last, switches[0].encode())
            if at == self.head:
                last = link(last, f"{switches[1]}|{'image' if has_images else ''}".encode())
            last = link(last, block.digest)
            size += block.tokens
            self.chain.append(last)
            self.sizes.append(size)


def _fit(blocks: list[Block], tokens: int) -> list[Block]:
    """Return blocks whose tokens add up to a number, each with its share of it."""
    whole = sum(block.tokens for block in blocks) or 1
    fitted: list[Block] = []
    upto = given = 0
    for block in blocks:
        upto += block.tokens
        share = tokens * upto // whole - given
        given += share
        fitted.append(block._replace(tokens=share))
    return [*fitted[:-1], fitted[-1]._replace(tokens=fitted[-1].tokens + tokens - given)]


def link(before: bytes, data: bytes) -> bytes:
    """Return the hash of a prefix that is one piece longer."""
    return blake2b(before + data, digest_size=16).digest()


def switches_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the fields that invalidate a cached system prompt, and those that invalidate messages, as text."""
    told: list[str] = []
    for names in (_SYSTEM_SWITCHES, _MESSAGE_SWITCHES):
        found = {name: body[name] for name in names if body.get(name) is not None}
        told.append(json.dumps(found, sort_keys=True, default=str) if found else "")
    return told[0], told[1]


def _equal(left: list[Any], right: list[Any]) -> bool:
    try:
        return left == right
    except RecursionError:  # nested deeper than the interpreter compares
        return False


def _first_difference(left: list[Any], right: list[Any], length: int) -> int:
    if _equal(left[:length], right[:length]):
        return length
    return next((at for at in range(length) if not _equal([left[at]], [right[at]])), length)


def _common_length(left: list[Block], right: list[Block]) -> int:
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one.digest != other.digest or one.tier != other.tier:
            return at
    return min(len(left), len(right))
