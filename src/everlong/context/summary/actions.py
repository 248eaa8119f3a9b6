"""Actions: what a tool call did, and its outcome, read without a model.

Files and commands are recognised by the names of a call's arguments, shell writes by their syntax, outcomes by the
words of the result. Each function sees one call or one result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

from everlong.context.steps import LOOKING_TOOL, files_removed, files_written, only_looks, only_prepares, ran_by
from everlong.context.summary.clauses import is_code
from everlong.context.text import beginning, clip
from everlong.model import ToolCall

ActionKind = Literal["read", "write", "edit", "run", "other"]

_PATH_KEYS = ("path", "file_path", "filename", "file", "filepath", "target_file", "notebook_path", "absolute_path")
_COMMAND_KEYS = ("command", "cmd", "script", "code", "bash_command")
_WRITE_NAME = re.compile(r"write|create|save|put|new_?file", re.IGNORECASE)
_EDIT_NAME = re.compile(r"edit|replace|patch|insert|update|modify|apply", re.IGNORECASE)
_SHELL_WRITE = re.compile(r"[>t](?:(?<=>)(?<![0-9&>=-]>)>?|(?<=\bt)ee(?:\s+-a)?)\s*(?!/dev/)['\"]?([\w./~@+-]*[\w~])")
_SHELL_EDIT = re.compile(r"\bsed\s+-(?=[a-zA-Z]*i)\S++\s+(?:-e\s+)?(?:'[^']*'|\"[^\"]*\"|\S+)\s+([\w./~@+-]+)")
_SHELL_WORD = re.compile(r"if|then|else|fi|do|done|for|while|in|case|esac")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")
_SHELL_READ = re.compile(r"\b(?:cat|head|tail|less|nl|sed\s+-n\s+\S+)\s+(?:-\S+\s+)*([\w./~@+-]*[\w]\.\w+)")

_FAILURE = re.compile(
    r"(?<![\w\"'])(?:[A-Za-z.]*error|[A-Za-z.]*exception|traceback|failed|failure|fatal|panicked"
    r"|denied|refused|not found|no such file|no module named|cannot|can't|unable|timed out"
    r"|exit(?:ed)?(?: with)?(?: code)?:? [1-9]\d*|<returncode>[1-9])\b|错误|失败|异常|无法|找不到|超时",
    re.IGNORECASE,
)
# Searching for plain words first spares most results the slow expression.
_FAILURE_WORDS = (
    *("error", "exception", "traceback", "fail", "fatal", "panicked", "denied", "refused", "not found"),
    *("no such file", "no module", "cannot", "can't", "unable", "timed out", "exit", "<returncode>"),
    *("错误", "失败", "异常", "无法", "找不到", "超时"),
)
_TEST_WORDS = (" passed", " failed", "failed (", "ran ")
_SUCCESS = re.compile(
    r"\b(?:0 (?:errors?|failures?|failed)|no (?:errors?|failures)|\d+ passed|ok|success\w*)\b|成功", re.IGNORECASE
)
_TEST_COUNTS = re.compile(
    r"\b\d+ (?:passed|failed|errors?|skipped)\b.*|\bRan \d+ tests?.*|\bOK\b|\bFAILED \(.*\)", re.IGNORECASE
)
_NAMED_ERROR = re.compile(r"(?:[\w.]*(?:Error|Exception)|fatal|error)\b(?:\[\w+\])?: ")
_TAG = re.compile(r"</?\w+>")
_ENDS_WELL = re.compile(r"\b(?:build )?(?:succeeded|successfully|finished|completed|up to date)\b", re.IGNORECASE)
_COUNTED_WORD, _OK = re.compile(r"\d (?:passed|failed|error|skipped)"), re.compile(r"ok(?<!\wok)(?!\w)")
_COUNTED = ("passed", "failed", "error", "skipped", "ran ", "ok")
_GOOD_ENDS = ("succeeded", "successfully", "finished", "completed", "up to date")
_RETURNED = re.compile(
    r"<(?:returncode|exit_code)>(\d+)<|\b(?:exit(?:ed with)? code|exit status|return ?code):? (\d+)\b", re.IGNORECASE
)
_STRUCTURE = re.compile(
    r"^\[exit(?: code)?:? 0\]$|^\W*(?:</?\w+>)?\W*$|^<(returncode|exit_code)>0</\1>$"
    r"|^(?:Waiting for the debugger|Debugger (?:attached|listening)|npm notice)\b"
)
"""Lines that say nothing: brackets, tags, and exit codes of success."""
_EMPTY_STARTS = ("Waiting for the debugger", "Debugger ", "npm notice")
"""The beginnings of such lines that begin with a letter."""

OUTCOME_LENGTH = 160
_RULER = 200
"""A line that begins with this many marks is a ruler, whatever follows."""
_LOOK_AT = 6_000
_LINES_LOOKED_AT = 24
"""Lines read of a result: its outcome stands at the end."""
_LONG = 12
"""A result of this many lines is told by its first line, a shorter one by its last."""


@dataclass(frozen=True, slots=True)
class Action:
    """One tool call: its kind, the files it touched, and a line that names it."""

    kind: ActionKind
    title: str
    paths: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Files and folders that it removed."""

    @property
    def changes(self) -> bool:
        """True if it wrote to files."""
        return self.kind in ("write", "edit")

    @property
    def looks(self) -> bool:
        """True if it only looks, thinks, asks or takes notes; what came of that shows in later actions."""
        if self.kind == "run":
            return is_looking(self.title)
        return self.kind == "read" or (self.kind == "other" and bool(_NOTING.match(self.title)))

    @property
    def prepares(self) -> bool:
        """True for a command that only prepares others, such as making a folder."""
        ran = ran_by(self.title) if self.kind == "run" else None
        return ran is not None and only_prepares(ran)

    @property
    def removes(self) -> bool:
        """True for a command that removes or moves files, which prints no result."""
        ran = ran_by(self.title) if self.kind == "run" else None
        return ran is not None and ran.program.partition(" ")[0] in ("rm", "mv", "git")

    @property
    def source(self) -> str:
        """The heading under which lines that it read, wrote or returned are grouped."""
        if self.kind in ("read", "write", "edit") or (self.kind == "run" and len(self.paths) == 1):
            return f"{', '.join(self.paths[:3])}:" if self.paths else f"{self.title}:"
        return f"$ {clip(self.title, _SOURCE_LENGTH)}" if self.kind == "run" else f"{clip(self.title, _SOURCE_LENGTH)}:"


