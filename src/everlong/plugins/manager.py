"""The plugins of one agent: those that are loaded, and the engine that was chosen.

Only the plugin of ``context.engine`` and those of ``plugins.enabled`` are loaded; being installed activates nothing. A
plugin that cannot be loaded is a warning, and everything else goes on without it.
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
from everlong.memory.provider import describe_error
from everlong.plugins.context import EngineOffer, PluginContext, Registered
from everlong.plugins.discovery import ENGINE_GROUP, FoundPlugin, PluginPlaces
from everlong.plugins.engines import engine_class, make_engine
from everlong.plugins.hooks import Hooks
from everlong.plugins.host import Host, running_in
from everlong.plugins.loading import load_folder, unload
from everlong.plugins.models import PluginModel
from everlong.plugins.trust import is_trusted

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import ContextEngine

__all__ = ["BUILT_IN", "BUILT_IN_LOSSLESS", "LOSSLESS", "Plugins", "UntrustedPlugin", "engine_name"]

BUILT_IN = "compressor"
"""The name that always means the built-in engine."""
LOSSLESS = "lcm"
"""The name of the lossless engine, unless a plugin has it too."""
BUILT_IN_LOSSLESS = "builtin:lcm"
"""The name that always means the lossless engine of Everlong."""

_modules: dict[Path, ModuleType] = {}
"""Imported plugins by folder; each is imported once per process, and registers itself for each agent."""


class Plugins:
    """The plugins that a configuration names, as seen from one folder.

    Args:
        settings: the configuration.
        cwd: the folder whose project is meant; the working directory by default.
        warn: told what could not be loaded or used, one sentence each.
        host: what plugins of another host are given where they ask for settings and models.
    """

    def __init__(
        self,
        settings: Settings,
        cwd: Path | None = None,
        *,
        warn: Callable[[str], None] = lambda _: None,
        host: Host | None = None,
    ) -> None:
        self.settings = settings
        self._cwd = cwd
        self.warn = warn
        self.host = host or Host(settings)
        self.registered = Registered(Hooks(warn, partial(running_in, self.host)))
        self.llm = PluginModel(self.host)
        self.loaded: list[FoundPlugin] = []
        self.failed: dict[str, PluginError] = {}
        """Errors of the plugins that were not loaded, by name."""
        self._chosen: FoundPlugin | None = None

    @cached_property
    def places(self) -> PluginPlaces:
        """The places that are searched for plugins."""
        return PluginPlaces(self.settings, self._cwd)

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

    def load(self, *, engine: bool = True) -> None:
        """Load the enabled plugins and, with ``engine``, that of the chosen engine."""
        wanted = self.settings.context.engine
        if engine and wanted not in {BUILT_IN, BUILT_IN_LOSSLESS}:
            instead = "the built-in engine of that name" if wanted == LOSSLESS else "the built-in compressor"
            chosen = self._load_first(wanted, f"{instead} is used")
            self._chosen = chosen if chosen is not None and chosen.origin != "built-in" else None
            if wanted == LOSSLESS and self._chosen is not None:
                self._warn_of_shadow(f"the plugin in {self._chosen.where}")
        for name in self.settings.plugins.enabled:
            meant = self.named(name)
            if not meant or name == BUILT_IN:
                self.warn(
                    f"plugins.enabled names {name!r}, and there is no such plugin; looked in "
                    f"{', '.join(self.places.searched())}"
                )
            elif not any(one in self.loaded for one in meant) and name not in self.failed:
                self._load_first(name)

    def load_one(self, found: FoundPlugin) -> None:
        """Load one plugin and let it register itself; raises `PluginError` where that fails."""
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
        offered = self._import(found)
        context = self._make_context(found)
        try:
            self._register(found, offered, context)
        except PluginError:
            self._forget(found)
            raise
        except (Exception, SystemExit) as error:
            self._forget(found)
            raise PluginError(
                f"the plugin {found.name!r} failed in register: {describe_error(error)}",
                traceback="".join(traceback.format_exception(error)),
            ) from error
        self.loaded.append(found)

    def _load_first(self, name: str, instead: str = "it is left out") -> FoundPlugin | None:
        """Load the first plugin that a name means, and return it; skip those that are not trusted."""
        for found in self.named(name):
            try:
                self.load_one(found)
            except UntrustedPlugin as error:
                self.failed[name] = error
                self.warn(str(error))
            except PluginError as error:
                self.failed[name] = self.failed[found.name] = error
                self.warn(f"{error}; {instead}")
                return None
            else:
                self.failed.pop(name, None)
                return found
        return None

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

    def _forget(self, found: FoundPlugin) -> None:
        """Remove every trace of a plugin that could not register itself."""
        self.registered.forget(found.name)
        self.host.hooks.clear()
        if found.folder is not None and (module := _modules.pop(found.folder.resolve(), None)) is not None:
            unload(module)

    def _make_context(self, found: FoundPlugin) -> PluginContext:
        plugins = self.settings.plugins
        config = plugins.section(found.name) or plugins.section(found.manifest.name)
        return PluginContext(
            found.name,
            self.registered,
            config=config,
            llm=self.llm,
            manifest=found.manifest,
            warn=self.warn,
            inside=self._wrap_in_host,
        )

    def _wrap_in_host(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs inside this host."""

        @wraps(function)
        def run(*args: Any, **options: Any) -> Any:
            with running_in(self.host):
                return function(*args, **options)

        return run

    def _register(self, found: FoundPlugin, offered: Any, context: PluginContext) -> None:
        """Let an imported plugin register itself, or register the engine that it exports."""
        if found.entry is not None and found.entry.group == ENGINE_GROUP:
            context.register_context_engine(offered)
            return
        register = offered if not inspect.ismodule(offered) else getattr(offered, "register", None)
        if callable(register):
            register(context)
        # A general plugin that registers itself offers no engine unless it says so.
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
        """Return the engine that ``context.engine`` names, after `load`; None, with a warning, where there is none.

        None without a warning stands for an engine that is built in.
        """
        wanted = self.settings.context.engine
        if wanted in {BUILT_IN, BUILT_IN_LOSSLESS}:
            return None
        if wanted in self.failed:  # the warning came when it was loaded
            return None
        try:
            made = self._make_engine(wanted, context_length)
        except PluginError as error:
            self.failed[wanted] = error
            instead = "engine of that name" if wanted == LOSSLESS else "compressor"
            self.warn(f"{error}; the built-in {instead} is used")
            return None
        return made

    def _make_engine(self, wanted: str, context_length: int) -> ContextEngine | None:
        chosen, offer = self._chosen, self.registered.engine
        if chosen is not None and self._offer(chosen) is None:
            raise PluginError(f"the plugin {chosen.name!r} offers no context engine")
        if offer is None:
            if wanted != LOSSLESS:
                self.warn(self._not_found(wanted, ""))
            return None
        engine = make_engine(offer.offered, context_length, offer.plugin)
        name = engine_name(engine)
        if chosen is None and name != wanted:
            if wanted == LOSSLESS:
                return None
            self.warn(self._not_found(wanted, f" (the plugin {offer.plugin!r} has the engine {name!r})"))
            return None
        if name != wanted:
            self.warn(f"context.engine is {wanted!r}, and the engine of that name calls itself {name!r}")
        if chosen is None and wanted == LOSSLESS:
            self._warn_of_shadow(f"the engine of the plugin {offer.plugin!r}")
        return engine

    def _warn_of_shadow(self, what: str) -> None:
        """Say that a plugin takes the place of the lossless engine."""
        self.warn(
            f"context.engine is {LOSSLESS!r}, and {what} has that name; it is used in place of the built-in engine, "
            f"which {BUILT_IN_LOSSLESS} names"
        )

    @property
    def wants_lossless(self) -> bool:
        """True if the settings name the lossless engine and, after `load`, no plugin has that name."""
        wanted = self.settings.context.engine
        return wanted == BUILT_IN_LOSSLESS or (
            wanted == LOSSLESS and self._chosen is None and (self.registered.engine is None or wanted in self.failed)
        )

    def _offer(self, found: FoundPlugin) -> EngineOffer | None:
        offer = self.registered.engine
        return offer if offer is not None and offer.plugin == found.name else None

    def _not_found(self, wanted: str, but: str) -> str:
        places = ", ".join(self.places.searched())
        return (
            f"context.engine is {wanted!r}, and there is no engine of that name{but}; looked in {places}; "
            "the built-in compressor is used"
        )

    def close(self) -> None:
        """Close the connections to models that plugins have asked."""
        for connection in self.host.connections.values():
            connection.close()
        self.host.connections.clear()


class UntrustedPlugin(PluginError):  # noqa: N818 - reads as the fact that it states
    """A project plugin that the user has not trusted as it is now."""

    def __init__(self, found: FoundPlugin) -> None:
        super().__init__(
            f"the plugin {found.name!r} came with this project and is not trusted, or has changed since; it is left "
            f"out; look at what is in it, then run: everlong trust add {found.folder}"
        )


def engine_name(engine: ContextEngine) -> str:
    """Return an engine's name; that of its class where it has none."""
    try:
        name: object = engine.name
    except (Exception, SystemExit):  # noqa: BLE001 - foreign code
        return type(engine).__name__
    return name if isinstance(name, str) else type(engine).__name__
