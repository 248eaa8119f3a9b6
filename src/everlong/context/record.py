"""The record of an agent's work: each tool call with its result, its outcome, its files, and the plan as last written.

This is the one reader of calls. It tells only what structure tells: a step failed if an exit code or the harness says
so, never because of a word in the output; a file changed if the call or the shell's syntax say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from everlong.context.literals import CLEARED_RESULT
from everlong.context.names import names_by_line
from everlong.context.text import beginning, one_line
from everlong.model import Message, ToolCall, calls_of, read_message, text_of

__all__ = [
    "ANY",
    "CALLS",
    "FileChange",
    "PlanItem",
    "State",
    "Step",
    "checklist",
    "read_plan",
    "read_steps",
    "render_item",
]

_DECODER = json.JSONDecoder(strict=False)
_COMMAND_KEYS = ("command", "cmd", "script", "bash_command")
_PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "filepath", "target_file", "notebook_path")
_LOOK_AT = 600
"""Characters at each end of a result in which a harness tells how a call ended."""
_LOOK_AT_LINES = 6_000
_TITLE_LENGTH = 100
_OUTCOME_LENGTH = 200
_ERROR_LINES = 3
_LAST_LINES = 20
"""Lines at the end of a result among which its outcome is looked for."""

_EXIT_CODE = re.compile(
    r"(?:<(?:returncode|exit_code)>|\"exit_code\": ?|^(?:\w+ )?(?:process |command )?exit(?:ed with)?"
    r" (?:code|status):? )(-?\d+)",
    re.MULTILINE,
)
_HARNESS_ERROR = re.compile(
    r"\s*(?:<tool_use_error>|<error>|\[?error\]?\s*:|\{\"error\": ?(?!null|false|\"\"))", re.IGNORECASE
)
_STOPPED = (
    "doesn't want to proceed",
    "doesn't want to take",
    "tool use was rejected",
    "[request interrupted by user",
    *(f"user {did}" for did in ("rejected", "denied", "declined", "canceled", "cancelled", "aborted", "interrupted")),
    "\ncommand aborted",
)
"""The words of a harness, in small letters, for a call that a person refused or stopped."""
_SAYS_NOTHING = re.compile(
    r"\W*$|<(returncode|exit_code)>|</?\w+>$|\W*(?:\w+ )?exit(?:ed with)? (?:code|status)\b", re.IGNORECASE
)
_SPEAKS_OF_ERROR = re.compile(r"\b(?:error|fail(?:ed|ure)?|exception)\b|\w(?:Error|Exception)\b", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*+(['\"]?)(\w++)\1")
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.*\S)\s*$", re.MULTILINE)
_LOOKING_TOOL = re.compile(
    r"(?:^|_)(?:get|list|search|read|find|fetch|view|query|think|calculate|glob|grep|ls|web)|todo|plan", re.IGNORECASE
)
_WRITING_TOOL = re.compile(r"(?P<created>write|create|save|new_?file)|edit|replace|patch|insert|modify", re.IGNORECASE)
_LOOKING = frozenset(
    """
    ls cat head tail grep egrep rg find pwd wc nl less stat tree awk jq which type file env echo printf date ps df du
    diff cmp sort uniq test [ true cd mkdir touch chmod export source sleep set sed
    """.split()  # noqa: SIM905 - words, as one reads them
)
"""Programs that show or prepare something; what came of it shows in later steps."""
_WITH_SUBCOMMAND = frozenset(
    """
    npm pnpm yarn bun cargo go git docker make gh pip uv poetry mvn gradle dotnet
    """.split()  # noqa: SIM905 - words, as one reads them
)
_RUNNERS = frozenset(["sudo", "time", "nohup", "nice", "env", "npx", "bunx", "timeout", "xvfb-run", "command", "exec"])
_GIT_LOOKING = frozenset(
    f"git {name}" for name in ("status", "log", "diff", "show", "blame", "branch", "remote", "rev-parse", "ls-files")
)

_LISTING = _GIT_LOOKING | {"ls", "find", "tree"}
ANY, CALLS = "*", "()"
"""Stand for a change of any file, and for a call that changed something besides files."""


class FileChange(NamedTuple):
    """A step's change to a file."""

    how: Literal["created", "edited", "removed"]
    path: str


@dataclass(frozen=True)
class Step:
    """One tool call, with its result if there is one."""

    at: int
    """The index of the call's message."""
    call: ToolCall
    result: str | None = None
    is_error: bool = False
    """True if the harness marked the result as an error."""

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call."""
        text = self.call.arguments
        try:
            parsed = _DECODER.decode(text) if text else {}
        except (ValueError, RecursionError):
            parsed = None
        return parsed if isinstance(parsed, dict) else {"input": text}

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
    def path(self) -> str:
        """The file that the call names; empty if it names none."""
        found = (self.arguments.get(key) for key in _PATH_KEYS)
        return next((value.strip() for value in found if isinstance(value, str) and value.strip()), "")

    @cached_property
    def title(self) -> str:
        """The call in one line."""
        if self.command:
            lines = without_heredocs(self.command).replace("\\\n", "").splitlines()
            return beginning("; ".join(filter(None, map(str.strip, lines))), _TITLE_LENGTH).replace("`", "'")
        if self.path:
            return f"{self.call.name} {self.path}"
        shown = ", ".join(f"{key}={beginning(str(value), 60)}" for key, value in list(self.arguments.items())[:4])
        return beginning(f"{self.call.name}({shown})", _TITLE_LENGTH).replace("`", "'")

    @cached_property
    def _runs(self) -> list[tuple[list[str], list[tuple[str, str]]]]:
        return list(_simple_commands(self.command)) if self.command else []

    @property
    def programs(self) -> list[list[str]]:
        """The words of each program that the command runs, in order."""
        return [words for words, _ in self._runs]

    @cached_property
    def subject(self) -> str:
        """What the step is about: a program and its target, a file, or the whole call.

        Of two steps with one subject, the later one tells how things stand.
        """
        if not self.command:
            return f"{self.call.name} {self.path or self.call.arguments}"
        acting = [words for words in self.programs if words[0] not in _LOOKING]
        if not acting:
            return self.command
        words = acting[-1]
        named = next((word.partition("::")[0] for word in words[1:] if _is_path(word)), "")
        return f"{_program(words)} {named}"

    @cached_property
    def only_looks(self) -> bool:
        """True if the call only shows or prepares something."""
        if self.command:
            return all(words[0] in _LOOKING or _program(words) in _GIT_LOOKING for words in self.programs)
        return not self.changes and _LOOKING_TOOL.search(self.call.name) is not None

    @property
    def events(self) -> list[str]:
        """Return what the call changed: files and git commands by name, with `ANY`; or its own name, with `CALLS`."""
        if self.result is None or self.was_stopped:
            return []
        if self.command or self.changes:
            git = [found for words in self.programs if (found := _program(words)).startswith("git ")]
            ran = [name for name in git if name not in _GIT_LOOKING]
            changed = [*(change.path.rpartition("/")[2] for change in self.changes), *ran]
            return [*changed, ANY] if changed else []
        return [] if self.only_looks or self.failed else [self.call.name, CALLS]

    @property
    def given(self) -> str:
        """Return the command, the new text of a file, or all arguments; empty if nothing was done with them."""
        if self.was_stopped or (self.failed and not self.command):
            return ""
        if self.command:
            return self.command
        texts = [value for value in self.arguments.values() if isinstance(value, str)]
        # Before the new text stands what it replaces.
        return "\n".join(texts[-1:] if self.changes else map(str, self.arguments.values()))

    @property
    def reads(self) -> frozenset[str]:
        """Return the names of files whose change overtakes the result; `ANY` for each file, `CALLS` for other calls."""
        if not self.command:
            return frozenset([self.path.rpartition("/")[2] if "." in self.path else ANY if self.path else CALLS])
        listed = not self.only_looks or any(_program(words) in _LISTING for words in self.programs)
        named = [word.rpartition("/")[2] for words in self.programs if _is_path(words[-1]) for word in words[1:]]
        return frozenset([ANY] if listed or not named else named)

    @cached_property
    def _ends(self) -> str:
        """The beginning and the end of the result, in small letters, where a harness tells how the call ended."""
        text = self.result or ""
        ends = text if len(text) <= 2 * _LOOK_AT else f"{text[:_LOOK_AT]}\n{text[-_LOOK_AT:]}"
        return f"\n{ends}".lower()

    @cached_property
    def was_stopped(self) -> bool:
        """True if a person refused or stopped the call."""
        return any(map(self._ends.__contains__, _STOPPED))

    @cached_property
    def failed(self) -> bool:
        """True if the exit code or the harness says so; a search that finds nothing has not failed."""
        if self.result is None or self.was_stopped:
            return False
        codes = _EXIT_CODE.findall(self._ends) if "exit" in self._ends or "returncode" in self._ends else ()
        if codes:
            return int(codes[-1]) != 0 and not (self.command and self.only_looks)
        return self.is_error or (not self.command and _HARNESS_ERROR.match(self.result) is not None)

    @cached_property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines of the result that say something; those that name something come before others."""
        telling = self._telling[-_LAST_LINES:]
        named = [line for line, names in zip(telling, names_by_line(telling), strict=True) if names]
        return tuple(beginning(line, _OUTCOME_LENGTH) for line in (named or telling)[-_ERROR_LINES:])

    @property
    def error_lines(self) -> tuple[str, ...]:
        """The first line that speaks of an error, from which the others mostly follow, and the last lines."""
        first = next((beginning(line, _OUTCOME_LENGTH) for line in self._telling if _SPEAKS_OF_ERROR.search(line)), "")
        return self.last_lines if first in ("", *self.last_lines) else (first, *self.last_lines[1:])

    @cached_property
    def _telling(self) -> list[str]:
        """The lines at the end of the result that say something, each once."""
        lines = [] if self.result in (None, CLEARED_RESULT) else (self.result or "")[-_LOOK_AT_LINES:].splitlines()
        return list(dict.fromkeys(line.strip() for line in lines if not _SAYS_NOTHING.match(line)))

    @property
    def outcome(self) -> str:
        """The last line of the result that says something."""
        return self.last_lines[-1] if self.last_lines else ""

    @cached_property
    def changes(self) -> tuple[FileChange, ...]:
        """The call's changes to files, in order; none if it failed or was stopped."""
        if self.was_stopped or (self.failed and not self.command):
            return ()
        return tuple(_shell_changes(self._runs) if self.command else _tool_changes(self))


def read_steps(messages: Sequence[Message]) -> list[Step]:
    """Return all tool calls of these messages with their results, in order."""
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
        else Step(at, call, read_message(result).text, bool(result.get("is_error")))
        for place, (at, call) in enumerate(calls)
    ]


