"""The plugin of one agent: the one that ``context.engine`` names, loaded, and the engine that it offers.

Being installed activates nothing. A plugin that cannot be loaded is a warning, and the built-in engine is used.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from everlong.config.paths import data_home
from everlong.errors import PluginError
from everlong.memory.provider import describe_error
from everlong.plugins.discovery import FoundPlugin, Manifest, PluginPlaces, printable
from everlong.plugins.engines import REQUIRED, engine_class, is_engine, make_engine, missing_methods
from everlong.plugins.host import Host, running_in
from everlong.plugins.loading import load_folder, unload

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import ContextEngine

__all__ = [
    "BUILT_IN",
    "BUILT_IN_LOSSLESS",
    "LOSSLESS",
    "EngineOffer",
    "PluginContext",
    "Plugins",
    "engine_name",
]

BUILT_IN = "compressor"
"""The name that always means the built-in engine."""
LOSSLESS = "lcm"
"""The name of the lossless engine, unless a plugin has it too."""
BUILT_IN_LOSSLESS = "builtin:lcm"
"""The name that always means the lossless engine of Everlong."""

_modules: dict[Path, ModuleType] = {}
"""Imported plugins by folder; each is imported once per process, and registers itself for each agent."""


@dataclass(frozen=True)
class EngineOffer:
    """A context engine: the engine itself, its class, or a function that makes it."""

    plugin: str
    offered: Any


class PluginContext:
    """The host as one plugin sees it: what ``register(ctx)`` is given.

    A call that is not accepted is a warning and never raises, so that the rest of the plugin still works.

    Attributes:
        name: the plugin's name.
        manifest: what its ``plugin.yaml`` says.
        config: its own section of the settings, ``plugins.<name>``, as a mapping of its own.
        logger: a logger of its own, ``everlong.plugins.<name>``.
    """

    def __init__(
        self,
        name: str,
        *,
        config: Mapping[str, Any],
        manifest: Manifest | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.manifest = manifest or Manifest()
        self.config = dict(config)
        self.logger = logging.getLogger(f"everlong.plugins.{name}")
        self.offer: EngineOffer | None = None
        """The engine that it registered."""
        self._warn = warn
        self._warned: set[str] = set()

    @cached_property
    def data_dir(self) -> Path:
        """The plugin's own folder for files, readable by its user only; made on first use."""
        folder = data_home() / "plugin-data" / self.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        return folder

    def register_context_engine(self, engine: Any) -> None:
        """Offer a context engine: the engine, its class, or a function that makes it. There can be one."""
        if self.offer is not None:
            self._complain("registered a second context engine; there can be only one, so this one is not used")
        elif not is_engine(engine) and not callable(engine):
            lacking = ", ".join(missing_methods(engine))
            self._complain(
                f"registered {type(engine).__name__} as its context engine, which lacks {lacking}; an engine has "
                f"{', '.join(REQUIRED)}"
            )
        else:
            self.offer = EngineOffer(self.name, engine)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("register_"):
            raise AttributeError(f"the plugin context has no {name!r}")

        def refuse(*_: Any, **__: Any) -> None:
            self._complain(f"called {printable(name, 60)}, which Everlong does not offer; that part of it is left out")

        return refuse

    def _complain(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self._warn(f"plugin {self.name!r} {what}")


class Plugins:
    """The plugins that there are, and the one that a configuration names.

    Args:
        settings: the configuration.
        warn: told what could not be loaded or used, one sentence each.
        host: what plugins of another host are given where they ask for settings and models.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        warn: Callable[[str], None] = lambda _: None,
        host: Host | None = None,
    ) -> None:
        self.settings = settings
        self.warn = warn
        self.host = host or Host(settings)
        self.offer: EngineOffer | None = None
        """The engine of the plugin that was loaded."""

    @cached_property
    def places(self) -> PluginPlaces:
        """The places that are searched for plugins."""
        return PluginPlaces(self.settings)

    @cached_property
    def found(self) -> list[FoundPlugin]:
        """Every plugin, in the order of resolution; found without importing any."""
        return self.places.found()

    def named(self, name: str) -> list[FoundPlugin]:
        """Return the plugins that a name may mean: those of that name first, then those that answer to it."""
        if name in {BUILT_IN, BUILT_IN_LOSSLESS}:
            return [one for one in self.found if one.origin == "built-in" and one.answers_to(name)]
        meant = [one for one in self.found if one.answers_to(name)]
        meant = [one for one in meant if one.origin != "built-in"] or meant
        return sorted(meant, key=lambda one: one.name != name)

    # -- loading -------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the plugin that ``context.engine`` names; one that cannot be loaded is a warning."""
        wanted = self.settings.context.engine
        if wanted in {BUILT_IN, BUILT_IN_LOSSLESS}:
            return
        instead = "the built-in engine of that name" if wanted == LOSSLESS else "the built-in compressor"
        meant = self.named(wanted)
        if not meant:
            self.warn(
                f"context.engine is {wanted!r}, and there is no engine of that name; looked in "
                f"{', '.join(self.places.searched())}; {instead} is used"
            )
        elif meant[0].origin != "built-in":
            try:
                self.load_one(meant[0])
            except PluginError as error:
                self.warn(f"{error}; {instead} is used")
            else:
                if wanted == LOSSLESS:
                    self.warn(
                        f"context.engine is {LOSSLESS!r}, and the plugin in {meant[0].where} has that name; it is used "
                        f"in place of the built-in engine, which {BUILT_IN_LOSSLESS} names"
                    )

    def load_one(self, found: FoundPlugin) -> None:
        """Load one plugin and let it register its engine.

        Raises:
            PluginError: that failed, or it offers no engine.
        """
        if found.origin == "built-in":
            return
        if found.refused:
            raise PluginError(found.refused)
        with running_in(self.host):
            offered = self._import(found)
            plugins = self.settings.plugins
            config = plugins.section(found.name) or plugins.section(found.manifest.name)
            context = PluginContext(found.name, config=config, manifest=found.manifest, warn=self.warn)
            try:
                _register(found, offered, context)
            except PluginError:
                _forget(found)
                raise
            except (Exception, SystemExit) as error:
                _forget(found)
                raise PluginError(
                    f"the plugin {found.name!r} failed in register: {describe_error(error)}",
                    traceback="".join(traceback.format_exception(error)),
                ) from error
        self.offer = context.offer

    def _import(self, found: FoundPlugin) -> Any:
        if found.folder is not None:
            folder = found.folder.resolve()
            if folder not in _modules:
                _modules[folder] = load_folder(folder, found.name)
            return _modules[folder]
        assert found.entry is not None  # noqa: S101 - a plugin is a folder or an entry point
        before = set(sys.modules)
        try:
            return found.entry.load()
        except (Exception, SystemExit) as error:
            root = found.entry.value.partition(":")[0].partition(".")[0]
            for name in [one for one in sys.modules if one not in before and one.partition(".")[0] == root]:
                del sys.modules[name]
            raise PluginError(
                f"the plugin {found.name!r} cannot be loaded from {found.where}: {describe_error(error)}",
                traceback="".join(traceback.format_exception(error)),
            ) from error

    # -- the engine ----------------------------------------------------------------------------------------------------

    def engine(self, context_length: int) -> ContextEngine | None:
        """Return the engine of the plugin that was loaded; None, with a warning, where it cannot be made.

        None without a warning stands for an engine that is built in, and for a plugin that could not be loaded.
        """
        wanted = self.settings.context.engine
        if self.offer is None:
            return None
        try:
            engine = make_engine(self.offer.offered, context_length, self.offer.plugin)
        except PluginError as error:
            instead = "engine of that name" if wanted == LOSSLESS else "compressor"
            self.offer = None
            self.warn(f"{error}; the built-in {instead} is used")
            return None
        name = engine_name(engine)
        if name != wanted:
            self.warn(f"context.engine is {wanted!r}, and the engine of that name calls itself {name!r}")
        return engine

    @property
    def wants_lossless(self) -> bool:
        """True if the settings name the lossless engine and, after `load`, no plugin has that name."""
        wanted = self.settings.context.engine
        return wanted == BUILT_IN_LOSSLESS or (wanted == LOSSLESS and self.offer is None)

    def close(self) -> None:
        """Close the connections to models that plugins have asked."""
        for connection in self.host.connections.values():
            connection.close()
        self.host.connections.clear()


def _register(found: FoundPlugin, offered: Any, context: PluginContext) -> None:
    """Let an imported plugin register its engine, or register the one that it exports."""
    if found.entry is not None:
        context.register_context_engine(offered)
    else:
        register = getattr(offered, "register", None)
        if callable(register):
            register(context)
        if context.offer is None and (exported := engine_class(offered, found.name)) is not None:
            context.register_context_engine(exported)
    if context.offer is None:
        raise PluginError(
            f"the plugin {found.name!r} in {found.where} offers no context engine: neither a class made from "
            "ContextEngine nor a register(ctx) that calls ctx.register_context_engine"
        )


def _forget(found: FoundPlugin) -> None:
    """Remove the modules of a plugin that could not register itself."""
    if found.folder is not None and (module := _modules.pop(found.folder.resolve(), None)) is not None:
        unload(module)


def engine_name(engine: ContextEngine) -> str:
    """Return an engine's name; that of its class where it has none."""
    try:
        name: object = engine.name
    except (Exception, SystemExit):  # noqa: BLE001 - foreign code
        return type(engine).__name__
    return name if isinstance(name, str) else type(engine).__name__
