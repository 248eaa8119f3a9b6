"""The upstream's answer on its way to the client, read while it passes.

Look-ups of the model are answered in between; a refusal that comes late in a stream is recognised.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from everlong.agent.tools.hidden_calls import find_lookups, hide_lookups, hiding_for
from everlong.agent.tools.recall import NAMES, NO_ROOM, ROUNDS, RecallLookup
from everlong.gateway.body import BrokenBody, Unreadable, decoder, dump_json, parse_json, plain
from everlong.gateway.recall import answer_lookups
from everlong.gateway.turn_queue import EndedRequest
from everlong.gateway.upstream import Stream, comes_whole, is_whole, next_chunk, stream_response, whole_response
from everlong.providers.failures import classify_answer

if TYPE_CHECKING:
    from aiohttp import ClientResponse, web

    from everlong.errors import ProviderError
    from everlong.gateway.formats import Dialect
    from everlong.model import Message
    from everlong.providers.base import Reply, Usage
    from everlong.providers.client import StreamAssembler

__all__ = ["Answering", "StreamTap", "Tapped", "WholeTap", "events_in", "read_beginning", "reply_of", "tap_for"]

_MADE_UP = (BrokenBody, Unreadable, KeyError, IndexError, TypeError, ValueError, AttributeError)
"""The errors of reading an answer that a server made up."""
_SEAM = 64
"""Bytes that the beginning of a last event has at most."""
_BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END = re.compile(rb"\r\n|\r|\n")


class Tapped(Protocol):
    """The part of a dialect that is needed to read answers."""

    @property
    def last_event(self) -> re.Pattern[bytes]:
        """The beginning of a stream's last event."""

    def gathering(self) -> StreamAssembler:
        """Return a new gathering, which adds up the events of a stream."""

    def reply(self, answer: Mapping[str, Any]) -> Reply | None:
        """Return the reply in a whole answer."""


def reply_of(dialect: Tapped, data: bytes, encoding: str = "") -> Reply | None:
    """Return the reply in a whole answer; None if there is none."""
    try:
        answer = parse_json(plain(data, encoding))
        return dialect.reply(answer) if isinstance(answer, dict) else None
    except _MADE_UP:
        return None


class WholeTap:
    """A listener to an answer in one piece that comes bit by bit."""

    otherwise = "the answer holds no reply"
    """The error if there is no reply."""

    def __init__(self, dialect: Tapped, encoding: str = "") -> None:
        self._dialect = dialect
        self._encoding = encoding
        self._chunks: list[bytes] = []

    def __call__(self, chunk: bytes) -> bool:
        """Take a chunk; return False, because a chunk does not show where the answer ends."""
        self._chunks.append(chunk)
        return False

    def reply(self) -> Reply | None:
        """Return the reply; None if the answer broke off or cannot be read."""
        return reply_of(self._dialect, b"".join(self._chunks), self._encoding)

    def partial(self) -> Message | None:
        """Return None: an answer in one piece is of no use before its end."""
        return None


class StreamTap:
    """A listener to one stream."""

    otherwise = "the stream broke off"
    """The error if there is no reply."""

    def __init__(self, dialect: Tapped, encoding: str = "") -> None:
        self._dialect = dialect
        self._chunks: list[bytes] = []
        self._seam = b"\n"
        self._ending: bytes | None = None
        """The bytes from the beginning of the last event on."""
        self._is_readable = True
        try:
            self._decode = decoder(encoding)
        except Unreadable:
            self._is_readable = False

    def __call__(self, chunk: bytes) -> bool:
        """Take a chunk; return whether the stream's last event has ended with it."""
        if not self._is_readable:
            return False
        try:
            said = self._decode(chunk)
        except Unreadable:
            self._is_readable = False
            return False
        self._chunks.append(said)
        if self._ending is not None:
            self._ending += said
        else:
            seam = self._seam + said
            self._seam = seam[-_SEAM:]
            found = self._dialect.last_event.search(seam)
            if found is None:
                return False
            self._ending = seam[found.end() :]
        return _BLANK.search(self._ending) is not None

    def reply(self) -> Reply | None:
        """Return the reply; None if the stream broke off or cannot be read."""
        return self._read(lambda gathering: gathering.whole())

    def partial(self) -> Message | None:
        """Return the part of a broken answer that arrived; None if none of it can be read."""
        found = self._read(lambda gathering: gathering.so_far())
        return None if found is None else found.message

    def _read(self, take: Callable[[StreamAssembler], dict[str, Any] | None]) -> Reply | None:
        if not self._is_readable:
            return None
        gathering = self._dialect.gathering()
        try:
            for event in events_in(b"".join(self._chunks)):
                for _ in gathering.take(event):
                    pass
        except _MADE_UP:
            return None
        try:
            answer = take(gathering)
            return None if answer is None else self._dialect.reply(answer)
        except _MADE_UP:
            return None