_SOURCE_LENGTH = 120
_NOTING = re.compile(rf"\w*?(?:{LOOKING_TOOL.pattern}|todo|plan(?!e|t)|(?:^|_)ask)\w*\(", re.IGNORECASE)
_MARKS = re.compile(r"[{};]\s*$|\x1b\[|^\d+[\t→|]|^(?:from \S+ )?import \S+|^return\b")


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """The outcome of a call: failed or not, and the line that says it best."""

    failed: bool
    line: str

    @property
    def told(self) -> str:
        """The line, if it can stand among sentences; empty if it is data."""
        is_data = self.line.startswith(("{", "[", "<")) or _MARKS.search(self.line) or is_code(self.line)
        return "" if is_data else self.line


@lru_cache(maxsize=1_024)
def is_looking(command: str) -> bool:
    """Return whether a command only looks at things, so that finding nothing is no obstacle."""
    ran = ran_by(command)
    return ran is not None and only_looks(ran)


@lru_cache(maxsize=8)
def action_of(call: ToolCall) -> Action:
    """Return what a tool call does, as far as its name and arguments tell."""
    arguments = _arguments(call.arguments)
    command = _first(arguments, _COMMAND_KEYS)
    if command:
        return _command_action(command)
    path = _first(arguments, _PATH_KEYS)
    if path:
        kind: ActionKind = "read"
        if _WRITE_NAME.search(call.name):
            kind = "write"
        elif _EDIT_NAME.search(call.name):
            kind = "edit"
        return Action(kind, path, (path,))
    shown = ", ".join(f"{key}={clip(_start_of(value, 80), 60)}" for key, value in islice(arguments.items(), 5))
    return Action("other", clip(f"{call.name}({shown})", 200))


def _start_of(value: object, room: int) -> str:
    """Return the beginning of a value as Python writes it, a little beyond ``room``: arguments may be huge."""
    if not isinstance(value, dict | list):
        return str(value)
    marks, started = ("{}" if isinstance(value, dict) else "[]"), ""
    for key in value if room > 0 else ():
        shown = f"{key!r}: {_inside(value[key], room)}" if isinstance(value, dict) else _inside(key, room)
        started += (", " if started else "") + shown
        room -= len(shown)
        if room <= 0:
            return marks[0] + started
    return marks[0] + started + marks[1]


def _inside(value: object, room: int) -> str:
    return _start_of(value, room - 1) if isinstance(value, dict | list) else repr(value)


def _command_action(command: str) -> Action:
    bare = _without_heredocs(command)
    written = tuple(path for path in dict.fromkeys(_SHELL_WRITE.findall(bare)) if not path.isdigit())
    edited = tuple(dict.fromkeys(_SHELL_EDIT.findall(bare))) if "sed" in bare else ()
    edited = tuple(path for path in edited if not _SHELL_WORD.fullmatch(path))
    if "cd " in bare and (written or edited):
        written, edited = files_written(command)
    title = beginning(bare, 200)
    if written or edited:
        return Action("write" if written else "edit", title, tuple(dict.fromkeys(written + edited)))
    removed = files_removed(bare) if "rm " in bare or "mv " in bare else ()
    return Action("run", title, tuple(dict.fromkeys(_SHELL_READ.findall(bare))), removed)


