"""Identity: what makes two messages the same one, and the hash chain over a conversation.

    id_0 = H("everlong/1" ‖ conversation)           H = BLAKE2b of 16 bytes, keyed per tenant
    id_k = H(id_(k-1) ‖ side ‖ H(block_k))          side: a = assistant, u = user or tool result

Clients re-send their history with small changes: cache markers move, a string becomes a one-block list, reminders
and thinking vanish, keys change order, messages split or merge. So ids are computed over *blocks* in a canonical form
without such things, and read at the ends of messages. System prompts are attributes of a turn, not part of the chain.
A named conversation has its own root, so that equal words of two conversations never join; all conversations without
a name share one root and are recognised by their words.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import orjson

from everlong.model.content import is_image, is_reasoning, part_text, parts_of
from everlong.model.message import SYSTEM_ROLES, Message, calls_of

Side = Literal["a", "u"]

_REMINDER_TAGS = {"<system-reminder>": "</system-reminder>", "<system_reminder>": "</system_reminder>"}
_LEFT_OUT = frozenset({"cache_control", "index"})
_NOT_PLAIN = _LEFT_OUT | {"is_error"}
_LONG_NUMBER = re.compile(r"\d{16}")
_INTEGERS = 1 << 53
_PLAIN_DEPTH = 50


class HashedBlock(NamedTuple):
    """One block of a conversation in canonical form: who said it, and the bytes that identify it."""

    side: Side
    identity: bytes


class Node(NamedTuple):
    """The end of a message in the chain: its id, and the number of blocks up to it."""

    id: bytes
    depth: int


class Trace(NamedTuple):
    """The chain over a list, block by block."""

    ids: Sequence[bytes]
    """The id after each block."""
    blocks: Sequence[bytes]
    """The hash of each block by itself."""
    ends: Sequence[int]
    """The number of blocks up to the end of each message."""


@dataclass(frozen=True, slots=True)
class HashChain:
    """The derivation of node ids for one tenant; equal texts of two tenants have unrelated ids.

    >>> hello: Message = {"role": "user", "content": "hello"}
    >>> ours, again, theirs = (HashChain(tenant).nodes([hello])[-1] for tenant in ("ours", "ours", "theirs"))
    >>> ours.id == again.id, ours.id == theirs.id
    (True, False)
    """

    tenant: str = "local"

    def root(self, conversation: str = "") -> Node:
        """Return the node before any message, of a named conversation or of all without a name."""
        name = b"\0" + conversation.encode("utf-8", "surrogatepass") if conversation else b""
        return Node(self._hash(b"everlong/1" + name), 0)

    def extend(self, node: Node, message: Message) -> Node:
        """Return the node after one more message; the same node for a message without identity."""
        chain, depth = node
        for side, identity in blocks_of(message):
            chain = self._hash(chain + side.encode() + self._hash(identity))
            depth += 1
        return Node(chain, depth)

    def nodes(self, messages: Iterable[Message], start: Node | None = None) -> list[Node]:
        """Return the node at the end of each message."""
        node = start or self.root()
        nodes: list[Node] = []
        for message in messages:
            node = self.extend(node, message)
            nodes.append(node)
        return nodes

    def trace(self, messages: Iterable[Message], start: Node | None = None) -> Trace:
        """Return the same chain as `nodes`, also with the ids inside messages, because clients split and merge them."""
        chain = (start or self.root()).id
        ids: list[bytes] = []
        blocks: list[bytes] = []
        ends: list[int] = []
        keyed = _keyed(self.tenant)
        for message in messages:
            for side, identity in blocks_of(message):
                hasher = keyed.copy()
                hasher.update(identity)
                block = hasher.digest()
                hasher = keyed.copy()
                hasher.update(chain + (b"a" if side == "a" else b"u") + block)
                chain = hasher.digest()
                ids.append(chain)
                blocks.append(block)
            ends.append(len(ids))
        return Trace(ids, blocks, ends)

    def rechain(self, messages: Iterable[Message], trace: Trace, start: bytes) -> list[bytes]:
        """Return the ids of a traced list's blocks if it followed another node."""
        ids: list[bytes] = []
        begin = 0
        for message, end in zip(messages, trace.ends, strict=True):
            side: Side = "a" if message.get("role") == "assistant" else "u"
            for block in trace.blocks[begin:end]:
                start = self.step(start, side, block)
                ids.append(start)
            begin = end
        return ids

    def step(self, chain: bytes, side: Side, block: bytes) -> bytes:
        """Return the id after one more block, given by its hash."""
        return self._hash(chain + side.encode() + block)

    def _hash(self, data: bytes) -> bytes:
        hasher = _keyed(self.tenant).copy()
        hasher.update(data)
        digest: bytes = hasher.digest()
        return digest


