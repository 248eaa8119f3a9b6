"""Delivery: an answer reaches its place once, through rate limits, outages and restarts.

A message is sent empty first. Its id is stored, and from then on the message is only edited: whatever is lost or
repeated on the way, no words appear twice. At worst a message without words stays behind.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from everlong.channels.outbox import Outbox, OutboxAnswer
from everlong.channels.places import ChatPlaces
from everlong.channels.platform import (
    Place,
    Platform,
    PlatformBusy,
    PlatformError,
    PlatformRefused,
    PlatformUnreachable,
)

__all__ = ["Delivery", "LiveText", "Sleep"]

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

_log = logging.getLogger("everlong.channels")

PLACEHOLDER = "…"
_MOST_PIECES = 4
"""Messages that one answer may take; a longer one goes out as a file."""
_FILE = "answer.md"
"""The name of the file."""
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 60.0
_TOLD_AFTER = 3
"""Failures of a request after which the log tells of them."""
_TYPING_SECONDS = 4.5


class LiveText:
    """The words of an answer so far: written by the thread of the turn, read by the loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""
        self._doing = ""

    def add(self, text: str) -> None:
        """Append words of the model."""
        with self._lock:
            self._text += text
            self._doing = ""

    def clear(self, doing: str = "") -> None:
        """Begin anew, with what is done meanwhile."""
        with self._lock:
            self._text, self._doing = "", doing

    @property
    def partial(self) -> str:
        """The words so far."""
        with self._lock:
            return self._text

    @property
    def shown(self) -> str:
        """The text to show now; empty before the first word."""
        with self._lock:
            if self._doing:
                return f"{PLACEHOLDER} {self._doing}"
            return f"{self._text} {PLACEHOLDER}" if self._text.strip() else ""


