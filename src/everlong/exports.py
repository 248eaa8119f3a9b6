"""Lazy exports: a package imports a module when one of its names is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["export_lazily"]


def export_lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: The ``__name__`` of the package.
        homes: The names of each module of the package, separated by spaces.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name in home_of:
            return getattr(import_module(f"{package}.{home_of[name]}"), name)
        if name in homes:  # ``import everlong`` is enough to say ``everlong.context``
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        return sorted({*vars(import_module(package)), *home_of, *homes})

    return sorted(home_of), load, listed
