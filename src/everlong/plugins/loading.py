"""Importing a plugin's folder as a package of its own.

Every folder is imported under a private name that nothing else uses, so that two plugins with equal module names never
meet, and the rest of the program never imports a plugin's module by accident. What a plugin's modules import goes
through `plugins/importing.py`. Does not know what a plugin is for, nor whether it is trusted.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from everlong.errors import PluginError
from everlong.plugins.importing import PluginFinder, PluginLoader, Scope

__all__ = ["load_folder", "unload"]

PREFIX = "everlong_plugin_"

_loading = threading.RLock()
_finders: dict[str, PluginFinder] = {}


def load_folder(folder: Path, name: str) -> ModuleType:
    """Import ``folder`` (which has an ``__init__.py``) as a package that nobody else sees.

    Relative imports and sub-packages work, and so do imports by the folder's own name. Where it fails, the error
    carries the plugin's own traceback, and nothing of the plugin stays in ``sys.modules`` or ``sys.path``.
    """
    folder = folder.resolve()
    start = folder / "__init__.py"
    if not start.is_file():
        raise PluginError(f"the plugin {name!r} cannot be loaded: {folder} has no file __init__.py")
    with _loading:
        scope = Scope(package=_free_name(name), folder=folder, own_names=_own_names(folder, name))
        finder = PluginFinder(scope)
        loader = PluginLoader(scope.package, str(start), scope)
        spec = spec_from_file_location(scope.package, start, loader=loader, submodule_search_locations=[str(folder)])
        if spec is None:  # only where the loader is refused
            raise PluginError(f"the plugin {name!r} cannot be loaded: {start} is no Python file")
        module = module_from_spec(spec)
        known, path = set(sys.modules), list(sys.path)
        sys.meta_path.insert(0, finder)
        sys.modules[scope.package] = module
        try:
            loader.exec_module(module)
        except BaseException as error:
            sys.path[:] = path
            _forget(scope, finder, known)
            if isinstance(error, KeyboardInterrupt):
                raise
            raise PluginError(_what_happened(name, folder, error), traceback=own_traceback(error)) from error
        _take_path(module, scope, path)
        _finders[scope.package] = finder
        return module


def unload(module: ModuleType) -> None:
    """Take a plugin that `load_folder` gave, and all its sub-modules, out of ``sys.modules``."""
    with _loading:
        finder = _finders.pop(module.__name__, None)
        if finder is not None:
            _forget(finder.scope, finder, set(sys.modules))


def own_traceback(error: BaseException) -> str:
    """The traceback without the frames of Everlong's loader and of Python's import machinery."""
    told = traceback.TracebackException.from_exception(error)
    ours = {__file__, str(Path(__file__).with_name("importing.py"))}
    kept = [frame for frame in told.stack if frame.filename not in ours and "<frozen importlib" not in frame.filename]
    told.stack = traceback.StackSummary.from_list(kept)
    return "".join(told.format(chain=True))


def _what_happened(name: str, folder: Path, error: BaseException) -> str:
    said = str(error) or "no message"
    return f"the plugin {name!r} cannot be loaded from {folder}: {type(error).__name__}: {said}"


def _free_name(name: str) -> str:
    base = PREFIX + (re.sub(r"\W", "_", name) or "unnamed")
    tries = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(2)))
    return next(each for each in tries if each not in sys.modules and each not in _finders)


def _own_names(folder: Path, name: str) -> frozenset[str]:
    """The names by which a plugin's modules may call their own package: the folder's and the plugin's."""
    names = {folder.name, name, folder.name.replace("-", "_"), name.replace("-", "_")}
    return frozenset(each for each in names if each.isidentifier())


def _take_path(module: ModuleType, scope: Scope, before: list[str]) -> None:
    """Folders of its own that a plugin put on ``sys.path`` become its alone; others go to the end, behind ours."""
    added = [each for each in sys.path if each not in before]
    sys.path[:] = [*before, *(each for each in added if not scope.owns(Path(each)))]
    for each in added:
        if scope.owns(Path(each)) and each not in module.__path__:
            module.__path__.append(each)
            scope.may_skip_package = True


def _forget(scope: Scope, finder: PluginFinder, known: set[str]) -> None:
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)
    for name, module in list(sys.modules.items()):
        of_package = name == scope.package or name.startswith(f"{scope.package}.")
        if of_package or (name not in known and scope.owns_module(module)):
            del sys.modules[name]
