"""The system's sandbox for commands: bubblewrap on Linux, ``sandbox-exec`` on macOS.

Inside, commands can write the workspace and read everything else, but not see the user's secrets and Everlong's own
files. There is no network unless it was asked for and allowed. This module makes the command line; `process` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from everlong.config.paths import config_home, data_home

__all__ = ["GUARDED", "Confinement", "GuardedPlaces", "Sandbox", "find_sandbox"]

GUARDED = (".git/hooks", ".git/config", ".git/commondir", ".everlong")
"""Paths that commands can read but not change; git finds its configuration and hooks through ``commondir``."""

_HERE = b".\n"
"""A ``commondir`` that changes nothing, as if there were none."""

_lock = threading.Lock()
_users: Counter[Path] = Counter()


class GuardedPlaces:
    """The guarded paths of some folders, while a command runs there."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)

    def make(self) -> None:
        """Make the missing paths, so that no command can make them; ignore those that cannot be made."""
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
        """Remove the paths that `make` made, unless another command or, without ``is_over``, this one still runs."""
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


Mode = Literal["auto", "on", "off"]

_PROBE_SECONDS = 10

_SECRET_PLACES = (
    *(".ssh", ".gnupg", ".password-store", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".git-credentials"),
    *(".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli", ".config/everlong"),
    *(".aws", ".azure", ".config/gcloud", ".config/doctl", ".oci", ".kube", ".docker", ".config/containers"),
    *(
        ".boto",
        ".s3cfg",
        ".config/rclone",
        ".terraform.d",
        ".terraformrc",
        ".vault-token",
        ".config/op",
        ".config/sops",
    ),
    *(".config/pip", ".pip", ".condarc", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties"),
    *(".cache/huggingface/token", ".huggingface/token", ".databrickscfg", ".fly", ".config/github-copilot", ".netlify"),
    *(".local/share/opencode/auth.json", ".config/heroku", ".config/configstore", ".config/stripe", ".snowflake"),
    *(".npmrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials"),
    *(".local/share/keyrings", ".local/share/kwalletd", ".config/Bitwarden", "Library/Keychains", "Library/Cookies"),
    *(".local/share/everlong", "Library/Application Support/everlong", ".claude", ".codex", ".gemini"),
    *(".mozilla", ".config/google-chrome", ".config/chromium", ".thunderbird"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history", ".lesshst"),
)
"""Files and folders of the home directory that commands cannot see."""

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
        network: bool = False,
        info_fd: int | None = None,
    ) -> list[str]:
        """Return the command line that runs another one inside the sandbox.

        Args:
            inner: the command and its arguments.
            folders: the writable folders; the command starts in the first.
            hidden: files and folders that cannot be seen; missing ones are ignored.
            network: True to allow the network.
            info_fd: the descriptor to which bubblewrap writes its first process, with which all others end.
        """
        unseen = [path for path in dict.fromkeys(Path(os.path.realpath(path)) for path in hidden) if path.exists()]
        if self.kind == "sandbox-exec":
            return [self.program, "-p", _profile(folders, unseen, network=network), *inner]
        return [*self._bubblewrap(folders, unseen, network=network, info_fd=info_fd), "--", *inner]

    def _bubblewrap(
        self, folders: Sequence[Path], unseen: Sequence[Path], *, network: bool, info_fd: int | None
    ) -> list[str]:
        line = [self.program, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        line += [] if network else ["--unshare-net"]
        line += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        # If the user is root, these are writable even without capabilities, and change the whole machine.
        line += [part for path in _SYSTEM_SWITCHES for part in ("--ro-bind-try", path, path)]
        # Sockets in these lead to programs outside: an agent with keys, a desktop, a container engine that is root.
        line += ["--tmpfs", "/tmp", "--tmpfs", "/run"]  # noqa: S108 - made anew for each command
        if network:
            line += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
            agent = os.environ.get("SSH_AUTH_SOCK", "")
            line += ["--bind-try", agent, agent] if agent.startswith("/") else []
        around = [path for path in unseen if any(folder.is_relative_to(path) for folder in folders)]
        line += [part for path in around for part in _cover(path)]
        for folder in folders:
            line += ["--bind", str(folder), str(folder)]
        for folder in folders:
            line += _guard_options(folder)
        line += [part for path in unseen if path not in around for part in _cover(path)]
        line += ["--setenv", "XDG_CACHE_HOME", "/tmp/cache"]  # noqa: S108 - as above; the user's own is read-only
        line += ["--info-fd", str(info_fd)] if info_fd is not None else []
        return [*line, "--chdir", str(folders[0])]


def _guard_options(folder: Path) -> list[str]:
    """Return the options that make the guarded paths of a folder read-only."""
    git = folder / ".git"
    line = []
    if not git.is_symlink() and git.exists():
        # A command cannot rename a mounted folder and put another one in its place.
        line += ["--bind" if git.is_dir() else "--ro-bind", str(git), str(git)]
    kept = [folder / name for name in GUARDED if os.path.lexists(folder / name)]
    return line + [part for path in kept if not path.is_symlink() for part in ("--ro-bind", str(path), str(path))]


def _cover(path: Path) -> list[str]:
    return ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", os.devnull, str(path)]


def _profile(folders: Sequence[Path], unseen: Sequence[Path], *, network: bool) -> str:
    """Return the rules for ``sandbox-exec``; the last one that fits a path decides."""
    temporary = (Path("/private/tmp"), Path("/private/var/folders"), Path("/dev"))
    rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
    rules += [f"(allow file-write* (subpath {_quoted(path)}))" for path in (*temporary, *folders)]
    rules += [f"(deny file-write* (subpath {_quoted(folder / name)}))" for folder in folders for name in GUARDED]
    gits = [folder / ".git" for folder in folders if os.path.lexists(folder / ".git")]
    rules += [f"(deny file-write* (literal {_quoted(git)}))" for git in gits]  # so that it cannot be replaced
    rules += [f"(deny file-read* file-write* (subpath {_quoted(path)}))" for path in unseen]
    rules += [f"(allow file-read* file-write* (subpath {_quoted(folder)}))" for folder in _inside_of(folders, unseen)]
    rules += [] if network else ["(deny network*)"]
    return "\n".join(rules)


def _inside_of(folders: Sequence[Path], unseen: Sequence[Path]) -> list[Path]:
    return [folder for folder in folders if any(folder.is_relative_to(path) for path in unseen)]


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
    program = shutil.which(name)
    if program is None:
        how = "; install it with your system's package manager" if kind == "bubblewrap" else ""
        return None, f"{kind} is not installed{how}"
    found = Sandbox("bubblewrap" if kind == "bubblewrap" else "sandbox-exec", program)
    line = found.command([shutil.which("true") or "/bin/true"], [Path("/").resolve()])
    if found.kind == "bubblewrap":  # the root must not be writable, not even in a trial
        at = line.index("--bind")
        del line[at : at + 3]
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
    """Paths that commands cannot see, besides the user's usual secrets and Everlong's own files."""
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

    @property
    def unseen(self) -> list[Path]:
        """The files and folders that commands cannot see."""
        try:
            home: Path | None = Path.home()
        except RuntimeError:  # no HOME and no account entry, as in bare containers
            home = None
        usual = [home / name for name in _SECRET_PLACES] if home is not None else []
        return [*usual, config_home(), data_home(), *self.hidden]

    def describe(self, *, network: bool = False) -> str:
        """Return the confinement of a command in words, for the person who approves it."""
        if self.sandbox is not None:
            reach = "with the network" if network else "without a network"
            return f"in the sandbox ({self.sandbox.kind}): writes only to the workspace, {reach}"
        if self.mode == "off":
            return "without a sandbox (agent.sandbox is off): it can do whatever you can"
        return f"without a sandbox ({find_sandbox()[1]}): it can do whatever you can"
