"""A platform in this process: it keeps chats as a messenger would, and fails on demand."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from everlong.channels.platform import (
    Attachment,
    Button,
    Identity,
    Inbound,
    Person,
    Place,
    PlatformCommand,
    PlatformLimits,
    PlatformRefused,
    Receive,
)

ADA = Person("1", "Ada")
BOB = Person("2", "Bob")


@dataclass
class Shown:
    """A message of the bot as people see it."""

    place: Place
    text: str
    buttons: list[Button] = field(default_factory=list)
    replies_to: str = ""
    data: bytes | None = None


class RecordingPlatform:
    """A platform whose chats are lists. ``fault`` is called before and after each request and may raise."""

    name = "telegram"

    def __init__(self, *, text: int = 4_096) -> None:
        self.limits = PlatformLimits(text, 50_000_000, 20_000_000, 0.01)
        self.shown: dict[str, Shown] = {}
        self.requests: list[tuple[str, Any]] = []
        self.acknowledged: list[tuple[Inbound, str]] = []
        self.commands: list[PlatformCommand] = []
        self.files: dict[str, bytes] = {}
        self.fault: Callable[[str, str], None] = lambda _method, _moment: None
        self.is_closed = False
        self._ids = itertools.count(1_000)
        self._updates = itertools.count(1)
        self.receive: Receive | None = None

    # -- what tests do -------------------------------------------------------------------------------------------------

    def message(self, text: str, chat: str = "10", person: Person = ADA, **more: Any) -> Inbound:
        """Return a new message of a person."""
        number = next(self._updates)
        topic = more.pop("topic", "")
        values: dict[str, Any] = {
            "is_private": True,
            "kind": "message",
            "update": str(number),
            "message": str(number),
        } | more
        return Inbound(place=Place(self.name, chat, topic), person=person, text=text, **values)

    def texts(self, chat: str = "10", topic: str = "") -> list[str]:
        """Return what people see of the bot in a place."""
        place = Place(self.name, chat, topic)
        return [one.text for one in self.shown.values() if one.place == place]

    def button(self, label: str) -> tuple[str, Button]:
        """Return the newest button of a label, with the id of its message."""
        found = [(key, b) for key, one in self.shown.items() for b in one.buttons if b.label == label]
        return found[-1] if found else ("", Button("", ""))

    def press(self, label: str, person: Person = ADA, chat: str = "10") -> Inbound:
        """Return a press on the newest button of a label."""
        message, button = self.button(label)
        more = {"kind": "button", "message": message, "button": button.value, "callback": "c"}
        return self.message("", chat, person, **more)

    # -- the contract --------------------------------------------------------------------------------------------------

    async def identify(self) -> Identity:
        return Identity("99", "a bot")

    async def run(self, receive: Receive) -> None:
        self.receive = receive
        await asyncio.Event().wait()

    def pieces(self, markdown: str) -> list[str]:
        size = self.limits.text
        return [markdown[at : at + size] for at in range(0, len(markdown), size)]

    async def send(
        self, place: Place, text: str, *, buttons: Sequence[Button] = (), replies_to: str = "", nonce: str
    ) -> str:
        del nonce
        return self._put("send", Shown(place, text, list(buttons), replies_to))

    async def edit(self, place: Place, message: str, text: str, *, buttons: Sequence[Button] = ()) -> None:
        self._begin("edit", (place, message, text))
        if message not in self.shown or self.shown[message].place != place:
            raise PlatformRefused("the message is gone")
        assert len(text) <= self.limits.text
        self.shown[message].text, self.shown[message].buttons = text, list(buttons)
        self.fault("edit", "after")

    async def send_file(self, place: Place, name: str, data: bytes, *, caption: str = "", nonce: str) -> str:
        del caption, nonce
        return self._put("send_file", Shown(place, f"[{name}]", data=data))

    async def show_typing(self, place: Place) -> None:
        self._begin("show_typing", place)

    async def acknowledge(self, event: Inbound, text: str = "") -> None:
        self._begin("acknowledge", event)
        self.acknowledged.append((event, text))

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        self._begin("fetch", attachment)
        data = self.files[attachment.reference]
        if len(data) > limit:
            raise PlatformRefused("it is too large")
        return data

    async def register_commands(self, commands: Sequence[PlatformCommand]) -> None:
        self.commands = list(commands)

    async def close(self) -> None:
        self.is_closed = True

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _begin(self, method: str, values: Any) -> None:
        self.requests.append((method, values))
        self.fault(method, "before")

    def _put(self, method: str, shown: Shown) -> str:
        self._begin(method, shown)
        message = str(next(self._ids))
        self.shown[message] = shown
        self.fault(method, "after")
        return message
