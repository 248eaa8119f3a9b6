"""Reading a file's bytes for a change, and putting new ones in their place: whole or not at all.

What cannot be done becomes a `ToolError` in a sentence for the model. Knows paths that a workspace has resolved, and
nothing of what the bytes mean.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from everlong.agent.tools.workspace import Workspace
from everlong.errors import ToolError

LARGEST = 20_000_000
"""Bytes of the largest file that is changed or compared."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


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
    name = workspace.shown(resolved)
    try:
        mode = resolved.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ToolError(f"{name} cannot be written: {error.strerror or error}") from error
    if stat.S_ISDIR(mode):
        raise ToolError(f"{name} is a folder; give the path of a file")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{name} is not a regular file; it is left alone")
    if not os.access(resolved, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ToolError(f"{name} is read-only; it is left alone")
    return True


def save(workspace: Workspace, resolved: Path, data: bytes) -> bool:
    """Write a file as a whole; False where it replaced one, which keeps its mode. Missing folders are made."""
    name = workspace.shown(resolved)
    is_new = not check_writable(workspace, resolved)
    try:
        resolved.parent.mkdir(parents=True, exist_ok=True)
        workspace.check_unmoved(resolved.parent)
        mode = None if is_new else stat.S_IMODE(resolved.stat().st_mode)
        _replace(resolved, data, mode, lambda: workspace.check_unmoved(resolved.parent))
    except (FileExistsError, NotADirectoryError) as error:
        raise ToolError(f"{name} cannot be written: a part of its path is a file, not a folder") from error
    except OSError as error:
        raise ToolError(f"{name} cannot be written: {error.strerror or error}") from error
    return is_new


def _replace(target: Path, data: bytes, mode: int | None, check: Callable[[], None]) -> None:
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
    handle = os.open(temporary, _NEW, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        check()
        temporary.replace(target)
    except BaseException:  # also an interrupt must not leave the half-written file behind; it goes on its way
        with suppress(OSError):
            temporary.unlink()
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
