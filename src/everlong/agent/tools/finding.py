"""``list_files`` and ``search_files``: files by name, and lines by a regular expression."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from everlong.agent.text import visible
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.files import looks_binary
from everlong.agent.tools.workspace import OpenFolder, Workspace
from everlong.errors import ToolError, ToolInterrupted

_MOST_ALTERNATIVES = 64


@lru_cache(maxsize=64)
def glob_pattern(glob: str) -> Any:
    """Return a regular expression for a glob; one without a slash matches names in any folder."""
    import bracex  # noqa: PLC0415 - slow to load, and many sessions look for no file
    import regex  # noqa: PLC0415 - as above
    from wcmatch.glob import DOTGLOB, FORCEUNIX, GLOBSTAR, translate  # noqa: PLC0415 - as above

    wanted = glob.strip().replace("\\", "/").removeprefix("./")
    if not wanted:
        raise ToolError("the pattern of file names is empty; give one such as *.py or src/**/*.md")
    wanted = wanted.lstrip("/") if "/" in wanted else f"**/{wanted}"
    try:
        expanded = bracex.expand(wanted, limit=_MOST_ALTERNATIVES)
    except bracex.ExpansionLimitException as error:
        raise ToolError(
            f"the pattern {glob!r} stands for more than {_MOST_ALTERNATIVES} others; use a simpler one"
        ) from error
    return regex.compile("|".join(translate(expanded, flags=DOTGLOB | FORCEUNIX | GLOBSTAR)[0]))


def _is_wanted(path: str, wanted: Any) -> bool:
    """Return whether a path matches; raises `ToolError` for a pattern with so many stars that it takes very long."""
    try:
        return wanted.fullmatch(path, timeout=LINE_SECONDS) is not None
    except TimeoutError as error:
        raise ToolError("the pattern of file names takes too long; use one with fewer stars") from error


SKIPPED = frozenset(
    (
        *(".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".gradle", ".idea"),
    )
)
"""Names of folders that a walk does not go into."""

MOST_ENTRIES = 200_000


@dataclass
class FolderWalk:
    """A walk below a folder of a workspace; ``is_partial`` is set if it stopped early."""

    workspace: Workspace
    top: Path
    interrupted: threading.Event
    is_partial: bool = False

    def files(self) -> Iterator[tuple[str, os.DirEntry[str], OpenFolder]]:
        """Yield each file or link with its path relative to the top, its entry, and its open folder.

        Names come in order, files before folders.
        """
        waiting: list[tuple[str, Path]] = [("", self.top)]
        seen = 0
        while waiting:
            prefix, folder = waiting.pop()
            below: list[tuple[str, Path]] = []
            with ExitStack() as stack:
                try:
                    held = stack.enter_context(self.workspace.folder(folder))
                    entries = sorted(held.entries(), key=lambda entry: entry.name)
                except (ToolError, OSError):  # no permission, gone meanwhile, or swapped for a link
                    continue
                for entry in entries:
                    seen += 1
                    if seen > MOST_ENTRIES or self.interrupted.is_set():
                        self.is_partial = True
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in SKIPPED:
                            below.append((f"{prefix}{entry.name}/", folder / entry.name))
                    else:
                        yield prefix + entry.name, entry, held
            waiting += reversed(below)


MOST_LISTED = 500
MOST_MATCHES = 200
LARGEST = 20_000_000
"""Bytes of the largest file that is searched."""

SECONDS = 20.0
"""Seconds for a search."""

LINE_SECONDS = 2.0
"""Seconds for the pattern on one file."""

LINE_CHARS = 300


def list_files(context: ToolContext, path: str = ".", pattern: str | None = None) -> str:
    """List what is in a folder; with a pattern, all files below it that match, such as *.py or src/**/test_*.ts.

    Args:
        path: The folder, relative to the root folder.
        pattern: Names of files: * and ? within a name, ** over folders, {a,b} for one of several.
    """
    folder = _folder(context, path)
    lines, is_more = _matching(context, folder, pattern) if pattern else _inside(context, folder)
    name = context.workspace.shown(folder)
    if not lines:
        return f"[no file below {name} matches {pattern!r}]" if pattern else f"[{name} is empty]"
    end = (
        [f"[only the first {len(lines)} are shown; ask for a folder below or with another pattern]"] if is_more else []
    )
    return "\n".join([*lines, *end])


def _folder(context: ToolContext, path: str) -> Path:
    resolved = context.workspace.resolve(path)
    if not resolved.exists():
        raise ToolError(f"there is no folder {context.workspace.shown(resolved)}")
    if not resolved.is_dir():
        raise ToolError(f"{context.workspace.shown(resolved)} is a file, not a folder; read_file shows what is in it")
    return resolved


def _inside(context: ToolContext, folder: Path) -> tuple[list[str], bool]:
    try:
        with context.workspace.folder(folder) as held:
            entries = sorted(held.entries(), key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name))
            return [_entry(entry, held, entry.name) for entry in entries[:MOST_LISTED]], len(entries) > MOST_LISTED
    except OSError as error:
        raise ToolError(f"{folder.name} cannot be listed: {error.strerror or error}") from error


def _matching(context: ToolContext, folder: Path, pattern: str) -> tuple[list[str], bool]:
    wanted = glob_pattern(pattern)
    walk = FolderWalk(context.workspace, folder, context.interrupted)
    lines: list[str] = []
    for path, entry, held in walk.files():
        if _is_wanted(path, wanted):
            if len(lines) == MOST_LISTED:
                return lines, True
            lines.append(_entry(entry, held, path))
    return lines, walk.is_partial


def _entry(entry: os.DirEntry[str], folder: OpenFolder, name: str) -> str:
    name = visible(name)
    try:
        if entry.is_symlink():
            return f"{name} -> {visible(folder.link_target(entry.name))}"
        if entry.is_dir(follow_symlinks=False):
            return f"{name}/"
        if entry.is_file(follow_symlinks=False):
            return f"{name} ({entry.stat(follow_symlinks=False).st_size:,} bytes)"
    except OSError:
        return f"{name} (gone)"
    return f"{name} (no regular file)"


def search_files(
    pattern: str, context: ToolContext, path: str = ".", glob: str | None = None, ignore_case: bool = False
) -> str:
    """Search the text of files by a regular expression; each match is shown as path:line: text.

    Binary files and folders such as .git and node_modules are passed over.

    Args:
        pattern: A regular expression as Python reads it; ^ and $ are the ends of a line. Escape what is
            meant literally.
        path: A folder or a file, relative to the root folder.
        glob: Only files of these names, such as *.py or src/**/*.{ts,tsx}.
        ignore_case: Whether upper and lower case are the same.
    """
    import regex  # noqa: PLC0415 - slow to load, and many sessions search no file

    try:
        compiled = regex.compile(pattern, regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0))
    except regex.error as error:
        raise ToolError(f"{pattern!r} is no regular expression: {error}; escape what is meant literally") from error
    if not pattern:
        raise ToolError("the pattern is empty; give something to look for")
    search = _Search(context, compiled)
    search.run(context.workspace.resolve(path), glob)
    return search.report(pattern)


class _Search:
    """One search over files."""

    def __init__(self, context: ToolContext, pattern: Any) -> None:
        self.context = context
        self.pattern = pattern
        self.deadline = time.monotonic() + SECONDS
        self.lines: list[str] = []
        self.files = 0
        self.notes: list[str] = []
        self.too_large: list[str] = []
        self.too_slow: list[str] = []

    def run(self, top: Path, glob: str | None) -> None:
        if top.is_file():
            self._search_file(top)
            return
        if not top.is_dir():
            raise ToolError(f"there is no file or folder {self.context.workspace.shown(top)}")
        wanted = glob_pattern(glob) if glob else None
        walk = FolderWalk(self.context.workspace, top, self.context.interrupted)
        for path, _, _ in walk.files():
            if wanted is not None and not _is_wanted(path, wanted):
                continue
            if len(self.lines) >= MOST_MATCHES:
                self.notes.append(f"stopped after {MOST_MATCHES} matches; narrow the pattern, the path or the glob")
                return
            if time.monotonic() > self.deadline:
                self.notes.append(f"stopped after {SECONDS:.0f} seconds; narrow the path or the glob")
                return
            self._search_file(top / path)
        if self.context.interrupted.is_set():
            raise ToolInterrupted(f"Interrupted by the user. Found so far:\n{self.report(self.pattern.pattern)}")
        if walk.is_partial:
            self.notes.append("there are too many files; narrow the path")

    def _search_file(self, path: Path) -> None:
        workspace = self.context.workspace
        try:
            resolved = workspace.resolve(path)
            with os.fdopen(workspace.open(resolved), "rb") as file:
                data = file.read(LARGEST + 1)
        except (ToolError, OSError):  # a link that leads out, an unreadable file, or a special one
            return
        name = workspace.shown(resolved)
        if looks_binary(data):
            return
        if len(data) > LARGEST:
            self.too_large.append(name)
            return
        self.files += 1
        try:
            self._search_text(name, data.decode("utf-8", "replace").replace("\r\n", "\n"))
        except TimeoutError:
            self.too_slow.append(name)

    def _search_text(self, name: str, text: str) -> None:
        at, line, counted = 0, 1, 0
        seconds = min(LINE_SECONDS, max(0.05, self.deadline - time.monotonic()))
        while len(self.lines) < MOST_MATCHES and (found := self.pattern.search(text, at, timeout=seconds)):
            start = found.start()
            line += text.count("\n", counted, start)
            counted = start
            first = text.rfind("\n", 0, start) + 1
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            if start < len(text) or not text.endswith("\n"):  # not the empty match after the last line end
                self.lines.append(f"{name}:{line}: {_around(text[first:end], start - first)}")
            at = end + 1
            if at > len(text):
                return

    def report(self, pattern: str) -> str:
        for names, why in (
            (self.too_large, f"larger than {LARGEST // 1_000_000} MB and not searched"),
            (self.too_slow, "given up, because the pattern takes too long on them"),
        ):
            if names:
                more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                self.notes.append(f"{', '.join(names[:5])}{more}: {why}")
        notes = [f"[{note}]" for note in self.notes]
        if not self.lines:
            return "\n".join([f"[no match for {pattern!r} in {self.files:,} files]", *notes])
        return "\n".join([*self.lines, *notes])


def _around(line: str, at: int) -> str:
    if len(line) <= LINE_CHARS:
        return line
    start = max(0, min(at - LINE_CHARS // 3, len(line) - LINE_CHARS))
    stop = start + LINE_CHARS
    return f"{'…' if start else ''}{line[start:stop]}{'…' if stop < len(line) else ''}"