class Delivery:
    """Brings the answers of one platform to their places.

    Args:
        platform: the platform.
        outbox: stores how far each answer has come.
        places: told of chats that go on under another id.
        sleep: waits; tests hand in another one.
    """

    def __init__(self, platform: Platform, outbox: Outbox, places: ChatPlaces, sleep: Sleep = asyncio.sleep) -> None:
        self._platform, self._outbox, self._places, self._sleep = platform, outbox, places, sleep

    async def deliver(self, answer: OutboxAnswer) -> None:
        """Deliver an answer whose text is ready, from where an earlier attempt left it."""
        try:
            units = await asyncio.to_thread(self._units, answer.text)
            while answer.done < len(units):
                answer = await self._deliver_unit(answer, units[answer.done])
        except PlatformRefused as error:
            _log.warning("an answer in %s cannot be delivered: %s", answer.place.platform, error)
            await asyncio.to_thread(self._outbox.close, answer.id, is_delivered=False)
            return
        await asyncio.to_thread(self._outbox.close, answer.id, is_delivered=True)

    async def stream(self, answer: OutboxAnswer, live: LiveText, is_over: asyncio.Event) -> None:
        """Show an answer while it is written, until it is over; what fails here is made up for by `deliver`.

        A request under way is waited for: an edit that came late would replace the final words.
        """
        shown, wait = "", self._platform.limits.edit_seconds
        while True:
            await self._wait(wait, is_over)
            text = live.shown
            if is_over.is_set():
                return
            if not text or text == shown:
                continue
            try:
                answer = await self._ensure_message(answer, tries=1)
                pieces = await asyncio.to_thread(self._platform.pieces, text[: 2 * self._platform.limits.text])
                await self._platform.edit(answer.place, answer.messages[answer.done], pieces[0])
            except PlatformBusy as error:
                wait = min(_LONGEST_WAIT, max(2 * wait, error.retry_after))
            except PlatformUnreachable:
                wait = min(_LONGEST_WAIT, 2 * wait)
            except PlatformRefused:
                return
            else:
                shown, wait = text, max(self._platform.limits.edit_seconds, wait * 0.7)

    async def show_typing(self, place: Place) -> None:
        """Show that the bot is busy, until cancelled."""
        while True:
            wait = _TYPING_SECONDS
            try:
                await self._platform.show_typing(place)
            except PlatformBusy as error:
                wait = max(wait, error.retry_after)
            except PlatformRefused:
                return
            except PlatformError:
                wait = 4 * _TYPING_SECONDS
            await self._sleep(wait)

    async def persist(self, request: Callable[[], Awaitable[T]], tries: int | None = None) -> T:
        """Make a request until the platform takes it; `PlatformRefused` if it never will.

        Args:
            request: makes the request.
            tries: how often at most; None for as often as it takes.
        """
        wait, attempt = _FIRST_WAIT, 0
        while True:
            attempt += 1
            try:
                return await request()
            except PlatformBusy as error:
                if tries is not None and attempt >= tries:
                    raise
                await self._sleep(max(error.retry_after, 0.05))
            except PlatformUnreachable as error:
                if tries is not None and attempt >= tries:
                    raise
                if attempt == _TOLD_AFTER:
                    _log.warning("%s: %s; trying again", self._platform.name, error)
                await self._sleep(wait)
                wait = min(_LONGEST_WAIT, 2 * wait)

    async def _wait(self, seconds: float, is_over: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(is_over.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    # -- one message ---------------------------------------------------------------------------------------------------

    def _units(self, text: str) -> list[str | bytes]:
        """Return the messages that an answer takes, a file as bytes; the same for the same text."""
        begun = text[: 2 * _MOST_PIECES * self._platform.limits.text]  # the rest of a file is shown nowhere
        pieces = [piece for piece in self._platform.pieces(begun) if piece.strip()]
        if len(pieces) <= _MOST_PIECES and len(begun) == len(text):
            return [*(pieces or self._platform.pieces("(an empty answer)"))]
        more = self._platform.pieces("(The answer goes on in the file.)")
        return [*pieces[:1], *more, text.encode("utf-8", "replace")]

    async def _deliver_unit(self, answer: OutboxAnswer, unit: str | bytes) -> OutboxAnswer:
        if isinstance(unit, bytes):
            return await self._send_file(answer, unit)
        return await self._write(answer, unit)

    async def _write(self, answer: OutboxAnswer, piece: str) -> OutboxAnswer:
        """Put the final words into a message, a new one if the first one is gone."""
        for is_last in (False, True):
            answer = await self._ensure_message(answer, is_second=is_last)
            message = answer.messages[answer.done]
            try:
                await self.persist(lambda at=answer, to=message: self._platform.edit(at.place, to, piece))  # type: ignore[misc]
            except PlatformRefused:
                if is_last:
                    raise
                answer = await self._note(answer, answer.messages[: answer.done], answer.done)  # it was deleted
            else:
                return await self._note(answer, answer.messages, answer.done + 1)
        raise AssertionError("the last attempt raises")

    async def _ensure_message(
        self, answer: OutboxAnswer, tries: int | None = None, *, is_second: bool = False
    ) -> OutboxAnswer:
        """Return an answer with a message for its next piece, sent without words and stored.

        A second message has a nonce of its own: for the first one's, the platform would name the message that is gone.
        """
        answer = await asyncio.to_thread(self._outbox.get, answer.id)
        if len(answer.messages) > answer.done and answer.messages[answer.done]:
            return answer
        place, empty = answer.place, self._platform.pieces(PLACEHOLDER)[0]
        replies_to, nonce = answer.replies_to if answer.done == 0 else "", self._nonce(answer, is_second=is_second)
        message = await self.persist(
            lambda: self._platform.send(place, empty, replies_to=replies_to, nonce=nonce), tries
        )
        return await self._note(answer, (*answer.messages[: answer.done], message), answer.done)

    async def _send_file(self, answer: OutboxAnswer, data: bytes) -> OutboxAnswer:
        """Send a file, which cannot be edited later: its beginning is stored, so that it is never sent twice."""
        before = answer.messages[: answer.done]
        message = ""
        if len(answer.messages) == answer.done:
            answer = await self._note(answer, (*before, ""), answer.done)
            message = await self._send_once(answer, data)
        if message:
            return await self._note(answer, (*before, message), answer.done + 1)
        answer = await self._note(answer, before, answer.done)
        unclear = f"(The file {_FILE} may be missing; ask me to send it again.)"
        return await self._write(answer, self._platform.pieces(unclear)[0])

    async def _send_once(self, answer: OutboxAnswer, data: bytes) -> str:
        """Send a file and return its message; empty if nobody knows whether it arrived."""
        nonce = self._nonce(answer)
        while True:
            try:
                return await self._platform.send_file(
                    answer.place, _FILE, data, caption="The whole answer", nonce=nonce
                )
            except PlatformBusy as error:  # it was not taken, so it may be sent again
                await self._sleep(error.retry_after)
            except PlatformUnreachable:
                return ""

    async def _note(self, answer: OutboxAnswer, messages: tuple[str, ...], done: int) -> OutboxAnswer:
        return await asyncio.to_thread(self._outbox.note_messages, answer.id, messages, done)

    @staticmethod
    def _nonce(answer: OutboxAnswer, *, is_second: bool = False) -> str:
        return f"everlong-{answer.id}-{answer.done}{'b' if is_second else ''}"[-25:]
