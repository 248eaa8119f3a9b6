"""The Responses API: requests that name the one before them, and compactions that its clients ask for."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.context import ContextCompressor
from everlong.errors import ContextOverflow, MessageError, StoreError, TargetUnreachable
from everlong.gateway.auth import Refused
from everlong.gateway.body import (
    BrokenBody,
    check_model,
    check_structure,
    dump_json,
    is_heavy,
    parse_json,
    read_body,
    read_fields,
    splice,
)
from everlong.gateway.formats import RESPONSES, is_reference, messages_of, read_responses_request
from everlong.gateway.recorder import too_much_new
from everlong.gateway.turn_queue import WholeTurn
from everlong.model import (
    SUMMARY_STARTS,
    Message,
    checked_messages,
    is_system,
    parts_of,
    text_of,
    without_thinking,
)
from everlong.providers.base import Reply, Usage
from everlong.providers.failures import classify_answer
from everlong.store.turns import is_name
from everlong.wire import to_items

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.body import Read
    from everlong.gateway.recorder import ResponseRecorder
    from everlong.gateway.routing import Route
    from everlong.store.identity import Sender

__all__ = [
    "COMPACT_PATH",
    "ClientCompaction",
    "Made",
    "Responses",
    "asks_compaction",
    "check_readable",
    "compacted_answer",
    "holds_compaction",
    "is_compaction",
    "response_answer",
    "response_events",
    "unfold_compactions",
]

_MOST_NAMES = 20_000
"""Names of responses that are remembered until they are surely in the database."""


async def check_readable(words: bytes | None) -> None:
    """Refuse a request that upstreams may read differently than we do; ``words`` is None if nobody can read it."""
    try:
        if words is not None:
            await asyncio.to_thread(read_fields, words)
            return
    except BrokenBody:
        pass
    raise Refused(400, "this request cannot be read, so it does not go on with the gateway's own key")


def _named_in(words: bytes) -> list[str]:
    """Return the names that a request continues; `BrokenBody` if upstreams may read it differently."""
    fields = read_fields(words)
    request = {name: parse_json(words[slice(*place)]) for name, place in fields.items()}
    names = [request.get("previous_response_id"), request.get("conversation")]
    items = request.get("input")
    given = [item for item in (items if isinstance(items, list) else [items]) if isinstance(item, dict)]
    names += [item.get("id") for item in given if is_reference(item)]
    return [str(name.get("id") if isinstance(name, dict) else name) for name in names if name]


class Responses:
    """The responses of all tenants that later requests may name."""

    def __init__(self, recorder_of: Callable[[str], ResponseRecorder], most_new: int) -> None:
        self._recorder_of = recorder_of
        self._most_new = most_new
        self._given: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Tenants and names of the newest responses, which may not be in the database yet."""

    def note(self, tenant: str, names: Iterable[str]) -> None:
        """Note the names of a response that a tenant gets."""
        self._given.update(((tenant, name), None) for name in names)
        while len(self._given) > _MOST_NAMES:
            self._given.popitem(last=False)

    async def check_names(self, tenant: str, words: bytes | None) -> None:
        """Refuse a request that continues a response that may be another tenant's, with the key that all share."""
        await check_readable(words)
        assert words is not None  # noqa: S101 - refused before
        for name in await asyncio.to_thread(_named_in, words):
            await self.check_name(tenant, name)

    async def check_name(self, tenant: str, name: str) -> None:
        """Refuse the name of a response or conversation of another tenant: the upstream knows no tenants."""
        named = self._recorder_of(tenant).store.turns.named
        if (tenant, name) not in self._given and await asyncio.to_thread(named, name) is None:
            raise Refused(404, f"there is no response, conversation or item {name[:100]!r} of this key")

    async def read(self, tenant: str, words: bytes, sender: Sender) -> WholeTurn:
        """Read a request that names the response before it; `BrokenBody` if it cannot be read.

        Raises:
            Refused: it has more new blocks than others can wait for.
        """
        recorder = self._recorder_of(tenant)
        said = await asyncio.to_thread(lambda: read_responses_request(parse_json(words)))
        check_model(said.model)
        blocks = sum(max(1, len(parts_of(message))) for message in said.messages)
        with suppress(StoreError):  # while the database is away, nobody waits for it
            if blocks > self._most_new and await asyncio.to_thread(recorder.count_new, said) > self._most_new:
                raise too_much_new(self._most_new)
        named = said.conversation if said.conversation and is_name(said.conversation) else None
        sender = replace(sender, session=sender.session or named)
        write = partial(said.written, recorder.store.cleaned)
        return WholeTurn(recorder, said.model, sender, write, is_heavy(words), said.conversation)


COMPACT_PATH = "/v1/responses/compact"

_KINDS = frozenset({"compaction", "compaction_summary", "context_compaction"})
_SEAL = "everlong-compaction.1."
"""The beginning of the content of our own compaction items."""
_UNKNOWN_STATUS = frozenset({400, 404, 405, 415, 422, 501})
_SHARE = 0.1
"""Share of the window that our own item may take; the client keeps some messages beside it. A client may reckon with a
smaller window than the model's; then the conversation that it wants compacted is about as large as that."""
_MOST_BYTES = 8_000_000
"""Bytes that the items of a request may unpack to together; one is a tenth of a window."""
_MOST_VALUES = 100_000


