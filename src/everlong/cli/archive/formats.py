"""The formats of log files: which one a file has, told by its first bytes."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

from everlong.config.files import is_regular, open_regular
from everlong.wire.logs.aider import is_aider_history
from everlong.wire.logs.claude_code import is_claude_code_line, read_claude_code
from everlong.wire.logs.cline import is_cline_session, is_cline_task
from everlong.wire.logs.codex import is_codex_line, read_codex
from everlong.wire.logs.gemini import is_gemini_line, is_gemini_session, read_gemini_lines
from everlong.wire.logs.log import LogRun, parse_line
from everlong.wire.logs.pi import is_pi_line, read_pi

__all__ = ["LINE_LOGS", "LineLog", "LogFormat", "check_database", "format_of_log", "open_database"]

LogFormat = Literal["claude-code", "codex", "pi", "aider", "gemini", "gemini-lines", "cline", "opencode", "hermes"]


class LineLog(NamedTuple):
    """A format with an object of JSON on each line."""

    knows: Callable[[Mapping[str, Any]], bool]
    """Returns whether one of the first lines is of this format."""
    read: Callable[[Iterable[dict[str, Any]]], list[LogRun]]


LINE_LOGS: Mapping[LogFormat, LineLog] = {
    "codex": LineLog(is_codex_line, read_codex),
    "pi": LineLog(is_pi_line, read_pi),
    "gemini-lines": LineLog(is_gemini_line, read_gemini_lines),
    "claude-code": LineLog(is_claude_code_line, read_claude_code),
}

_HEAD = 1 << 16
_FIRST_LINE = 64 << 20
"""The bytes of a long first line that are looked at."""
_LARGEST_DOCUMENT = 1 << 30
"""The bytes of a log that is one document; a file that is larger is some other data."""
_LINES = 40
"""The first lines that are looked at."""
_SQLITE = b"SQLite format 3\x00"
_TASK = "api_conversation_history.json"


def format_of_log(path: Path) -> LogFormat | None:
    """Return the format of a client's log; None for any other file.

    Raises:
        OSError: The file cannot be read.
    """
    with open_regular(path) as file:
        head = file.read(_HEAD)
        if head.startswith(_SQLITE):
            return _format_of_database(path)
        if is_aider_history(head):
            return "aider"
        if not head.lstrip().startswith((b"{", b"[")):
            return None
        if len(head) == _HEAD and b"\n" not in head:  # one long first line
            head += file.readline(_FIRST_LINE)
    found = _format_of_lines(head)
    if found is not None or path.suffix == ".jsonl":
        return found
    if path.name == _TASK:
        return "cline"
    return _format_of_document(path, head)


def _format_of_lines(head: bytes) -> LogFormat | None:
    found: LogFormat | None = None
    for line in head.split(b"\n")[:_LINES]:
        if not line.strip():
            continue
        try:
            entry = parse_line(line)
        except ValueError:
            break  # the head ends in the middle of it, or it is one document on several lines
        if not isinstance(entry, dict) or "role" in entry or "messages" in entry:
            return None
        found = found or next((form for form, log in LINE_LOGS.items() if log.knows(entry)), None)
    return found


def _format_of_document(path: Path, head: bytes) -> LogFormat | None:
    """Return the format of a file that is one JSON document, if its beginning looks like that of a log."""
    if not any(sign in head for sign in (b'"projectHash"', b'"sessionId"', b'"ts"')):
        return None
    if path.stat().st_size > _LARGEST_DOCUMENT:
        return None
    try:
        with open_regular(path) as file:
            value = parse_line(file.read())
    except ValueError:
        return None
    if is_gemini_session(value):
        return "gemini"
    return "cline" if is_cline_session(value) or is_cline_task(value) else None


def check_database(path: Path) -> None:
    """Raise an `OSError` if a database, or a file that SQLite would open beside it, is no regular file."""
    for beside in ("", "-wal", "-shm", "-journal"):
        file = path.with_name(path.name + beside)
        if os.path.lexists(file) and not is_regular(file):
            raise OSError(errno.EINVAL, "it is no regular file", str(file))


def open_database(path: Path) -> sqlite3.Connection:
    """Open another program's database for reading only.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)


def _format_of_database(path: Path) -> LogFormat | None:
    check_database(path)
    try:
        with closing(open_database(path)) as connection:
            rows: Any = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.Error:
        return None
    names = {row[0] for row in rows}
    if {"sessions", "messages", "schema_version"} <= names:
        return "hermes"
    return "opencode" if {"session", "message", "part"} <= names else None
