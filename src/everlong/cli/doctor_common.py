"""What the checks of ``everlong doctor`` share: findings, the settings they look at, folders that can be written to."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.providers.connection import Connection

__all__ = ["Finding", "Situation", "fail", "folder_problem", "nearest_folder", "ok", "warn"]

State = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """What one check found, in a sentence, and what to do about it."""

    name: str
    state: State
    text: str
    advice: str = ""


def ok(name: str, text: str) -> Finding:
    """All is well."""
    return Finding(name, "ok", text)


def warn(name: str, text: str, advice: str) -> Finding:
    """It works, but perhaps not as meant."""
    return Finding(name, "warn", text, advice)


def fail(name: str, text: str, advice: str) -> Finding:
    """It does not work."""
    return Finding(name, "fail", text, advice)


@dataclass
class Situation:
    """What the checks look at."""

    call: bool = False
    """Whether anything outside of this machine, or any server at all, may be talked to."""
    connection: Connection | None = None
    """The chosen model, once it is known that it can be called."""

    @cached_property
    def settings(self) -> Settings:
        """The settings in effect; the defaults where they cannot be read, which is a finding of its own."""
        from everlong.config import Settings, load_settings  # noqa: PLC0415 - keeps `everlong --help` quick
        from everlong.errors import ConfigError  # noqa: PLC0415 - as above

        try:
            return load_settings().settings
        except (ConfigError, OSError):
            return Settings()


def nearest_folder(path: Path) -> Path:
    """The path itself, or the nearest one above it that is there."""
    path = path.absolute()
    return next((one for one in (path, *path.parents) if one.exists()), path)


def folder_problem(folder: Path) -> str | None:
    """Why nothing can be written to a folder, or it cannot be made; None where it can."""
    there = nearest_folder(folder)
    if not there.is_dir():
        return f"{there} is no folder"
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return f"{there} cannot be written to ({error.strerror or error})"
