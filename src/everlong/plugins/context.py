"""``ctx``: the object with which a plugin's ``register(ctx)`` registers itself and uses its host.

A call that is not accepted is a warning and never raises, so that the rest of the plugin still works.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from everlong.config.paths import data_home
from everlong.memory.provider import MemoryProvider
from everlong.plugins.discovery import Manifest, printable
from everlong.plugins.engines import REQUIRED, is_engine, missing_methods
from everlong.plugins.hooks import EVENTS, Hooks

if TYPE_CHECKING:
    from everlong.plugins.models import PluginModel

__all__ = ["CommandOffer", "EngineOffer", "MemoryOffer", "PluginContext", "Registered", "ToolOffer", "data_folder"]

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
    """Called once at the start of a session; a tool that is not available is left out."""


@dataclass(frozen=True)
class MemoryOffer:
    """A memory provider, used where ``memory.provider`` names it or its plugin."""

    plugin: str
    provider: MemoryProvider


@dataclass
class Registered:
    """Everything that the plugins of one agent registered."""

    hooks: Hooks
    engine: EngineOffer | None = None
    commands: dict[str, CommandOffer] = field(default_factory=dict)
    tools: dict[str, ToolOffer] = field(default_factory=dict)
    memory: list[MemoryOffer] = field(default_factory=list)

    def forget(self, plugin: str) -> None:
        """Remove everything that a plugin registered before it failed."""
        if self.engine is not None and self.engine.plugin == plugin:
            self.engine = None
        self.commands = {name: one for name, one in self.commands.items() if one.plugin != plugin}
        self.tools = {name: one for name, one in self.tools.items() if one.plugin != plugin}
        self.memory = [one for one in self.memory if one.plugin != plugin]
        self.hooks.forget(plugin)


_COMMAND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def data_folder(plugin: str) -> Path:
    """Return the folder for a plugin's files, whether or not it exists."""
    return data_home() / "plugin-data" / plugin


