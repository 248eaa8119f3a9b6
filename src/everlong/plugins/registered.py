"""What plugins have registered: one engine, commands, tools, hooks, memory providers. Values, and who they are from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from everlong.plugins.hooks import EVENTS, Hooks

if TYPE_CHECKING:
    from everlong.memory import MemoryProvider

__all__ = ["CommandOffer", "EngineOffer", "MemoryOffer", "Registered", "ToolOffer"]

Effect = Literal["reads", "writes", "runs"]


@dataclass(frozen=True)
class EngineOffer:
    """A context engine: the engine itself, its class, or a function that makes it."""

    plugin: str
    offered: Any


@dataclass(frozen=True)
class CommandOffer:
    """A slash command; the handler is given the words after its name and returns a text to show, or nothing."""

    plugin: str
    name: str
    handler: Callable[[str], Any]
    description: str = ""
    takes: str = ""


@dataclass(frozen=True)
class ToolOffer:
    """A tool for the model: a typed function or a tool as it is, or a schema with its handler."""

    plugin: str
    name: str
    function: Any = None
    """A function with typed parameters and a docstring, or an `everlong.agent.Tool`; None where there is a schema."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    handler: Callable[..., Any] | None = None
    effect: Effect = "runs"
    is_available: Callable[[], Any] | None = None
    """Asked once at the start of a session; a tool that is not available is left out."""


@dataclass(frozen=True)
class MemoryOffer:
    """A memory provider, used where ``memory.provider`` names it or its plugin."""

    plugin: str
    provider: MemoryProvider


@dataclass
class Registered:
    """Everything that was registered by the plugins of one agent."""

    hooks: Hooks
    engine: EngineOffer | None = None
    commands: dict[str, CommandOffer] = field(default_factory=dict)
    tools: dict[str, ToolOffer] = field(default_factory=dict)
    memory: list[MemoryOffer] = field(default_factory=list)

    def forget(self, plugin: str) -> None:
        """Take back everything that a plugin registered before it failed."""
        if self.engine is not None and self.engine.plugin == plugin:
            self.engine = None
        self.commands = {name: one for name, one in self.commands.items() if one.plugin != plugin}
        self.tools = {name: one for name, one in self.tools.items() if one.plugin != plugin}
        self.memory = [one for one in self.memory if one.plugin != plugin]
        self.hooks.forget(plugin)

    def of(self, plugin: str) -> list[str]:
        """What one plugin registered, in words."""
        words = ["a context engine"] if self.engine is not None and self.engine.plugin == plugin else []
        words += [f"the command /{one.name}" for one in self.commands.values() if one.plugin == plugin]
        words += [f"the tool {one.name}" for one in self.tools.values() if one.plugin == plugin]
        words += [f"a hook for {event}" for event in EVENTS if plugin in self.hooks.of(event)]
        words += ["a memory provider" for one in self.memory if one.plugin == plugin]
        return words
