"""The plugins of one agent: which of those that are there are loaded, and the engine that was chosen.

Being there activates nothing. Loaded are the plugin that ``context.engine`` names and those that ``plugins.enabled``
lists; a plugin that cannot be loaded is a warning, and everything else goes on without it. Knows no agent and no chat.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from functools import cached_property, partial, wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from everlong.errors import PluginError
from everlong.memory.contain import described
from everlong.plugins.adapters.host_state import Host, running_in
from everlong.plugins.context import EngineOffer, PluginContext, Registered
from everlong.plugins.discovery import ENGINE_GROUP, FoundPlugin, Places
from everlong.plugins.engines import engine_class, made_engine
from everlong.plugins.hooks import Hooks
from everlong.plugins.llm import PluginModel
from everlong.plugins.loading import load_folder, take_in, unload
from everlong.plugins.trust import is_trusted

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import ContextEngine

__all__ = ["BUILT_IN", "Plugins", "UntrustedPlugin", "named"]

BUILT_IN = "compressor"
"""The name that always means the built-in engine."""

_modules: dict[Path, ModuleType] = {}
"""Folders are imported once in a process, as every module is; `register` is called anew for each agent."""


class Plugins:
    """The plugins that a configuration names, as seen from one folder.

    Args:
        settings: the configuration.
        cwd: the folder whose project is meant; the working directory by default.
        warn: told what could not be loaded or used, one sentence each.
    """

    def __init__(
        self, settings: Settings, cwd: Path | None = None, *, warn: Callable[[str], None] = lambda _: None
    ) -> None:
        self.settings = settings
        self._cwd = cwd
        self.warn = warn
        self.host = Host(settings)
        """What plugins of another host are given where they ask for settings and models."""
        self.registered = Registered(Hooks(warn, partial(running_in, self.host)))
        self.llm = PluginModel(self.host)
        self.loaded: list[FoundPlugin] = []
        self.failed: dict[str, PluginError] = {}
        """Why plugins were not loaded, by name."""
        self._chosen: FoundPlugin | None = None

    @cached_property
    def places(self) -> Places:
        """Where plugins are looked for."""
        return Places(self.settings, self._cwd)

    @cached_property
    def found(self) -> list[FoundPlugin]:
        """Every plugin that is there, in the order of resolution; nothing of it is imported for that."""
        return self.places.found()

    def named(self, name: str) -> list[FoundPlugin]:
        """The plugins that a name may mean, in order: those that are called so, then those that answer to it."""
        if name == BUILT_IN:
            return [one for one in self.found if one.origin == "built-in"]
        meant = [one for one in self.found if one.answers_to(name)]
        return sorted(meant, key=lambda one: one.name != name)

    # -- loading -------------------------------------------------------------------------------------------------------

    def load(self, *, engine: bool = True) -> None:
        """Load the plugin of the chosen engine, if that is wanted, and those that are enabled."""
        wanted = self.settings.context.engine
        if engine and wanted != BUILT_IN:
            self._chosen = self._first_of(wanted, "the built-in compressor is used")
        for name in self.settings.plugins.enabled:
            meant = self.named(name)
            if not meant or name == BUILT_IN:
                self.warn(
                    f"plugins.enabled names {name!r}, and there is no such plugin; looked in "
                    f"{', '.join(self.places.searched())}"
                )
            elif not any(one in self.loaded for one in meant) and name not in self.failed:
                self._first_of(name)

    def load_one(self, found: FoundPlugin) -> None:
        """Load one plugin and let it register itself; raises `PluginError` where that cannot be."""
        with running_in(self.host):
            self._load(found)
        self.registered.hooks.take(self.host.hooks)
        self.host.hooks.clear()

    def _load(self, found: FoundPlugin) -> None:
        if found.origin == "built-in" or found in self.loaded:
            return
        if found.refused:
            raise PluginError(found.refused)
        if found.needs_trust and found.folder is not None and not is_trusted(found.folder):
            raise UntrustedPlugin(found)
        offered = self._imported(found)
        context = self._context(found)
        try:
            self._take(found, offered, context)
        except PluginError:
            self._forget(found)
            raise
        except (Exception, SystemExit) as error:
            self._forget(found)
            raise PluginError(
                f"the plugin {found.name!r} failed in register: {described(error)}",
                traceback="".join(traceback.format_exception(error)),
            ) from error
        self.loaded.append(found)

    def _first_of(self, name: str, instead: str = "it is left out") -> FoundPlugin | None:
        """Load the first plugin that a name means; one that is not trusted does not stand in the way of the next."""
        for found in self.named(name):
            try:
                self.load_one(found)
            except UntrustedPlugin as error:
                self.failed[name] = error
                self.warn(str(error))
            except PluginError as error:
                self.failed[name] = self.failed[found.name] = error
                self.warn(f"{error}; {instead}; see: everlong plugins doctor {found.name}")
                return None
            else:
                self.failed.pop(name, None)
                return found
        return None

    def _imported(self, found: FoundPlugin) -> Any:
        if found.folder is not None:
            folder = found.folder.resolve()
            if folder not in _modules:
                _modules[folder] = load_folder(folder, found.name)
            return _modules[folder]
        assert found.entry is not None  # noqa: S101 - a plugin is a folder or an entry point
        before = set(sys.modules)
        take_in(found.entry.value.partition(":")[0])
        try:
            return found.entry.load()
        except (Exception, SystemExit) as error:
            root = found.entry.value.partition(":")[0].partition(".")[0]
            for name in [one for one in sys.modules if one not in before and one.partition(".")[0] == root]:
                del sys.modules[name]
            raise PluginError(
                f"the plugin {found.name!r} cannot be loaded from {found.where}: {described(error)}",
                traceback="".join(traceback.format_exception(error)),
            ) from error

    def _forget(self, found: FoundPlugin) -> None:
        """Leave nothing behind of a plugin that could not make itself known."""
        self.registered.forget(found.name)
        self.host.hooks.clear()
        if found.folder is not None and (module := _modules.pop(found.folder.resolve(), None)) is not None:
            unload(module)

    def _context(self, found: FoundPlugin) -> PluginContext:
        plugins = self.settings.plugins
        config = plugins.section(found.name) or plugins.section(found.manifest.name)
        context = PluginContext(
            found.name, self.registered, config=config, llm=self.llm, manifest=found.manifest, warn=self.warn
        )
        context.inside = self._inside
        return context

    def _inside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, with its host around it."""

        @wraps(function)
        def run(*args: Any, **options: Any) -> Any:
            with running_in(self.host):
                return function(*args, **options)

        return run

    def _take(self, found: FoundPlugin, offered: Any, context: PluginContext) -> None:
        """Let what was imported make itself known."""
        if found.entry is not None and found.entry.group == ENGINE_GROUP:
            context.register_context_engine(offered)
            return
        register = offered if not inspect.ismodule(offered) else getattr(offered, "register", None)
        if callable(register):
            register(context)
        # A general plugin that registers itself has said what it wants to be used for.
        if inspect.ismodule(offered) and self._offer(found) is None and (found.kind == "engine" or not register):
            exported = engine_class(offered, found.name)
            if exported is not None:
                context.register_context_engine(exported)
            elif not callable(register):
                raise PluginError(
                    f"the plugin {found.name!r} in {found.where} offers nothing: its __init__.py has neither "
                    "register(ctx) nor a class made from ContextEngine"
                )

    # -- the engine ----------------------------------------------------------------------------------------------------

    def engine(self, context_length: int) -> ContextEngine | None:
        """The engine that ``context.engine`` names, after `load`; None, with a warning, where there is none."""
        wanted = self.settings.context.engine
        if wanted == BUILT_IN:
            return None
        if wanted in self.failed:  # that was said when it was loaded
            return None
        try:
            made = self._made(wanted, context_length)
        except PluginError as error:
            name = self._chosen.name if self._chosen is not None else wanted
            self.failed[wanted] = error
            self.warn(f"{error}; the built-in compressor is used; see: everlong plugins doctor {name}")
            return None
        return made

    def _made(self, wanted: str, context_length: int) -> ContextEngine | None:
        chosen, offer = self._chosen, self.registered.engine
        if chosen is not None and self._offer(chosen) is None:
            raise PluginError(f"the plugin {chosen.name!r} offers no context engine")
        if offer is None:
            self.warn(self._nowhere(wanted, ""))
            return None
        engine = made_engine(offer.offered, context_length, offer.plugin)
        name = named(engine)
        if chosen is None and name != wanted:
            self.warn(self._nowhere(wanted, f" (the plugin {offer.plugin!r} has the engine {name!r})"))
            return None
        if name != wanted:
            self.warn(f"context.engine is {wanted!r}, and the engine of that name calls itself {name!r}")
        return engine

    def _offer(self, found: FoundPlugin) -> EngineOffer | None:
        offer = self.registered.engine
        return offer if offer is not None and offer.plugin == found.name else None

    def _nowhere(self, wanted: str, but: str) -> str:
        places = ", ".join(self.places.searched())
        return (
            f"context.engine is {wanted!r}, and there is no engine of that name{but}; looked in {places}; "
            "the built-in compressor is used"
        )

    def close(self) -> None:
        """Let go of the models that plugins have asked."""
        for connection in self.host.connections.values():
            connection.close()
        self.host.connections.clear()


class UntrustedPlugin(PluginError):  # noqa: N818 - reads as the fact that it states
    """A plugin came with a project, and its user has not trusted it as it is now."""

    def __init__(self, found: FoundPlugin) -> None:
        super().__init__(
            f"the plugin {found.name!r} came with this project and is not trusted, or has changed since; it is left "
            f"out; look at what is in it, then run: everlong plugins trust {found.folder}"
        )


def named(engine: ContextEngine) -> str:
    """What an engine calls itself; its class's name where it cannot say."""
    try:
        name: object = engine.name
    except (Exception, SystemExit):  # noqa: BLE001 - foreign code; whoever uses the engine contains it
        return type(engine).__name__
    return name if isinstance(name, str) else type(engine).__name__
