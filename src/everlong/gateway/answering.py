"""What comes back from upstream on its way to the client: whole or as a stream, and with look-ups answered between.

Bytes go on as they came. The turn is stored before the last of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from everlong.gateway.encodings import Unreadable, decoder, plain
from everlong.gateway.hiding import hiding_for
from everlong.gateway.keeper import Ended
from everlong.gateway.raw import dumped
from everlong.gateway.recalling import NO_ROOM, ROUNDS, Lookup, answered_lookups, lookups_in, without_lookups
from everlong.gateway.relay import Stream, answered, comes_whole, is_whole, streamed
from everlong.gateway.taps import StreamTap, WholeTap, tap_for

if TYPE_CHECKING:
    from aiohttp import ClientResponse, web

    from everlong.gateway.dialects import Dialect
    from everlong.model import Message
    from everlong.providers.base import Usage

__all__ = ["Answering"]

Finish = Callable[[Ended], Awaitable[None]]
LookUp = Callable[[list[Lookup], int, bytes], Awaitable[dict[str, str]]]
"""Looks things up for a conversation of so many tokens (0 where nobody told), which was sent in these bytes."""
Send = Callable[[bytes], Awaitable["ClientResponse"]]

_REFUSED = frozenset({400, 413, 422})


@dataclass(slots=True)
class Answering:
    """The way back of one request."""

    request: web.Request
    dialect: Dialect
    sent: bytes
    extra: Callable[[], dict[str, str]]
    """Headers of our own, as late as possible."""
    finish: Finish
    look_up: LookUp | None = None
    """Answers calls of the gateway's own tool, where it is offered."""
    send: Send | None = None
    tap: StreamTap | WholeTap | None = None
    """Listens to the answer, once there is one."""
    used: list[Usage] = field(default_factory=list)
    """What the answers have used that called the tool, and were followed by another."""

    def partial(self) -> Message | None:
        """Return what has come of the answer so far; None where nothing has that can be read."""
        return None if self.tap is None else self.tap.partial()

    async def answer(self, upstream: ClientResponse, ahead: bytes = b"") -> web.StreamResponse:
        """Pass an answer on; ``ahead`` is what was read of a stream already."""
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
            lookups, others = lookups_in(self.dialect, answer)
            if not lookups:
                break
            if others or not left:
                data, encoding = dumped(without_lookups(self.dialect, answer)), ""
                break
            upstream = await self._again(answer, lookups)
        tap = WholeTap(self.dialect, encoding) if is_whole(upstream) else tap_for(self.dialect, upstream)
        tap(data)
        await self.finish(self._ended(tap))
        response = answered(upstream, data, self.extra())
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
                await self.finish(self._ended(tap))

        return await streamed(self.request, upstream, tap, before_end, self.extra(), ahead)

    async def _stream_with_lookups(self, upstream: ClientResponse, ahead: bytes) -> web.StreamResponse:
        tap, hiding = StreamTap(self.dialect), hiding_for(self.dialect)
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
            lookups, others = lookups_in(self.dialect, whole) if whole is not None else ([], False)
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
        await self.finish(self._ended(tap))
        await stream.write(last)
        return await stream.end()

    async def _again(self, answer: dict[str, Any], lookups: list[Lookup]) -> ClientResponse:
        """Send the request once more, with what was found behind it; with less of it where it is refused."""
        assert self.look_up is not None  # noqa: S101 - nothing is looked up otherwise
        assert self.send is not None  # noqa: S101 - as above
        reply = self.dialect.reply(answer)
        if reply is not None:
            self.used.append(reply.usage)
        results = await self.look_up(lookups, 0 if reply is None else reply.usage.total_tokens, self.sent)
        before = self.sent
        shorter = {ident: text[: len(text) // 4] for ident, text in results.items()}
        for told in (results, shorter, dict.fromkeys(results, NO_ROOM)):
            self.sent = answered_lookups(self.dialect, before, answer, told)
            upstream = await self.send(self.sent)
            if upstream.status not in _REFUSED:
                break
        return upstream

    def _ended(self, tap: StreamTap | WholeTap) -> Ended:
        reply = tap.reply()
        if reply is None:
            return Ended(error=tap.otherwise, partial=tap.partial(), before=tuple(self.used))
        return Ended(reply, before=tuple(self.used))


def _object(data: bytes, encoding: str) -> dict[str, Any]:
    try:
        value = orjson.loads(plain(data, encoding))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
