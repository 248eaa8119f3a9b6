"""The workspace: the root folder and folders that the user allowed, which the file tools cannot leave.

A path is resolved through all symbolic links first. Then it is opened by descriptor, from the allowed folder down, one
name at a time, without following links. So neither ``..``, ``~``, an absolute path nor a link leads out, even if
somebody swaps a folder for a link at that very moment. Commands are confined by the sandbox instead.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from everlong.errors import ConfigError, ToolError

__all__ = ["OpenFolder", "RealPath", "Workspace"]

_BASE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_READ = _BASE | os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a FIFO without a writer must not block
_NEW = _BASE | os.O_WRONLY | os.O_CREAT | os.O_EXCL
# With O_PATH, folders that may be entered but not listed can be opened too.
_FOLDER = _BASE | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)
_HAS_DESCRIPTORS = os.open in os.supports_dir_fd


class RealPath(str):
    """A resolved path of a workspace, on which no more links are followed."""

    __slots__ = ()


class OpenFolder:
    """An open folder, in which names are looked up without following links.

    Systems without descriptors of folders (Windows) use its path, and check files after opening them.
    """

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path = path
        self._handle = handle
        self._listing: int | None = None

    def _at(self, name: str) -> str:
        return name if self._handle is not None else str(self.path / name)

    def open_file(self, name: str) -> int:
        """Open a file for reading, and return its descriptor."""
        handle = os.open(self._at(name), _READ, dir_fd=self._handle)
        _check_final_path(handle, self.path / name)
        return handle

    def new_file(self, name: str) -> int:
        """Make a new file, and return its descriptor for writing."""
        return os.open(self._at(name), _NEW, 0o666, dir_fd=self._handle)

    def lstat(self, name: str) -> os.stat_result:
        """Return the status of a name; of a link, that of the link itself."""
        return os.stat(self._at(name), dir_fd=self._handle, follow_symlinks=False)

    def is_writable(self, name: str) -> bool:
        """Return whether this process may write a file."""
        ours = os.access in os.supports_effective_ids
        return os.access(self._at(name), os.W_OK, dir_fd=self._handle, effective_ids=ours)

    def replace(self, source: str, target: str) -> None:
        """Put one file in the place of another, or of a link."""
        os.replace(self._at(source), self._at(target), src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def remove(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self._at(name), dir_fd=self._handle)

    def link_target(self, name: str) -> str:
        """Return the target of a link, as it is written there."""
        return os.readlink(self._at(name), dir_fd=self._handle)

    def entries(self) -> list[os.DirEntry[str]]:
        """Return its entries in no order; valid while the folder is open."""
        if self._handle is None:
            with os.scandir(self.path) as found:
                return list(found)
        if self._listing is None:  # an O_PATH descriptor cannot list the folder
            self._listing = os.open(".", _BASE | os.O_RDONLY, dir_fd=self._handle)
        with os.scandir(self._listing) as found:
            return list(found)

    def enter(self, name: str, *, make: bool) -> OpenFolder:
        """Open a subfolder and return it; with ``make``, make it if it is missing."""
        if self._handle is None:
            if make:
                (self.path / name).mkdir(exist_ok=True)
            return OpenFolder(self.path / name, None)
        try:
            handle = os.open(name, _FOLDER, dir_fd=self._handle)
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._handle)
            handle = os.open(name, _FOLDER, dir_fd=self._handle)
        return OpenFolder(self.path / name, handle)

    def close(self) -> None:
        """Close the folder."""
        for handle in (self._handle, self._listing):
            if handle is not None:
                os.close(handle)
        self._handle = self._listing = None


class Workspace:
    """A root folder, and further allowed folders."""

    def __init__(self, root: str | Path, allowed: Iterable[str | Path] = ()) -> None:
        self.root = _folder(root, "the root folder")
        self.allowed = tuple(_folder(one, "--allow") for one in allowed)

    def resolve(self, path: str | Path) -> Path:
        """Return the real path of a file or folder, which need not exist; raises `ToolError` where it leads out."""
        text = str(path)
        if not text.strip():
            raise ToolError(f"the path is empty; give one in {self.root}, such as README.md or .")
        try:
            if isinstance(path, RealPath):
                found = Path(os.path.normpath(self.root / text))
            else:
                found = Path(os.path.realpath(self.root / Path(text).expanduser()))
            os.fsencode(found)
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolError(f"{text!r} is no path: {error}") from error
        if not self.holds(found):
            raise ToolError(self._refusal(text, found))
        return found

    def pin(self, path: str | Path) -> RealPath:
        """Return the real path as text, which stays the same if links on it change."""
        return RealPath(self.shown(self.resolve(path)))

    def holds(self, resolved: Path) -> bool:
        """Return whether a resolved path is inside the workspace."""
        return any(resolved.is_relative_to(folder) for folder in (self.root, *self.allowed))

    def shown(self, resolved: Path) -> str:
        """Return a path as the model is shown it: relative to the root if it is inside."""
        return resolved.relative_to(self.root).as_posix() if resolved.is_relative_to(self.root) else str(resolved)

    @contextmanager
    def folder(self, resolved: Path, *, make: bool = False) -> Iterator[OpenFolder]:
        """Open a folder of the workspace; raises `OSError` where that fails.

        Args:
            resolved: its resolved path.
            make: True to make missing folders on the way.

        Raises:
            ToolError: it is not inside, or a link was put in its way.
        """
        base = next((one for one in (self.root, *self.allowed) if resolved.is_relative_to(one)), None)
        if base is None:
            raise ToolError(self._refusal(str(resolved), resolved))
        held = OpenFolder(base, os.open(base, _FOLDER) if _HAS_DESCRIPTORS else None)
        try:
            for name in resolved.relative_to(base).parts:
                try:
                    inner = held.enter(name, make=make)
                except OSError as error:
                    if error.errno in {errno.ELOOP, errno.ENOTDIR} and _is_link(held, name):
                        raise ToolError(
                            f"{self.shown(resolved)} now leads elsewhere: a link was put in its way; it is left alone"
                        ) from error
                    raise
                held.close()
                held = inner
            yield held
        finally:
            held.close()

    @contextmanager
    def place(self, resolved: Path, *, make: bool = False) -> Iterator[tuple[OpenFolder, str]]:
        """Open the folder of a file, which need not exist, and yield it with the file's name. See `folder`."""
        if resolved in {self.root, *self.allowed}:
            raise ToolError(f"{self.shown(resolved)} is a folder; give the path of a file")
        with self.folder(resolved.parent, make=make) as folder:
            yield folder, resolved.name

    def open(self, resolved: Path) -> int:
        """Open a regular file for reading, and return its descriptor, which the caller closes."""
        name = self.shown(resolved)
        if resolved in {self.root, *self.allowed}:
            raise ToolError(f"{name} is a folder; list_files shows what is in it")
        try:
            with self.place(resolved) as (folder, own):
                handle = folder.open_file(own)
        except OSError as error:
            raise ToolError(self._reason(name, resolved, error)) from error
        try:
            _check_regular(os.fstat(handle).st_mode, name)
        except BaseException:  # do not leave the file open
            os.close(handle)
            raise
        return handle

    def _reason(self, name: str, resolved: Path, error: OSError) -> str:
        if isinstance(error, FileNotFoundError):
            return f"there is no file {name}{self._alike(resolved)}"
        if isinstance(error, IsADirectoryError):
            return f"{name} is a folder; list_files shows what is in it"
        if error.errno == errno.ELOOP:
            return f"{name} is a symbolic link that leads to itself, or was put there just now; it is left alone"
        if isinstance(error, PermissionError) and resolved.is_dir():  # what Windows says of a folder
            return f"{name} is a folder; list_files shows what is in it"
        return f"{name} cannot be opened: {error.strerror or error}"

    def _alike(self, resolved: Path) -> str:
        """Return a hint with similar names in the same folder."""
        from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

        try:
            with self.folder(resolved.parent) as folder:
                names = [entry.name for entry in folder.entries()[:5_000]]
        except OSError:
            return "; its folder is not there either"
        close = get_close_matches(resolved.name, names, n=3, cutoff=0.6)
        return f"; there is {', '.join(close)}" if close else ""

    def _refusal(self, text: str, found: Path) -> str:
        folders = ", ".join(str(folder) for folder in (self.root, *self.allowed))
        leads = "" if Path(text) == found else f" (it leads to {found})"
        return (
            f"{text!r} is outside of what the file tools may touch{leads}; allowed: {folders}. "
            "The user can allow more with --allow DIR."
        )