def _without_heredocs(command: str) -> str:
    """Return a command without the text of its here-documents."""
    lines, kept, ends = command.splitlines(), [], ""
    for line in lines:
        if ends:
            if line.strip() == ends:
                ends = ""
            continue
        kept.append(line)
        if "<<" in line and (opened := _HEREDOC.search(line)):
            ends = opened[1]
    return " ".join(kept)


def _arguments(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"arguments": clip(text, 120)}
    return parsed if isinstance(parsed, dict) else {"arguments": parsed}


def _first(arguments: dict[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def is_failure(line: str, words: Sequence[str] = _FAILURE_WORDS) -> bool:
    """Return whether a line reports a failure; ``words`` are the words of failure that it may have."""
    return _may_fail(line, words) and bool(_FAILURE.search(line)) and not _SUCCESS.search(line)


def _may_fail(line: str, words: Sequence[str]) -> bool:
    """Return whether a line has a word of failure at all; a cheap check that most lines fail."""
    lowered = line.lower()
    return any(map(lowered.__contains__, words)) or not line.isascii()


def outcome_of(result: str) -> ActionOutcome:
    """Return the outcome of a call, judged by the beginning and the end of its result."""
    looked_at = result if len(result) <= _LOOK_AT else result[: _LOOK_AT // 2] + "\n" + result[-_LOOK_AT // 2 :]
    lines = looked_at.splitlines()
    newest_first = list(islice(_telling(reversed(lines)), _LINES_LOOKED_AT))
    if not newest_first:
        return ActionOutcome(failed=False, line="")
    # Words are searched for in the lines that are looked at; letters that are not ASCII may have other forms.
    lowered = ("\n".join(newest_first) if looked_at.isascii() else looked_at).lower()
    if any(map(lowered.__contains__, _TEST_WORDS)) and _may_count_tests(lowered):
        counts = next((line for line in newest_first if _counts_tests(line)), "")
        if counts:
            failed = bool(re.search(r"\b[1-9]\d* (?:failed|errors?)\b|FAILED", counts))
            return ActionOutcome(failed, clip(counts.strip("= "), OUTCOME_LENGTH))
    if "timed out" in lowered and (late := next((line for line in newest_first if "timed out" in line), "")):
        return ActionOutcome(failed=True, line=clip(_TAG.sub("", late), OUTCOME_LENGTH))
    complaint = ""
    if words := [word for word in _FAILURE_WORDS if word in lowered]:
        complaint = _complaint(newest_first, words)
    # The last line of a traceback names the error; a shell's complaint is usually its only line.
    if complaint:
        all_lowered = looked_at.lower()
        returned = _RETURNED.search(looked_at) if "return" in all_lowered or "exit" in all_lowered else None
        if returned is not None:
            return ActionOutcome(failed=(returned[1] or returned[2]) != "0", line=clip(complaint, OUTCOME_LENGTH))
        if len(newest_first) <= 4 or complaint == newest_first[0] or "traceback" in all_lowered:
            return ActionOutcome(failed=True, line=clip(complaint, OUTCOME_LENGTH))
    said = newest_first[0] if len(newest_first) < _LONG else next(_telling(lines))
    if not looked_at.isascii() or any(map(lowered.__contains__, _GOOD_ENDS)):
        said = next((line for line in newest_first if _ENDS_WELL.search(line)), said)
    return ActionOutcome(failed=False, line=clip(said, OUTCOME_LENGTH))


def _may_count_tests(lowered: str) -> bool:
    """Return whether a text in lower case may have a line that counts tests; a cheap check that most texts fail."""
    return (
        not lowered.isascii()
        or "failed (" in lowered
        or "ran " in lowered
        or _COUNTED_WORD.search(lowered) is not None
        or _OK.search(lowered) is not None
    )


def _counts_tests(line: str) -> bool:
    may_count = not line.isascii() or any(map(line.lower().__contains__, _COUNTED))
    return may_count and _TEST_COUNTS.search(line) is not None


def _complaint(newest_first: list[str], words: Sequence[str]) -> str:
    """Return the line that names the error, else the last line that mentions one, else a bare exit code.

    Only lines with one of the words of failure can be such a line.
    """
    named = next((line for line in newest_first if _NAMED_ERROR.match(line) and is_failure(line, words)), "")
    if named:
        return named
    said = next((line for line in newest_first if line[0] != "<" and is_failure(line, words)), "")
    return said or next((line for line in newest_first if line[0] == "<" and is_failure(line, words)), "")


def _telling(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that say something."""
    return (line for raw in lines if (line := raw.strip()) and not _is_structure(line))


def _is_structure(line: str) -> bool:
    """Return whether a line says nothing; most lines begin with a letter or digit, and few such lines do."""
    if line[0].isalnum() and not line.startswith(_EMPTY_STARTS):
        return False
    return _STRUCTURE.match(line[:_RULER]) is not None
