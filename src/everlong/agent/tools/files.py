"""``read_file``, ``write_file`` and ``edit_file``: text files of the workspace, read in parts and written whole."""

from __future__ import annotations

import difflib
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

from pydantic import Field

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.workspace import OpenFolder, Workspace
from everlong.errors import ToolError

LINE_CHARS = 2_000
"""Characters of the longest line that is shown whole."""

CHUNK = 1 << 20
COUNTED = 512 * CHUNK
"""Bytes of the largest file whose lines are counted."""

LARGEST = 20_000_000
"""Bytes of the largest file that can be changed or compared."""

MOST_LINES = 4_000
"""Lines of the longest texts that are compared line by line; a longer comparison would take too long."""

_MOST_TOLD = 20
"""Places of a quoted text that are looked for, and told."""

_COMPARED_LINES = 5_000
_COMPARED_CHARS = 300


# -- read_file ---------------------------------------------------------------------------------------------------------


def read_file(
    path: str,
    context: ToolContext,
    start_line: Annotated[int, Field(ge=1)] = 1,
    lines: Annotated[int, Field(ge=1)] = 400,
) -> str:
    """Read a text file. Each line is shown with its number and a tab before it, which are not part of the file.

    A long file is read in parts: the answer says with which start_line to go on.

    Args:
        path: The file, relative to the root folder.
        start_line: The first line to show.
        lines: How many lines to show at most.
    """
    resolved = context.workspace.resolve(path)
    name = context.workspace.shown(resolved)
    with os.fdopen(context.workspace.open(resolved), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if looks_binary(file.read(8_192)):
            raise ToolError(f"{name} is a binary file of {size:,} bytes; run_command may have a program that reads it")
        file.seek(0)
        shown = _read_lines(file, start_line, lines, context.output_chars - 400)
        total = _count_lines(file)
    if not shown.lines:
        known = shown.passed if total is None else total
        count = "no lines: it is empty" if known == 0 else f"only {known:,} lines"
        return (
            f"[{name} has {count}]"
            if start_line == 1
            else f"[{name} has {count}; start_line={start_line} is past its end]"
        )
    last = start_line + len(shown.lines) - 1
    return f"{_heading(name, start_line, last, total, shown)}\n" + "\n".join(shown.lines)


class _ShownFile(NamedTuple):
    """Numbered lines, the number of lines before them, and facts about them."""

    lines: list[str]
    passed: int
    is_damaged: bool
    has_crlf: bool


def _heading(name: str, first: int, last: int, total: int | None, shown: _ShownFile) -> str:
    of = "" if total is None else f" of {total:,}"
    said = f"lines {first:,} to {last:,}{of}"
    if total == last and first == 1:
        said = "1 line" if last == 1 else f"all {last:,} lines"
    elif total is None or last < total:
        said += f"; go on with start_line={last + 1}"
    if shown.has_crlf:
        said += "; lines end with CRLF"
    if shown.is_damaged:
        said += "; it is not valid UTF-8, and � stands where it is not"
    return f"[{name}: {said}]"


def _read_lines(file: BinaryIO, start: int, count: int, room: int) -> _ShownFile:
    passed = _skip_lines(file, start - 1)
    lines: list[str] = []
    is_damaged = has_crlf = False
    while passed == start - 1 and len(lines) < count:
        raw = file.readline(4 * LINE_CHARS)
        if not raw:
            break
        left_out = 0
        while not raw.endswith(b"\n") and (more := file.readline(CHUNK)):
            left_out += len(more) - more.endswith(b"\n")
            raw = raw if not more.endswith(b"\n") else raw + b"\n"
        has_crlf = has_crlf or raw.endswith(b"\r\n")
        text = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
        is_damaged = is_damaged or (not left_out and "\ufffd" in text and not _is_utf8(raw))
        line = f"{start + len(lines):>6}\t{_clip_line(text, left_out)}"
        if not lines and start == 1:
            line = line.replace("\ufeff", "", 1)
        room -= len(line) + 1
        if room < 0 and lines:
            break
        lines.append(line)
    return _ShownFile(lines, passed, is_damaged, has_crlf)


def _clip_line(text: str, left_out: int) -> str:
    if len(text) <= LINE_CHARS and not left_out:
        return text
    left_out += len(text[LINE_CHARS:].encode("utf-8", "replace"))
    return f"{text[:LINE_CHARS]} [… {left_out:,} more bytes on this line …]"


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _skip_lines(file: BinaryIO, wanted: int) -> int:
    """Move past a number of lines; return how many there were, at most that number."""
    passed = 0
    while passed < wanted:
        chunk = file.read(CHUNK)
        if not chunk:
            return passed
        found = chunk.count(b"\n")
        if passed + found < wanted:
            passed += found
            continue
        at = -1
        for _ in range(wanted - passed):
            at = chunk.index(b"\n", at + 1)
        file.seek(at + 1 - len(chunk), os.SEEK_CUR)
        return wanted
    return passed


def _count_lines(file: BinaryIO) -> int | None:
    """Count the lines of the whole file; None where it is too large."""
    file.seek(0)
    total, last, read = 0, b"\n", 0
    while chunk := file.read(CHUNK):
        total += chunk.count(b"\n")
        last = chunk[-1:]
        read += len(chunk)
        if read > COUNTED:
            return None
    return total + (last != b"\n")


# -- write_file --------------------------------------------------------------------------------------------------------


def write_file(path: str, content: str, context: ToolContext) -> str:
    """Write a whole text file: make a new one, or replace all that is in it. Missing folders are made.

    To change a part of a file, use edit_file.

    Args:
        path: The file, relative to the root folder.
        content: All that the file is to hold.
    """
    resolved = context.workspace.resolve(path)
    data = encode(content, "content")
    is_new = save(context.workspace, resolved, data)
    lines = len(content.splitlines())
    return (
        f"{'Made' if is_new else 'Replaced'} {context.workspace.shown(resolved)}: {lines:,} lines, {len(data):,} bytes."
    )


def preview_write(args: dict[str, Any], context: ToolContext) -> str:
    """Return the diff of a call."""
    resolved = context.workspace.resolve(args["path"])
    encode(args["content"], "content")
    before = ""
    if check_writable(context.workspace, resolved):
        before = load(context.workspace, resolved).decode("utf-8", "replace")
    return diff_of(context.workspace.shown(resolved), before, args["content"])


# -- edit_file ---------------------------------------------------------------------------------------------------------


class Edited(NamedTuple):
    """A text after an edit, the numbers of the first changed lines, and how many places there are."""

    text: str
    at: list[int]
    times: int


def edit_file(path: str, old: str, new: str, context: ToolContext, replace_all: bool = False) -> str:
    """Replace a text in a file by another one. The old text must stand in the file exactly once, to the letter.

    Quote enough lines around the change to make it unique, with their indentation and without line numbers.

    Args:
        path: The file, relative to the root folder.
        old: The text that is replaced.
        new: What takes its place; empty to remove it.
        replace_all: Replace it everywhere rather than once.
    """
    resolved, _, edited = _plan_edit(path, old, new, context, replace_all=replace_all)
    save(context.workspace, resolved, edited.text.encode("utf-8", "surrogateescape"))
    places = ", ".join(map(str, edited.at[:10])) + (" …" if edited.times > 10 else "")
    where = f"at line {places}" if edited.times == 1 else f"in {edited.times:,} places, at lines {places}"
    return f"Edited {context.workspace.shown(resolved)} {where}."


def preview_edit(args: dict[str, Any], context: ToolContext) -> str:
    """Return the diff of a call."""
    resolved, before, edited = _plan_edit(
        args["path"], args["old"], args["new"], context, replace_all=args.get("replace_all", False)
    )
    return diff_of(context.workspace.shown(resolved), before, edited.text)


def _plan_edit(path: str, old: str, new: str, context: ToolContext, *, replace_all: bool) -> tuple[Path, str, Edited]:
    workspace = context.workspace
    resolved = workspace.resolve(path)
    encode(old, "old")
    encode(new, "new")
    data = load(workspace, resolved)
    check_writable(workspace, resolved)
    name = workspace.shown(resolved)
    if looks_binary(data):
        raise ToolError(f"{name} is a binary file; edit_file changes text only")
    before = data.decode("utf-8", "surrogateescape")
    return resolved, before, edit_text(before, old, new, name, replace_all=replace_all)


def edit_text(text: str, old: str, new: str, name: str, *, replace_all: bool = False) -> Edited:
    """Return a text with ``old`` replaced by ``new``; raises `ToolError` where ``old`` is not there just once."""
    if not old:
        raise ToolError(f"'old' is empty; quote the text of {name} that is to be replaced, or use write_file")
    old, new = _as_in(text, old), _as_in(text, new)
    if old == new:
        raise ToolError("'old' and 'new' are the same, so there is nothing to change")
    at = [text.count("\n", 0, place) + 1 for place in _places(text, old, step=len(old) if replace_all else 1)]
    if not at:
        raise ToolError(f"'old' is not in {name}. {_near_misses(text, old)}")
    if len(at) > 1 and not replace_all:
        times = f"{len(at)} times" if len(at) < _MOST_TOLD else f"{_MOST_TOLD} times or more"
        raise ToolError(
            f"'old' is in {name} {times}, at lines {', '.join(map(str, at))}; quote more around the one that is "
            "meant, or say replace_all=true"
        )
    return Edited(text.replace(old, new), at, text.count(old))


def _places(text: str, old: str, step: int) -> list[int]:
    """Return the first places of some words in a text; with a step of 1 they may overlap."""
    found: list[int] = []
    place = text.find(old)
    while place >= 0 and len(found) < _MOST_TOLD:
        found.append(place)
        place = text.find(old, place + step)
    return found


def _with_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _as_in(text: str, words: str) -> str:
    """Return words with the line ends that most lines of a text have."""
    is_crlf = text.count("\r\n") * 2 > text.count("\n")
    return _with_lf(words).replace("\n", "\r\n") if is_crlf else words if "\r\n" in text else _with_lf(words)


# -- what the model may have meant ------------------------------------------------------------------------------------


def _near_misses(text: str, old: str) -> str:
    lines = text.splitlines()
    wanted = [line.strip() for line in old.strip("\r\n").splitlines()]
    if spaced := _find_ignoring_space(lines, wanted):
        shown = "\n".join(lines[spaced - 1 : spaced - 1 + min(len(wanted), 8)])
        return f"Lines {spaced} to {spaced + len(wanted) - 1} differ from it in white space only. They are:\n{shown}"
    first = max(wanted, key=len, default="")[:_COMPARED_CHARS]
    compared = [line[:_COMPARED_CHARS] for line in lines[:_COMPARED_LINES]]
    close = difflib.get_close_matches(first, list(dict.fromkeys(compared)), n=3, cutoff=0.6) if first else []
    if close:
        found = "\n".join(f"{compared.index(line) + 1:>6}\t{line}" for line in close)
        return f"Read the file again; lines like it are:\n{found}"
    return "Nothing in it is much like it; read the file again."


def _find_ignoring_space(lines: list[str], wanted: list[str]) -> int:
    """Return the first line (from 1) of lines that differ in white space only; 0 without any."""
    if not wanted or not any(wanted):
        return 0
    bare = "\n".join(["", *map(str.strip, lines), ""])
    place = bare.find("\n".join(["", *wanted, ""]))
    return bare.count("\n", 0, place) + 1 if place >= 0 else 0


# -- files of the workspace --------------------------------------------------------------------------------------------


def load(workspace: Workspace, resolved: Path) -> bytes:
    """Return all bytes of a regular file; raises `ToolError` if it is too large to be changed."""
    with os.fdopen(workspace.open(resolved), "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ToolError(
            f"{workspace.shown(resolved)} is larger than {LARGEST // 1_000_000} MB, too large to be changed here; "
            "use run_command with sed, awk or a script"
        )
    return data


def check_writable(workspace: Workspace, resolved: Path) -> bool:
    """Return whether a file exists; raises `ToolError` if it is no regular file, or may not be written."""
    try:
        with workspace.place(resolved) as (folder, name):
            return _mode(folder, name, workspace.shown(resolved)) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ToolError(f"{workspace.shown(resolved)} cannot be written: {error.strerror or error}") from error


def _mode(folder: OpenFolder, name: str, shown: str) -> int | None:
    """Return the mode of a file that may be replaced; None where there is no file."""
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


def save(workspace: Workspace, resolved: Path, data: bytes, new_mode: int | None = None) -> bool:
    """Write a whole file, with missing folders; return False if it replaced one, which keeps its mode."""
    shown = workspace.shown(resolved)
    check_writable(workspace, resolved)  # before folders are made for it
    try:
        with workspace.place(resolved, make=True) as (folder, name):
            mode = _mode(folder, name, shown)
            _replace(folder, name, data, new_mode if mode is None else mode)
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
    except BaseException:  # even an interrupt must not leave the half-written file behind
        with suppress(OSError):
            folder.remove(temporary)
        raise


def encode(text: str, what: str) -> bytes:
    """Return a model's text as bytes; raises `ToolError` where it has no UTF-8 form."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{what!r} has half of a surrogate pair at character {error.start}, which no file can hold; leave it out"
        ) from error


def looks_binary(data: bytes) -> bool:
    """Return whether data seems to be no text."""
    return b"\0" in data[:8_192]


# -- differences for the person who approves ---------------------------------------------------------------------------


def diff_of(name: str, before: str, after: str, times: tuple[str, str] = ("now", "then")) -> str:
    """Return a unified diff with three lines of context; ``times`` name the two texts."""
    old, new = _lines(before), _lines(after)
    if len(old) + len(new) > MOST_LINES:
        old, new, around = _without_common_ends(old, new)
        if len(old) + len(new) > MOST_LINES:
            lines = [
                f"{name}: {len(old):,} lines become {len(new):,}; the new ones are:",
                *(f"+{line}" for line in new),
            ]
            return "\n".join(lines)
        name = f"{name} (after the first {around:,} lines)"
    made = list(difflib.unified_diff(old, new, f"{name} {times[0]}", f"{name} {times[1]}", lineterm=""))
    if not made and before != after:
        return f"{name}: only line ends or the last line's end change"
    return "\n".join(made)


def _lines(text: str) -> list[str]:
    """Return the lines of a text; other breaks than line feeds end no line for most programs, a shell for one."""
    return _with_lf(text).removesuffix("\n").split("\n") if text else []


def _without_common_ends(old: list[str], new: list[str]) -> tuple[list[str], list[str], int]:
    """Return both texts without common lines at both ends, but for three, and the number left out in front."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    stop = 0
    while stop < min(len(old), len(new)) - start and old[-1 - stop] == new[-1 - stop]:
        stop += 1
    start, stop = max(0, start - 3), max(0, stop - 3)
    return old[start : len(old) - stop], new[start : len(new) - stop], start
