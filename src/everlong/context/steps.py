"""The steps of an agent: each tool call with its result, its program, its file changes and its outcome.

Read from the messages alone, without a model. A shell command is parsed far enough to find the program, its target and
the files that it writes, removes or restores. A step failed if its exit code says so or, without one, if its result
has lines that only errors have; those lines are quoted as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple

from everlong.context.literals import CLEARED_RESULT
from everlong.context.text import beginning, one_line
from everlong.model import Message, ToolCall, calls_of, text_of

__all__ = [
    "LOOKING_TOOL",
    "CommandRun",
    "FileChange",
    "KnownSteps",
    "Step",
    "files_removed",
    "files_written",
    "only_looks",
    "only_prepares",
    "ran_by",
    "read_steps",
]

StepVerdict = Literal["failed", "succeeded", "unknown"]
ChangeKind = Literal["created", "edited", "read", "dropped"]

_COMMAND_KEYS = ("command", "cmd", "script", "bash_command")
_PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "filepath", "target_file", "notebook_path")
_LOOK_AT = 6_000
"""Characters at each end of a result that are read."""
_LINE_LENGTH = 400
_MOST_LINES = 5
_TITLE_LENGTH = 160
_MOST_KNOWN = 400
"""The number of steps that are read ahead of a compaction."""

_RETURNED = re.compile(
    r"<(?:returncode|exit_code)>(-?\d+)<|^(?:\w+ )?exit(?:ed with)? (?:code|status):? (-?\d+)"
    r"|^Process exited with code (-?\d+)|\"exit_code\": ?(-?\d+)|^Command exited with code (-?\d+)",
    re.IGNORECASE | re.MULTILINE,
)
_STOPPED = re.compile(
    r"doesn't want to (?:proceed|take this action)|user (?:rejected|denied|declined|cancell?ed|aborted|interrupted)"
    r"|tool use was rejected|\[Request interrupted by user|^Command aborted|aborted by user|^Interrupted",
    re.IGNORECASE | re.MULTILINE,
)
_STOPPING_WORDS = ("want to", "rejected", "denied", "declined", "cancel", "aborted", "interrupted")
"""Plain words, one of which each phrase of `_STOPPED` has."""
_TIMED_OUT = re.compile(r"^.{0,200}\btimed out (?:and|after)\b.{0,200}$", re.MULTILINE)
_TOOL_ERROR = re.compile(
    r"\s*(?:<tool_use_error>|<error>|unsupported call\b|(?:unknown|no such|invalid) tool\b"
    r"|\[?(?:tool |execution )?error\]?\b"
    r"|\{\"(?:error|is_error)\": ?(?!null|false|\"\"|0))",
    re.IGNORECASE,
)
_ERROR_LINE = re.compile(
    r"^\s*(?:[\w.]*(?:Error|Exception|Failure|Warning as error)\b(?:: | \[|$)"
    r"|(?:fatal|panic|ERROR|FAILED?|FATAL)\b[:! ]"
    r"|E {2,}\S|error(?:\[\w+\])?: |npm (?:error|ERR!)|✗|✘|not ok \d|--- FAIL|(?:AssertionError|SyntaxError)\b)"
    r"|: error\b|\berror TS\d+|: fatal error:|\bcommand not found\b|: No such file or directory"
    r"|^(?:\S*/)?python[\d.]*: |\bNo module named\b|\b(?:[1-9]\d*) (?:failed|errors?)\b|Permission denied"
    r"|^\S+: (?:cannot|can't|unable) |^(?:ModuleNotFound|Import)Error|^<tool_use_error>|错误[:：]|失败[:：]"
)
_SHELL_COMPLAINT = re.compile(
    r"^(?:\S*/)?(?:e?grep|rg|cat|sed|ls|find|head|tail|awk|nl|wc|jq|stat|bash|sh|zsh|cd)(?:: | line )\S"
)
_NOISE = re.compile(
    r"^\s*(?:</?\w+>|={3,}|-{3,}|npm error (?:code|path|workspace|location|A complete log)\b.*)?\s*$"
    r"|^.{0,8}</?(?:output|output_tail|output_head|returncode|warning)>"
    r"|(?:Exit code \d+|(?:Command|Process) exited with code \d+)\.?$"
)
_TELLS_MOST = re.compile(
    r"^\s*(?:FAILED |FAIL[: ]|ERROR[: ]|not ok |--- FAIL)|error TS\d+|: error\b|^[\w.]*(?:Error|Exception): "
)
_CLEAN_COUNT = re.compile(r"\b0 (?:failed|errors?)\b", re.IGNORECASE)

_LOOKING = frozenset(
    """
    ls cat head tail grep egrep rg ag find fd pwd wc nl less more stat tree awk jq which type file env
    printenv echo printf whoami date ps top df du diff cmp sort uniq basename dirname realpath readlink test
    [ true man help
    """.split()  # noqa: SIM905 - words, as one reads them
)
_GIT_LOOKING = frozenset(
    ["status", "log", "diff", "show", "blame", "branch", "remote", "rev-parse", "ls-files", "grep", "describe"]
)
_SETTING_UP = frozenset(
    """
    mkdir touch rm mv cp chmod chown export source . set unset sleep ln pushd popd cd kill
    """.split()  # noqa: SIM905 - words, as one reads them
)
_WITH_SUBCOMMAND = frozenset(
    """
    npm pnpm yarn bun cargo go git docker make kubectl gh pip uv poetry mvn gradle dotnet tox nox rake
    bundle terraform helm systemctl brew apt apt-get conda hatch just
    """.split()  # noqa: SIM905 - words, as one reads them
)
_WRAPPERS = frozenset(
    ["sudo", "time", "nohup", "nice", "env", "xvfb-run", "npx", "bunx", "pnpx", "stdbuf", "command", "exec"]
)
LOOKING_TOOL = re.compile(
    r"(?:^|_)(?:get|list|search|read|find|fetch|view|query|think|calculate|glob|grep|ls|web)", re.IGNORECASE
)
_WRITING_TOOL = re.compile(r"write|create|save|new_?file", re.IGNORECASE)
_EDITING_TOOL = re.compile(r"edit|replace|patch|insert|update|modify|apply|str_replace", re.IGNORECASE)

_QUOTED = r"'[^']*'|\"(?:[^\"\\]|\\.)*\""
_SEPARATOR = re.compile(rf"({_QUOTED}|\\.)|(&&|\|\||;|\n|\|&?(?!\|))", re.DOTALL)
_WORD = re.compile(rf"(?:{_QUOTED}|\\.|[^\s'\"\\])+", re.DOTALL)
_REDIRECT = re.compile(r"(?<![\w-])(?:\d|&)?>{1,2}\s*(&\d|[^\s;|&<>]+)|<\s*[^\s;|&<>]+")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$", re.MULTILINE)
_OPENED = re.compile(
    r"""open\(\s*(?:(['"])(?P<path>[^'"\n]{1,300})\1|(?P<name>\w+))\s*,\s*(?:mode\s*=\s*)?['"][wa+x]"""
)
_WRITTEN = re.compile(
    r"""(?:Path\(\s*(?:(['"])(?P<path>[^'"\n]{1,300})\1|(?P<name>\w+))\s*\)|(?P<var>\w+))\.write_(?:text|bytes)"""
)
_FILE_LIKE = re.compile(r"^[~\w./@+-]*\w\.\w{1,10}$|/")
_VERSION = re.compile(r"(?:[_-]?v?\d+|[_-](?:new|final|fixed|debug|again|simple|min))+$")


class FileChange(NamedTuple):
    """A step's change to a file."""

    kind: ChangeKind
    path: str
    place: str = ""
    """The place in the file: lines, or the first words of the new text."""


class CommandRun(NamedTuple):
    """The essence of a shell command: one program on one target, in one folder."""

    program: str
    target: str = ""
    folder: str = ""
    words: frozenset[str] = frozenset()

    def covers(self, other: CommandRun) -> bool:
        """Return whether this run is about the same thing as another one."""
        if self.program != other.program or (self.folder and other.folder and self.folder != other.folder):
            return False
        return not (self.target and other.target) or _stem(self.target) == _stem(other.target)


@dataclass(frozen=True)
class Step:
    """One tool call, with its result if there is one."""

    at: int
    call: ToolCall
    result: str | None = None
    is_error: bool = False

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call, parsed on demand because few steps need them."""
        return _arguments(self.call.arguments)

    @cached_property
    def command(self) -> str:
        """The shell command that the call runs; empty for other tools."""
        for key in _COMMAND_KEYS:
            value = self.arguments.get(key)
            if isinstance(value, list) and value:  # ["bash", "-lc", "npm test"]
                return str(value[-1]) if len(value) > 2 and str(value[1]).startswith("-") else " ".join(map(str, value))
            if isinstance(value, str) and value.strip():
                return value.strip()
        return ""

    @cached_property
    def title(self) -> str:
        """The call in one line."""
        if self.command:
            return beginning(_without_heredocs(self.command)[0].replace("\n", " "), _TITLE_LENGTH).replace("`", "'")
        if self.path:
            return f"{self.call.name} {self.path}"
        shown = ", ".join(f"{key}={beginning(str(value), 60)}" for key, value in list(self.arguments.items())[:3])
        return beginning(f"{self.call.name}({shown})", _TITLE_LENGTH).replace("`", "'")

    @cached_property
    def path(self) -> str:
        """The file that the call names; empty if it names none."""
        found = (self.arguments.get(key) for key in _PATH_KEYS)
        return next((value.strip() for value in found if isinstance(value, str) and value.strip()), "")

    @cached_property
    def ran(self) -> CommandRun | None:
        """The essence of the command; None for other tools."""
        return ran_by(self.command) if self.command else None

    @cached_property
    def only_looks(self) -> bool:
        """True if the call only reads."""
        if self.ran is not None:
            return only_looks(self.ran)
        if any(change.kind != "read" for change in self.changes):
            return False
        return bool(LOOKING_TOOL.search(self.call.name))

    @cached_property
    def was_stopped(self) -> bool:
        """True if a person refused or stopped the call."""
        if self.result is None:
            return False
        ends = _ends(self.result)
        lowered = ends.lower()
        return any(word in lowered for word in _STOPPING_WORDS) and _STOPPED.search(ends) is not None

    @cached_property
    def _verdict_and_lines(self) -> tuple[StepVerdict, tuple[str, ...]]:
        if self.result is None or self.was_stopped or self.result.strip() == CLEARED_RESULT:
            return "unknown", ()
        return _judge(self, _ends(self.result))

    @property
    def verdict(self) -> StepVerdict:
        """The outcome of the call, as far as its result tells."""
        return self._verdict_and_lines[0]

    @property
    def error_lines(self) -> tuple[str, ...]:
        """The result's own lines on the failure; empty if there was none."""
        return self._verdict_and_lines[1]

    @cached_property
    def changes(self) -> tuple[FileChange, ...]:
        """The call's changes to files, in order."""
        return tuple(_changes(self))

    @property
    def outcome(self) -> str:
        """The line of the result that tells the outcome."""
        if self.result is None:
            return ""
        if self.error_lines:
            return self.error_lines[-1].strip()
        lines = [line.strip() for line in _ends(self.result).splitlines() if not _NOISE.match(line)]
        return beginning(lines[-1], _TITLE_LENGTH) if lines else ""


class KnownSteps:
    """The newest steps of a conversation, with everything that was read of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[ToolCall, str | None, bool], Step] = {}

    def recall(self, steps: Sequence[Step]) -> list[Step]:
        """Return steps of which those that were seen before are read already, and keep all of them."""
        found = [self._recall(step) for step in steps]
        self._known = {(step.call, step.result, step.is_error): step for step in found}
        return found

    def read_ahead(self, steps: Iterable[Step]) -> None:
        """Read steps before anybody asks for them, and keep the newest of all that were seen."""
        known = self._known
        for step in steps:
            key = (step.call, step.result, step.is_error)
            if key not in known:
                known[key] = step
                _ = step.verdict, step.changes
        if len(known) > _MOST_KNOWN:
            self._known = dict(islice(known.items(), len(known) - _MOST_KNOWN, None))

    def _recall(self, step: Step) -> Step:
        known = self._known.get((step.call, step.result, step.is_error))
        if known is None or known.at == step.at:
            return known or step
        step.__dict__.update({**known.__dict__, "at": step.at})  # the same step at another place of another list
        return step


def read_steps(messages: Sequence[Message]) -> list[Step]:
    """Return every tool call of a list with its result, in the order of the calls."""
    calls: list[tuple[int, ToolCall]] = []
    results: dict[int, Message] = {}
    waiting: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            for call in calls_of(message):
                waiting.setdefault(call.id, []).append(len(calls))
                calls.append((index, call))
        elif role == "tool":
            places = waiting.get(str(message.get("tool_call_id") or ""))
            if places:
                results[places.pop()] = message
    return [
        Step(at, call)
        if (result := results.get(place)) is None
        else Step(at, call, text_of(result), bool(result.get("is_error")))
        for place, (at, call) in enumerate(calls)
    ]


def only_looks(ran: CommandRun) -> bool:
    """Return whether a program only shows things."""
    first, _, second = ran.program.partition(" ")
    return first in _LOOKING or (first == "git" and second in _GIT_LOOKING) or ran.program == "sed -n"


def only_prepares(ran: CommandRun) -> bool:
    """Return whether a program only prepares others; removing, moving or copying files is more than that."""
    first = ran.program.partition(" ")[0]
    return ran.program == "git stash" or (first in _SETTING_UP and first not in ("rm", "mv", "cp"))


def files_written(command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that a shell command creates, and those that it edits."""
    changes = list(_shell_changes(command))
    created = dict.fromkeys(change.path for change in changes if change.kind == "created")
    return tuple(created), tuple(dict.fromkeys(change.path for change in changes if change.kind == "edited"))


def files_removed(command: str) -> tuple[str, ...]:
    """Return the files and folders that a shell command removes."""
    return tuple(change.path for change in _shell_changes(command) if change.kind == "dropped")


def ran_by(command: str) -> CommandRun | None:
    """Return the essence of a shell command: its last part that does something, else its last part."""
    bare, _ = _without_heredocs(command)
    folder, found = "", list[CommandRun]()
    for pipeline in _pipelines(bare):
        words = _program_words(pipeline[0])
        if not words:
            continue
        if words[0] == "cd" and len(words) > 1:
            folder = words[1]
            continue
        ran = _read_program(words, folder)
        if ran is not None:
            found.append(ran)
    acting = [ran for ran in found if not only_looks(ran) and (ran.program.split() or [""])[0] not in _SETTING_UP]
    chosen = acting or found
    return chosen[-1] if chosen else None


# -- the outcome of a step ---------------------------------------------------------------------------------------------


def _judge(step: Step, text: str) -> tuple[StepVerdict, tuple[str, ...]]:
    code = _exit_code(text)
    timed_out = _TIMED_OUT.search(text) if "timed out" in (text if step.command else text[:300]) else None
    if step.ran is not None:
        return _judge_command(step, step.ran, text, code, timed_out[0] if timed_out else "")
    if step.is_error or _TOOL_ERROR.match(text) or (timed_out and len(text) < _LINE_LENGTH):
        return "failed", _first_lines(text)
    return "succeeded", ()


def _judge_command(
    step: Step, ran: CommandRun, text: str, code: int | None, timed_out: str
) -> tuple[StepVerdict, tuple[str, ...]]:
    if timed_out:
        return "failed", (timed_out.strip(),)
    counts_only = bool(re.search(r"\|\s*(?:wc\b|grep\s+(?:-\w+\s+)*-\w*c)", step.command))
    is_looking = only_looks(ran)
    pattern = _SHELL_COMPLAINT if is_looking else _ERROR_LINE
    telling = [
        line.rstrip()
        for line in text.splitlines()
        if pattern.search(line[:_LINE_LENGTH]) and not _NOISE.match(line) and not _CLEAN_COUNT.search(line)
    ]
    if (code is not None and code != 0) or step.is_error:
        if telling:
            return "failed", _most_telling(telling)
        said = [line.rstrip() for line in text.splitlines() if not _NOISE.match(line)]
        if is_looking and not step.is_error:
            return ("unknown", ()) if not said or code == 1 else ("failed", _most_telling(said[-2:]))
        return "failed", _most_telling(said[-2:]) or (f"exit code {code}",)
    if code == 0 and "|" not in _without_heredocs(step.command)[0]:
        return "succeeded", ()
    if telling and (code is None or "|" in step.command):
        return "failed", _most_telling(telling)
    return ("unknown" if counts_only else "succeeded"), ()


def _exit_code(text: str) -> int | None:
    lowered = text.lower()
    if "exit" not in lowered and "returncode" not in lowered:
        return None
    told = [next(group for group in found.groups() if group is not None) for found in _RETURNED.finditer(text)]
    return int(told[-1]) if told else None


def _most_telling(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines that tell most: the first and the last of them, each once, word for word."""
    unique = list(dict.fromkeys(line[:_LINE_LENGTH] for line in lines))
    most = [line for line in unique if _TELLS_MOST.search(line)] or unique
    if len(most) > _MOST_LINES:
        most = [*most[:3], *most[-2:]]
    return tuple(most)


def _first_lines(text: str) -> tuple[str, ...]:
    lines = [line.rstrip()[:_LINE_LENGTH] for line in text.splitlines() if not _NOISE.match(line)]
    return tuple(lines[:3])


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _LOOK_AT else f"{text[:_LOOK_AT]}\n{text[-_LOOK_AT:]}"


# -- changes to files --------------------------------------------------------------------------------------------------


def _changes(step: Step) -> Iterator[FileChange]:
    if step.command:
        yield from _shell_changes(step.command)
        return
    patches = [v for v in step.arguments.values() if isinstance(v, str) and "*** " in v and "File: " in v]
    for patch in patches:
        kinds: dict[str, ChangeKind] = {"Add": "created", "Update": "edited", "Delete": "dropped"}
        for found in _PATCHED.finditer(patch):
            yield FileChange(kinds[found[1]], found[2], _place_in_patch(patch, found.end()))
    if patches or not step.path:
        return
    if _EDITING_TOOL.search(step.call.name):
        yield FileChange("edited", step.path, _place_of_edit(step.arguments))
    elif _WRITING_TOOL.search(step.call.name):
        yield FileChange("created", step.path)
    elif _FILE_LIKE.search(step.path) and re.search(r"read|view|open|cat", step.call.name, re.IGNORECASE):
        start, size = step.arguments.get("offset"), step.arguments.get("limit")
        lines = f"lines {start}–{start + size - 1}" if isinstance(start, int) and isinstance(size, int) else ""
        yield FileChange("read", step.path, lines)


def _place_of_edit(arguments: dict[str, Any]) -> str:
    for key in ("newText", "new_string", "new_str", "replace", "new_text", "content", "diff"):
        value = arguments.get(key)
        if isinstance(value, str):
            return next((beginning(line.strip(), 60) for line in value.splitlines() if len(line.strip()) > 3), "")
    return ""


def _place_in_patch(patch: str, start: int) -> str:
    for line in patch[start:].splitlines()[1:12]:
        if line.startswith("*** "):
            return ""
        if line.startswith("@@") and len(line.strip("@ ")) > 1:
            return beginning(line.strip("@ "), 60)
        if line.startswith("+") and len(line) > 4:
            return beginning(line[1:].strip(), 60)
    return ""


def _shell_changes(command: str) -> Iterator[FileChange]:
    bare, bodies = _without_heredocs(command)
    folder = ""
    for pipeline in _pipelines(bare):
        for part in pipeline:
            words = _program_words(part)
            for found in _REDIRECT.finditer(_QUOTES.sub(lambda m: m[0].replace(">", " "), part)):
                if found[1] and not found[1].startswith(("&", "/dev/")):
                    kind: ChangeKind = "edited" if ">>" in found[0] else "created"
                    yield FileChange(kind, _join_path(folder, found[1].strip("'\"")))
            if not words:
                continue
            if words[0] == "cd" and len(words) > 1:
                folder = words[1]
                continue
            yield from (change._replace(path=_join_path(folder, change.path)) for change in _program_changes(words))
    for body in bodies:
        yield from _script_changes(body)
    if re.search(r"\bpython[\d.]*\s+-c\b", command):
        yield from _script_changes(command)


_QUOTES = re.compile(_QUOTED, re.DOTALL)


def _program_changes(words: Sequence[str]) -> Iterator[FileChange]:
    program, plain = words[0], [word for word in words[1:] if not word.startswith("-")]
    if program == "sed" and any(re.match(r"-[a-zA-Z]*i|--in-place", word) for word in words[1:]):
        if len(plain) > 1 and _FILE_LIKE.search(plain[-1]) and not re.match(r"[\d,$]*s\W", plain[-1]):
            line = next((found for word in plain[:-1] if (found := re.match(r"\d+", word))), None)
            yield FileChange("edited", plain[-1], f"line {line[0]}" if line else "")
    elif program == "tee":
        yield from (FileChange("created", word) for word in plain)
    elif program == "rm":
        yield from (FileChange("dropped", word.rstrip("/")) for word in plain)
    elif program == "mv" and len(plain) == 2:
        yield FileChange("dropped", plain[0])
        yield FileChange("created", plain[1])
    elif program == "git" and plain[:1] in (["checkout"], ["restore"]):
        yield from (FileChange("dropped", word) for word in plain[1:] if _FILE_LIKE.search(word) and "." in word)


def _script_changes(body: str) -> Iterator[FileChange]:
    """Yield the files that a Python script writes, named directly or by a variable."""
    for pattern in (_OPENED, _WRITTEN):
        for found in pattern.finditer(body[: 4 * _LOOK_AT]):
            groups = found.groupdict()
            path, name = groups.get("path"), groups.get("name") or groups.get("var")
            if path is None and name:
                assigned = re.search(rf"\b{re.escape(name)}\s*=\s*(?:Path\()?['\"]([^'\"\n]{{1,300}})['\"]", body)
                path = assigned[1] if assigned else None
            if path and _FILE_LIKE.search(path):
                yield FileChange("edited", path)


def _join_path(folder: str, path: str) -> str:
    if not folder or folder in (".", "./") or path.startswith(("/", "~", "$")):
        return path
    return f"{folder.rstrip('/')}/{path.removeprefix('./')}"


# -- parsing a command -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _without_heredocs(command: str) -> tuple[str, tuple[str, ...]]:
    """Return a command without its here-documents, and their texts.

    Cached because every question about a step begins with it.
    """
    if "<<" not in command and "\\" not in command:
        return "\n".join(command.splitlines()), ()
    kept: list[str] = []
    bodies: list[list[str]] = []
    ends = ""
    for line in command.splitlines():
        if ends:
            if line.strip() == ends:
                ends = ""
            else:
                bodies[-1].append(line + "\n")
            continue
        opened = _HEREDOC.search(line) if "<<" in line else None
        if opened is not None:
            ends = opened[2]
            bodies.append([])
        kept.append(line if opened is None else line[: opened.start()] + line[opened.end() :])
    return "\n".join(kept).replace("\\\n", " "), tuple(map("".join, bodies))


def _pipelines(command: str) -> Iterator[list[str]]:
    """Yield the parts of a command between ``&&``, ``;`` and line ends, each split at its pipes."""
    parts, start = [""], 0
    for found in _SEPARATOR.finditer(command):
        if found[2] is None:
            continue
        parts[-1] += command[start : found.start()]
        start = found.end()
        if found[2].startswith("|") and found[2] != "||":
            parts.append("")
        else:
            yield parts
            parts = [""]
    parts[-1] += command[start:]
    yield parts


def _program_words(part: str) -> list[str]:
    """Return the words of one program's call, without assignments, redirections and wrappers such as ``sudo``."""
    quiet = _QUOTES.sub(lambda m: m[0].replace(">", "\x00").replace("<", "\x01"), part)
    words = [
        _unquoted(word).replace("\x00", ">").replace("\x01", "<")
        for word in _WORD.findall(_REDIRECT.sub(" ", quiet).strip().rstrip("&").strip("() "))
    ]
    while words:
        if re.fullmatch(r"\w+=.*", words[0], re.DOTALL) or words[0] in _WRAPPERS:
            words = words[1:]
        elif words[0] == "timeout" or (words[0] in ("-n", "-k", "-y", "--yes") and len(words) > 1):
            words = words[2:] if words[0] in ("timeout", "-n", "-k") else words[1:]
        elif words[0] in ("uv", "poetry", "pipenv", "hatch") and words[1:2] == ["run"]:
            words = words[2:]
        else:
            return words
    return words


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def _read_program(words: Sequence[str], folder: str) -> CommandRun | None:
    """Return the program, its subcommand and its target from the words of a call."""
    program, rest = words[0].rsplit("/", 1)[-1], list(words[1:])
    if program == "test" and program != words[0]:
        program = words[0]  # a project's own runner, not the shell's command of that name
    if re.fullmatch(r"python[\d.]*|pypy\d?", program):
        if rest[:1] == ["-m"] and len(rest) > 1:
            program, rest = rest[1], rest[2:]
        else:
            program = "python"
    elif program == "sed" and "-n" in rest:
        program = "sed -n"
    elif program in _WITH_SUBCOMMAND:
        plain = [word for word in rest if not word.startswith("-")]
        taken = 2 if plain[:1] in (["run"], ["compose"], ["workspace"]) else 1
        program, rest = " ".join([program, *plain[:taken]]), plain[taken:]
    plain = [word for word in rest if not word.startswith("-")]
    target = next((word.partition("::")[0] for word in plain if _FILE_LIKE.search(word)), "")
    if not target and program == "python":
        target = next(iter(plain), "")
    return CommandRun(
        program, target, folder, frozenset(re.findall(r"\w[\w-]+", one_line(" ".join(words))[:400].lower()))
    )


def _stem(target: str) -> str:
    name = target.rstrip("/").rsplit("/", 1)[-1]
    return _VERSION.sub("", name.rsplit(".", 1)[0]) or name


def _arguments(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, strict=False) if text else {}
    except (ValueError, RecursionError):
        return {"input": text}
    return parsed if isinstance(parsed, dict) else {"input": text}