@lru_cache(maxsize=1024)
def _keyed(tenant: str) -> Any:
    """Return the hash with a tenant's key, to be copied: that is quicker than to begin with the key each time."""
    key = hashlib.blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    return hashlib.blake2b(digest_size=16, key=key)


def blocks_of(message: Message) -> list[HashedBlock]:
    """Return the identifying blocks of a message; none for system messages, reminders, thinking and empty text."""
    role = message.get("role")
    if role in SYSTEM_ROLES:
        return []
    side: Side = "a" if role == "assistant" else "u"
    text = message.get("content")
    if type(text) is str and role != "tool" and "tool_calls" not in message:  # most messages by far
        said = text.rstrip()
        return [] if is_reminder(said) else [HashedBlock(side, b"text:" + said.encode("utf-8", "surrogatepass"))]
    if role == "tool" and type(text) is str:  # most of the others
        said = text.rstrip()
        inner = [] if is_reminder(said) else [b"text:" + said.encode("utf-8", "surrogatepass")]
        is_error = bool(message.get("is_error"))
        return [HashedBlock("u", _result_identity(message.get("tool_call_id"), inner, is_error=is_error))]
    content = parts_of(message)
    if role == "tool":
        is_error = bool(message.get("is_error"))
        return [
            HashedBlock("u", _result_identity(message.get("tool_call_id"), _identities(content), is_error=is_error))
        ]
    if side == "a":  # one wire format lets text follow a call, the other puts all text first
        content = sorted(content, key=lambda part: part.get("type") == "tool_use")
    parts = list(_identities(content))
    calls = [_call_identity(call.id, call.name, call.arguments) for call in calls_of(message)]
    return [HashedBlock(side, identity) for identity in [*parts, *calls]]


def is_reminder(text: str) -> bool:
    """Return whether a text is empty, or nothing but a client's reminders: no part of a message's identity."""
    rest = text.strip()
    while end := next((end for tag, end in _REMINDER_TAGS.items() if rest.startswith(tag)), ""):
        _, closed, rest = rest.partition(end)
        if not closed:
            return False
        rest = rest.lstrip()
    return not rest


def _identities(parts: Sequence[dict[str, Any]]) -> Iterable[bytes]:
    for part in parts:
        kind = part.get("type", "text")
        if is_reasoning(part):
            continue
        if text := part_text(part).rstrip():
            if not is_reminder(text):
                yield b"text:" + text.encode("utf-8", "surrogatepass")
        elif kind == "tool_use":
            yield _call_identity(part.get("id"), part.get("name"), part.get("input"))
        elif kind == "tool_result":
            inner = list(_identities(parts_of(part)))
            yield _result_identity(part.get("tool_use_id"), inner, is_error=bool(part.get("is_error")))
        elif is_image(part):
            yield b"media:" + _media_digest(part)
        elif kind != "text":
            yield b"other:" + _canonical(part)


