"""The system's sandbox for commands: bubblewrap on Linux, ``sandbox-exec`` on macOS.

Inside, commands can write the workspace and read the system. They do not see the home directory, except for the
programs in it, nor Everlong's own files. There is no network unless it was asked for and allowed. This module makes the
command line; `process` runs it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from everlong.config.paths import config_home, data_home
from everlong.processes import system_program

__all__ = ["GUARDED", "Confinement", "GuardedPlaces", "Sandbox", "find_sandbox", "guarded_names"]

GUARDED = (".git", ".everlong")
"""Folders of a workspace that commands can read but not change: git and Everlong run what they say.

They are guarded as a whole. A file that is guarded on its own, such as ``.git/config``, is open to all commands under
way as soon as somebody outside replaces it, as ``git config`` does.
"""

_BARE = "HEAD"
"""A folder with this file and no ``.git`` may be a bare repository, and git obeys the ``config`` beside it."""

_NAMED = re.compile(
    r"(?:^|\])[ \t]*(hookspath|path|fsmonitor|clean|smudge|process|textconv|command|driver|editor|pager|helper|program"
    r"|sshcommand)[ \t]*=[ \t]*([^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
"""Settings of git that name a folder of hooks, other settings, or a program."""

_GITLINK, _GITLINK_BYTES = 0o160000, b"\0\0\xe0\0"

_lock = threading.Lock()
_users: Counter[Path] = Counter()


class GuardedPlaces:
    """The guarded folders of a workspace, while a command runs in it."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = [path for folder in folders for path in (folder, *submodules(folder))]

    def make(self) -> None:
        """Make the missing ones, so that no command can make them; ignore those that cannot be made."""
        with _lock:
            for folder in self._folders:
                _users[folder] += 1
                for name in guarded_names(folder):
                    with suppress(OSError):
                        (folder / name).mkdir()

    def let_go(self, *, is_over: bool = True) -> None:
        """Remove the empty ones, unless another command or, without ``is_over``, this one still runs there."""
        with _lock:
            for folder in self._folders:
                _users[folder] -= 1
                if _users[folder] > 0:
                    continue
                del _users[folder]
                if not is_over or _is_in_use(folder):
                    continue
                for name in guarded_names(folder):
                    with suppress(OSError):
                        (folder / name).rmdir()  # which only an empty one lets be done


def guarded_names(folder: Path) -> list[str]:
    """Return the guarded names of a folder, with what git's settings name in it.

    Where it is no repository there is also that by which it would become one.
    """
    top, home = _top(folder), _home() or folder
    files = [one / name for one in _repositories(top) for name in ("config", "config.worktree")]
    files += home / ".gitconfig", home / ".config/git/config"
    named = [str(path.relative_to(folder)) for file in files for path in _named_in(file, top, folder)]
    is_git = _is_repository(folder) or (folder / _BARE).is_file()
    return list(dict.fromkeys([*GUARDED, *named] if is_git else [*GUARDED, _BARE, *named]))


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").is_file() or (folder / ".git" / _BARE).exists()  # an empty one is only a guard


def _top(folder: Path) -> Path:
    """Return the top of the repository that a folder is in; without one, the folder."""
    return next(filter(_is_repository, (folder, *folder.parents)), folder)


def _named_in(file: Path, top: Path, folder: Path, depth: int = 5) -> Iterator[Path]:
    """Yield what settings of git name inside of a folder: what is there, and where hooks would be looked for."""
    try:
        found = _NAMED.findall(file.read_text(encoding="utf-8", errors="replace")) if depth and file.is_file() else []
    except OSError:
        return
    for key, value in found:
        for word in value.replace('"', " ").split():
            path = Path(os.path.normpath((file.parent if key.lower() == "path" else top) / word.lstrip("!")))
            is_hooks = key.lower() == "hookspath" and path.parent.is_dir()
            is_program = key.lower() not in {"hookspath", "path"}
            if is_program and not set("/.") & set(word):  # it is looked for in PATH
                continue
            if _is_inside(path, [folder]) and (is_hooks or os.path.lexists(path)):
                yield path
                yield from _named_in(path, top, folder, depth - 1) if key.lower() == "path" else ()


def submodules(folder: Path) -> list[Path]:
    """Return the folders of a workspace that are repositories of their own for git, with or without files so far.

    ``git status`` goes into them, and runs what the settings there say.
    """
    top, found = _top(folder), list[Path]()
    with suppress(OSError, ValueError, IndexError):
        for name in _gitlinks((_repositories(top)[0] / "index").read_bytes()):
            path = top / name
            if _is_inside(path, [folder]) and path.is_dir() and Path(os.path.realpath(path)) == path:
                found += [path, *submodules(path)]
    return found


