"""Which files the file tools may touch: those in the root folder and in folders that the user allowed.

A path is resolved through all symbolic links first, and what is opened is the resolved path, with no link followed any
more; what was opened is then compared with what stands there. So neither ``..``, ``~``, an absolute path nor a link
leads out, also where somebody swaps a folder for a link in between. Commands are not confined by this.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from everlong.errors import ConfigError, ToolError

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a FIFO without a writer must not hang us
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


class Workspace:
    """A root folder, and what else is allowed."""

    def __init__(self, root: str | Path, allowed: Iterable[str | Path] = ()) -> None:
        self.root = _folder(root, "the root folder")
        self.allowed = tuple(_folder(one, "--allow") for one in allowed)

    def resolve(self, path: str | Path) -> Path:
        """The real path of a file or folder, whether it exists or not; a `ToolError` where it leads out."""
        text = str(path)
        if not text.strip():
            raise ToolError(f"the path is empty; give one in {self.root}, such as README.md or .")
        try:
            found = Path(os.path.realpath(self.root / Path(text).expanduser()))
            os.fsencode(found)
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolError(f"{text!r} is no path: {error}") from error
        if not self.holds(found):
            raise ToolError(self._refusal(text, found))
        return found

    def holds(self, resolved: Path) -> bool:
        """Whether a resolved path is inside."""
        return any(resolved.is_relative_to(folder) for folder in (self.root, *self.allowed))

    def shown(self, resolved: Path) -> str:
        """A path as the model should know it: relative to the root where it is inside."""
        return resolved.relative_to(self.root).as_posix() if resolved.is_relative_to(self.root) else str(resolved)

    def open(self, resolved: Path) -> int:
        """A descriptor of a regular file for reading; the caller closes it."""
        name = self.shown(resolved)
        try:
            handle = os.open(resolved, _FLAGS)
        except OSError as error:
            raise ToolError(_reason(name, resolved, error)) from error
        try:
            self._check_opened(handle, resolved, name)
        except BaseException:  # whatever it was, the file does not stay open
            os.close(handle)
            raise
        return handle

    def _check_opened(self, handle: int, resolved: Path, name: str) -> None:
        opened = os.fstat(handle)
        if stat.S_ISDIR(opened.st_mode):
            raise ToolError(f"{name} is a folder; list_files shows what is in it")
        if not stat.S_ISREG(opened.st_mode):
            raise ToolError(f"{name} is {_kind(opened.st_mode)}, not a regular file; it is left alone")
        self.check_unmoved(resolved)
        try:
            is_same = os.path.samestat(opened, resolved.lstat())
        except OSError:
            is_same = False
        if not is_same:
            raise ToolError(f"{name} was replaced while it was opened; try again")

    def check_unmoved(self, resolved: Path) -> None:
        """Raise a `ToolError` where a resolved path no longer stands for itself: a folder became a link meanwhile."""
        if os.path.realpath(resolved) != str(resolved):
            raise ToolError(f"{self.shown(resolved)} now leads elsewhere: a link was put in its way; it is left alone")

    def _refusal(self, text: str, found: Path) -> str:
        folders = ", ".join(str(folder) for folder in (self.root, *self.allowed))
        leads = "" if Path(text) == found else f" (it leads to {found})"
        return (
            f"{text!r} is outside of what the file tools may touch{leads}; allowed: {folders}. "
            "The user can allow more with --allow DIR."
        )


def _folder(path: str | Path, what: str) -> Path:
    try:
        found = Path(path).expanduser().resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{what}: {str(path)!r} cannot be used: {error}; name a folder that is there") from error
    if not found.is_dir():
        raise ConfigError(f"{what}: {str(path)!r} is not a folder; name one")
    return found


def _reason(name: str, resolved: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no file {name}{_alike(resolved)}"
    if isinstance(error, IsADirectoryError):
        return f"{name} is a folder; list_files shows what is in it"
    if resolved.is_symlink():
        return f"{name} is a symbolic link that leads to itself; it is left alone"
    if isinstance(error, PermissionError) and resolved.is_dir():  # what Windows says of a folder
        return f"{name} is a folder; list_files shows what is in it"
    return f"{name} cannot be opened: {error.strerror or error}"


def _alike(resolved: Path) -> str:
    """Names in the same folder that could be meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    try:
        with os.scandir(resolved.parent) as entries:
            names = [entry.name for entry, _ in zip(entries, range(5_000), strict=False)]
    except OSError:
        return "; its folder is not there either"
    close = get_close_matches(resolved.name, names, n=3, cutoff=0.6)
    return f"; there is {', '.join(close)}" if close else ""


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "something special")
