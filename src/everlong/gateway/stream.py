"""The upstream's answer on its way to the client, read while it passes.

Look-ups of the model are answered in between; a refusal that comes late in a stream is recognised.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from everlong.agent.tools.hidden_tools import (
    NO_ROOM,
    ROUNDS,
    RecallLookup,
    find_lookups,
    hide_lookups,
    hiding_for,
)
from everlong.errors import EverlongError
from everlong.gateway.body import Overgrown, dump_json, parse_json
from everlong.gateway.bounds import TooLarge, Unpacking, Unreadable, encoding_of, is_light, plain, read_apart
from everlong.gateway.recall import answer_lookups, take_tools_away
from everlong.gateway.turn_queue import EndedRequest
from everlong.gateway.upstream import (
    ReadAnswer,
    Stream,
    UsageFilter,
    comes_whole,
    is_whole,
    next_chunk,
    stream_response,
    whole_of,
    whole_response,
)
from everlong.model.long_texts import structure
from everlong.providers.base import weigh
from everlong.providers.failures import classify_answer
from everlong.wire.event_stream import MOST_ANSWER, MOST_EVENTS, EventStream

if TYPE_CHECKING:
    from aiohttp import ClientResponse, web

    from everlong.errors import ProviderError
    from everlong.gateway.bounds import HeldMemory
    from everlong.gateway.formats import Dialect
    from everlong.gateway.requests import RelayedRequest
    from everlong.model import Message
    from everlong.providers.base import Reply, Usage
    from everlong.wire.event_stream import EventPiece

__all__ = ["TOO_LARGE", "AnswerTap", "Answering", "StreamTap", "WholeTap", "read_beginning", "tap_for"]

_MADE_UP = (EverlongError, KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""The errors of reading an answer that a server made up."""
_MOST_VALUES = 100_000
"""Values of a whole answer that is read; the likelihoods of a thousand tokens have about as many."""
_LIGHT_PACKED = 1_000
"""Packed bytes that are unpacked in the event loop."""
_STEP = 16_384
_LARGE_BYTES = 64_000
"""Weight of a reply that is made and recorded in another thread."""
TOO_LARGE = "the answer was passed on whole, but is too large to be read; stored as far as it was read"


class AnswerTap(ABC):
    """A listener to an answer that passes. It reads up to a bound; the rest passes unread."""

    otherwise: str
    """The error if there is no reply."""

    def __init__(self, dialect: Dialect, encoding: str = "", held: HeldMemory | None = None) -> None:
        self._dialect = dialect
        self._encoding = encoding
        self._held = held
        self.is_read = True
        """True if everything that came was read."""
        self.weight = 0
        """Bytes that are kept of the answer, roughly."""

    @abstractmethod
    async def take(self, chunk: bytes) -> bool:
        """Take a chunk; return whether the stream's last event has ended with it."""

    @abstractmethod
    async def reply(self) -> Reply | None:
        """Return the reply; None if the answer broke off or cannot be read."""

    @abstractmethod
    async def partial(self) -> Message | None:
        """Return the part of a broken answer that arrived; None if none of it can be read."""

    async def end(self, before: Sequence[Usage] = ()) -> EndedRequest:
        """Return how the request ended, as far as the answer tells."""
        reply = await self.reply()
        if reply is None:
            arrived, is_large = await self.partial(), self.weight > _LARGE_BYTES
            return EndedRequest(error=self.otherwise, partial=arrived, before=tuple(before), is_large=is_large)
        error = None if self.is_read else self.otherwise
        return EndedRequest(reply, error=error, before=tuple(before), is_large=self.weight > _LARGE_BYTES)

    async def unread(self) -> Message | None:
        """Return the part of an answer that arrived, for a count of its tokens; None if it was not read to its end."""
        return await self.partial() if self.is_read else None

    def _pass_over(self) -> None:
        """Note that something was not read."""
        self.is_read, self.otherwise = False, TOO_LARGE

    def _stop(self) -> None:
        """Read no further."""
        self._pass_over()

    def _has_room(self, size: int) -> bool:
        return self._held is None or self._held.take(size)

    def _reply_in(self, answer: Mapping[str, Any] | None) -> Reply | None:
        try:
            found = None if answer is None else self._dialect.reply(answer)
            if found is None or weigh(found.message) <= MOST_ANSWER:
                return found
        except _MADE_UP:
            return None
        self._stop()
        return None


