"""Kinds of values that settings have, and the section that holds them.

Each kind checks its values and says in plain words what is wrong. `setting` makes the field of a model.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

__all__ = [
    "DatabaseUrl",
    "Flag",
    "Name",
    "Names",
    "Price",
    "Ratio",
    "Section",
    "Threshold",
    "WebAddress",
    "Whole",
    "count",
    "flag",
    "optional_count",
    "setting",
]

_MOST = 1_000_000_000
"""The most that a whole number can be."""


def _not_bool(value: object) -> object:
    # Python counts True as 1, so without this "protect_last_n: true" would protect one message.
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")  # noqa: TRY004 - pydantic collects ValueError only
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number is wanted")
    return value


def _not_number(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("true or false is wanted, not a number")  # noqa: TRY004 - as above
    return value


def _name(value: str) -> str:
    if not value.strip():
        raise ValueError("a name is wanted, not an empty text")
    return value.strip()


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(c.isspace() for c in value):
        raise ValueError("an http or https address is wanted")
    _ = parts.port  # raises ValueError for a port that is none
    return value


def _database_url(value: str) -> str:
    kind = value.partition("://")[0].partition("+")[0]
    if "://" in value and kind not in {"sqlite", "postgresql", "postgres"}:
        raise ValueError("a path, or a sqlite:/// or postgresql:// address is wanted")
    return value


def _split_names(value: object) -> object:
    # One name needs no brackets, and an environment variable has no other form for several: "a, b".
    if isinstance(value, str):
        inner = value.strip().removeprefix("[").removesuffix("]")
        return [name.strip().strip("'\"") for name in inner.split(",") if name.strip()]
    return value


Flag: TypeAlias = Annotated[bool, BeforeValidator(_not_number)]
Whole: TypeAlias = Annotated[int, BeforeValidator(_not_bool), Field(le=_MOST)]
Ratio: TypeAlias = Annotated[float, BeforeValidator(_not_bool), Field(allow_inf_nan=False)]
Price: TypeAlias = Annotated[float, BeforeValidator(_not_bool), Field(ge=0.0, allow_inf_nan=False)]
Name: TypeAlias = Annotated[str, AfterValidator(_name)]
Names: TypeAlias = Annotated[list[Name], BeforeValidator(_split_names)]
WebAddress: TypeAlias = Annotated[Name, AfterValidator(_web_address)]
DatabaseUrl: TypeAlias = Annotated[Name, AfterValidator(_database_url)]
Threshold: TypeAlias = Annotated[
    Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] | Literal["auto"], BeforeValidator(_not_bool)
]


def setting(default: Any, allowed: str, description: str, **limits: Any) -> Any:
    """Return a field that says in words what it allows, for error messages and for ``config show``."""
    return Field(default, description=description, json_schema_extra={"allowed": allowed}, **limits)


def flag(*, default: bool, description: str) -> Any:
    """Return a field that is true or false."""
    return setting(default, "true or false", description)


def count(default: int, description: str, least: int = 1, most: int = _MOST) -> Any:
    """Return a field for a whole number."""
    return setting(default, f"a whole number from {least} to {most:,}", description, ge=least, le=most)


def optional_count(default: int | None, description: str) -> Any:
    """Return a field for a whole number from 1, or null."""
    return setting(default, f"a whole number from 1 to {_MOST:,}, or null", description, ge=1)


class Section(BaseModel):
    """A section of ``config.yaml``: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
