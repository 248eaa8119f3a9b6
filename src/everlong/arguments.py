"""Checks of the arguments that callers pass to the library; each error names the argument and the value."""

from __future__ import annotations

import reprlib
from typing import NoReturn

from everlong.errors import ConfigError

__all__ = ["check_callable", "check_count", "check_text", "refuse"]


def check_text(name: str, value: object, *, or_none: bool = False) -> None:
    """Raise `ConfigError` unless an argument is a string."""
    if not (isinstance(value, str) or (or_none and value is None)):
        refuse(name, value, "a string or None" if or_none else "a string")


def check_count(name: str, value: object, what: str) -> None:
    """Raise `ConfigError` unless an argument is a whole number of something, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        refuse(name, value, f"a whole number of {what}, at least 0")


def check_callable(name: str, value: object, wanted: str) -> None:
    """Raise `ConfigError` unless an argument can be called."""
    if not callable(value):
        refuse(name, value, wanted)


def refuse(name: str, value: object, wanted: str, advice: str = "") -> NoReturn:
    """Raise the `ConfigError` of an argument that is something else than wanted."""
    raise ConfigError(
        f"{name} must be {wanted}, got {reprlib.repr(value)}" + (f"; {advice}" if advice else ""), key=name
    )