def without_heredocs(command: str) -> str:
    """Return a command without the texts of its here-documents."""
    if "<<" not in command:
        return command
    kept: list[str] = []
    end = ""
    for line in command.splitlines():
        if end:
            end = "" if line.strip() == end else end
            continue
        opened = _HEREDOC.search(line)
        kept.append(line if opened is None else line[: opened.start()] + line[opened.end() :])
        end = opened[2] if opened is not None else ""
    return "\n".join(kept)


# -- shell commands ----------------------------------------------------------------------------------------------------

_LONGEST_PARSED = 20_000
_SHELL = re.compile(
    r"(?P<space>[ \t\r]+)|(?P<sign>[();<>|&\n]+)|'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\"|\\(?P<escaped>.)"
    r"|(?P<plain>[^\s();<>|&'\"\\]+)|(?P<unclosed>['\"\\])|(?P<other>\s)",
    re.DOTALL,
)
"""A piece of a command line; pieces without space or sign between them are one word."""
_ESCAPED = re.compile(r"\\([\"\\])")


def _simple_commands(command: str) -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Yield the words of each program in a command, and the files that its output goes to, with the operator."""
    words: list[str] = []
    targets: list[tuple[str, str]] = []
    operator, word = "", None
    for piece in _SHELL.finditer(f"{without_heredocs(command)[:_LONGEST_PARSED]}\n"):
        kind, said = piece.lastgroup, piece[piece.lastgroup or 0]
        if kind == "unclosed":  # a quotation without an end
            break
        if kind not in ("space", "sign"):
            word = (word or "") + (_ESCAPED.sub(r"\1", said) if kind == "double" else said)
            continue
        if word is not None and operator:
            targets += [(operator, word)] if operator in (">", ">>", "&>") else []
            operator = ""
        elif word is not None:
            words.append(word)
        word = None
        if kind == "sign" and said.startswith(("<", ">", "&>")):
            operator = said
        elif kind == "sign":
            operator = ""
            if words := _without_runners(words):
                yield words, targets
            words, targets = [], []
    if words := _without_runners(words):
        yield words, targets


def _without_runners(words: Sequence[str]) -> list[str]:
    """Return a program's words without assignments and programs that only run others."""
    place = 0
    while place < len(words) and (
        words[place] in _RUNNERS or ("=" in words[place] and words[place].partition("=")[0].isidentifier())
    ):
        is_timeout = words[place] == "timeout"
        place += 1
        while is_timeout and place < len(words) and (words[place].startswith("-") or words[place][:1].isdigit()):
            place += 1
    return list(words[place:])


