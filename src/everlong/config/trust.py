"""Trust in folders: the user's decisions, and what a folder brings along.

A clone or a download brings settings and instructions along. None of them counts before the user has trusted
the folder, and even then a folder sets only what `may_set` allows: only the user's own file says where data,
credentials and money go. A changed settings file must be trusted again. This module neither asks nor prints.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from everlong.config.files import write_whole
from everlong.config.paths import (
    FILE_NAME,
    INSTRUCTION_FILES,
    PROJECT_FOLDER,
    data_home,
    project_config_path,
    user_config_path,
    workspace_folder,
)
from everlong.config.yaml_file import leaves, parse_document, read_text
from everlong.errors import ConfigError

__all__ = [
    "FolderRecord",
    "FolderWishes",
    "folder_records",
    "folder_wishes",
    "folders_at",
    "forget_folder",
    "is_decided",
    "is_folder_trusted",
    "is_settings_text_trusted",
    "may_set",
    "read_folder_settings",
    "remember_folder",
    "trust_file",
]

_MOST_BYTES = 64_000
"""Bytes of a folder's settings, which are read before anybody trusts them; the library takes seconds for many more."""
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class FolderRecord:
    """The user's decision about a folder and the settings file that it had then."""

    is_trusted: bool
    settings: str
    """A hash of the settings file; empty if there was none."""


@dataclass(frozen=True, slots=True)
class FolderWishes:
    """Settings and instructions of a folder, which count only once it is trusted."""

    folder: Path
    settings: tuple[tuple[str, str], ...] = ()
    """Settings that would count, each with its value as text."""
    ignored: tuple[str, ...] = ()
    """Settings that no folder may set."""
    instructions: tuple[str, ...] = ()
    """Files that would go into the system prompt."""
    problem: str = ""
    """The reason why the settings cannot be read."""
    digest: str = ""
    """A hash of the settings file; empty if there is none."""

    def __bool__(self) -> bool:
        return bool(self.settings or self.ignored or self.instructions or self.problem)


def may_set(key: str) -> bool:
    """Return whether a trusted folder may set a key: none that says where data, credentials or money go."""
    return key == "context.engine" or (key.startswith("compression.") and key.count(".") == 1)


# -- what a folder brings along ---------------------------------------------------------------------------------------


def folders_at(cwd: Path | None = None, env: Mapping[str, str] | None = None) -> list[Path]:
    """Return the folders that matter for work in a folder: its workspace, and that of the nearest settings file."""
    found = [workspace_folder(cwd)]
    config = project_config_path(cwd)
    if config is not None and not _is_users_own(config, env):
        found.append(Path(os.path.realpath(config.parent.parent)))
    return list(dict.fromkeys(found))


def read_folder_settings(path: Path) -> str | None:
    """Return the text of a folder's settings file; None if there is none.

    Raises:
        ConfigError: the file cannot be read, is too large, or is a link that leads out of the folder.
    """
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(path.parent.parent)):
        raise ConfigError(f"{path} is a link that leads out of its folder; put the file itself there")
    try:
        found = real.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would keep its reader waiting for ever
            raise ConfigError(f"{path} is not a regular file; put one there, or move it away")
        if found.st_size > _MOST_BYTES:
            raise ConfigError(f"{path} has more than {_MOST_BYTES:,} bytes, too many for settings; make it smaller")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    return read_text(real)


def folder_wishes(folder: Path, env: Mapping[str, str] | None = None) -> FolderWishes:
    """Return what a folder brings along, without using any of it; nothing in the folder makes this fail."""
    instructions = tuple(name for name in INSTRUCTION_FILES if os.path.isfile(folder / name))  # noqa: PTH113 - it never fails
    path = folder / PROJECT_FOLDER / FILE_NAME
    settings: list[tuple[str, str]] = []
    ignored: list[str] = []
    problem, digest = "", "unreadable"  # never equal to a trusted hash
    try:
        text = None if _is_users_own(path, env) else read_folder_settings(path)
        digest = "" if text is None else _digest(text)
        for key, value in leaves(parse_document(text, str(path)).values if text is not None else {}):
            if may_set(key):
                settings.append((_printable(key), "…" if isinstance(value, dict | list) else _printable(str(value))))
            else:
                ignored.append(_printable(key))
    except ConfigError as error:
        problem = _printable(str(error), 400)
    return FolderWishes(folder, tuple(settings), tuple(ignored), instructions, problem, digest)


def _is_users_own(path: Path, env: Mapping[str, str] | None) -> bool:
    return os.path.realpath(path) == os.path.realpath(user_config_path(env))  # unlike resolve, survives circular links


def _printable(text: str, most: int = _SHOWN_CHARS) -> str:
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text[:most])
    return shown if len(text) <= most else f"{shown}…"


# -- the user's decisions ---------------------------------------------------------------------------------------------


def trust_file(env: Mapping[str, str] | None = None) -> Path:
    """Return the file that keeps the decisions."""
    return data_home(env) / "trusted-folders.json"


def folder_records(env: Mapping[str, str] | None = None) -> dict[Path, FolderRecord]:
    """Return the user's decisions by folder."""
    try:
        values = json.loads(trust_file(env).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no file yet, or an unreadable one: then nothing is trusted
        return {}
    if not isinstance(values, dict):
        return {}
    return {
        Path(folder): FolderRecord(record.get("trusted") is True, str(record.get("settings") or ""))
        for folder, record in values.items()
        if isinstance(record, dict)
    }


def is_folder_trusted(cwd: Path | None = None, env: Mapping[str, str] | None = None) -> bool:
    """Return whether the instructions of a working directory count."""
    record = folder_records(env).get(workspace_folder(cwd))
    return record is not None and record.is_trusted


def is_settings_text_trusted(folder: Path, text: str, env: Mapping[str, str] | None = None) -> bool:
    """Return whether a folder was trusted with exactly this settings file."""
    record = folder_records(env).get(folder.resolve())
    return record is not None and record.is_trusted and record.settings == _digest(text)


def is_decided(wishes: FolderWishes, env: Mapping[str, str] | None = None) -> bool:
    """Return whether the user has decided about a folder with its present settings."""
    record = folder_records(env).get(wishes.folder.resolve())
    return record is not None and record.settings == wishes.digest


def remember_folder(wishes: FolderWishes, *, is_trusted: bool, env: Mapping[str, str] | None = None) -> None:
    """Store the user's decision about a folder."""
    record = FolderRecord(is_trusted, wishes.digest)
    _write({**folder_records(env), wishes.folder.resolve(): record}, env)


def forget_folder(folder: Path, env: Mapping[str, str] | None = None) -> bool:
    """Remove the user's decision about a folder; return False if there was none."""
    records = folder_records(env)
    found = records.pop(folder.resolve(), None) or records.pop(folder, None)
    if found is not None:
        _write(records, env)
    return found is not None


def _write(records: Mapping[Path, FolderRecord], env: Mapping[str, str] | None) -> None:
    path = trust_file(env)
    values = {str(folder): {"trusted": one.is_trusted, "settings": one.settings} for folder, one in records.items()}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(values, indent=2, sort_keys=True) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}; check its permissions") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