def _check_regular(mode: int, name: str) -> None:
    if stat.S_ISDIR(mode):
        raise ToolError(f"{name} is a folder; list_files shows what is in it")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{name} is {_kind(mode)}, not a regular file; it is left alone")


def _is_link(folder: OpenFolder, name: str) -> bool:
    try:
        return stat.S_ISLNK(folder.lstat(name).st_mode)
    except OSError:  # it is gone again
        return True


def _check_final_path(handle: int, wanted: Path) -> None:
    """Raise a `ToolError` if the opened file is not the one at its path, on systems without folder descriptors."""
    if sys.platform != "win32":
        return
    import ctypes  # noqa: PLC0415 - only needed here
    import msvcrt  # noqa: PLC0415 - as above

    buffer = ctypes.create_unicode_buffer(32_768)
    length = ctypes.windll.kernel32.GetFinalPathNameByHandleW(msvcrt.get_osfhandle(handle), buffer, len(buffer), 0)
    final = buffer.value.removeprefix("\\\\?\\UNC\\").removeprefix("\\\\?\\")
    if not length or os.path.normcase(final) != os.path.normcase(str(wanted)).removeprefix("\\\\"):
        os.close(handle)
        raise ToolError(f"{wanted} now leads elsewhere: a link was put in its way; it is left alone")


def _folder(path: str | Path, what: str) -> Path:
    try:
        found = Path(path).expanduser().resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{what}: {str(path)!r} cannot be used: {error}; name a folder that is there") from error
    if not found.is_dir():
        raise ConfigError(f"{what}: {str(path)!r} is not a folder; name one")
    return found


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "something special")