def _program(words: Sequence[str]) -> str:
    name, plain = words[0].rsplit("/", 1)[-1], [word for word in words[1:] if not word.startswith("-")]
    if name.startswith("python") and words[1:2] == ["-m"]:
        return plain[0] if plain else name
    return " ".join([name, *plain[: 2 if plain[:1] == ["run"] else 1]]) if name in _WITH_SUBCOMMAND else name


def _is_path(word: str) -> bool:
    """Return whether a word of a command names a file or a folder."""
    name = word.partition("::")[0]
    return not name.startswith("-") and ("/" in name or (0 < name.rfind(".") < len(name) - 1)) and " " not in name


def _shell_changes(runs: Iterable[tuple[list[str], list[tuple[str, str]]]]) -> Iterator[FileChange]:
    folder = ""
    for words, targets in runs:
        plain = [word for word in words[1:] if not word.startswith("-")]
        if words[0] == "cd":
            folder = plain[0] if plain else ""
        found = [FileChange("edited" if sign == ">>" else "created", path) for sign, path in targets]
        if words[0] == "sed" and any(word.startswith(("-i", "--in-place")) for word in words) and len(plain) > 1:
            found.append(FileChange("edited", plain[-1]))
        elif words[0] == "tee":
            found += [FileChange("created", path) for path in plain]
        elif words[0] == "rm":
            found += [FileChange("removed", path.rstrip("/")) for path in plain]
        elif words[0] == "mv" and len(plain) == 2:
            found += [FileChange("removed", plain[0]), FileChange("created", plain[1])]
        elif words[:2] in (["git", "checkout"], ["git", "restore"]):
            found += [FileChange("removed", path) for path in plain[1:] if "." in path]
        for how, path in found:
            if not path.startswith(("/dev/", "&")) and "$" not in path:
                yield FileChange(how, _join_path(folder, path))


