"""``read_file`` and ``write_file``: text files of the workspace, however large, read in parts and written whole."""

from __future__ import annotations

import os
from typing import Annotated, Any, BinaryIO, NamedTuple

from pydantic import Field

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.diffs import diff_of
from everlong.agent.tools.saving import check_writable, encoded, load, looks_binary, save
from everlong.errors import ToolError

LINE_CHARS = 2_000
"""The longest line that is shown whole."""

CHUNK = 1 << 20
COUNTED = 512 * CHUNK
"""Bytes after the shown lines that are read to count the lines of the whole file."""


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
        shown = _shown(file, start_line, lines, context.output_chars - 400)
        total = _total(file)
    if not shown.lines:
        count = "no lines: it is empty" if total == 0 else f"only {total:,} lines"
        return (
            f"[{name} has {count}]"
            if start_line == 1
            else f"[{name} has {count}; start_line={start_line} is past its end]"
        )
    last = start_line + len(shown.lines) - 1
    return f"{_heading(name, start_line, last, total, shown)}\n" + "\n".join(shown.lines)


class _Shown(NamedTuple):
    """Numbered lines, how many lines were passed before them, and what is to be said about them."""

    lines: list[str]
    passed: int
    is_damaged: bool
    has_crlf: bool


def _heading(name: str, first: int, last: int, total: int | None, shown: _Shown) -> str:
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


def _shown(file: BinaryIO, start: int, count: int, room: int) -> _Shown:
    passed = _pass(file, start - 1)
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
        line = f"{start + len(lines):>6}\t{_clipped(text, left_out)}"
        if not lines and start == 1:
            line = line.replace("\ufeff", "", 1)
        room -= len(line) + 1
        if room < 0 and lines:
            break
        lines.append(line)
    return _Shown(lines, passed, is_damaged, has_crlf)


def _clipped(text: str, left_out: int) -> str:
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


def _pass(file: BinaryIO, wanted: int) -> int:
    """Move past so many lines, a chunk at a time; how many there were."""
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


def _total(file: BinaryIO) -> int | None:
    """The lines of the whole file; None where it is too large to count them."""
    file.seek(0)
    total, last, read = 0, b"\n", 0
    while chunk := file.read(CHUNK):
        total += chunk.count(b"\n")
        last = chunk[-1:]
        read += len(chunk)
        if read > COUNTED:
            return None
    return total + (last != b"\n")


def write_file(path: str, content: str, context: ToolContext) -> str:
    """Write a whole text file: make a new one, or replace all that is in it. Missing folders are made.

    To change a part of a file, use edit_file.

    Args:
        path: The file, relative to the root folder.
        content: All that the file is to hold.
    """
    resolved = context.workspace.resolve(path)
    data = encoded(content, "content")
    is_new = save(context.workspace, resolved, data)
    lines = len(content.splitlines())
    return (
        f"{'Made' if is_new else 'Replaced'} {context.workspace.shown(resolved)}: {lines:,} lines, {len(data):,} bytes."
    )


def preview_write(args: dict[str, Any], context: ToolContext) -> str:
    """The file's lines that go and come."""
    resolved = context.workspace.resolve(args["path"])
    encoded(args["content"], "content")
    before = ""
    if check_writable(context.workspace, resolved):
        before = load(context.workspace, resolved).decode("utf-8", "replace")
    return diff_of(context.workspace.shown(resolved), before, args["content"])
