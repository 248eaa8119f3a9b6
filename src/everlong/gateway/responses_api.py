"""The Responses API: requests that name the one before them, and compactions that its clients ask for."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import ClientError, web

from everlong.context import ContextCompressor
from everlong.errors import ContextOverflow, MessageError, TargetUnreachable
from everlong.gateway.account import REQUEST_ID, account_of
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
from everlong.gateway.formats import OPENAI, RESPONSES, messages_of, sender_of
from everlong.gateway.recorder import too_much_new
from everlong.gateway.requests import WARNING, header_text
from everlong.gateway.response_recorder import ResponseTurn, TenantResponses, read_asked
from everlong.gateway.stream import tap_for
from everlong.gateway.turn_queue import EndedRequest
from everlong.gateway.upstream import (
    ClientGone,
    Relay,
    comes_whole,
    failure,
    forwarded_headers,
    stream_response,
    target_of,
    whole_response,
)
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
from everlong.wire import to_items

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from everlong.config import Settings
    from everlong.context import Summarizer
    from everlong.gateway.account import RequestAccount
    from everlong.gateway.body import Read
    from everlong.gateway.budget import Budget
    from everlong.gateway.formats import ResponsesRequest
    from everlong.gateway.routing import Route, Routes
    from everlong.gateway.stream import AnswerTap
    from everlong.gateway.turn_queue import Backlog

__all__ = [
    "COMPACT_PATH",
    "ClientCompaction",
    "Made",
    "Responder",
    "asks_compaction",
    "check_readable",
    "compacted_answer",
    "holds_compaction",
    "is_compaction",
    "response_answer",
    "response_events",
    "unfold_compactions",
]

_log = logging.getLogger("everlong.gateway")


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
    named = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    names += [item.get("id") for item in named if item.get("type") == "item_reference" or item.keys() == {"id"}]
    return [str(name.get("id") if isinstance(name, dict) else name) for name in names if name]


class Responder:
    """The relay of requests that name the response before them, for all tenants."""

    def __init__(
        self,
        relay: Relay,
        routes: Routes,
        responses_of: Callable[[str], TenantResponses],
        backlog: Backlog,
        cost: Callable[[str, Usage], float],
        budget: Budget,
        most_new: int,
    ) -> None:
        self._relay = relay
        self._routes = routes
        self._responses_of = responses_of
        self._backlog = backlog
        self._cost = cost
        self._budget = budget
        self._most_new = most_new
        self._tenants: dict[str, TenantResponses] = {}

    def _responses(self, tenant: str) -> TenantResponses:
        if tenant not in self._tenants:
            self._tenants[tenant] = self._responses_of(tenant)
        return self._tenants[tenant]

    async def respond(self, request: web.Request, tenant: str, body: bytes, words: bytes | None) -> web.StreamResponse:
        """Pass a request on: its body, and its words without an encoding, if they can be read."""
        known = self._responses(tenant)
        turn, warning = await self._enter(request, words, known)
        model, route = await self._upstream_of(turn, words)
        headers = forwarded_headers(request.headers.items())
        account = account_of(request)
        account.api, account.provider = "openai", route.provider
        account.model = model
        if route.authorize(headers, account.spoken) and account.spoken:
            try:
                await self.check_names(tenant, words)
            except Refused as refused:
                await self._finish(known, turn, EndedRequest(error=f"status {refused.status}"))
                raise
        try:
            if account.charge is not None:
                await self._budget.reserve(account.charge, words, RESPONSES, account.model, route)
        except Refused as refused:
            await self._finish(known, turn, EndedRequest(error=f"status {refused.status}"))
            raise
        if turn is not None:
            warning = await self._backlog.note(known, turn, account)
        try:
            upstream = await self._relay.send("POST", route.url(target_of(request)), headers, body)
            if account.charge is not None:
                account.charge.answered(upstream)
            told = {WARNING: header_text(warning)} if warning else {}
            return await self._answer(request, upstream, known, turn, told)
        except ClientGone:
            self._abandon(known, turn)
            return web.Response(status=499)  # to nobody
        except asyncio.CancelledError:
            self._abandon(known, turn)
            raise
        except (ClientError, TimeoutError, OSError) as error:
            said = failure(route.shown, error)
            extra = await self._finish(known, turn, EndedRequest(error=said))
            return web.json_response(OPENAI.error(502, said), status=502, headers=extra)

    async def _upstream_of(self, turn: ResponseTurn | None, words: bytes | None) -> tuple[str, Route]:
        """Return the model and the route of a request."""
        if turn is None:
            return await self._routes.find_for("openai", words)
        return turn.request.model, self._routes.find("openai", turn.request.model)

    async def check_name(self, tenant: str, name: str) -> None:
        """Refuse the name of a response or conversation of another tenant: the upstream knows no tenants."""
        await self._check_owned(self._responses(tenant), [name])

    async def check_names(self, tenant: str, words: bytes | None) -> None:
        """Refuse a request that continues a response that may be another tenant's, with the key that all share."""
        await check_readable(words)
        assert words is not None  # noqa: S101 - refused before
        await self._check_owned(self._responses(tenant), await asyncio.to_thread(_named_in, words))

    async def _check_owned(self, known: TenantResponses, names: list[str]) -> None:
        for name in names:
            if not await asyncio.to_thread(known.owns, name):
                raise Refused(404, f"there is no response, conversation or item {name[:100]!r} of this key")

    async def _enter(
        self, request: web.Request, words: bytes | None, known: TenantResponses
    ) -> tuple[ResponseTurn | None, str]:
        """Return the turn of a request; None if it is not stored, and the reason."""
        try:
            if words is None:
                raise BrokenBody("the body is in an encoding that the gateway cannot read")  # noqa: TRY301 - as below
            said = await asyncio.to_thread(read_asked, words) if is_heavy(words) else read_asked(words)
            check_model(said.model)
            await self._check_new(said, known)
            account = account_of(request)
            return known.enter(said, sender_of(request.headers, account.folder, account.program)), ""
        except BrokenBody as error:
            _log.warning("a request is passed on and not stored: its body cannot be read")
            return None, f"not stored: {error}"  # the upstream says what is wrong with it
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - nothing that fails here may keep a request from its model
            _log.error("a request could not be read: %s", type(error).__name__)
            return None, f"not stored: {type(error).__name__}"

    async def _check_new(self, said: ResponsesRequest, known: TenantResponses) -> None:
        """Refuse a request with more new blocks than others can wait for."""
        blocks = sum(max(1, len(parts_of(message))) for message in said.messages)
        if blocks > self._most_new and await asyncio.to_thread(known.recorder.count_new, said) > self._most_new:
            raise too_much_new(self._most_new)

    async def _answer(
        self,
        request: web.Request,
        upstream: ClientResponse,
        known: TenantResponses,
        turn: ResponseTurn | None,
        told: Mapping[str, str],
    ) -> web.StreamResponse:
        account = account_of(request)
        tap = tap_for(RESPONSES, upstream, account.held)
        if turn is not None:
            turn.tap = tap
        if account.charge is not None:
            account.charge.said = tap.unread
        if await comes_whole(upstream):
            data = await upstream.read()
            await tap.take(data)
            ended = await self._end_of(account, tap, upstream.status)
            return whole_response(upstream, data, {**told, **await self._finish(known, turn, ended)})
        is_finished = False

        async def before_end() -> None:
            nonlocal is_finished
            if not is_finished:
                is_finished = True
                await self._finish(known, turn, await self._end_of(account, tap, upstream.status))

        return await stream_response(request, upstream, tap.take, before_end, {REQUEST_ID: account.id, **told})

    async def _end_of(self, account: RequestAccount, tap: AnswerTap, status: int) -> EndedRequest:
        """Return how a request ended, and note its usage and cost in its account."""
        if status != 200:
            return EndedRequest(error=f"status {status}")
        ended = await tap.end()
        if ended.reply is None:
            return ended
        account.usage = ended.reply.usage
        account.cost = self._cost(account.model, account.usage)
        if account.charge is not None and account.usage.total_tokens:
            account.charge.told(account.cost)
        return replace(ended, cost=account.cost)

    async def _finish(self, known: TenantResponses, turn: ResponseTurn | None, ended: EndedRequest) -> dict[str, str]:
        """Record the end of a request, the first time that this is called.

        Returns a header with a warning if something went wrong.
        """
        if turn is None or turn.is_over:
            return {}
        turn.is_over = True
        try:
            problem = await self._backlog.finish(known, turn, ended)
        except Exception as error:  # noqa: BLE001 - an answer that is there is passed on, whatever fails here
            _log.error("a turn could not be stored: %s", type(error).__name__)
            problem = f"not stored: {type(error).__name__}"
        return {WARNING: header_text(problem)} if problem else {}

    def _abandon(self, known: TenantResponses, turn: ResponseTurn | None) -> None:
        """Record the end of a request whose client has hung up."""
        self._backlog.do(self._finish_abandoned(known, turn))

    async def _finish_abandoned(self, known: TenantResponses, turn: ResponseTurn | None) -> None:
        partial = None if turn is None or turn.tap is None else await turn.tap.partial()
        await self._finish(known, turn, EndedRequest(error="the client hung up", is_cut=True, partial=partial))


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
    """The maker of compactions for clients whose upstream makes none; it remembers which upstreams do."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.compression
        self._known: dict[tuple[str, str], bool] = {}

    def is_known_to(self, route: Route, path: str) -> bool | None:
        """Return whether an upstream compacts; None if it was not asked yet."""
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