def _join_path(folder: str, path: str) -> str:
    if folder in ("", ".", "./") or path.startswith(("/", "~")):
        return path
    return f"{folder.rstrip('/')}/{path.removeprefix('./')}"


def _tool_changes(step: Step) -> Iterator[FileChange]:
    patches = [value for value in step.arguments.values() if isinstance(value, str) and "*** " in value]
    for patch in patches:
        kinds: dict[str, Literal["created", "edited", "removed"]] = {
            "Add": "created",
            "Update": "edited",
            "Delete": "removed",
        }
        yield from (FileChange(kinds[found[1]], found[2]) for found in _PATCHED.finditer(patch))
    wrote = _WRITING_TOOL.search(step.call.name)
    if step.path and not patches and wrote is not None and "todo" not in step.call.name.lower():
        yield FileChange("created" if wrote["created"] else "edited", step.path)


# -- the plan ----------------------------------------------------------------------------------------------------------

# A list is recognized by its shape rather than by its tool's name, so that TodoWrite, update_plan, manage_todo_list and
# similar tools are read alike: whole lists, lists merged by id, single items that are added, changed or ticked off,
# Markdown checklists in an argument (Cline's ``task_progress``) and, without such a tool, checklists in the agent's
# messages. A call that failed or was refused changes nothing.

State = Literal["pending", "in_progress", "completed", "cancelled"]