def tap_for(dialect: Tapped, upstream: ClientResponse) -> StreamTap | WholeTap:
    """Return a listener to an answer."""
    encoding = upstream.headers.get("Content-Encoding", "")
    return WholeTap(dialect, encoding) if is_whole(upstream) else StreamTap(dialect, encoding)


def events_in(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream that are JSON objects; `BrokenBody` if one is no JSON."""
    lines: list[bytes] = []
    for line in [*_LINE_END.split(data.removeprefix(b"\xef\xbb\xbf")), b""]:
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            text = b"\n".join(lines)
            lines = []
            if text.strip() not in {b"", b"[DONE]"}:
                value = parse_json(text)
                if isinstance(value, dict):
                    yield value


Finish = Callable[[EndedRequest], Awaitable[None]]
LookUp = Callable[[list[RecallLookup], int, bytes], Awaitable[dict[str, str]]]
"""A look-up for a conversation of so many tokens (0 if unknown), which was sent in these bytes."""
Send = Callable[[bytes], Awaitable["ClientResponse"]]

_REFUSED = frozenset({400, 413, 422})


@dataclass(slots=True)
class Answering:
    """The way back of one request."""

    request: web.Request
    dialect: Dialect
    sent: bytes
    extra: Callable[[], dict[str, str]]
    """The gateway's own headers, asked for as late as possible."""
    finish: Finish
    look_up: LookUp | None = None
    """The function that answers calls of hidden tools, if some are offered."""
    send: Send | None = None
    tap: StreamTap | WholeTap | None = None
    """The listener to the answer, once there is one."""
    hidden: Set[str] = NAMES
    """The names of the hidden tools that are offered."""
    used: list[Usage] = field(default_factory=list)
    """The usage of answers that called a hidden tool and were followed by another."""

    def partial(self) -> Message | None:
        """Return the part of the answer that has arrived; None if none of it can be read."""
        return None if self.tap is None else self.tap.partial()

    async def answer(self, upstream: ClientResponse, ahead: bytes = b"") -> web.StreamResponse:
        """Pass an answer on; ``ahead`` is the part of a stream that was read already."""
        if (self.look_up is not None and is_whole(upstream)) or await comes_whole(upstream):
            return await self._whole(upstream)
        return (
            await self._stream(upstream, ahead)
            if self.look_up is None
            else await self._stream_with_lookups(upstream, ahead)
        )

    async def _whole(self, upstream: ClientResponse) -> web.StreamResponse:
        for left in reversed(range(ROUNDS)):
            data = await upstream.read()
            encoding = upstream.headers.get("Content-Encoding", "")
            if self.look_up is None or upstream.status != 200:
                break
            answer = _object(data, encoding)
            lookups, others = find_lookups(self.dialect.name, answer, self.hidden)
            if not lookups:
                break
            if others or not left:
                data, encoding = dump_json(hide_lookups(self.dialect.name, answer, self.hidden)), ""
                break
            upstream = await self._again(answer, lookups)
        tap = WholeTap(self.dialect, encoding) if is_whole(upstream) else tap_for(self.dialect, upstream)
        tap(data)
        await self.finish(self._end_of(tap))
        response = whole_response(upstream, data, self.extra())
        if not encoding:
            response.headers.popall("Content-Encoding", None)
        return response

    async def _stream(self, upstream: ClientResponse, ahead: bytes) -> web.StreamResponse:
        tap = self.tap = tap_for(self.dialect, upstream)
        is_finished = False

        async def before_end() -> None:
            nonlocal is_finished
            if not is_finished:
                is_finished = True
                await self.finish(self._end_of(tap))

        return await stream_response(self.request, upstream, tap, before_end, self.extra(), ahead)

    async def _stream_with_lookups(self, upstream: ClientResponse, ahead: bytes) -> web.StreamResponse:
        tap, hiding = StreamTap(self.dialect), hiding_for(self.dialect.name, self.hidden)
        try:
            decode = decoder(upstream.headers.get("Content-Encoding", ""))
        except Unreadable:
            return await self._stream(upstream, ahead)
        self.tap = tap
        stream = Stream(self.request, upstream, self.extra())
        stream.unpacked()
        await stream.open()
        for left in reversed(range(ROUNDS)):
            try:
                async for chunk in stream.chunks(upstream, ahead):
                    if shown := hiding.take(decode(chunk)):
                        tap(shown)
                        await stream.write(shown)
            finally:
                upstream.release()
            whole = hiding.whole()
            lookups, others = find_lookups(self.dialect.name, whole, self.hidden) if whole is not None else ([], False)
            if not lookups or others or not left or whole is None:
                break
            upstream = await self._again(whole, lookups)
            if upstream.status != 200 or is_whole(upstream):
                upstream.release()
                break
            ahead, decode = b"", decoder(upstream.headers.get("Content-Encoding", ""))
            hiding.again()
        last = hiding.end(has_calls=others)
        tap(last)
        await self.finish(self._end_of(tap))
        await stream.write(last)
        return await stream.end()

    async def _again(self, answer: dict[str, Any], lookups: list[RecallLookup]) -> ClientResponse:
        """Send the request once more with the results of the look-ups; with shorter ones if it is refused."""
        assert self.look_up is not None  # noqa: S101 - nothing is looked up otherwise
        assert self.send is not None  # noqa: S101 - as above
        reply = self.dialect.reply(answer)
        if reply is not None:
            self.used.append(reply.usage)
        results = await self.look_up(lookups, 0 if reply is None else reply.usage.total_tokens, self.sent)
        before = self.sent
        shorter = {ident: text[: len(text) // 4] for ident, text in results.items()}
        for told in (results, shorter, dict.fromkeys(results, NO_ROOM)):
            self.sent = answer_lookups(self.dialect, before, answer, told)
            upstream = await self.send(self.sent)
            if upstream.status not in _REFUSED:
                break
        return upstream

    def _end_of(self, tap: StreamTap | WholeTap) -> EndedRequest:
        reply = tap.reply()
        if reply is None:
            return EndedRequest(error=tap.otherwise, partial=tap.partial(), before=tuple(self.used))
        return EndedRequest(reply, before=tuple(self.used))


def _object(data: bytes, encoding: str) -> dict[str, Any]:
    try:
        value = orjson.loads(plain(data, encoding))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


_SECONDS = 10.0
"""Seconds that the first words of an answer are held back; refusals come at once."""
_MOST_BYTES = 1_000_000
_BEGINNING = frozenset({"response.created", "response.queued", "response.in_progress", "keepalive"})
_FAILED = frozenset({"response.failed", "error"})


async def read_beginning(upstream: ClientResponse) -> tuple[bytes, ProviderError | None]:
    """Read a stream of the Responses API until its first output; return the bytes, and an error at its beginning."""
    ahead, plain = b"", b""
    if is_whole(upstream):
        return ahead, None
    try:
        decode = decoder(upstream.headers.get("Content-Encoding", ""))
        async with asyncio.timeout(_SECONDS):
            while len(ahead) < _MOST_BYTES:
                chunk, is_cut = await next_chunk(upstream.content)
                ahead += chunk
                plain += decode(chunk)
                is_settled, error = _settled(plain)
                if is_settled or is_cut or not chunk:
                    return ahead, error
    except (TimeoutError, Unreadable, BrokenBody):
        pass  # the client gets it as it came
    return ahead, None


def _settled(data: bytes) -> tuple[bool, ProviderError | None]:
    """Return whether a stream has said more than that it begins, and the error if it begins with one."""
    for event in events_in(data.replace(b"\r\n", b"\n").rpartition(b"\n\n")[0]):
        kind = event.get("type")
        if kind in _FAILED:
            return True, _error_in(event)
        if kind not in _BEGINNING:
            return True, None
    return False, None


def _error_in(event: Mapping[str, Any]) -> ProviderError:
    told = event.get("response") if isinstance(event.get("response"), dict) else event
    inner = told.get("error") if isinstance(told, Mapping) else None
    error = inner if isinstance(inner, dict) else {name: event.get(name) for name in ("code", "message")}
    return classify_answer(400, dump_json({"error": error}))
