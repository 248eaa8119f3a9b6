"""The formats of log files: which one a file has, told by its first bytes, and its conversations."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from everlong.config.files import is_regular, open_regular
from everlong.errors import TranscriptError
from everlong.wire.logs import LogRun, dicts_in, explain_malformed, json_in, parse_line
from everlong.wire.logs.aider import is_aider_history, read_aider
from everlong.wire.logs.claude_code import REQUEST_LINES, is_claude_code_line, read_claude_code
from everlong.wire.logs.cline import is_cline_session, is_cline_task, read_cline_session, read_cline_task
from everlong.wire.logs.codex import is_codex_line, read_codex
from everlong.wire.logs.opencode import OpencodeMessage, read_opencode_session
from everlong.wire.logs.pi import is_pi_line, read_pi

LogFormat = Literal["claude-code", "codex", "pi", "aider", "cline", "opencode"]


class LineLog(NamedTuple):
    """A format with an object of JSON on each line."""

    knows: Callable[[Mapping[str, Any]], bool]
    """Returns whether one of the first lines is of this format."""
    read: Callable[[Iterable[dict[str, Any]]], list[LogRun]]


LINE_LOGS: Mapping[LogFormat, LineLog] = {
    "codex": LineLog(is_codex_line, read_codex),
    "pi": LineLog(is_pi_line, read_pi),
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
        if is_aider_history(head):
            return "aider"
        if path.suffix == ".md":  # it comes with a clone, which could bring anything else under aider's name
            return None
        if head.startswith(_SQLITE):
            return _format_of_database(path)
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
    if not any(sign in head for sign in (b'"sessionId"', b'"ts"')):
        return None
    if path.stat().st_size > _LARGEST_DOCUMENT:
        return None
    try:
        with open_regular(path) as file:
            value = parse_line(file.read())
    except ValueError:
        return None
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
            query = (  # a column that is computed may be as long as the author of the file likes
                "SELECT name FROM sqlite_master WHERE type = 'table' AND NOT EXISTS"
                " (SELECT 1 FROM pragma_table_xinfo(sqlite_master.name) WHERE hidden)"
            )
            rows: Any = connection.execute(query).fetchall()
    except sqlite3.Error:
        return None
    names = {row[0] for row in rows}
    return "opencode" if {"session", "message", "part"} <= names else None


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class LogContent:
    """The conversations of one log file, and how much of it could not be read."""

    status: os.stat_result
    """The file when it was opened."""
    runs: list[LogRun] = field(default_factory=list)
    broken: int = 0
    """Lines that could not be read and were left out."""
    cut_off: int = 0
    """Bytes of a last line that is not complete."""


def read_log_file(path: Path, form: LogFormat) -> LogContent:
    """Return the conversations of a log file.

    Raises:
        OSError: The file cannot be read.
        TranscriptError: It is damaged.
    """
    with explain_malformed(), open_regular(path) as file:
        content = LogContent(os.fstat(file.fileno()))
        if form == "aider":
            complete = (line for line in file if line.endswith(b"\n"))
            content.runs = read_aider(complete, str(path.absolute().parent))
        elif form in LINE_LOGS:
            content.runs = LINE_LOGS[form].read(_entries(file, content))
        else:
            content.runs = [_read_document(path, file.read())]
    return content


def _entries(file: BinaryIO, content: LogContent) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file with one on each line."""
    for line in file:
        if line.isspace() or line.startswith(REQUEST_LINES):
            continue
        try:
            entry = parse_line(line)
        except ValueError:
            if line.endswith(b"\n"):
                content.broken += 1
            else:
                content.cut_off = len(line)
            continue
        if isinstance(entry, dict):
            yield entry


def _read_document(path: Path, data: bytes) -> LogRun:
    try:
        value = parse_line(data)
    except ValueError as error:
        raise TranscriptError(f"the log is no JSON: {error}; its client may be writing it") from error
    if isinstance(value, dict):
        names = (f"{path.name.removesuffix('.messages.json')}.json", f"{path.parent.name}.json")
        beside = next(filter(None, (_json_of(path.with_name(name)) for name in names)), None)
        return read_cline_session(value, beside if isinstance(beside, dict) else None)
    shown = _json_of(path.with_name("ui_messages.json"))
    tasks = _json_of(path.parents[2] / "state" / "taskHistory.json") if len(path.parents) > 2 else None
    ident = path.parent.name
    facts = next((one for one in dicts_in(tasks) if one.get("id") == ident), None)
    return read_cline_task(ident, value, dicts_in(shown), facts)


def _json_of(path: Path) -> Any:
    try:
        with open_regular(path) as file:
            return parse_line(file.read())
    except (OSError, ValueError):
        return None


def read_opencode(path: Path, last: int, *, is_quiet: bool = True) -> Iterator[tuple[LogRun, int]]:
    """Yield the sessions that changed since the last time, parents first, each with the time of its change."""
    with explain_malformed(), closing(open_database(path)) as connection:
        connection.row_factory = sqlite3.Row
        changed = (
            "SELECT s.*, MAX(COALESCE(m.updated, 0), s.time_updated) AS changed FROM session s LEFT JOIN"
            " (SELECT session_id, MAX(time_updated) AS updated FROM message GROUP BY session_id) m"
            " ON m.session_id = s.id WHERE MAX(COALESCE(m.updated, 0), s.time_updated) >= ? ORDER BY s.time_created"
        )
        for row in connection.execute(changed, (last,)).fetchall():
            session = {
                "id": row["id"],
                "parentID": row["parent_id"],
                "directory": row["directory"],
                "title": row["title"],
                "version": row["version"],
                "time": {"created": row["time_created"]},
                "revert": json_in(row["revert"]),
            }
            messages = list(_opencode_messages(connection, row["id"]))
            if not is_quiet and messages and _is_open(messages[-1][0]):
                messages.pop()
            yield read_opencode_session(session, messages), int(row["changed"])


def _is_open(message: Mapping[str, Any]) -> bool:
    """Return whether an answer is still being written."""
    times = message.get("time")
    is_over = isinstance(times, dict) and times.get("completed") is not None
    return message.get("role") == "assistant" and not is_over and not message.get("error")


def _opencode_messages(connection: sqlite3.Connection, ident: str) -> Iterator[OpencodeMessage]:
    parts: dict[str, list[Mapping[str, Any]]] = {}
    query = "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
    for row in connection.execute(query, (ident,)):
        told = json_in(row["data"])
        if isinstance(told, dict):
            parts.setdefault(row["message_id"], []).append({**told, "id": row["id"]})
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for row in connection.execute(query, (ident,)).fetchall():
        told = json_in(row["data"])
        if isinstance(told, dict):
            yield {**told, "id": row["id"]}, parts.get(row["id"], [])