class WholeTap(AnswerTap):
    """A listener to an answer in one piece that comes bit by bit."""

    otherwise = "the answer holds no reply"

    def __init__(self, dialect: Dialect, encoding: str = "", held: HeldMemory | None = None) -> None:
        super().__init__(dialect, encoding, held)
        self._chunks: list[bytes] = []

    async def take(self, chunk: bytes) -> bool:
        """Take a chunk; return False, because a chunk does not show where the answer ends."""
        if self.is_read:
            self.weight += len(chunk)
            if self.weight > MOST_ANSWER or not self._has_room(len(chunk)):
                self._stop()
                self._chunks = []
            else:
                self._chunks.append(chunk)
        return False

    async def reply(self) -> Reply | None:
        """Return the reply; None if the answer broke off or cannot be read."""
        data = b"".join(self._chunks)
        is_here = len(data) <= (_LIGHT_PACKED if self._encoding else _LARGE_BYTES)
        return self._read(data) if is_here else await read_apart(self._read, data)

    async def partial(self) -> Message | None:
        """Return None: an answer in one piece is of no use before its end."""
        return None

    def _read(self, data: bytes) -> Reply | None:
        try:
            answer = parse_answer(data, self._encoding)
        except (TooLarge, Overgrown):
            self._stop()
            return None
        except _MADE_UP:
            return None
        return self._reply_in(answer)


class StreamTap(AnswerTap):
    """A listener to one stream. What its events add up to is bounded, and not the stream itself."""

    otherwise = "the stream broke off"

    def __init__(self, dialect: Dialect, encoding: str = "", held: HeldMemory | None = None) -> None:
        super().__init__(dialect, encoding, held)
        self._gathering = dialect.gathering()
        self._events = EventStream()
        self._reading = threading.Lock()  # a client may hang up while a thread reads
        self._count = self._windowed = 0
        self._has_ended = False
        """True once the last event was read."""
        self._is_over = False
        """True if nothing more can be read."""
        self._is_broken = False
        """True if something was no event of the API."""
        self._unpack: Unpacking | None = None
        try:
            self._unpack = Unpacking(encoding) if encoding else None
        except Unreadable:
            self._is_over = self._is_broken = True

    async def take(self, chunk: bytes) -> bool:
        """Take a chunk; return whether the stream's last event has ended with it."""
        if self._is_over:
            return False
        if self._unpack is not None:
            is_here = len(chunk) <= _LIGHT_PACKED
            chunk = self._unpacked(chunk) if is_here else await read_apart(self._unpacked, chunk)
        if is_light(chunk) and self._events.waiting <= _LARGE_BYTES:
            return self._read(chunk)
        # Small steps, because answers of all clients are read one after the other.
        steps = [chunk[place : place + _STEP] for place in range(0, len(chunk), _STEP)]
        return [await read_apart(self._read, step) for step in steps][-1]

    async def reply(self) -> Reply | None:
        """Return the reply; None if the stream broke off or cannot be read."""
        return None if self._is_broken else await self._make(self._gathering.whole)

    async def partial(self) -> Message | None:
        """Return the part of a broken answer that arrived; None if none of it can be read."""
        found = await self._make(self._gathering.so_far)
        return None if found is None else found.message

    async def _make(self, take: Callable[[], dict[str, Any] | None]) -> Reply | None:
        def make() -> Reply | None:
            with self._reading:
                if not self._is_over:
                    self._read_event(self._events.end())
                    self._is_over = True
                try:
                    return self._reply_in(take())
                except _MADE_UP:
                    return None

        is_here = self.weight + self._events.waiting <= _LARGE_BYTES and not self._reading.locked()
        return make() if is_here else await read_apart(make)

    def _unpacked(self, chunk: bytes) -> bytes:
        assert self._unpack is not None  # noqa: S101 - asked before
        parts: list[bytes] = []
        size = 0
        try:
            for part in self._unpack.take(chunk):
                size += len(part)
                if size > MOST_ANSWER:
                    self._stop()
                    return b""
                parts.append(part)
        except Unreadable:
            self._is_over = self._is_broken = True
        grown = min(size, self._unpack.window - self._windowed)
        self._windowed += grown
        if not self._has_room(grown):
            self._stop()
        return b"".join(parts)

    def _read(self, chunk: bytes) -> bool:
        with self._reading:
            for piece in self._events.take(chunk) if not self._is_over else ():
                self._has_ended = self._read_event(piece) or self._has_ended
                if self._is_over:
                    return False
        return self._has_ended

    def _read_event(self, piece: EventPiece) -> bool:
        """Take an event; return whether it is the last one."""
        if piece.data is None:
            self._pass_over()
            return False
        self._count += 1
        try:
            event = None if piece.data in {b"", b"[DONE]"} else parse_json(piece.data)
            for _ in self._gathering.take(event) if isinstance(event, dict) else ():
                pass
        except _MADE_UP:
            self._is_over = self._is_broken = True
            return False
        added, self.weight = self._gathering.weight - self.weight, self._gathering.weight
        if self._count > MOST_EVENTS or self.weight > MOST_ANSWER or not self._has_room(added):
            self._stop()
        return self._dialect.last_event.search(b"\n" + piece.raw) is not None

    def _stop(self) -> None:
        super()._stop()
        self._is_over = True