def _call_identity(call_id: object, name: object, arguments: object) -> bytes:
    if isinstance(arguments, dict) and arguments.keys() == {"INVALID_JSON"}:
        arguments = arguments["INVALID_JSON"]  # arguments that are not JSON, for APIs that take only objects
    if arguments == "":
        arguments = {}
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):  # other arguments are identified by their text
            arguments = _parse(arguments)
    return b"call:" + _canonical([call_id or "", name or "", arguments])


def _result_identity(call_id: object, blocks: Iterable[bytes], *, is_error: bool) -> bytes:
    digests = [hashlib.blake2b(block, digest_size=16).hexdigest() for block in blocks]
    told = [call_id or "", digests, *(["error"] if is_error else [])]
    if type(call_id) is str:  # nothing to clean
        with contextlib.suppress(TypeError, ValueError):  # half of a surrogate pair
            return b"result:" + orjson.dumps(told)
    return b"result:" + _canonical(told)


def _media_digest(part: dict[str, Any]) -> bytes:
    """Return a digest of the picture itself, in whichever wire format it comes."""
    source = part.get("source") or part.get("image_url") or part
    if isinstance(source, dict):
        reference = source.get("data") or source.get("url") or source.get("file_id") or _canonical(source)
    else:
        reference = source
    raw = reference if isinstance(reference, bytes) else str(reference).encode("utf-8", "surrogatepass")
    if raw.startswith(b"data:"):
        raw = raw.partition(b",")[2]
    return hashlib.blake2b(raw, digest_size=16).digest()


def _canonical(value: object) -> bytes:
    """Return JSON with sorted keys and no spaces, without nulls, markers and private keys."""
    if _is_plain(value):
        with contextlib.suppress(TypeError, ValueError):  # half of a surrogate pair
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    try:
        text = json.dumps(_clean(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    except RecursionError:  # nested deeper than the interpreter's stack
        text = _flatten(value)
    return text.encode("utf-8", "surrogatepass")


def _parse(text: str) -> object:
    """Return a JSON value; the quick parser rounds integers of more than 64 bits."""
    if _LONG_NUMBER.search(text) is None:
        with contextlib.suppress(ValueError):
            return orjson.loads(text)
    return json.loads(text)


def _is_plain(value: object, depth: int = 0) -> bool:
    """Return whether a value has nothing to clean and nothing that the two writers of JSON write differently."""
    kind = type(value)
    if kind is str or kind is bool:
        return True
    if kind is int:
        return -_INTEGERS < value < _INTEGERS  # type: ignore[operator]
    if depth > _PLAIN_DEPTH:
        return False
    if kind is list:
        return all(_is_plain(item, depth + 1) for item in value)  # type: ignore[attr-defined]
    if kind is not dict:
        return False
    for key, item in value.items():  # type: ignore[attr-defined]
        if type(key) is not str or key in _NOT_PLAIN or key.startswith("_") or not _is_plain(item, depth + 1):
            return False
    return True


def _clean(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items() if not _is_noise(str(key), item)}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def _is_noise(key: str, item: object) -> bool:
    return item is None or key in _LEFT_OUT or key.startswith("_") or (key == "is_error" and item is False)


def _flatten(value: object) -> str:
    """Return every leaf of a structure with its depth and key, without recursion."""
    leaves: list[str] = []
    stack: list[tuple[int, str, object]] = [(0, "", value)]
    while stack:
        depth, name, item = stack.pop()
        if isinstance(item, dict):
            children = sorted(
                ((str(key), child) for key, child in item.items() if not _is_noise(str(key), child)),
                key=lambda pair: pair[0],
            )
            stack.extend((depth + 1, key, child) for key, child in reversed(children))
        elif isinstance(item, list | tuple):
            stack.extend((depth + 1, str(place), item[place]) for place in range(len(item) - 1, -1, -1))
        leaves.append(f"{depth}:{name}:{'' if isinstance(item, dict | list | tuple) else repr(item)}")
    return "\n".join(leaves)
