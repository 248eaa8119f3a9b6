"""What an ``import`` statement means inside a plugin.

Each module of a plugin has built-ins of its own, in which ``__import__`` first asks here: the names of another host's
modules lead to Everlong's adapters, the plugin's own name leads to its own package. Everything else is imported as
anywhere. So nothing is put under another name into ``sys.modules``, and no other code sees a module named ``agent``.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from everlong.plugins.adapters.names import adapter_of

__all__ = ["PluginFinder", "PluginLoader", "Scope"]


@dataclass(eq=False)
class Scope:
    """What the modules of one plugin have in common: their package, their folder, and their view of imports."""

    package: str
    folder: Path
    own_names: frozenset[str] = frozenset()
    may_skip_package: bool = False
    """Whether the plugin put its own folder on ``sys.path``, and so imports its modules without the package."""
    path_before: frozenset[str] = field(default_factory=lambda: frozenset(sys.path))
    builtins: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.builtins = {**vars(builtins), "__import__": self.do_import}

    def owns(self, path: Path) -> bool:
        """Whether ``path`` is the plugin's folder or inside of it."""
        return path.resolve().is_relative_to(self.folder)

    def owns_module(self, module: ModuleType) -> bool:
        """Whether ``module`` was read from the plugin's folder."""
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
        """``__import__`` as a plugin's modules see it."""
        wanted = "" if level else self.real_name(name)
        if not wanted:
            if not level:
                from everlong.plugins.packages import take_in  # noqa: PLC0415 - which makes scopes of its own

                take_in(name)
            found = builtins.__import__(name, globals, locals, fromlist or (), level)
            return _Importlib(self) if found is importlib else found  # so that import_module knows the names, too
        try:
            module = builtins.__import__(wanted, globals, locals, fromlist or ("*",), 0)
        except ModuleNotFoundError as error:
            raise _told_as(name, wanted, error) from None
        if fromlist:
            return module
        below = name.partition(".")[2]
        return sys.modules[wanted.removesuffix(f".{below}") if below else wanted]

    def real_name(self, name: str) -> str:
        """The module that ``name`` means to the plugin, if it is another than the one so called; else nothing."""
        adapter = adapter_of(name)
        if adapter:
            return adapter
        root, _, rest = name.partition(".")
        if root in self.own_names and self._means_itself(root, rest):
            return f"{self.package}.{rest}" if rest else self.package
        if self._is_own_file(root) and root not in sys.stdlib_module_names:
            return f"{self.package}.{name}"
        return ""

    def _means_itself(self, root: str, rest: str) -> bool:
        """A plugin may be called as the library that it uses; then the folder's own file decides, else the library."""
        if rest:
            return self._has_file(rest.partition(".")[0])
        return root not in sys.modules and importlib.util.find_spec(root) is None

    def _is_own_file(self, root: str) -> bool:
        if not self.may_skip_package:
            added = (each for each in sys.path if each not in self.path_before)
            self.may_skip_package = any(self.owns(Path(each)) for each in added)
        return self.may_skip_package and PathFinder.find_spec(root, self.own_path()) is not None

    def own_path(self) -> list[str]:
        """The folders in which the plugin's own modules are."""
        package = sys.modules.get(self.package)
        listed = list(package.__path__) if package is not None else [str(self.folder)]
        return [*listed, *(each for each in sys.path if each not in self.path_before and self.owns(Path(each)))]

    def _has_file(self, stem: str) -> bool:
        return (self.folder / f"{stem}.py").is_file() or (self.folder / stem).is_dir()


class PluginLoader(SourceFileLoader):
    """Runs a plugin's source file with the plugin's own built-ins.

    No byte code is read or written: what was trusted is the source, and the folder stays as its author left it.
    """

    def __init__(self, fullname: str, path: str, scope: Scope) -> None:
        super().__init__(fullname, path)
        self.scope = scope

    def get_code(self, fullname: str) -> CodeType:
        """The source, compiled anew."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run the source with the plugin's own built-ins."""
        module.__dict__["__builtins__"] = self.scope.builtins
        super().exec_module(module)


class PluginFinder(MetaPathFinder):
    """Finds the sub-modules of one plugin's package, the package too where it is an installed one, and nothing else."""

    def __init__(self, scope: Scope, *, has_root: bool = False) -> None:
        self.scope = scope
        self._has_root = has_root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's place, with the plugin's loader in place of Python's."""
        is_root = self._has_root and fullname == self.scope.package
        if not is_root and not fullname.startswith(f"{self.scope.package}."):
            return None
        within = self.scope.own_path() if fullname.count(".") == 1 else path
        spec = PathFinder.find_spec(fullname, within, target)
        if spec is not None and self._is_unseen(spec):
            raise ModuleNotFoundError(f"{fullname} lies in .git, which is no part of what was trusted", name=fullname)
        if spec is not None and type(spec.loader) is SourceFileLoader and spec.origin:
            spec.loader = PluginLoader(fullname, spec.origin, self.scope)
            spec.cached = None
        return spec

    def _is_unseen(self, spec: ModuleSpec) -> bool:
        """Whether a module lies where nobody looks who trusts a plugin."""
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        return any(Path(place).resolve().is_relative_to(self.scope.folder / ".git") for place in places)


class _Importlib(ModuleType):
    """Python's ``importlib`` as a plugin sees it: ``import_module`` knows what ``import`` knows."""

    def __init__(self, scope: Scope) -> None:
        super().__init__("importlib", importlib.__doc__)
        self._scope = scope

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """`importlib.import_module`, by the plugin's view of names."""
        wanted = "" if name.startswith(".") else self._scope.real_name(name)
        try:
            return importlib.import_module(wanted or name, package)
        except ModuleNotFoundError as error:
            raise _told_as(name, wanted, error) from None


def _told_as(name: str, wanted: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error by the name that the plugin used, where the module itself is missing."""
    if not wanted or error.name != wanted:
        return error
    return ModuleNotFoundError(f"No module named {name!r}", name=name)
