"""The external memory provider: found by its entry point, made only if the settings name it.

Any package can offer providers in the entry point group ``everlong.memory``; being installed activates nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from everlong.errors import ConfigError
from everlong.memory.contain import describe_error
from everlong.memory.provider import MemoryProvider

GROUP = "everlong.memory"
_KEY = "memory.provider"


def installed_providers() -> list[str]:
    """Return the names of all installed external providers, whether or not they work."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def external_provider(name: str, options: Mapping[str, Any] | None = None) -> MemoryProvider:
    """Make the provider of that name, and return it; raises `ConfigError` where that fails.

    Args:
        name: the entry point's name in the group ``everlong.memory``.
        options: passed as ``settings`` to a constructor that takes it.
    """
    entry = _find_entry(name)
    with _loading(entry):
        made = _make(entry.load(), options or {})
    if not isinstance(made, MemoryProvider):
        raise ConfigError(
            f"{_KEY}: the memory provider {name!r} ({_source_of(entry)}) is of the class {type(made).__name__}, which "
            "is not made from everlong.memory.MemoryProvider",
            _KEY,
        )
    return made


@contextmanager
def _loading(entry: EntryPoint) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{_KEY}: the memory provider {entry.name!r} ({_source_of(entry)}) cannot be loaded: "
            f"{describe_error(error)}; mend or reinstall the package that offers it, or set {_KEY} to null",
            _KEY,
        ) from error


def _source_of(entry: EntryPoint) -> str:
    return f"{entry.value!r}{f' of {entry.dist.name}' if entry.dist else ''}"


def _find_entry(name: str) -> EntryPoint:
    found = sorted(
        entry_points(group=GROUP, name=name), key=lambda entry: (entry.dist.name if entry.dist else "", entry.value)
    )
    if not found:
        installed = installed_providers()
        choice = f"installed are {', '.join(installed)}" if installed else "none is installed"
        raise ConfigError(
            f"{_KEY}: there is no memory provider {name!r} among the entry points of the group {GROUP!r}; {choice}; "
            f"install the package that offers it, or set {_KEY} to one that is installed or to null",
            _KEY,
        )
    if len({entry.value for entry in found}) > 1:
        offers = ", ".join(f"{entry.value}{f' of {entry.dist.name}' if entry.dist else ''}" for entry in found)
        raise ConfigError(
            f"{_KEY}: several packages offer a memory provider {name!r}: {offers}; uninstall all but one", _KEY
        )
    return found[0]


def _make(offered: Any, options: Mapping[str, Any]) -> Any:
    """Return the provider that is offered: the object itself, or what a class or function makes."""
    if not callable(offered):
        return offered
    return offered(settings=dict(options)) if _takes_settings(offered) else offered()


def _takes_settings(make: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # a class of an extension module has no signature
        return False
    return "settings" in parameters
