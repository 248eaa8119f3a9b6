"""Places of a workspace that others act on later, outside of any sandbox: what git runs, and what Everlong reads.

A sandbox can keep what is there from being changed, but not what is not there from being made. So these places are
made before a command runs, in a way that changes nothing for anybody, and taken away when nothing runs inside any more.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["GUARDED", "GuardedPlaces"]

GUARDED = (".git/hooks", ".git/config", ".git/commondir", ".everlong")
"""Paths that commands can read and not change. In ``commondir`` git looks up where configuration and hooks are."""

_HERE = b".\n"
"""The ``commondir`` of a repository that has its configuration where it is: as if there were none."""

_lock = threading.Lock()
_users: Counter[Path] = Counter()


class GuardedPlaces:
    """The guarded places of some folders, for as long as a command runs there."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)

    def make(self) -> None:
        """Make those that are not there; what cannot be made can be made by no command either."""
        with _lock:
            for folder in self._folders:
                _users[folder] += 1
                with suppress(OSError):
                    (folder / ".everlong").mkdir(exist_ok=True)
                git = folder / ".git"
                if git.is_symlink() or not git.is_dir():
                    continue
                with suppress(OSError):
                    (git / "hooks").mkdir(exist_ok=True)
                for name, content in (("config", b""), ("commondir", _HERE)):
                    with suppress(OSError), (git / name).open("xb") as file:
                        file.write(content)

    def let_go(self, *, is_over: bool = True) -> None:
        """Take away what nobody needs any more; unless something still runs inside, which must not come to miss it."""
        with _lock:
            for folder in self._folders:
                _users[folder] -= 1
                if _users[folder] > 0:
                    continue
                del _users[folder]
                if not is_over:
                    continue
                common = folder / ".git" / "commondir"
                with suppress(OSError):
                    if not common.is_symlink() and common.read_bytes() == _HERE:
                        common.unlink()
                with suppress(OSError):
                    (folder / ".everlong").rmdir()  # which only an empty one lets be done
