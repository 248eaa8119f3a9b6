"""The list of project plugins that the user has trusted, each with a hash of its files.

Plugin code runs with the user's rights, and a project's plugins come with a clone, a download or a pull. So a plugin is
loaded only after the user has trusted exactly these files; a change asks again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from everlong.config.files import write_whole
from everlong.config.paths import data_home
from everlong.errors import PluginError

__all__ = ["content_hash", "forget", "is_trusted", "trust", "trust_file"]

_MOST_FILES = 5_000
_MOST_BYTES = 100 * 1024 * 1024


def trust_file() -> Path:
    """Return the path of the list of trusted folders."""
    return data_home() / "trusted-plugins.json"


def content_hash(folder: Path) -> str:
    """Return a hash of the names and contents of all files of a folder.

    Compiled files count too, since they can be imported. Only the plugin's own ``.git`` does not, and nothing is
    imported from there.

    Raises:
        PluginError: it is no folder, is too large for a plugin, or a link leads out of it.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise PluginError(f"{folder} is no folder; name the folder of a plugin")
    whole = hashlib.sha256()
    size = 0
    for count, path in enumerate(_files(folder), 1):
        name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
        size += 0 if path.is_symlink() else path.stat().st_size
        if count > _MOST_FILES or size > _MOST_BYTES:
            raise PluginError(
                f"{folder} has more than {_MOST_FILES:,} files or {_MOST_BYTES // 1024**2} MiB, which is more than a "
                "plugin needs; move data and environments out of it"
            )
        kind, content = _content(path, folder)
        for part in (name, kind, content):
            whole.update(len(part).to_bytes(8, "big"))
            whole.update(part)
    return whole.hexdigest()


def is_trusted(folder: Path) -> bool:
    """Return whether a folder was trusted and has not changed since; False if it cannot be read."""
    known = _read().get(str(folder.resolve()))
    if known is None:
        return False
    try:
        return content_hash(folder) == known
    except (PluginError, OSError):
        return False


def trust(folder: Path) -> str:
    """Add a folder as it is now to the list, and return its hash."""
    folder = folder.resolve()
    try:
        found = content_hash(folder)
    except OSError as error:
        raise PluginError(
            f"{folder} cannot be read as a whole: {error.strerror or error}; mend its permissions"
        ) from error
    _write({**_read(), str(folder): found})
    return found


def forget(folder: Path) -> bool:
    """Take a folder off the list; return whether it was there."""
    known = _read()
    was_there = known.pop(str(folder.resolve()), None) is not None
    if was_there:
        _write(known)
    return was_there


def _write(known: dict[str, str]) -> None:
    path = trust_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(known, indent=2, sort_keys=True) + "\n")
    except OSError as error:
        raise PluginError(
            f"{path} cannot be written: {error.strerror or error}; check the folder's permissions"
        ) from error


def _read() -> dict[str, str]:
    try:
        values = json.loads(trust_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # nothing was trusted yet, or the list is damaged
        return {}
    return {str(path): str(known) for path, known in values.items()} if isinstance(values, dict) else {}


def _files(folder: Path) -> Iterator[Path]:
    for above, folders, files in os.walk(folder):
        here = Path(above)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in links and not (name == ".git" and here == folder))
        for name in sorted([*files, *links]):
            yield here / name


def _content(path: Path, folder: Path) -> tuple[bytes, bytes]:
    """Return a path's kind, and the hash of its bytes; for a link, its target."""
    if path.is_symlink():
        target = path.resolve()
        if not target.is_relative_to(folder):
            raise PluginError(
                f"{path} is a link that leads out of the plugin, to {target}; what is there could change unseen, so "
                "put the files themselves into the folder"
            )
        return b"link", target.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
    if not path.is_file():
        raise PluginError(f"{path} is neither a file nor a folder; a plugin can have nothing else in it")
    return b"file", hashlib.sha256(path.read_bytes()).digest()