def tap_for(dialect: Dialect, upstream: ClientResponse, held: HeldMemory | None = None) -> AnswerTap:
    """Return a listener to an answer."""
    kind = WholeTap if is_whole(upstream) else StreamTap
    return kind(dialect, encoding_of(upstream.headers), held)


def parse_answer(data: bytes, encoding: str) -> dict[str, Any] | None:
    """Return a whole answer; None if it is no object. Raises `Unreadable` or `BrokenBody`."""
    words = plain(data, encoding, MOST_ANSWER)
    if len(words) > _MOST_VALUES and structure(words, 0, _MOST_VALUES)[0] > _MOST_VALUES:
        raise Overgrown(f"the answer has more than {_MOST_VALUES:,} values")
    value = parse_json(words)
    return value if isinstance(value, dict) else None


Finish = Callable[[EndedRequest], Awaitable[None]]
LookUp = Callable[[list[RecallLookup], int, bytes], Awaitable[tuple[dict[str, str], bytes | None]]]
"""A look-up for a conversation of so many tokens (0 if unknown), which was sent in these bytes.

It returns the results, and the conversation's body if that was compacted to make room for them.
"""
Send = Callable[[bytes], Awaitable["ClientResponse"]]

_REFUSED = frozenset({400, 413, 422})


@dataclass(slots=True)
class Answering:
    """The way back of one request."""

    relayed: RelayedRequest
    finish: Finish
    send: Send
    look_up: LookUp | None = None
    """The function that answers calls of hidden tools, if some are offered."""
    tap: AnswerTap | None = None
    """The listener to the answer, once there is one."""
    looked_up: list[tuple[dict[str, Any], Mapping[str, str]]] = field(default_factory=list)
    """The answers with look-ups so far, and their results."""
    used: list[Usage] = field(default_factory=list)
    """The usage of answers that called a hidden tool and were followed by another."""

    async def abandon(self) -> None:
        """Finish a request whose client has hung up, with the part of the answer that has arrived."""
        arrived = None if self.tap is None else await self.tap.partial()
        await self.finish(EndedRequest(error="the client hung up", is_cut=True, partial=arrived))

    async def unread(self) -> Message | None:
        """Return the part of the answer that has arrived, for a count; None if more came than was read."""
        return None if self.tap is None else await self.tap.unread()

    async def answer(self, upstream: ClientResponse, ahead: bytes = b"") -> web.StreamResponse:
        """Pass an answer on; ``ahead`` is the part that was read already."""
        if is_whole(upstream) and not ahead and (self.look_up is not None or await comes_whole(upstream)):
            return await self._whole(upstream)
        if is_whole(upstream) or self.look_up is None:
            return await self._stream(upstream, ahead)
        return await self._stream_with_lookups(upstream, ahead)

    async def _whole(self, upstream: ClientResponse) -> web.StreamResponse:
        relayed = self.relayed
        for left in reversed(range(ROUNDS)):
            read = await whole_of(upstream, MOST_ANSWER)
            data, encoding = read.data, encoding_of(upstream.headers)
            if not read.is_all:
                return await self._stream(upstream, data)
            if self.look_up is None or upstream.status != 200:
                break
            answer, lookups, others = await read_apart(self._lookups_in, partial(parse_answer, data, encoding))
            if not lookups:
                break
            if others or not left:
                with suppress(*_MADE_UP):
                    data, encoding = dump_json(hide_lookups(relayed.dialect.name, answer, relayed.hidden)), ""
                break
            upstream.release()
            upstream = await self._again(answer, lookups, is_last=left == 1)
        is_one = is_whole(upstream)
        tap = WholeTap(relayed.dialect, encoding, relayed.account.held) if is_one else self._tap_for(upstream)
        await tap.take(data)
        await self._end(upstream, tap)
        response = whole_response(upstream, data, relayed.extra)
        if not encoding:
            response.headers.popall("Content-Encoding", None)
        return response

    async def _end(self, upstream: ClientResponse, tap: AnswerTap) -> None:
        is_refused = upstream.status != 200
        await self.finish(EndedRequest(error=f"status {upstream.status}") if is_refused else await tap.end(self.used))

    def _lookups_in(self, read: Callable[[], dict[str, Any] | None]) -> tuple[dict[str, Any], list[RecallLookup], bool]:
        """Return an answer, its look-ups, and whether it has other calls; nothing if it cannot be read."""
        try:
            answer = read() or {}
            return answer, *find_lookups(self.relayed.dialect.name, answer, self.relayed.hidden)
        except _MADE_UP:
            return {}, [], False

    def _tap_for(self, upstream: ClientResponse) -> AnswerTap:
        self.tap = tap_for(self.relayed.dialect, upstream, self.relayed.account.held)
        return self.tap

    async def _stream(self, upstream: ClientResponse, ahead: bytes) -> web.StreamResponse:
        relayed, tap = self.relayed, self._tap_for(upstream)
        is_finished = False

        async def before_end() -> None:
            nonlocal is_finished
            if not is_finished:
                is_finished = True
                await self._end(upstream, tap)

        is_plain = not is_whole(upstream) and not encoding_of(upstream.headers)
        usage = UsageFilter() if relayed.hides_usage and is_plain else None
        return await stream_response(relayed.request, upstream, tap.take, before_end, relayed.extra, ahead, usage)

    async def _stream_with_lookups(self, upstream: ClientResponse, ahead: bytes) -> web.StreamResponse:
        relayed = self.relayed
        dialect = relayed.dialect
        tap, hiding = StreamTap(dialect, held=relayed.account.held), hiding_for(dialect.name, relayed.hidden)
        try:
            unpacking = Unpacking(encoding_of(upstream.headers))
        except Unreadable:
            return await self._stream(upstream, ahead)
        self.tap = tap
        usage = UsageFilter() if relayed.hides_usage else None
        stream = Stream(relayed.request, upstream, relayed.extra, usage)
        stream.unpacked()
        await stream.open()
        for left in reversed(range(ROUNDS)):
            try:
                async for chunk in stream.chunks(upstream, ahead):
                    for piece in unpacking.take(chunk):
                        shown = hiding.take(piece) if is_light(piece) else await read_apart(hiding.take, piece)
                        if shown:
                            await tap.take(shown)
                            await stream.write(shown)
            except Unreadable:
                stream.is_cut = True  # nobody can tell what the rest says
            finally:
                upstream.release()
            whole, lookups, others = await read_apart(self._lookups_in, hiding.whole)
            if not lookups or others or not left:
                break
            hiding.again()
            upstream = await self._again(whole, lookups, is_last=left == 1)
            if upstream.status != 200 or is_whole(upstream):
                upstream.release()
                stream.is_cut = True  # a client that has seen the beginning takes its end for that of the answer
                break
            ahead, unpacking = b"", Unpacking(encoding_of(upstream.headers))
        last = hiding.end(has_calls=others)
        await tap.take(last)
        await self.finish(await tap.end(self.used))
        await stream.write(last)
        return await stream.end()

    async def _again(self, answer: dict[str, Any], lookups: list[RecallLookup], *, is_last: bool) -> ClientResponse:
        """Send the request once more with the results of the look-ups; with shorter ones if it is refused.

        After the last look-ups the model is offered no more.
        """
        assert self.look_up is not None  # noqa: S101 - nothing is looked up otherwise
        relayed, reply = self.relayed, None
        with suppress(*_MADE_UP):
            reply = relayed.dialect.reply(answer)
        if reply is not None:
            self.used.append(reply.usage)
        tokens = 0 if reply is None else reply.usage.total_tokens
        results, before = await self.look_up(lookups, tokens, relayed.answered)
        if before is None:
            before = relayed.answered
        else:
            for earlier in self.looked_up:
                before = answer_lookups(relayed.dialect, before, *earlier)
        shorter = {ident: text[: len(text) // 4] for ident, text in results.items()}
        for told in (results, shorter, dict.fromkeys(results, NO_ROOM)):
            relayed.answered = answer_lookups(relayed.dialect, before, answer, told)
            if is_last:
                relayed.answered = take_tools_away(relayed.answered, relayed.hidden)
            upstream = await self.send(relayed.answered)
            if upstream.status not in _REFUSED:
                break
        self.looked_up.append((answer, told))
        return upstream


_SECONDS = 10.0
"""Seconds that the first words of an answer are held back; refusals come at once."""
_MOST_BYTES = 1_000_000
_MOST_BEGINNINGS = 100
"""Events before the first output that are waited for; there are three, and one now and then while it takes long."""
_BEGINNING = frozenset({"response.created", "response.queued", "response.in_progress", "keepalive"})
_FAILED = frozenset({"response.failed", "error"})


async def read_beginning(upstream: ClientResponse) -> ReadAnswer:
    """Read a stream of the Responses API until its first output; return the bytes, and an error at its beginning."""
    if is_whole(upstream):
        return ReadAnswer()
    ahead: list[bytes] = []
    try:
        beginning = _Beginning(encoding_of(upstream.headers))
        async with asyncio.timeout(_SECONDS):
            while not beginning.is_settled and sum(map(len, ahead)) < _MOST_BYTES:
                chunk, is_cut = await next_chunk(upstream.content)
                ahead.append(chunk)
                await read_apart(beginning.take, chunk) if len(chunk) > _LIGHT_PACKED else beginning.take(chunk)
                if is_cut or not chunk:
                    break
        return ReadAnswer(b"".join(ahead), error=beginning.error)
    except (TimeoutError, *_MADE_UP):  # the client gets it as it came
        return ReadAnswer(b"".join(ahead))


class _Beginning:
    """The events of a stream up to its first output."""

    def __init__(self, encoding: str) -> None:
        self._unpacking = Unpacking(encoding)
        self._events = EventStream()
        self._left = _MOST_BEGINNINGS
        self.is_settled = False
        """True if the stream has said more than that it begins."""
        self.error: ProviderError | None = None

    def take(self, chunk: bytes) -> None:
        """Read a chunk, up to the first event that says more."""
        for unpacked in self._unpacking.take(chunk):
            for piece in self._events.take(unpacked):
                self._left -= 1
                event = parse_json(piece.data) if piece.data else None
                kind = event.get("type") if isinstance(event, dict) else None
                if isinstance(event, dict) and kind in _FAILED:
                    self.error = _error_in(event)
                self.is_settled = piece.data is None or not self._left or bool(event and kind not in _BEGINNING)
                if self.is_settled:
                    return


def _error_in(event: Mapping[str, Any]) -> ProviderError:
    told = event.get("response") if isinstance(event.get("response"), dict) else event
    inner = told.get("error") if isinstance(told, Mapping) else None
    error = inner if isinstance(inner, dict) else {name: event.get(name) for name in ("code", "message")}
    return classify_answer(400, dump_json({"error": error}))
