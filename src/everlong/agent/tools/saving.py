"""Reading a file's bytes for a change, and putting new ones in their place: whole or not at all.

What cannot be done becomes a `ToolError` in a sentence for the model. Knows paths that a workspace has resolved, and
nothing of what the bytes mean.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

from everlong.agent.tools.workspace import OpenFolder, Workspace
from everlong.errors import ToolError

LARGEST = 20_000_000
"""Bytes of the largest file that is changed or compared."""


def load(workspace: Workspace, resolved: Path) -> bytes:
    """All bytes of a regular file that is not too large to be changed."""
    with os.fdopen(workspace.open(resolved), "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ToolError(
            f"{workspace.shown(resolved)} is larger than {LARGEST // 1_000_000} MB, too large to be changed here; "
            "use run_command with sed, awk or a script"
        )
    return data


def check_writable(workspace: Workspace, resolved: Path) -> bool:
    """Whether a file is there already; a `ToolError` where something else is, or it may not be written."""
    try:
        with workspace.place(resolved) as (folder, name):
            return _mode(folder, name, workspace.shown(resolved)) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ToolError(f"{workspace.shown(resolved)} cannot be written: {error.strerror or error}") from error


def _mode(folder: OpenFolder, name: str, shown: str) -> int | None:
    """The mode of a file that may be replaced; None where there is none."""
    try:
        mode = folder.lstat(name).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise ToolError(f"{shown} is a folder; give the path of a file")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{shown} is not a regular file; it is left alone")
    if not folder.is_writable(name):
        raise ToolError(f"{shown} is read-only; it is left alone")
    return stat.S_IMODE(mode)


def save(workspace: Workspace, resolved: Path, data: bytes) -> bool:
    """Write a file as a whole; False where it replaced one, which keeps its mode. Missing folders are made."""
    shown = workspace.shown(resolved)
    check_writable(workspace, resolved)  # before folders are made for it
    try:
        with workspace.place(resolved, make=True) as (folder, name):
            mode = _mode(folder, name, shown)
            _replace(folder, name, data, mode)
    except (FileExistsError, NotADirectoryError) as error:
        raise ToolError(f"{shown} cannot be written: a part of its path is a file, not a folder") from error
    except OSError as error:
        raise ToolError(f"{shown} cannot be written: {error.strerror or error}") from error
    return mode is None


def _replace(folder: OpenFolder, name: str, data: bytes, mode: int | None) -> None:
    temporary = f".{name[:100]}.{secrets.token_hex(6)}.tmp"
    handle = folder.new_file(temporary)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if mode is not None and sys.platform != "win32":
                os.fchmod(file.fileno(), mode)
        folder.replace(temporary, name)
    except BaseException:  # also an interrupt must not leave the half-written file behind; it goes on its way
        with suppress(OSError):
            folder.remove(temporary)
        raise


def encoded(text: str, what: str) -> bytes:
    """A text that a model gave, as bytes of a file."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{what!r} has half of a surrogate pair at character {error.start}, which no file can hold; leave it out"
        ) from error


def looks_binary(data: bytes) -> bool:
    """Whether the beginning of a file is not that of a text."""
    return b"\0" in data[:8_192]
