"""The module names of other hosts, for tests of engines that import them.

After ``import everlong.plugins.foreign``, ``from agent.context_engine import ContextEngine`` gives Everlong's own class
in the whole process, unless a real module of that name is installed. Nothing in Everlong imports this module: plugins
that Everlong loads see these names anyway, and other code does not.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from everlong.plugins.adapters.host_state import HOST, adapted_modules, adapter_of, host_path

__all__ = ["host_path"]


class _AdapterLoader(Loader):
    """Loads an adapter under the name of the module that it stands for; there is one module with two names."""

    def __init__(self, adapter: str) -> None:
        self._adapter = adapter
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the adapter."""
        del spec
        module = importlib.import_module(self._adapter)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the adapter as it is: it has run under its own name already."""
        module.__spec__ = self._spec


class _AdapterFinder(MetaPathFinder):
    """Finds adapters by the names of other hosts, after all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an adapter; None where there is none of that name."""
        del path, target
        adapter = adapter_of(fullname) or _package_of(fullname)
        found = importlib.util.find_spec(adapter) if adapter else None
        if found is None:
            return None
        is_package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _AdapterLoader(adapter), origin=found.origin, is_package=is_package)


def _package_of(name: str) -> str:
    """Return the package of adapters that stands for ``name``, if some of its modules are adapted; else nothing."""
    return f"{HOST}.{name}" if any(one.startswith(f"{name}.") for one in adapted_modules()) else ""


if not any(isinstance(finder, _AdapterFinder) for finder in sys.meta_path):
    sys.meta_path.append(_AdapterFinder())
