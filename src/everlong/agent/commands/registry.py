"""The commands of a chat: what one is, what it works with, and how a line finds its command."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from everlong.errors import EverlongError

if TYPE_CHECKING:
    from rich.console import Console

    from everlong.agent import Agent
    from everlong.config import Settings

__all__ = [
    "GO_ON",
    "KEEP",
    "LEAVE",
    "LOOK",
    "ChatError",
    "Command",
    "Desk",
    "Registry",
    "Screen",
    "pick",
]

T = TypeVar("T")

LOOK, KEEP, GO_ON, LEAVE = "Look", "Keep and compact", "Go on", "Save and leave"
"""The groups of the chat's own commands, in the order of ``/help``."""


class ChatError(EverlongError):
    """A command that cannot be done as it was given."""


class Screen(Protocol):
    """Where a command writes."""

    @property
    def console(self) -> Console:
        """Takes tables."""
        ...

    def line(self, text: str, style: str = "") -> None:
        """Write a line."""
        ...


class Desk(Protocol):
    """Everything that a command works with, in a terminal or in a channel."""

    settings: Settings
    found: list[bytes]
    """The messages of the last /search."""

    @property
    def show(self) -> Screen:
        """Where the command writes."""
        ...

    @property
    def agent(self) -> Agent:
        """The agent, which is open before any command runs."""
        ...

    @property
    def registry(self) -> Registry:
        """All commands."""
        ...

    @property
    def scope(self) -> Sequence[str] | None:
        """The conversations that may be found and resumed, the newest first; None for all."""
        ...

    def switch(self, session: str) -> None:
        """Go on with another session; `ChatError` where that is not possible."""
        ...


@dataclass(frozen=True)
class Command:
    """One slash command."""

    name: str
    takes: str
    about: str
    run: Callable[[Any, str], None]
    """Takes the desk and the words behind the name."""
    group: str = ""
    """The heading under which ``/help`` lists it."""


class Registry:
    """The commands of a chat, by name."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = {command.name: command for command in sorted(commands, key=lambda one: one.name)}

    def run(self, desk: Desk, line: str) -> None:
        """Run a line that begins with a slash."""
        name, _, words = line.strip().removeprefix("/").partition(" ")
        command = self.commands.get(name)
        if command is None:
            near = [other for other in self.commands if name and other.startswith(name)]
            if not near:
                near = difflib.get_close_matches(name, self.commands, n=1)
            elif len(near) == 1:
                command = self.commands[near[0]]
            if command is None:
                meant = " or ".join(f"/{other}" for other in near)
                raise ChatError(f"there is no command /{name}; " + (f"did you mean {meant}?" if near else "see /help"))
        command.run(desk, words.strip())


def pick(things: Sequence[T], words: str, hint: str = "") -> T:
    """Return the thing that a number means, counted from 1."""
    if not words.isdigit() or not 1 <= int(words) <= len(things):
        raise ChatError(f"{words!r} is no number from 1 to {len(things)}{hint}")
    return things[int(words) - 1]