class Made(NamedTuple):
    """A compaction of our own."""

    item: dict[str, Any]
    reply: Reply
    """The summary as it is stored."""


def asks_compaction(path: str, read: Read) -> bool:
    """Return whether a request asks for a compaction and nothing else."""
    last = read.entries[-1].value if read.entries else None
    return path == COMPACT_PATH or (isinstance(last, dict) and last.get("type") == "compaction_trigger")


def is_compaction(answer: Mapping[str, Any]) -> bool:
    """Return whether an answer holds exactly one compaction item, as a client that asked for it expects."""
    output = answer.get("output")
    kinds = [item.get("type") for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    return sum(kind in _KINDS for kind in kinds) == 1


def holds_compaction(body: bytes) -> bool:
    """Return whether a body may hold a compaction of our own."""
    return _SEAL.encode() in body


def unfold_compactions(body: bytes) -> bytes:
    """Return a body with our own compaction items replaced by the messages that they hold.

    User messages before the summary are left out if the client has kept them beside the item, as Codex does.
    """
    if not holds_compaction(body):
        return body
    try:
        read = read_body(body, RESPONSES.list_name)
    except BrokenBody:
        return body
    left, held = _MOST_BYTES, []
    for entry in read.entries:
        words = _words_of(entry.value, left)
        left -= len(words)
        if messages := _held_in(words):
            held.append((entry, messages))
    try:
        said = messages_of([entry.value for entry in read.entries])
    except BrokenBody:
        return body
    kept = {text_of(message) for message in said if message["role"] == "user"}
    changes = [
        (entry.start, entry.end, b",".join(map(dump_json, to_items(_beside(messages, kept)))))
        for entry, messages in held
    ]
    return splice(body, changes)


def _beside(messages: Sequence[Message], kept: Set[str]) -> list[Message]:
    """Return messages without those of a user before the summary that stand elsewhere."""
    summary = next((at for at, one in enumerate(messages) if text_of(one).startswith(SUMMARY_STARTS)), 0)
    return [
        message
        for at, message in enumerate(messages)
        if at >= summary or message["role"] != "user" or text_of(message) not in kept
    ]


def _words_of(item: Any, most: int) -> bytes:
    """Return the content of our own item, at most so many bytes; nothing if it is none, or broken."""
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
    check_structure(words, most_values=_MOST_VALUES)
    return words


def _held_in(words: bytes) -> list[Message] | None:
    """Return the messages in the content of our own item; None if there are none."""
    try:
        return checked_messages(json.loads(words)) or None if words else None
    except (ValueError, MessageError, RecursionError):
        return None


def _item_of(messages: Sequence[Message]) -> dict[str, Any]:
    packed = zlib.compress(dump_json(list(messages)), 6)
    content = _SEAL + base64.urlsafe_b64encode(packed).decode()
    return {"type": "compaction", "id": f"cmp_{uuid.uuid4().hex}", "encrypted_content": content}


class ClientCompaction:
    """The maker of compactions for clients whose upstream makes none; it remembers, by tenant, which upstreams do."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.compression
        self._known: dict[tuple[str, str, str], bool] = {}

    def is_known_to(self, tenant: str, route: Route, path: str) -> bool | None:
        """Return whether an upstream compacts; None if it was not asked yet."""
        return self._known.get((tenant, route.base_url, path))

    def learn(self, tenant: str, route: Route, path: str, *, is_known: bool) -> None:
        """Remember whether an upstream compacts; a refusal may have been about something else in the request."""
        self._known[tenant, route.base_url, path] = is_known

    @staticmethod
    def is_unknown(status: int, data: bytes) -> bool:
        """Return whether a refusal may mean that the upstream knows no compaction."""
        return status in _UNKNOWN_STATUS and not isinstance(classify_answer(status, data), ContextOverflow)

    def make(self, body: bytes, window: int, model: str, summarizer: Summarizer | None) -> Made:
        """Compact the conversation of a request into one item; nothing of it is stored. Blocks.

        Instructions are left out: clients send their own again.
        """
        said = messages_of([entry.value for entry in read_body(body, RESPONSES.list_name).entries])
        messages = [without_thinking(message, entirely=True) for message in said if not is_system(message)]
        engine = ContextCompressor(window, settings=self._settings, summarizer=summarizer, model=model)
        target = int(_SHARE * min(window, engine.estimate_tokens(messages)))
        try:
            kept = engine.compress(messages, force=True, target_tokens=target)
        except TargetUnreachable as error:
            kept = engine.compress(messages, force=True, target_tokens=error.least)
        summary = next((text for one in kept if (text := text_of(one)).startswith(SUMMARY_STARTS)), "")
        told: Message = {
            "role": "assistant",
            "content": summary or "The conversation was short enough to be kept whole.",
        }
        return Made(_item_of(kept), Reply(told, Usage(), "end", model, RESPONSES.api))


# -- answers -----------------------------------------------------------------------------------------------------------

_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}
"""The usage of an answer for which the client's model was not asked."""


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
        b"event: " + event["type"].encode() + b"\ndata: " + dump_json({**event, "sequence_number": number}) + b"\n\n"
        for number, event in enumerate(_events(answer))
    )


def _events(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {**answer, "status": "in_progress", "output": [], "usage": None}}
    for index, item in enumerate(answer["output"]):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": answer}
