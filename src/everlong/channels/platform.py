"""The interface between a channel and a messaging service, and the values that they exchange.

`Platform` is the contract of an adapter (`everlong.channels.telegram`, `everlong.channels.discord`). An adapter
translates; it decides nothing. Who may talk, which conversation a message belongs to and what is answered is decided
by the service above it. Ids are text, as the platform writes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from everlong.agent.text import outside_name
from everlong.errors import EverlongError

__all__ = [
    "Attachment",
    "Button",
    "Identity",
    "Inbound",
    "InboundKind",
    "Person",
    "Place",
    "Platform",
    "PlatformBusy",
    "PlatformCommand",
    "PlatformError",
    "PlatformLimits",
    "PlatformRefused",
    "PlatformUnreachable",
    "Receive",
]


class PlatformError(EverlongError):
    """A messaging service did not do what it was asked."""


class PlatformBusy(PlatformError):  # noqa: N818 - named by what the caller should do
    """The service asks to wait: too many requests for now."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait before the same request."""


class PlatformRefused(PlatformError):  # noqa: N818 - as above
    """The service will never do this: the message is gone, the bot was removed, the token is wrong."""


class PlatformUnreachable(PlatformError):  # noqa: N818 - as above
    """No connection, a time-out or an error of the service: the same request may succeed later.

    The service may have done what was asked, and only its answer was lost.
    """


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is said and answered: a chat, and the topic or thread in it."""

    platform: str
    chat: str
    topic: str = ""
    """The forum topic or thread; empty where the chat has none, or the message is in its main part."""


@dataclass(frozen=True, slots=True)
class Person:
    """The author of a message, or whoever pressed a button."""

    id: str
    name: str = ""
    is_bot: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", outside_name(self.name))


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a message; `Platform.fetch` gives its bytes."""

    kind: Literal["image", "document", "voice"]
    name: str
    media_type: str
    size: int
    """Bytes as the platform states them; 0 where it does not."""
    reference: str
    """The id or address by which the adapter fetches the file, also after a restart."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", outside_name(self.name, 200))


InboundKind = Literal["message", "button"]


@dataclass(frozen=True, slots=True)
class Inbound:
    """Something that happened on the platform. Plain data: it is stored before the platform is told that it arrived."""

    kind: InboundKind
    update: str
    """The platform's id of the event. The same id is the same event, however often it comes."""
    place: Place
    person: Person
    message: str
    """The id of the message: the new one, or the one with the button."""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    guild: str = ""
    """The Discord server; for Telegram the id of the group. Empty in a private chat."""
    is_private: bool = False
    is_addressed: bool = True
    """True in a private chat, for a command, a mention of the bot and a reply to it."""
    is_forwarded: bool = False
    """True where somebody else wrote the words; a command in them is no command."""
    replies_to: str = ""
    """The id of the message that this one answers."""
    button: str = ""
    """The value of the pressed button."""
    callback: str = ""
    """The token with which the adapter acknowledges a button or a command; it expires within minutes."""
    sent_at: float = 0.0
    """Seconds since the epoch, by the platform's clock."""


@dataclass(frozen=True, slots=True)
class Button:
    """A button under a message; ``value`` comes back when it is pressed (at most 64 bytes)."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class PlatformCommand:
    """A command to register with the platform, so that it completes there."""

    name: str
    description: str
    argument: str = ""
    """The argument's name; empty for a command without one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot as the platform knows it."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class PlatformLimits:
    """The limits of a platform that its users notice."""

    text: int
    """Characters of one message, as the platform counts them."""
    upload: int
    """Bytes of a file that the bot may send."""
    download: int
    """Bytes of a file that the bot may fetch."""
    edit_seconds: float
    """Seconds between two edits of one message that the platform bears for long."""


Receive = Callable[[Inbound], Awaitable[None]]
"""Stores an event. Once it returns, the event is on disk and may be acknowledged."""


class Platform(Protocol):
    """One messaging service, as one bot.

    Every method but ``pieces`` may raise `PlatformBusy`, `PlatformRefused` or `PlatformUnreachable`. None of them
    tries again by itself: the caller knows what may be said twice.
    """

    name: str
    """``telegram`` or ``discord``."""
    limits: PlatformLimits

    async def identify(self) -> Identity:
        """Return who the bot is; `PlatformRefused` for a wrong token."""
        ...

    async def run(self, receive: Receive) -> None:
        """Hand every event to ``receive``, in order, until cancelled; reconnect as often as it takes.

        An event is acknowledged after ``receive`` returned, and comes again if it raised.
        """
        ...

    def pieces(self, markdown: str) -> list[str]:
        """Return Markdown as the platform writes it, split at sensible places into messages that it takes."""
        ...

    async def send(
        self,
        place: Place,
        text: str,
        *,
        buttons: Sequence[Button] = (),
        replies_to: str = "",
        nonce: str,
    ) -> str:
        """Send one piece of `pieces`, and return the id of the message.

        Args:
            place: where.
            text: one piece, in the platform's own markup.
            buttons: shown under the message, in one row or several.
            replies_to: the message that this one answers, if the platform still has it.
            nonce: sent again with the same nonce, the message appears once, where the platform can do that.
        """
        ...

    async def edit(self, place: Place, message: str, text: str, *, buttons: Sequence[Button] = ()) -> None:
        """Replace the text and the buttons of a message of the bot. The same text again is no error."""
        ...

    async def send_file(self, place: Place, name: str, data: bytes, *, caption: str = "", nonce: str) -> str:
        """Send a file, and return the id of the message."""
        ...

    async def show_typing(self, place: Place) -> None:
        """Show for some seconds that the bot is busy."""
        ...

    async def acknowledge(self, event: Inbound, text: str = "") -> None:
        """Tell the platform that a button or command arrived; ``text`` is shown to that person only."""
        ...

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """Return the bytes of a file; `PlatformRefused` beyond ``limit`` bytes, without reading them all."""
        ...

    async def register_commands(self, commands: Sequence[PlatformCommand]) -> None:
        """Tell the platform which commands there are."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
