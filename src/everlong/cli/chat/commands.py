"""The slash commands of a chat: their names, what they take, what they do.

Each is a function of the chat and the words after its name. Those that look are in `looking`, those that change the
conversation in `changing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everlong.errors import EverlongError

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.cli.chat.show import Show
    from everlong.cli.chat.state import ChatState
    from everlong.config import Settings

__all__ = ["ChatError", "Command", "Desk", "Registry"]


class ChatError(EverlongError):
    """A command that cannot be done as it was given."""


@dataclass
class Desk:
    """What a command works with."""

    state: ChatState
    show: Show
    settings: Settings
    registry: Registry
    found: list[bytes] = field(default_factory=list)
    """The messages that the last search found."""
    open_agent: Callable[[str | None], Agent] | None = None
    """Opens the agent on another session, or on a new one."""

    @property
    def agent(self) -> Agent:
        """The agent; every command that needs it runs after it was opened."""
        if self.state.agent is None:
            raise ChatError("the chat has not started yet")
        return self.state.agent

    def run(self, line: str) -> None:
        """Run a slash command."""
        self.registry.run(self, line)


@dataclass(frozen=True)
class Command:
    """One slash command."""

    name: str
    takes: str
    about: str
    run: Callable[[Desk, str], None]


class Registry:
    """The commands of a chat by name."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._own = list(commands)
        self.commands = _by_name(commands)

    def replace_plugged(self, commands: Sequence[Command]) -> None:
        """Have these commands of plugins beside the chat's own, and no others."""
        self.commands = _by_name([*commands, *self._own])

    def run(self, desk: Desk, line: str) -> None:
        """Run a line that begins with a slash."""
        name, _, words = line.strip().removeprefix("/").partition(" ")
        command = self.commands.get(name)
        if command is None:
            near = [other for other in self.commands if name and other.startswith(name)]
            if len(near) == 1:
                command = self.commands[near[0]]
            else:
                meant = " or ".join(f"/{other}" for other in near)
                raise ChatError(f"there is no command /{name}; " + (f"did you mean {meant}?" if near else "see /help"))
        command.run(desk, words.strip())


def _by_name(commands: Sequence[Command]) -> dict[str, Command]:
    return {command.name: command for command in sorted(commands, key=lambda one: one.name)}
