"""The commands of a chat: what one is, what it works with, and how a line finds its command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from everlong.errors import EverlongError

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.cli.chat.show import Show
    from everlong.cli.chat.state import ChatState
    from everlong.config import Settings
    from everlong.plugins.context import CommandOffer

__all__ = ["ChatError", "Command", "Desk", "Registry", "pick", "register_plugin_commands"]

T = TypeVar("T")

LOOK, KEEP, GO_ON, LEAVE = "Look", "Keep and compact", "Go on", "Take away and leave"
"""The groups of the chat's own commands, in the order of ``/help``."""


class ChatError(EverlongError):
    """A command that cannot be done as it was given."""


@dataclass
class Desk:
    """Everything that a command works with."""

    state: ChatState
    show: Show
    settings: Settings
    registry: Registry
    found: list[bytes] = field(default_factory=list)
    """The messages of the last /search."""
    outputs: list[str] = field(default_factory=list)
    """What the user's own commands printed since the last prompt."""
    open_agent: Callable[[str | None], Agent] | None = None
    """Opens the agent on another session, or on a new one."""

    @property
    def agent(self) -> Agent:
        """The agent, which is open before any command runs."""
        if self.state.agent is None:
            raise ChatError("the chat has not started yet")
        return self.state.agent

    def run(self, line: str) -> None:
        """Run a slash command."""
        self.registry.run(self, line)

    def prompt(self, text: str) -> str | list[dict[str, Any]]:
        """Return a prompt with the files that it names, and with the outputs of the user's own commands."""
        from everlong.cli.chat.attachments import attach_files  # noqa: PLC0415 - the prompt comes before this is loaded

        made = attach_files(text, self.agent.tools.context.workspace.root, self.show.quiet)
        outputs, self.outputs = self.outputs, []
        if not outputs:
            return made
        parts = [{"type": "text", "text": made}] if isinstance(made, str) else made
        return [*({"type": "text", "text": one} for one in outputs), *parts]


@dataclass(frozen=True)
class Command:
    """One slash command."""

    name: str
    takes: str
    about: str
    run: Callable[[Desk, str], None]
    group: str = "Of plugins"
    """The heading under which ``/help`` lists it."""


class Registry:
    """The commands of a chat, by name."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._own = list(commands)
        self.commands = _sort_by_name(commands)

    def replace_plugged(self, commands: Sequence[Command]) -> None:
        """Keep the chat's own commands, and replace those of plugins with these."""
        self.commands = _sort_by_name([*commands, *self._own])

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


def _sort_by_name(commands: Sequence[Command]) -> dict[str, Command]:
    return {command.name: command for command in sorted(commands, key=lambda one: one.name)}


def pick(things: Sequence[T], words: str, hint: str = "") -> T:
    """Return the thing that a number means, counted from 1."""
    if not words.isdigit() or not 1 <= int(words) <= len(things):
        raise ChatError(f"{words!r} is no number from 1 to {len(things)}{hint}")
    return things[int(words) - 1]


def register_plugin_commands(registry: Registry, offers: Iterable[CommandOffer], warn: Callable[[str], None]) -> None:
    """Register the commands of plugins, in place of the plugins' earlier ones."""
    registry.replace_plugged([])
    taken = []
    for offer in offers:
        if offer.name in registry.commands:
            warn(f"plugin {offer.plugin!r} brings a command /{offer.name}, which the chat has already; it is left out")
        else:
            about = f"{offer.description or 'a command'} (plugin {offer.plugin})"
            taken.append(Command(offer.name, offer.takes, about, _make_runner(offer)))
    registry.replace_plugged(taken)


def _make_runner(offer: CommandOffer) -> Callable[[Desk, str], None]:
    def run(desk: Desk, words: str) -> None:
        from everlong.memory.contain import describe_error  # noqa: PLC0415 - the prompt comes before this is loaded
        from everlong.plugins.hooks import run_awaitable  # noqa: PLC0415 - as above

        try:
            answer = offer.handler(words)
            if inspect.isawaitable(answer):
                answer = run_awaitable(answer)
        except (Exception, SystemExit) as error:
            raise ChatError(f"/{offer.name} of the plugin {offer.plugin!r} failed: {describe_error(error)}") from error
        if answer is not None:
            desk.show.text(str(answer))

    return run