def _gitlinks(index: bytes) -> list[str]:
    """Return the names of the other repositories in an index of git: each entry has its mode at byte 24."""
    if _GITLINK_BYTES not in index:
        return []
    version, count = int.from_bytes(index[4:8], "big"), int.from_bytes(index[8:12], "big")
    found, at, name = list[str](), 12, b""
    for _ in range(count):
        start, at = at, at + (64 if index[at + 60] & 0x40 else 62)  # an extended entry has two bytes more
        kept = 0
        if version == 4:  # only the end of the name that differs from the last one, and how much of that goes
            left_out = index[at] & 0x7F
            while index[at] & 0x80:
                at += 1
                left_out = (left_out + 1) << 7 | index[at] & 0x7F
            at, kept = at + 1, len(name) - left_out
        end = index.index(b"\0", at)
        name = name[:kept] + index[at:end]
        at = end + 1 if version == 4 else start + (end - start) // 8 * 8 + 8
        if int.from_bytes(index[start + 24 : start + 28], "big") == _GITLINK:
            found.append(os.fsdecode(name))
    return found


def _is_in_use(folder: Path) -> bool:
    """Return whether a sandbox is still there in which a folder can be written, of this process or of any other."""
    written = f"\0--bind\0{folder}\0".encode("utf-8", "surrogateescape")
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it is over, or another user's
            if written in process.read_bytes():
                return True
    return False


Mode = Literal["auto", "on", "off"]

_PROBE_SECONDS = 10

_TOOLCHAINS = (
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/pipx", ".local/share/uv/python"),
    *(".local/share/uv/tools", ".local/share/mise", ".local/share/fnm", ".local/share/pnpm"),
    *(".asdf", ".pyenv", ".rbenv", ".rvm", ".nvm", ".volta", ".opam", ".ghcup", "go", ".gem/ruby"),
    *(".cargo/bin", ".cargo/registry", ".cargo/git", ".rustup"),
    *(".m2/repository", ".gradle/caches", ".gradle/wrapper", ".sdkman/candidates", ".nuget/packages"),
)
"""Folders of the home directory that hold programs and packages, and no credentials beside them."""

_BESIDE_PROGRAMS = ("lib", "lib64", "libexec", "include", "pyvenv.cfg")
"""What programs in a folder ``bin`` need from the folder around it."""

_TEMPORARY = (Path("/tmp"), Path("/run"))  # noqa: S108 - made anew for each command
_SYSTEM_SWITCHES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi")