_MARKS: dict[State, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
_PLANNING = re.compile(r"todo|plan|task|checklist|focus_?chain", re.IGNORECASE)
_TEXT_KEYS = ("content", "step", "text", "title", "subject", "description", "task", "name", "item")
_ID_KEYS = ("id", "taskId", "task_id", "todo_id", "todoId", "index", "number")
_STATE_KEYS = ("status", "state")
_DONE_KEYS = ("completed", "done", "checked", "isCompleted")
_STATES: dict[str, State] = {
    **dict.fromkeys(("completed", "complete", "done", "finished", "closed", "x"), "completed"),
    **dict.fromkeys(
        ("in_progress", "in-progress", "inprogress", "active", "doing", "started", "current"), "in_progress"
    ),
    **dict.fromkeys(("cancelled", "canceled", "skipped", "abandoned"), "cancelled"),
    **dict.fromkeys(("pending", "todo", "open", "not_started", "not-started", "queued", "blocked"), "pending"),
}
_CHECKBOX = re.compile(r"(?:[-*+]|\d+[.)])?\s*+\[(?P<mark>[ xX>~*/✓✔-]?)\]\s*+(?P<text>\S.*)$")
_FENCES = ("```", "~~~")
_NUMBER = re.compile(r"(?<!\d)#?(\d++)\b")
_ADDING = frozenset({"add", "create", "new", "insert", "append"})
_CREATES = re.compile(r"(?:create|add|new)_?(?:task|todo)|(?:task|todo)_?(?:create|add|new)", re.IGNORECASE)
_UPDATES = re.compile(
    r"(?:update|edit|complete|finish|toggle)_?(?:task|todo)|(?:task|todo)_?(?:update|edit|complete)", re.IGNORECASE
)
_REMOVED = frozenset({"deleted", "removed", "remove", "delete"})
_MOST_ITEMS = 1_000
"""Items of a plan that single calls change."""
_LEAST_SAID = 2
"""The least items that a checklist in a message has."""


class PlanItem(NamedTuple):
    """One item of a plan."""

    text: str
    state: State
    id: str = ""


def render_item(item: PlanItem) -> str:
    """Return an item with the mark of its state."""
    return f"{_MARKS[item.state]} {item.text}"


def checklist(text: str) -> list[PlanItem]:
    """Return the items of a Markdown checklist, without other lines and fenced code."""
    found: list[PlanItem] = []
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(_FENCES):
            fenced = not fenced
        box = None if fenced else _CHECKBOX.match(line.strip())
        if box is not None:
            found.append(PlanItem(box["text"], _state_of_mark(box["mark"])))
    return found


def read_plan(messages: Sequence[Message], steps: Sequence[Step], carried: Iterable[PlanItem] = ()) -> list[PlanItem]:
    """Return the plan as it was last written; ``carried`` is the plan before these messages."""
    plan = _Plan(list(carried))
    for step in steps:
        if not step.failed and not step.was_stopped:
            plan.take(step)
    if plan.is_kept_by_tool:
        return plan.items
    texts = (text_of(message) for message in reversed(messages) if message.get("role") == "assistant")
    lists = (checklist(text) for text in texts if "[" in text)
    said = next((found for found in lists if len(found) >= _LEAST_SAID), [])
    if plan.items:
        return said or plan.items
    is_under_way = bool(steps) or any(item.state != "pending" for item in said)
    return said if is_under_way else []  # in a plain chat, a list with nothing done is advice


@dataclass
class _Plan:
    """The plan so far, while the calls are read in order."""

    items: list[PlanItem]
    is_kept_by_tool: bool = field(default=False)

    def take(self, step: Step) -> None:
        """Apply one call; a quick look rules out most of them."""
        name = step.call.name
        is_planning = _PLANNING.search(name) is not None
        if not is_planning and "task_progress" not in step.call.arguments:
            return
        del self.items[:-_MOST_ITEMS]
        arguments = step.arguments
        for key, value in arguments.items():
            listed = _todo_entries(value, key, name)
            if listed is not None:
                self.is_kept_by_tool = True
                self._merge(listed) if arguments.get("merge") is True else self._replace(listed)
                return
        progress = arguments.get("task_progress")
        if isinstance(progress, str) and (found := checklist(progress)):
            self.is_kept_by_tool, self.items = True, found
            return
        if is_planning:
            self._take_single(step)

    def _replace(self, listed: Sequence[dict[str, Any]]) -> None:
        self.items = [item for entry in listed if (item := _item(entry)) is not None]

    def _merge(self, listed: Sequence[dict[str, Any]]) -> None:
        for entry in listed[-_MOST_ITEMS:]:
            self._change(_id(entry), _text(entry), entry)

    def _take_single(self, step: Step) -> None:
        """Apply a call that adds one item or changes it."""
        arguments, result = step.arguments, step.result or ""
        action = str(arguments.get("action") or arguments.get("operation") or arguments.get("command") or "").lower()
        text, identity = _text(arguments), _id(arguments)
        shown = checklist(result)
        if action and shown:  # the list that the tool shows is more reliable than the call
            self.is_kept_by_tool, self.items = True, [_with_number(item) for item in shown]
        elif action == "clear":
            self.is_kept_by_tool, self.items = True, []
        elif action in _ADDING or (not action and _CREATES.search(step.call.name)):
            if text and not any(item.text == text for item in self.items):
                number = _NUMBER.search(result)
                state = _state(arguments) or "pending"
                self.items.append(PlanItem(text, state, identity or (number[1] if number else "")))
                self.is_kept_by_tool = True
        elif action or _UPDATES.search(step.call.name):
            done = {"complete": "completed", "done": "completed", "start": "in_progress", "reopen": "pending"}.get(
                action
            )
            entry = {
                **arguments,
                **({"status": done} if done else {}),
                **({"status": "deleted"} if action in _REMOVED else {}),
            }
            if action == "toggle":
                now = next((item.state for item in self.items if item.id == identity), "pending")
                entry["status"] = "pending" if now == "completed" else "completed"
            self._change(identity, text, entry)

    def _change(self, identity: str, text: str, entry: dict[str, Any]) -> None:
        state = _state(entry)
        removed = str(entry.get("status") or "").lower() in _REMOVED
        for place, item in enumerate(self.items):
            if (identity and item.id == identity) or (not identity and text and item.text == text):
                self.is_kept_by_tool = True
                if removed:
                    del self.items[place]
                else:
                    self.items[place] = PlanItem(text or item.text, state or item.state, item.id)
                return
        if text and not removed:
            self.is_kept_by_tool = True
            self.items.append(PlanItem(text, state or "pending", identity))


def _todo_entries(value: Any, key: str, name: str) -> list[dict[str, Any]] | None:
    """Return the entries of a todo list; None if a value is something else."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                value = None
        if isinstance(value, str) or value is None:
            return None
    if not isinstance(value, list) or not (_PLANNING.search(key) or _PLANNING.search(name)):
        return None
    if not all(isinstance(entry, dict) and (_text(entry) or _id(entry)) for entry in value):
        return None
    is_named = any(word in key.lower() for word in ("todo", "plan", "items", "tasks"))
    return value if is_named or any(_state(entry) is not None for entry in value) else None


def _item(entry: dict[str, Any]) -> PlanItem | None:
    text = _text(entry)
    return PlanItem(text, _state(entry) or "pending", _id(entry)) if text else None


def _with_number(item: PlanItem) -> PlanItem:
    """Return an item of a shown list with the number before its words as its id."""
    number = re.match(r"#?(\w{1,12})[:.)] (?=\S)", item.text)
    return PlanItem(item.text[number.end() :], item.state, number[1]) if number else item


def _text(entry: dict[str, Any]) -> str:
    found = (entry.get(key) for key in _TEXT_KEYS)
    return next((one_line(value) for value in found if isinstance(value, str) and value.strip()), "")


def _id(entry: dict[str, Any]) -> str:
    found = (entry.get(key) for key in _ID_KEYS)
    return next((str(value) for value in found if isinstance(value, str | int) and str(value)), "")


def _state(entry: dict[str, Any]) -> State | None:
    for key in _STATE_KEYS:
        value = entry.get(key)
        if isinstance(value, str) and value:
            return _STATES.get(value.strip().lower().replace(" ", "_"))
    for key in _DONE_KEYS:
        if isinstance(entry.get(key), bool):
            return "completed" if entry[key] else "pending"
    return None


def _state_of_mark(mark: str) -> State:
    if mark in ("x", "X", "✓", "✔"):
        return "completed"
    if mark in (">", "~", "/", "*"):
        return "in_progress"
    return "cancelled" if mark == "-" else "pending"
