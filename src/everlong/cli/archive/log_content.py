"""Read a client's log file, whatever its format, into its conversations; count the lines that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from everlong.cli.archive.formats import LINE_LOGS, LogFormat
from everlong.config.files import open_regular
from everlong.errors import TranscriptError
from everlong.wire.logs.aider import read_aider
from everlong.wire.logs.claude_code import REQUEST_LINES
from everlong.wire.logs.cline import read_cline_session, read_cline_task
from everlong.wire.logs.gemini import read_gemini_session
from everlong.wire.logs.log import LogRun, dicts_in, explain_malformed, parse_line

__all__ = ["LogContent", "read_log_file"]

_LONGEST_PATH = 4_096


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
            content.runs = [_read_document(path, form, file.read())]
        if form in {"gemini", "gemini-lines"}:
            for run in content.runs:
                _place_in_project(run, path)
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


def _read_document(path: Path, form: str, data: bytes) -> LogRun:
    try:
        value = parse_line(data)
    except ValueError as error:
        raise TranscriptError(f"the log is no JSON: {error}; its client may be writing it") from error
    if form == "gemini":
        return read_gemini_session(value)
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


def _place_in_project(run: LogRun, path: Path) -> None:
    """Note the folder and the parent of a session of Gemini CLI, which the place of its file tells."""
    chats = next((one for one in path.parents if one.name == "chats"), None)
    if chats is None:
        return
    if run.facts.folder is None:
        try:
            with open_regular(chats.parent / ".project_root") as file:
                run.learn(folder=file.read(_LONGEST_PATH).decode("utf-8").strip() or None)
        except (OSError, ValueError):
            pass
    if run.facts.agent is not None and path.parent != chats:
        run.facts = replace(run.facts, works_for=path.parent.name)
