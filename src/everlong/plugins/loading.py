"""The import of a plugin's folder as a package of its own.

Every folder is imported under a private name, so that two plugins with equal module names never meet, and the rest of
the program never imports a plugin's module by accident. An `ImportScope` resolves the imports of a plugin's modules.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import itertools
import re
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from everlong.errors import PluginError

__all__ = ["ImportScope", "PluginFinder", "PluginLoader", "load_folder", "unload"]

_PREFIX = "everlong_plugin_"
_FOREIGN = re.compile(r"(agent|gateway|(hermes|aigenlabs)_(cli|constants))(\.|$)|tools\.registry$")
"""Modules of another host, for which `everlong.plugins.foreign` has others."""

_loading = threading.RLock()
_finders: dict[str, PluginFinder] = {}


def load_folder(folder: Path, name: str) -> ModuleType:
    """Import ``folder`` (which has an ``__init__.py``) as a package that nobody else sees, and return it.

    Relative imports, sub-packages and imports by the folder's own name work. If it fails, the `PluginError` carries
    the plugin's own traceback, and nothing of the plugin stays in ``sys.modules`` or ``sys.path``.
    """
    folder = folder.resolve()
    start = folder / "__init__.py"
    if not start.is_file():
        raise PluginError(f"the plugin {name!r} cannot be loaded: {folder} has no file __init__.py")
    with _loading:
        scope = ImportScope(package=_free_name(name), folder=folder, own_names=_own_names(folder, name))
        finder = PluginFinder(scope)
        loader = PluginLoader(scope.package, str(start), scope)
        spec = spec_from_file_location(scope.package, start, loader=loader, submodule_search_locations=[str(folder)])
        if spec is None:  # only if the loader is refused
            raise PluginError(f"the plugin {name!r} cannot be loaded: {start} is no Python file")
        module = module_from_spec(spec)
        known, path = set(sys.modules), list(sys.path)
        sys.meta_path.insert(0, finder)
        sys.modules[scope.package] = module
        try:
            loader.exec_module(module)
        except BaseException as error:
            sys.path[:] = path
            _remove_modules(scope, finder, known)
            if isinstance(error, KeyboardInterrupt):
                raise
            why = f"{type(error).__name__}: {str(error) or 'no message'}"
            told = f"the plugin {name!r} cannot be loaded from {folder}: {why}"
            raise PluginError(told, traceback=own_traceback(error)) from error
        _claim_path(module, scope, path)
        _finders[scope.package] = finder
        return module


def unload(module: ModuleType) -> None:
    """Remove a plugin that `load_folder` imported, with its sub-modules, from ``sys.modules``."""
    with _loading:
        finder = _finders.pop(module.__name__, None)
        if finder is not None:
            _remove_modules(finder.scope, finder, set(sys.modules))


def own_traceback(error: BaseException) -> str:
    """Return the traceback without the frames of Everlong's loader and of Python's import machinery."""
    told = traceback.TracebackException.from_exception(error)
    ours = (__file__, "<frozen importlib")
    kept = [frame for frame in told.stack if not frame.filename.startswith(ours)]
    told.stack = traceback.StackSummary.from_list(kept)
    return "".join(told.format(chain=True))


def _free_name(name: str) -> str:
    base = _PREFIX + (re.sub(r"\W", "_", name) or "unnamed")
    tries = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(2)))
    return next(each for each in tries if each not in sys.modules and each not in _finders)


def _own_names(folder: Path, name: str) -> frozenset[str]:
    """Return the names by which a plugin's modules may call their own package: the folder's and the plugin's."""
    names = {folder.name, name, folder.name.replace("-", "_"), name.replace("-", "_")}
    return frozenset(each for each in names if each.isidentifier())


def _claim_path(module: ModuleType, scope: ImportScope, before: list[str]) -> None:
    """Make folders that a plugin put on ``sys.path`` its own; folders of others go to the end of the path."""
    added = [each for each in sys.path if each not in before]
    sys.path[:] = [*before, *(each for each in added if not scope.owns(Path(each)))]
    for each in added:
        if scope.owns(Path(each)) and each not in module.__path__:
            module.__path__.append(each)
            scope.may_skip_package = True


def _remove_modules(scope: ImportScope, finder: PluginFinder, known: set[str]) -> None:
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
    for name, module in list(sys.modules.items()):
        of_package = name == scope.package or name.startswith(f"{scope.package}.")
        if of_package or (name not in known and scope.owns_module(module)):
            del sys.modules[name]


# -- imports of a plugin's modules -------------------------------------------------------------------------------------