class PluginContext:
    """The host as one plugin sees it.

    Attributes:
        name: the plugin's name.
        manifest: what its ``plugin.yaml`` says.
        config: its own section of the settings, ``plugins.<name>``, as a mapping of its own.
        logger: a logger of its own, ``everlong.plugins.<name>``.
        llm: a model for the plugin's own questions; see `PluginModel.complete`.
    """

    def __init__(
        self,
        name: str,
        registered: Registered,
        *,
        config: Mapping[str, Any],
        llm: PluginModel,
        manifest: Manifest | None = None,
        warn: Callable[[str], None] = lambda _: None,
        inside: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    ) -> None:
        self.name = name
        self.manifest = manifest or Manifest()
        self.config = dict(config)
        self.logger = logging.getLogger(f"everlong.plugins.{name}")
        self.llm = llm
        self._registered = registered
        self._warn = warn
        self._warned: set[str] = set()
        self._inside = inside

    @cached_property
    def data_dir(self) -> Path:
        """The plugin's own folder for files, readable by its user only; made on first use."""
        folder = data_folder(self.name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        return folder

    # -- registering ---------------------------------------------------------------------------------------------------

    def register_context_engine(self, engine: Any) -> None:
        """Offer a context engine: the engine, its class, or a function that makes it.

        It is used only where ``context.engine`` names it or this plugin. There can be one over all plugins.
        """
        before = self._registered.engine
        if before is not None:
            again = "a second time" if before.plugin == self.name else f"after the plugin {before.plugin!r}"
            self._complain(f"registered a context engine {again}; there can be only one, so this one is not used")
            return
        if not is_engine(engine) and not callable(engine):
            lacking = ", ".join(missing_methods(engine))
            self._complain(
                f"registered {type(engine).__name__} as its context engine, which lacks {lacking}; an engine has "
                f"{', '.join(REQUIRED)}"
            )
            return
        self._registered.engine = EngineOffer(self.name, engine)

    def register_command(
        self,
        name: str,
        handler: Callable[[str], Any] | None = None,
        description: str = "",
        args_hint: str = "",
        **more: Any,
    ) -> None:
        """Offer a slash command of the chat.

        Args:
            name: the name after the slash.
            handler: given the words after the name; returns a text to show, or None.
            description: one line for ``/help``.
            args_hint: the arguments, for ``/help``.
            more: options of other hosts; ignored.
        """
        del more
        called = str(name).strip().removeprefix("/")
        if not _COMMAND.fullmatch(called) or not callable(handler):
            self._complain(f"registered a command {printable(name, 60)!r} that has no proper name or no handler")
            return
        taken = self._registered.commands.get(called)
        if taken is not None:
            self._complain(f"registered the command /{called}, which the plugin {taken.plugin!r} has already")
            return
        handler = self._inside(handler)
        offer = CommandOffer(self.name, called, handler, printable(description, 120), printable(args_hint, 60))
        self._registered.commands[called] = offer

    def register_tool(
        self,
        name: Any = None,
        toolset: str = "",
        schema: Mapping[str, Any] | None = None,
        handler: Callable[..., Any] | None = None,
        check_fn: Callable[[], Any] | None = None,
        description: str = "",
        *,
        effect: Effect | None = None,
        **more: Any,
    ) -> None:
        """Offer a tool to the model.

        Either a function with typed parameters and a docstring (or a tool that `everlong.agent.tool` made of one) as
        the only argument, or a name, a JSON schema and a handler, which is given the arguments as one mapping.

        Args:
            name: the function or the tool; or the name.
            toolset: for other hosts.
            schema: the tool in the OpenAI format, or the JSON schema of its parameters.
            handler: does the work; returns a text, or anything JSON can hold.
            check_fn: returns at the start of a session whether the tool can be used.
            description: for the model, if the schema has none.
            effect: ``reads``, ``writes`` or ``runs``; all but the first need the user's approval. ``runs`` by default.
            more: options of other hosts; ignored.
        """
        del toolset, more
        offer = self._make_offer(name, schema, handler, check_fn, description, effect)
        if offer is None or not _TOOL.fullmatch(offer.name):
            self._complain(
                f"registered a tool {printable(name, 60)!r} that cannot be used: it needs a function, or a name of 1 "
                "to 64 letters, digits, '_' and '-' with a schema and a handler"
            )
        elif offer.name in self._registered.tools:
            owner = self._registered.tools[offer.name].plugin
            self._complain(f"registered the tool {offer.name}, which the plugin {owner!r} has already")
        else:
            self._registered.tools[offer.name] = offer

    def register_hook(self, event: str, callback: Callable[..., Any]) -> None:
        """Register a function for an event; it gets the facts as keyword arguments."""
        if event not in EVENTS or not callable(callback):
            self._complain(f"registered a hook for {printable(event, 60)!r}; there are {', '.join(EVENTS)}")
            return
        self._registered.hooks.add(event, callback, self.name)

    def register_memory_provider(self, provider: Any) -> None:
        """Offer a memory provider, used where ``memory.provider`` names it or this plugin."""
        if not isinstance(provider, MemoryProvider):
            self._complain(
                f"registered {type(provider).__name__} as a memory provider, which is not made from "
                "everlong.memory.MemoryProvider"
            )
            return
        self._registered.memory.append(MemoryOffer(self.name, provider))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("register_"):
            raise AttributeError(f"the plugin context has no {name!r}")

        def refuse(*_: Any, **__: Any) -> None:
            self._complain(f"called {printable(name, 60)}, which Everlong does not offer; that part of it is left out")

        return refuse

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _make_offer(
        self,
        name: Any,
        schema: Mapping[str, Any] | None,
        handler: Callable[..., Any] | None,
        check_fn: Callable[[], Any] | None,
        description: str,
        effect: Effect | None,
    ) -> ToolOffer | None:
        if isinstance(name, str) or name is None:
            body = dict(schema or {})
            inner = body.get("function")
            body = dict(inner) if isinstance(inner, Mapping) else body
            if "parameters" not in body and "input_schema" not in body and body.get("type") == "object":
                body = {"parameters": body}
            called = str(name or body.get("name") or "")
            body = {**body, "name": called, "description": str(body.get("description") or description)}
            if handler is None:
                return None
            return ToolOffer(self.name, called, None, body, self._inside(handler), effect or "runs", check_fn)
        called = str(getattr(name, "name", None) or getattr(name, "__name__", ""))
        own: Any = getattr(name, "effect", None)
        return ToolOffer(self.name, called, name, effect=effect or own or "runs", is_available=check_fn)

    def _complain(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self._warn(f"plugin {self.name!r} {what}")
