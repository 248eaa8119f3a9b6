"""Compaction that a client of the Responses API asks for: passed on where the upstream knows it, else made here.

A client asks with an item at the end of its input (``compaction_trigger``) or at an endpoint (``/responses/compact``),
gets one item that it cannot read, and sends that item in the place of what it stands for. An item of ours holds the
messages that the engine makes of the conversation; where it comes back, they stand in its place before anything else
is done with the request. Who writes the summary is handed in.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.context import ContextCompressor
from everlong.errors import ContextOverflow, MessageError, TargetUnreachable
from everlong.gateway.items import RESPONSES, messages_of
from everlong.gateway.limits import Refused
from everlong.gateway.raw import Broken, dumped, read_body, spliced
from everlong.gateway.structure import check_structure
from everlong.model import (
    SUMMARY_STARTS,
    Message,
    checked_messages,
    is_reasoning,
    is_system,
    parts_of,
    text_of,
    with_content,
)
from everlong.providers.base import Reply, Usage
from everlong.providers.failures import classify_answer
from everlong.wire import to_items

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.raw import Read
    from everlong.gateway.routing import Route

__all__ = [
    "COMPACT_PATH",
    "ClientCompaction",
    "Made",
    "asks_compaction",
    "compacted_answer",
    "holds_compaction",
    "is_compaction",
    "response_answer",
    "response_events",
    "unfolded",
]

COMPACT_PATH = "/v1/responses/compact"

_KINDS = frozenset({"compaction", "compaction_summary", "context_compaction"})
_SEAL = "everlong-compaction.1."
"""The first letters of the content of an item of ours."""
_UNKNOWN_STATUS = frozenset({400, 404, 405, 415, 422, 501})
_SHARE = 0.1
"""The share of the window that an item of ours may take; the client keeps some messages beside it."""
_MOST_BYTES = 8_000_000
"""What the items of a request may unpack to together; one is a tenth of a window."""
_MOST_VALUES = 100_000


class Made(NamedTuple):
    """A compaction of ours."""

    item: dict[str, Any]
    reply: Reply
    """The summary as it is stored."""


def asks_compaction(path: str, read: Read) -> bool:
    """Return whether a request asks for a compaction and nothing else."""
    last = read.entries[-1].value if read.entries else None
    return path == COMPACT_PATH or (isinstance(last, dict) and last.get("type") == "compaction_trigger")


def is_compaction(answer: Mapping[str, Any]) -> bool:
    """Return whether an answer is what a client expects that asked for a compaction: one such item, and only one."""
    output = answer.get("output")
    kinds = [item.get("type") for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    return sum(kind in _KINDS for kind in kinds) == 1


def holds_compaction(body: bytes) -> bool:
    """Return whether a body may have a compaction of ours in it."""
    return _SEAL.encode() in body


def unfolded(body: bytes) -> bytes:
    """Return a body with the messages that our compaction items hold in the place of these items.

    What a user said before the summary is left out where the client has kept it beside the item, as Codex does.
    """
    if not holds_compaction(body):
        return body
    try:
        read = read_body(body, RESPONSES.list_name)
    except Broken:
        return body
    left, held = _MOST_BYTES, []
    for entry in read.entries:
        words = _words_of(entry.value, left)
        left -= len(words)
        if messages := _held_in(words):
            held.append((entry, messages))
    try:
        said = messages_of([entry.value for entry in read.entries])
    except Broken:
        return body
    kept = {text_of(message) for message in said if message["role"] == "user"}
    changes = [
        (entry.start, entry.end, b",".join(map(dumped, to_items(_beside(messages, kept))))) for entry, messages in held
    ]
    return spliced(body, changes)


def _beside(messages: Sequence[Message], kept: Set[str]) -> list[Message]:
    """Return messages without those of a user before the summary that stand elsewhere."""
    summary = next((at for at, one in enumerate(messages) if text_of(one).startswith(SUMMARY_STARTS)), 0)
    return [
        message
        for at, message in enumerate(messages)
        if at >= summary or message["role"] != "user" or text_of(message) not in kept
    ]


def _words_of(item: Any, most: int) -> bytes:
    """Return what an item of ours holds, packed into so many bytes at most; nothing where it is none, or broken."""
    if not isinstance(item, dict) or item.get("type") not in _KINDS:
        return b""
    content = item.get("encrypted_content")
    if not isinstance(content, str) or not content.startswith(_SEAL):
        return b""
    unpacking = zlib.decompressobj()
    try:
        words = unpacking.decompress(base64.urlsafe_b64decode(content.removeprefix(_SEAL)), max(1, most))
    except (ValueError, zlib.error):
        return b""
    if unpacking.unconsumed_tail:
        raise Refused(413, f"the compactions in this request unpack to more than {_MOST_BYTES:,} bytes")
    check_structure(words, _MOST_VALUES)
    return words


def _held_in(words: bytes) -> list[Message] | None:
    """Return the messages that an item of ours stands for, by what it holds."""
    try:
        return checked_messages(json.loads(words)) or None if words else None
    except (ValueError, MessageError, RecursionError):
        return None


def _item_of(messages: Sequence[Message]) -> dict[str, Any]:
    packed = zlib.compress(dumped(list(messages)), 6)
    content = _SEAL + base64.urlsafe_b64encode(packed).decode()
    return {"type": "compaction", "id": f"cmp_{uuid.uuid4().hex}", "encrypted_content": content}


class ClientCompaction:
    """Makes compactions for clients whose upstream does not, and remembers which upstreams do."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.compression
        self._known: dict[tuple[str, str], bool] = {}

    def is_known_to(self, route: Route, path: str) -> bool | None:
        """Return whether an upstream compacts; None where nobody has asked it yet."""
        return self._known.get((route.base_url, path))

    def learn(self, route: Route, path: str, *, is_known: bool) -> None:
        """Remember whether an upstream compacts."""
        self._known[route.base_url, path] = is_known

    @staticmethod
    def is_unknown(status: int, data: bytes) -> bool:
        """Return whether a refusal may mean that the upstream knows no compaction."""
        return status in _UNKNOWN_STATUS and not isinstance(classify_answer(status, data), ContextOverflow)

    def make(self, body: bytes, window: int, model: str, summarizer: Summarizer | None) -> Made:
        """Compact the conversation of a request into one item; nothing of it is stored. Blocks.

        Instructions are left out: clients send their own again.
        """
        said = messages_of([entry.value for entry in read_body(body, RESPONSES.list_name).entries])
        messages = [_without_thinking(message) for message in said if not is_system(message)]
        engine = ContextCompressor(window, settings=self._settings, summarizer=summarizer, model=model)
        try:
            kept = engine.compress(messages, force=True, target_tokens=int(_SHARE * window))
        except TargetUnreachable as error:
            kept = engine.compress(messages, force=True, target_tokens=error.least)
        summary = next((text for one in kept if (text := text_of(one)).startswith(SUMMARY_STARTS)), "")
        told: Message = {
            "role": "assistant",
            "content": summary or "The conversation was short enough to be kept whole.",
        }
        return Made(_item_of(kept), Reply(told, Usage(), "end", model, RESPONSES.api))


def _without_thinking(message: Message) -> Message:
    parts = parts_of(message)
    if not any(map(is_reasoning, parts)):
        return message
    return with_content(message, [part for part in parts if not is_reasoning(part)] or None)


# -- answers -----------------------------------------------------------------------------------------------------------

_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}
"""The client's model was not asked."""


def compacted_answer(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the endpoint that compacts."""
    frame = {"id": f"resp_{uuid.uuid4().hex}", "object": "response.compaction", "created_at": int(time.time())}
    return {**frame, "output": [item], "usage": _USAGE}


def response_answer(item: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return a whole answer with one item."""
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [item],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": _USAGE,
    }


def response_events(answer: Mapping[str, Any]) -> bytes:
    """Return a stream that adds up to a whole answer."""
    return b"".join(
        b"event: " + event["type"].encode() + b"\ndata: " + dumped({**event, "sequence_number": number}) + b"\n\n"
        for number, event in enumerate(_events(answer))
    )


def _events(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {**answer, "status": "in_progress", "output": [], "usage": None}}
    for index, item in enumerate(answer["output"]):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": answer}