@dataclass(eq=False)
class ImportScope:
    """The package and folder of one plugin, and the imports of its modules."""

    package: str
    folder: Path
    own_names: frozenset[str] = frozenset()
    may_skip_package: bool = False
    """True if the plugin put its own folder on ``sys.path``, and so imports its modules without the package."""
    path_before: frozenset[str] = field(default_factory=lambda: frozenset(sys.path))
    builtins: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.builtins = {**vars(builtins), "__import__": self.do_import}

    def owns(self, path: Path) -> bool:
        """Return whether ``path`` is the plugin's folder or inside of it."""
        return path.resolve().is_relative_to(self.folder)

    def owns_module(self, module: ModuleType) -> bool:
        """Return whether ``module`` was read from the plugin's folder."""
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and self.owns(Path(file))

    def do_import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - the names that Python's own __import__ has
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module by the plugin's view of names; stands for ``__import__`` in its modules."""
        if not level and _FOREIGN.match(name):
            from everlong.plugins import foreign  # noqa: PLC0415 - only for plugins of another host

            return foreign.import_module(name, fromlist)
        wanted = "" if level else self.real_name(name)
        if not wanted:
            found = builtins.__import__(name, globals, locals, fromlist or (), level)
            return _Importlib(self) if found is importlib else found
        try:
            module = builtins.__import__(wanted, globals, locals, fromlist or ("*",), 0)
        except ModuleNotFoundError as error:
            raise _rename_error(name, wanted, error) from None
        if fromlist:
            return module
        below = name.partition(".")[2]
        return sys.modules[wanted.removesuffix(f".{below}") if below else wanted]

    def real_name(self, name: str) -> str:
        """Return the module that ``name`` means to the plugin, if it has another name; else nothing."""
        root, _, rest = name.partition(".")
        if root in self.own_names and self._means_itself(root, rest):
            return f"{self.package}.{rest}" if rest else self.package
        if self._is_own_file(root) and root not in sys.stdlib_module_names:
            return f"{self.package}.{name}"
        return ""

    def _means_itself(self, root: str, rest: str) -> bool:
        """Return whether the plugin's own name means the plugin, and not a library of the same name that it uses."""
        if rest:
            stem = rest.partition(".")[0]
            return (self.folder / f"{stem}.py").is_file() or (self.folder / stem).is_dir()
        return root not in sys.modules and importlib.util.find_spec(root) is None

    def _is_own_file(self, root: str) -> bool:
        if not self.may_skip_package:
            added = (each for each in sys.path if each not in self.path_before)
            self.may_skip_package = any(self.owns(Path(each)) for each in added)
        return self.may_skip_package and PathFinder.find_spec(root, self.own_path()) is not None

    def own_path(self) -> list[str]:
        """Return the folders of the plugin's own modules."""
        package = sys.modules.get(self.package)
        listed = list(package.__path__) if package is not None else [str(self.folder)]
        return [*listed, *(each for each in sys.path if each not in self.path_before and self.owns(Path(each)))]


class PluginLoader(SourceFileLoader):
    """Runs a plugin's source file with the plugin's own built-ins; its folder stays as its author left it."""

    def __init__(self, fullname: str, path: str, scope: ImportScope) -> None:
        super().__init__(fullname, path)
        self.scope = scope

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source, and return its code."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run the source with the plugin's own built-ins."""
        module.__dict__["__builtins__"] = self.scope.builtins
        super().exec_module(module)


class PluginFinder(MetaPathFinder):
    """Finds only the sub-modules of one plugin's package."""

    def __init__(self, scope: ImportScope) -> None:
        self.scope = scope

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec, with the plugin's loader in place of Python's."""
        if not fullname.startswith(f"{self.scope.package}."):
            return None
        within = self.scope.own_path() if fullname.count(".") == 1 else path
        spec = PathFinder.find_spec(fullname, within, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and spec.origin:
            spec.loader = PluginLoader(fullname, spec.origin, self.scope)
            spec.cached = None
        return spec


class _Importlib(ModuleType):
    """Python's ``importlib`` as a plugin sees it: ``import_module`` resolves names as ``import`` does."""

    def __init__(self, scope: ImportScope) -> None:
        super().__init__("importlib", importlib.__doc__)
        self._scope = scope

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Import a module by the plugin's view of names."""
        if name.startswith("."):
            return importlib.import_module(name, package)
        return self._scope.do_import(name, fromlist=("*",))


def _rename_error(name: str, wanted: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error with the name that the plugin used, if that module itself is missing."""
    if not wanted or error.name != wanted:
        return error
    return ModuleNotFoundError(f"No module named {name!r}", name=name)
