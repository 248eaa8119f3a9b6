"""Questions: a tool call that a person allows or refuses with a button.

Only the person who asked may press; for somebody who is one of many in a group, a person who was let in by name. A
question runs out, and a restart closes it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from everlong.agent.approval import ApprovalRefused, ApprovalRequest, Decision
from everlong.agent.text import unmistakable
from everlong.agent.watch import Interrupted
from everlong.channels.access import Access
from everlong.channels.delivery import Delivery
from everlong.channels.platform import Button, Inbound, Place, Platform, PlatformError, PlatformRefused

__all__ = ["Questions"]

_log = logging.getLogger("everlong.channels")

_FILE = "call.txt"
_MARK = "ask"
_CODES: dict[str, Decision] = {"y": "once", "a": "session", "n": "no"}
_NOTES = {"y": "allowed", "a": "allowed, for you also from now on in this session", "n": "refused"}
CLOSED = "This question is no longer open."
NOT_YOURS = "Only the person who asked for this can decide."
NOT_NAMED = "Only people who were let in by name can decide this."
TOO_LONG = "it is too long to be shown to anybody in this chat; make several smaller calls"
RAN_OUT = "nobody pressed a button in time, so it was not done; ask again if it still matters"


@dataclass
class _Open:
    place: Place
    person: str
    is_owner: bool
    """True if that person decides; else anybody does who was let in by name."""
    expires: float
    text: str
    file: bytes = b""
    """The whole call, if it is too long for a message."""
    message: str = ""
    code: str = ""
    """The answer; empty while there is none."""
    is_over: threading.Event = field(default_factory=threading.Event)


class Questions:
    """The open questions of one platform."""

    def __init__(
        self,
        platform: Platform,
        delivery: Delivery,
        access: Access,
        seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._platform, self._delivery, self._access = platform, delivery, access
        self._seconds, self._clock = seconds, clock
        self._open: dict[str, _Open] = {}
        self._loop = asyncio.get_running_loop()

    # -- in the thread of a turn ---------------------------------------------------------------------------------------

    def ask(self, event: Inbound, request: ApprovalRequest) -> Decision:
        """Ask about a call that a message has led to, and wait for the answer.

        Raises:
            ApprovalRefused: the answer is no, or none came in time.
            Interrupted: the turn was stopped meanwhile.
        """
        ident = secrets.token_hex(6)
        is_owner = self._access.is_owner(event)
        if not is_owner:
            request = replace(request, remembered_as="")
        text, file = self._describe(request, "" if is_owner else f"\n{NOT_NAMED}")
        if len(file) > self._platform.limits.upload:
            raise ApprovalRefused(TOO_LONG)
        one = _Open(event.place, event.person.id, is_owner, self._clock() + self._seconds, text, file)
        self._open[ident] = one
        try:
            asyncio.run_coroutine_threadsafe(self._send(ident, one, request), self._loop).result()
            one.is_over.wait()
        except PlatformRefused as error:
            raise ApprovalRefused(f"the question could not be shown: {error}") from error
        finally:
            del self._open[ident]
        note = _NOTES.get(one.code, "not answered in time" if one.code == "late" else "stopped")
        asyncio.run_coroutine_threadsafe(self._settle(one, note), self._loop)
        if one.code == "late":
            raise ApprovalRefused(RAN_OUT)
        if one.code not in _CODES:
            raise Interrupted
        if one.code == "n":
            raise ApprovalRefused
        return _CODES[one.code]

    def _describe(self, request: ApprovalRequest, who: str) -> tuple[str, bytes]:
        """Return the words of a question, and the file that holds the whole call where one message cannot."""
        always = f"Always: {unmistakable(request.remembered_as)}, when you ask for it" if request.remembered_as else ""
        whole = f"{unmistakable(request.detail)}\n\n{always}".strip()
        text = _ask_about(request.tool, whole) + who
        if len(self._platform.pieces(f"{text}\n\n→ {max(_NOTES.values(), key=len)}")) == 1:
            return text, b""
        told = f"… {len(whole):,} characters, all in the file above: read it first"
        return _ask_about(request.tool, f"{unmistakable(request.summary)}\n{told}") + who, whole.encode()

    # -- in the loop ---------------------------------------------------------------------------------------------------

    async def press(self, event: Inbound) -> None:
        """Take in a press on a button."""
        mark, ident, code = ([*event.button.split(":"), "", "", ""])[:3]
        one = self._open.get(ident) if mark == _MARK else None
        if one is None or code not in _CODES or one.code or one.place != event.place:
            await self._acknowledge(event, CLOSED)
        elif one.is_owner and one.person != event.person.id:
            await self._acknowledge(event, NOT_YOURS)
        elif not one.is_owner and not await asyncio.to_thread(self._access.is_owner, event):
            await self._acknowledge(event, NOT_NAMED)
        elif one.code:  # meanwhile somebody else has pressed
            await self._acknowledge(event, CLOSED)
        else:
            one.code = code
            one.is_over.set()
            await self._acknowledge(event, _NOTES[code].capitalize())

    def cancel(self, place: Place) -> None:
        """End the question of a place without an answer: its turn is stopped."""
        for one in list(self._open.values()):
            if one.place == place and not one.code:
                one.code = "stopped"
                one.is_over.set()

    def expire(self) -> None:
        """End the questions that nobody answered in time."""
        now = self._clock()
        for one in list(self._open.values()):
            if one.expires <= now and not one.code:
                one.code = "late"
                one.is_over.set()

    async def _send(self, ident: str, one: _Open, request: ApprovalRequest) -> None:
        buttons = [Button("Allow", f"{_MARK}:{ident}:y")]
        if request.remembered_as:
            buttons.append(Button("Always here", f"{_MARK}:{ident}:a"))
        buttons.append(Button("Refuse", f"{_MARK}:{ident}:n"))
        if one.file:
            await self._delivery.persist(
                lambda: self._platform.send_file(one.place, _FILE, one.file, nonce=f"ask-{ident}-file")
            )
        text, nonce = self._platform.pieces(one.text)[0], f"ask-{ident}"
        one.message = await self._delivery.persist(
            lambda: self._platform.send(one.place, text, buttons=buttons, nonce=nonce)
        )

    async def _settle(self, one: _Open, note: str) -> None:
        """Put the outcome in the place of a question's buttons; it is only for the eye."""
        try:
            text = self._platform.pieces(f"{one.text}\n\n→ {note}")[0]
            await self._delivery.persist(lambda: self._platform.edit(one.place, one.message, text), tries=3)
        except PlatformError as error:
            _log.info("a question in %s keeps its buttons: %s", one.place.platform, error)

    async def _acknowledge(self, event: Inbound, text: str) -> None:
        try:
            await self._platform.acknowledge(event, text)
        except PlatformError as error:
            _log.info("a press on a button could not be acknowledged: %s", error)


def _ask_about(tool: str, call: str) -> str:
    """Return a question in Markdown, in which nothing of a call has a meaning."""
    shown = call.replace("```", "ʼʼʼ")
    return f"**May I do this?** {tool}\n```\n{shown}\n```"