@dataclass(frozen=True)
class Sandbox:
    """A sandbox of the system that works here."""

    kind: Literal["bubblewrap", "sandbox-exec"]
    program: str

    def command(
        self,
        inner: Sequence[str],
        folders: Sequence[Path],
        *,
        hidden: Iterable[Path] = (),
        shown: Iterable[Path] = (),
        network: bool = False,
        info_fd: int | None = None,
    ) -> list[str]:
        """Return the command line that runs another one inside the sandbox.

        Args:
            inner: the command and its arguments.
            folders: the writable folders; the command starts in the first.
            hidden: files and folders that cannot be seen; missing ones are ignored.
            shown: files and folders inside of hidden ones that can be read.
            network: True to allow the network.
            info_fd: the descriptor to which bubblewrap writes its first process, with which all others end.
        """
        unseen = [path for path in dict.fromkeys(Path(os.path.realpath(path)) for path in hidden) if path.exists()]
        seen = [path for path in dict.fromkeys(shown) if path.exists()]
        if self.kind == "sandbox-exec":
            return [self.program, "-p", _profile(folders, unseen, seen, network=network), *inner]
        return [*self._bubblewrap(folders, unseen, seen, network=network, info_fd=info_fd), "--", *inner]

    def _bubblewrap(
        self,
        folders: Sequence[Path],
        unseen: Sequence[Path],
        seen: Sequence[Path],
        *,
        network: bool,
        info_fd: int | None,
    ) -> list[str]:
        line = [self.program, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        line += [] if network else ["--unshare-net"]
        line += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        # If the user is root, these are writable even without capabilities, and change the whole machine.
        line += [part for path in _SYSTEM_SWITCHES for part in ("--ro-bind-try", path, path)]
        # Sockets in these lead to programs outside: an agent with keys, a desktop, a container engine that is root.
        line += [part for path in _TEMPORARY for part in ("--tmpfs", str(path))]
        line += [part for path in _sockets([*_TEMPORARY, *unseen, *folders]) for part in _cover(path)]
        # The later option wins: what is hidden, what is shown inside of it, and what is hidden inside of that.
        again = [path for path in unseen if _is_inside(path, [*folders, *seen])]
        line += [part for path in unseen if path not in again for part in _cover(path)]
        if network:
            line += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
            agent = os.environ.get("SSH_AUTH_SOCK", "")
            line += ["--bind-try", agent, agent] if agent.startswith("/") else []
        for path in seen:
            line += ["--ro-bind", str(path), str(path)]
        others = {path for folder in folders for path in submodules(folder)}
        guarded = {path: "--ro-bind" for folder in {*folders, *others} for path in _guarded(folder)}
        # Nobody can put another folder in the place of one around them.
        mounts = {above: "--bind" for one in {*guarded, *others} for above in one.parents if _is_inside(above, folders)}
        mounts |= guarded
        for folder in {*folders, *others}:  # one that is allowed inside of a guarded one can be written
            # Nothing can be planted in a bare repository, nor where a guard could not be made: the disk was full.
            is_bare = folder == folders[0] and (folder / _BARE).is_file() and not _is_repository(folder)
            is_guarded = all(os.path.lexists(folder / name) for name in guarded_names(folder))
            mounts[folder] = "--bind" if is_guarded and not is_bare else "--ro-bind"
        line += [part for path in sorted(mounts) for part in (mounts[path], str(path), str(path))]
        line += [part for path in again for part in _cover(path)]
        for path in (path for path in seen if _is_inside(path, again)):
            line += ["--ro-bind", str(path), str(path)]
        line += ["--setenv", "XDG_CACHE_HOME", "/tmp/cache"]  # noqa: S108 - as above; the user's own is read-only
        line += ["--setenv", "TMPDIR", "/tmp"]  # noqa: S108 - as above; the user's may be hidden
        line += ["--info-fd", str(info_fd)] if info_fd is not None else []
        return [*line, "--chdir", str(folders[0])]


def _guarded(folder: Path) -> list[Path]:
    """Return what must not be written in a workspace: also the repository that a ``.git`` names, and this program."""
    places = (folder / name for name in guarded_names(folder))
    found = [path for path in places if not path.is_symlink()]
    found.append(Path(os.path.realpath(sys.prefix)))  # modules that are loaded later run outside
    return [path for path in (*found, *_repositories(folder)) if path.exists() and _is_inside(path, [folder])]


def _repositories(folder: Path) -> list[Path]:
    """Return the folders of the repository that a folder's ``.git`` is or names: its own, and the common one."""
    git = folder / ".git"
    with suppress(OSError, ValueError):
        if git.is_file():
            git = Path(os.path.realpath(folder / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()))
            return [git, Path(os.path.realpath(git / (git / "commondir").read_text(encoding="utf-8").strip()))]
    return [git]


def _is_inside(path: Path, others: Iterable[Path]) -> bool:
    return any(path != other and path.is_relative_to(other) for other in others)


def _sockets(others: Sequence[Path]) -> list[Path]:
    """Return the sockets of programs that listen, but for those inside of other folders."""
    found: set[Path] = set()
    with suppress(OSError):
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
        named = {path for line in lines for path in line.split(maxsplit=7)[7:] if path.startswith("/")}
        found = {Path(os.path.realpath(path)) for path in named if os.path.exists(path)}  # noqa: PTH110 - never fails
    return sorted(path for path in found if not _is_inside(path, others))


def _cover(path: Path) -> list[str]:
    return ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", os.devnull, str(path)]


def _profile(folders: Sequence[Path], unseen: Sequence[Path], seen: Sequence[Path], *, network: bool) -> str:
    """Return the rules for ``sandbox-exec``; the last one that fits a path decides."""
    temporary = (Path("/private/tmp"), Path("/private/var/folders"), Path("/dev"))
    again = [path for path in unseen if _is_inside(path, [*folders, *seen])]
    parents = (path for place in (*folders, *seen) for path in place.parents)
    above = dict.fromkeys(path for path in parents if any(path.is_relative_to(one) for one in unseen))
    rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
    rules += [f"(deny file-read* file-write* (subpath {_quoted(path)}))" for path in unseen if path not in again]
    rules += [f"(allow file-read-metadata (literal {_quoted(path)}))" for path in above]
    rules += [f"(allow file-read* (subpath {_quoted(path)}))" for path in seen]
    rules += [f"(allow file-write* (subpath {_quoted(path)}))" for path in temporary]
    for folder in sorted({*folders, *(path for one in folders for path in submodules(one))}):
        rules.append(f"(allow file-read* file-write* (subpath {_quoted(folder)}))")
        guarded = dict.fromkeys([*(folder / name for name in guarded_names(folder)), *_guarded(folder)])
        rules += [f"(deny file-write* (subpath {_quoted(path)}))" for path in guarded]
    rules += [f"(deny file-read* file-write* (subpath {_quoted(path)}))" for path in again]
    rules += [f"(allow file-read* (subpath {_quoted(path)}))" for path in seen if _is_inside(path, again)]
    rules += [] if network else ["(deny network*)"]
    return "\n".join(rules)


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


# -- the sandbox of this system ----------------------------------------------------------------------------------------


@cache
def find_sandbox() -> tuple[Sandbox | None, str]:
    """Return the sandbox that works here, or None, and the finding in words."""
    if sys.platform == "darwin":
        kind, name = "sandbox-exec", "sandbox-exec"
    elif sys.platform == "linux":
        kind, name = "bubblewrap", "bwrap"
    else:
        return None, f"Everlong knows no sandbox for {sys.platform}"
    program = system_program(name)
    if program is None:
        how = "; install it with your system's package manager" if kind == "bubblewrap" else ""
        return None, f"{kind} is not installed{how}"
    found = Sandbox("bubblewrap" if kind == "bubblewrap" else "sandbox-exec", program)
    line = found.command(["/bin/sh", "-c", ":"], [Path("/").resolve()])
    # The root must not be writable, not even in a trial.
    line = ["--ro-bind" if word == "--bind" else word for word in line]
    try:
        tried = subprocess.run(  # noqa: S603 - a program of the system's
            line, capture_output=True, timeout=_PROBE_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{kind} does not work here: {error}"
    if tried.returncode:
        said = " ".join(tried.stderr.decode("utf-8", "replace").split())[:200]
        return None, f"{kind} does not work here ({said or f'exit code {tried.returncode}'})"
    return found, f"{kind} works here"


@dataclass(frozen=True)
class Confinement:
    """The confinement of an agent's commands: the user's wish and the system's sandbox."""

    mode: Mode = "off"
    hidden: tuple[Path, ...] = ()
    """Paths that commands cannot see, besides the home directory and Everlong's own files."""
    asks: bool = True
    """True if commands in the sandbox need approval as well."""

    @cached_property
    def sandbox(self) -> Sandbox | None:
        """The sandbox in use; None where there is none, or none is wanted."""
        return find_sandbox()[0] if self.mode != "off" else None

    @property
    def is_missing(self) -> bool:
        """True if a sandbox is required and there is none, so that nothing may run."""
        return self.mode == "on" and self.sandbox is None

    def wrap(
        self, inner: Sequence[str], folders: Sequence[Path], *, network: bool, info_fd: int | None = None
    ) -> list[str]:
        """Return the command line that runs another one in the sandbox, which must be there; see `Sandbox.command`."""
        assert self.sandbox is not None  # noqa: S101 - as said
        hidden, shown = [config_home(), data_home(), *self.hidden], []
        home = _home()
        if home is not None and any(home.is_relative_to(folder) for folder in folders):
            # Somebody works in the home itself: then its files are in sight, and its settings are not.
            hidden += [path for path in home.iterdir() if path.name.startswith(".") and path.name not in GUARDED]
        elif home is not None:
            hidden.append(home)
        if home is not None:
            shown = _programs_in(home)
        hidden += Path("/mnt").glob("?/Users")  # the homes of Windows around WSL
        return self.sandbox.command(inner, folders, hidden=hidden, shown=shown, network=network, info_fd=info_fd)

    def describe(self, *, network: bool = False) -> str:
        """Return the confinement of a command in words, for the person who approves it."""
        if self.sandbox is not None:
            reach = "with the network" if network else "without a network"
            return f"in the sandbox ({self.sandbox.kind}): writes only to the workspace, {reach}"
        if self.mode == "off":
            return "without a sandbox (agent.sandbox is off): it can do whatever you can"
        return f"without a sandbox ({find_sandbox()[1]}): it can do whatever you can"


def _home() -> Path | None:
    """Return the home directory; None where there is none, as in bare containers."""
    try:
        home = Path(os.path.realpath(Path.home()))
    except RuntimeError:
        return None
    return home if home.is_dir() and home != Path(home.anchor) else None


def _programs_in(home: Path) -> list[Path]:
    """Return the folders of the home directory that hold programs: known ones, and those that ``PATH`` names."""
    shown = [home / name for name in _TOOLCHAINS]
    for named in map(Path, os.environ.get("PATH", "").split(os.pathsep)):
        entry = home / named.relative_to(Path.home()) if named.is_relative_to(Path.home()) else named
        if _is_inside(entry, [home]):
            beside = _BESIDE_PROGRAMS if entry.name in {"bin", "sbin", "shims"} and entry.parent != home else ()
            shown += [entry, *(entry.parent / name for name in beside)]
    return shown
