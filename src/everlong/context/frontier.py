"""The frontier: the exact state of the work, from which an agent goes on after a compaction.

It has the newest request, the plan, the files in hand, the last action and its outcome, calls without a result or
stopped by a person, background processes, the branch, and open errors word for word. It is read from the messages and
from the previous summary without a model, and stands in the summary's sections in lines with fixed beginnings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from everlong.context.plans import PlanItem, checklist, read_plan, render_item
from everlong.context.steps import CommandRun, FileChange, KnownSteps, Step, only_looks, ran_by, read_steps
from everlong.context.summary.actions import ActionOutcome, outcome_of
from everlong.context.summary.document import SECTIONS, SummaryDocument
from everlong.context.summary.language import CHINESE, Phrases, newest_label
from everlong.context.text import beginning, clip, one_line
from everlong.model import Message, newest_request, read_message, text_of

__all__ = [
    "BackgroundProcess",
    "FileInHand",
    "Frontier",
    "OpenError",
    "inherited_frontier",
    "is_frontier_item",
    "open_errors",
    "place_frontier",
    "read_frontier",
    "without_frontier",
]
_MOST_FILES = 12
_MOST_READ = 4
_MOST_STEPS = 300
"""The number of newest steps that are read for errors, files and processes; the plan is read from all steps."""
_BUDGET_SHARE = 0.4
"""The share of a summary's budget that the frontier may take; plan and errors give way last."""
_LEAST_LINE = 120
_STARTED = re.compile(
    r"(?:running|started) in (?:the )?background[^\n]{0,12}? \(?(?:ID|id|PID|pid):? ?(?P<id>[\w-]{2,40})"
    r"|Process running with session ID (?P<session>[\w-]+)|^\[\d+\] (?P<pid>\d{2,8})$"
    r"|\b(?:bash_id|shell_id|task_id)[\"':= ]+(?P<shell>[\w-]{4,40})",
    re.MULTILINE,
)
_ENDED = re.compile(
    r"<status>(?:completed|failed|killed|stopped)</status>|(?:has )?exited|killed|terminated|stopped", re.IGNORECASE
)
_STOPPING_TOOL = re.compile(r"kill|stop|terminate", re.IGNORECASE)
_PORT = re.compile(
    r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]):(\d{2,5})\b"
    r"|\b(?:listening|running|serving)\b[^\n]{0,30}\bport:? (\d{2,5})",
    re.IGNORECASE,
)
_BRANCH = re.compile(
    r"^On branch (\S+)|^Switched to (?:a new )?branch '([^']+)'"
    r"|^\[(?P<on>[\w./-]+)(?: \([^)]*\))? (?P<commit>[0-9a-f]{7,40})\]",
    re.MULTILINE,
)
_THINKING = re.compile(r"^think|todo|plan(?!e|t)", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*(?:'|$)|\"[^\"]*(?:\"|$)")
_LONG_QUOTE = 48
"""A quote of this length on a command line is a program."""
_CONTINUING = re.compile(r"^\W*(?:continue|go on|go ahead|proceed|keep going|resume|weiter|继续)\W*$", re.IGNORECASE)
_MOST_OPEN = 5
_USAGE = re.compile(
    r"unknown (?:option|skill|tool|command|argument|flag)|unrecognized (?:option|argument)|invalid option"
    r"|not found|no such file|No module named|command not found|usage:|not recognized|does not exist",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"unknown (?:skill|tool|command|option):? ['\"`]?(?P<name>[\w:.-]+)|(?P<missing>[\w.-]+): command not found",
    re.IGNORECASE,
)
_MISSING = re.compile(r"^\S*python[\d.]*: No module named|: command not found$", re.MULTILINE)
"""Complaints about a missing program."""
_INNER = re.compile(r"^npm (?:error|ERR!) command sh -c (.+)$", re.MULTILINE)


class OpenError(NamedTuple):
    """An error that no later step has fixed."""

    source: str
    """The command or call that it came from."""
    lines: tuple[str, ...]
    at: int = -1
    """The index of the call's message; -1 if an earlier summary named it."""

    @property
    def text(self) -> str:
        """Its lines, word for word."""
        return "\n".join(self.lines)


class FileInHand(NamedTuple):
    """A file that is being worked on."""

    path: str
    how: str
    """``created``, ``edited`` or ``read``."""
    place: str = ""


class BackgroundProcess(NamedTuple):
    """A background process."""

    id: str
    command: str = ""
    ports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Frontier:
    """The state of the work."""

    request: str = ""
    """The newest request, in the person's words."""
    request_at: int | None = None
    plan: tuple[PlanItem, ...] = ()
    last: str = ""
    """The last call that was carried out."""
    outcome: str = ""
    """Its outcome, in one line of its result."""
    files: tuple[FileInHand, ...] = ()
    pending: tuple[str, ...] = ()
    """Calls without a result."""
    stopped: tuple[str, ...] = ()
    """Calls that a person refused or stopped since their newest request."""
    errors: tuple[OpenError, ...] = ()
    running: tuple[BackgroundProcess, ...] = ()
    branch: str = ""
    commit: str = ""

    @property
    def is_empty(self) -> bool:
        """True if there is nothing besides the request."""
        return not self.items()

    def items(self, phrases: Phrases | None = None) -> dict[str, list[str]]:
        """Return the frontier as items of a summary, by section."""
        labels = _CHINESE if phrases is CHINESE else _ENGLISH
        progress: list[str] = []
        if self.plan:
            done = sum(item.state == "completed" for item in self.plan)
            head = f"- {labels.plan} ({done} {labels.of} {len(self.plan)}):"
            progress.append("\n".join([head, *(f"  - {render_item(item)}" for item in self.plan)]))
        if self.files:
            progress.append(f"- {labels.files}: {', '.join(map(_render_file, self.files))}")
        progress += [f"- {labels.pending}: `{_without_program(title)}`" for title in self.pending]
        progress += [f"- {labels.running}: {_render_process(process)}" for process in self.running]
        if self.last:
            last = _without_program(self.last)
            progress.append(f"- {labels.last}: `{last}`{f' → {self.outcome}' if self.outcome else ''}")
        if self.branch:
            progress.append(f"- {labels.branch}: {self.branch}{f' @ {self.commit}' if self.commit else ''}")
        blocked = [
            "\n".join([f"- {labels.error} `{error.source}`:", *(f"  {line}" for line in error.lines)])
            for error in self.errors
        ]
        steps = [f"- {labels.stopped}: `{title}`" for title in self.stopped]
        filled = {"In Progress": progress, "Blocked": blocked, "Next Steps": steps}
        return {section: items for section, items in filled.items() if items}


def _without_program(title: str) -> str:
    """Return a call's title without the program code in it."""
    return _QUOTED.sub(lambda quoted: quoted[0] if len(quoted[0]) < _LONG_QUOTE else "'…'", title)


def _render_file(file: FileInHand) -> str:
    where = f", at “{file.place}”" if file.place and not file.place.startswith("line") else f", {file.place}"
    return f"`{file.path}` ({file.how}{where if file.place else ''})"


def _render_process(process: BackgroundProcess) -> str:
    ports = f", port {', '.join(process.ports)}" if process.ports else ""
    return f"{process.id}{f' (`{process.command}`)' if process.command else ''}{ports}"


@dataclass(frozen=True)
class _Labels:
    """The beginnings of the frontier's lines in one language."""

    plan: str
    of: str
    files: str
    pending: str
    running: str
    last: str
    branch: str
    error: str
    stopped: str


_ENGLISH = _Labels(
    plan="Plan",
    of="of",
    files="Files in hand",
    pending="No result yet",
    running="BackgroundProcess",
    last="Just done",
    branch="Branch",
    error="Open error of",
    stopped="Not done, the user stopped it",
)
_CHINESE = _Labels(
    plan="计划",
    of="/",
    files="手头文件",
    pending="尚无结果",
    running="正在运行",
    last="刚完成",
    branch="分支",
    error="未解决的错误",
    stopped="未执行（用户中止）",
)
_ALL = (_ENGLISH, _CHINESE)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_frontier(
    messages: Sequence[Message],
    carried: Frontier | None = None,
    request: str = "",
    *,
    known: KnownSteps | None = None,
) -> Frontier:
    """Return the state of the work after these messages.

    ``carried`` is the frontier of the summary before them; ``request`` is the newest request, if it is known and not
    among them. Steps in ``known`` are not read again; it keeps the newest ones of these messages.
    """
    before = carried or Frontier()
    steps = read_steps(messages)
    if known is not None:
        steps[-_MOST_STEPS:] = known.recall(steps[-_MOST_STEPS:])
    recent = steps[-_MOST_STEPS:]
    tasks = _find_tasks(messages)
    place = newest_request(messages)
    plan = read_plan(messages, steps, before.plan)
    is_new_task = bool(tasks.ends)
    if is_new_task or tasks.is_ended:
        plan = [] if all(item.state in ("completed", "cancelled") for item in plan) else plan
    current = [step for step in recent if step.at >= tasks.start]
    done = next((step for step in reversed(recent) if _is_done(step)), None)
    branch, commit = _branch(recent, before)
    answered = [step for step in recent if step.result is not None]
    waiting = [step for step in recent[-8:] if step.result is None and (not answered or step.at >= answered[-1].at)]
    ends_with_call = bool(messages) and messages[-1].get("role") in ("assistant", "tool")
    return Frontier(
        request=request or (one_line(read_message(messages[place]).typed) if place is not None else before.request),
        request_at=place,
        plan=tuple(plan),
        last=done.title if done and done.at >= tasks.start else ("" if is_new_task or done else before.last),
        outcome=_outcome(done) if done and done.at >= tasks.start else ("" if is_new_task or done else before.outcome),
        files=() if tasks.is_ended else _collect_files(current, () if is_new_task else before.files),
        pending=tuple(step.title for step in waiting) if ends_with_call else (),
        stopped=tuple(
            dict.fromkeys(step.title for step in current if step.was_stopped and not _was_done(step, current))
        ),
        errors=open_errors(recent, tasks.ends, before.errors),
        running=_collect_processes(recent, before.running),
        branch=branch,
        commit=commit,
    )


class _Tasks(NamedTuple):
    """The tasks of a conversation, as indices of messages."""

    start: int
    """The start of the current task."""
    ends: list[int]
    """The messages in which a person asked for the next thing after the agent had ended the one before."""
    is_ended: bool
    """True if the agent has ended the current task and nobody has asked for more."""


def _find_tasks(messages: Sequence[Message]) -> _Tasks:
    start, ends, was_ended = 0, list[int](), False
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            was_ended = not message.get("tool_calls") and bool(text_of(message).strip())
        elif role == "tool":
            was_ended = False
        elif role == "user":
            said = read_message(message).typed  # a client's own message asks the agent to go on
            if said and was_ended and not _CONTINUING.match(said):
                ends.append(index)
                start = index
            was_ended = False
    return _Tasks(start, ends, was_ended)


def _collect_files(steps: Sequence[Step], carried: Sequence[FileInHand]) -> tuple[FileInHand, ...]:
    """Return the files in hand, newest last: those with changes, else those that were read."""
    found: dict[str, FileInHand] = {file.path: file for file in carried}
    for step in steps:
        if step.was_stopped or (not step.command and step.verdict == "failed"):
            continue
        for change in step.changes:
            _apply_change(found, change)
    changed = [file for file in found.values() if file.how != "read"]
    return tuple(changed[-_MOST_FILES:] or list(found.values())[-_MOST_READ:])


def _apply_change(found: dict[str, FileInHand], change: FileChange) -> None:
    """Update the files in hand by one change; the newest comes last."""
    if change.kind == "dropped":
        for path in [path for path in found if path == change.path or path.startswith(change.path.rstrip("/") + "/")]:
            del found[path]
        return
    known = found.get(change.path)
    if change.path.startswith(("/tmp/", "/dev/", "/var/folders/")):  # noqa: S108 - nothing is made there
        return
    if change.kind == "read":
        if known is None:
            found[change.path] = FileInHand(change.path, "read", change.place)
        elif known.how == "read":
            found.pop(change.path)
            found[change.path] = FileInHand(change.path, "read", change.place or known.place)
        return
    found.pop(change.path, None)
    how = "created" if known is not None and known.how == "created" else change.kind
    found[change.path] = FileInHand(change.path, how, change.place or (known.place if known else ""))


def _is_done(step: Step) -> bool:
    """Return whether a step was carried out and is more than thinking or planning."""
    return step.result is not None and not step.was_stopped and not _THINKING.search(step.call.name)


def _outcome(step: Step) -> str:
    """Return the outcome of a step; a command that only looks has none."""
    if step.ran is None:
        return "" if step.path and not step.error_lines else ActionOutcome(failed=False, line=step.outcome).told
    if step.only_looks and not step.error_lines:
        return ""
    return outcome_of(step.result or "").told or (step.outcome if step.error_lines else "")


def _was_done(stopped: Step, steps: Sequence[Step]) -> bool:
    """Return whether a step that a person stopped was done later."""
    return any(step.at > stopped.at and step.title == stopped.title and step.verdict == "succeeded" for step in steps)


def _collect_processes(steps: Sequence[Step], carried: Sequence[BackgroundProcess]) -> tuple[BackgroundProcess, ...]:
    found: dict[str, BackgroundProcess] = {process.id: process for process in carried}
    for step in steps:
        result = (step.result or "")[:4_000]
        names = [value for value in step.arguments.values() if isinstance(value, str | int) and str(value) in found]
        if names and step.ran is None:
            process = str(names[0])
            if (_STOPPING_TOOL.search(step.call.name) and step.verdict != "failed") or _ENDED.search(result[:400]):
                found.pop(process, None)
            else:
                found[process] = found[process]._replace(ports=_ports(result, found[process].ports))
            continue
        if step.ran is not None and re.search(r"\bp?kill\b", step.command):
            for process in [name for name in found if re.search(rf"\b{re.escape(name)}\b", step.command)]:
                del found[process]
        started = _STARTED.search(result) if step.command else None
        if started is not None:
            process = next(value for value in started.groupdict().values() if value)
            found[process] = BackgroundProcess(process, step.title, _ports(result))
    return tuple(found.values())


def _ports(text: str, known: Iterable[str] = ()) -> tuple[str, ...]:
    found = (match[1] or match[2] for match in _PORT.finditer(text))
    return tuple(dict.fromkeys([*known, *found]))[:4]


def _branch(steps: Sequence[Step], before: Frontier) -> tuple[str, str]:
    branch, commit = before.branch, before.commit
    for step in steps:
        if "git" in step.command and step.result:
            for found in _BRANCH.finditer(step.result[:2_000]):
                branch = found[1] or found[2] or found["on"] or branch
                commit = found["commit"] or commit
    return branch, commit


# -- open errors -------------------------------------------------------------------------------------------------------


class _Subject(NamedTuple):
    """The subject of a step, by which a later step on the same subject is recognized."""

    tool: str
    path: str
    ran: CommandRun | None
    looks: bool


class _LedgerEntry(NamedTuple):
    error: OpenError
    subject: _Subject


def open_errors(
    steps: Sequence[Step], ends: Sequence[int] = (), carried: Iterable[OpenError] = ()
) -> tuple[OpenError, ...]:
    """Return the errors that are open after these steps, oldest first.

    ``ends`` are the indices of the messages with which a person began the next task after the agent had ended one.
    """
    ledger = [_LedgerEntry(error, _subject_of_source(error.source)) for error in carried]
    last_acting: _Subject | None = ledger[-1].subject if ledger else None
    waiting = list(ends)
    inner: list[tuple[CommandRun, CommandRun]] = []
    """Pairs of a program and another that it runs: if the first succeeds, so did the second."""
    for step in steps:
        while waiting and step.at > waiting[0]:
            waiting.pop(0)
            ledger = [entry for entry in ledger if entry.subject == last_acting]
        subject = _Subject(step.call.name, step.path, step.ran, step.only_looks)
        if step.verdict == "unknown":
            continue
        if step.verdict == "succeeded":
            ran = step.ran
            within = [] if ran is None else [inside for outer, inside in inner if ran.covers(outer)]
            ledger = [entry for entry in ledger if not _closes(step, subject, entry) and not _is_within(entry, within)]
        else:
            ledger = [entry for entry in ledger if not _replaces(subject, entry, step.error_lines)]
            error = OpenError(step.title, step.error_lines, step.at)
            ledger.append(_LedgerEntry(error, subject))
            named = _INNER.search(error.text)
            inside = ran_by(named[1].partition("&&")[0]) if named else None
            if inside is not None and step.ran is not None:
                inner.append((step.ran, inside))
        if not subject.looks:
            last_acting = subject
        dropped = {change.path for change in step.changes if change.kind == "dropped"}
        if dropped:
            ledger = [entry for entry in ledger if not (entry.subject.ran and entry.subject.ran.target in dropped)]
    if waiting:
        ledger = [entry for entry in ledger if entry.subject == last_acting]
    return tuple(entry.error for entry in ledger[-_MOST_OPEN:])


def _closes(step: Step, subject: _Subject, entry: _LedgerEntry) -> bool:
    """Return whether a successful step fixes an error."""
    failed, is_usage = entry.subject, _USAGE.search(entry.error.text) is not None
    named = _NAMED.search(entry.error.text)
    name = (named["name"] or named["missing"] or "").lstrip("-") if named else ""
    if name and subject.ran is not None and name.lower() in subject.ran.words:
        return True
    if _MISSING.search(entry.error.text) and subject.ran is not None and not only_looks(subject.ran):
        return True  # another program did the job
    if failed.looks:
        return subject.looks or not is_usage
    if failed.ran is not None:
        if subject.ran is None or only_looks(subject.ran):
            return False
        same = (
            subject.ran.covers(failed.ran)
            or _is_variant(subject.ran, failed.ran)
            or (is_usage and subject.ran.program == failed.ran.program)
        )
        return same or (subject.ran.program == "python" and failed.ran.program == "python" and is_usage)
    if failed.path:
        return (subject.path == failed.path and subject.tool == failed.tool) or _changes(step, failed.path)
    return subject.tool == failed.tool and subject.ran is None


def _is_variant(ran: CommandRun, failed: CommandRun) -> bool:
    """Return whether a script is another one under a longer name, as ``reproduce_alone.sh`` is of ``reproduce.sh``."""
    name, other = ran.program.rpartition("."), failed.program.rpartition(".")
    return bool(other[0]) and name[2] == other[2] and name[0].startswith(f"{other[0]}_")


def _is_within(entry: _LedgerEntry, within: Sequence[CommandRun]) -> bool:
    ran = entry.subject.ran
    return ran is not None and any(inside.covers(ran) for inside in within)


def _replaces(subject: _Subject, entry: _LedgerEntry, lines: Sequence[str]) -> bool:
    """Return whether a new failure supersedes an old one."""
    failed = entry.subject
    if failed.ran is not None and subject.ran is not None:
        is_usage = _USAGE.search(entry.error.text) is not None and entry.error.text != "\n".join(lines)
        return subject.ran.covers(failed.ran) or (is_usage and subject.ran.program == failed.ran.program)
    return subject.tool == failed.tool and subject.path == failed.path and (subject.ran is None) == (failed.ran is None)


def _changes(step: Step, path: str) -> bool:
    return any(change.path == path and change.kind != "read" for change in step.changes)


def _subject_of_source(source: str) -> _Subject:
    """Return the subject of an error that an earlier summary named, as far as its source tells."""
    call = re.match(r"(\w+)\(", source)
    if call is not None:
        return _Subject(call[1], "", None, looks=False)
    named = re.fullmatch(r"(\w+) (\S*[./]\S*)", source)
    if named is not None and not re.fullmatch(r"python\d*|pytest|node|bash|sh|make|cargo|go|ruby|cat|ls", named[1]):
        return _Subject(named[1], named[2], None, looks=named[1] in ("read", "Read", "view"))
    ran = ran_by(beginning(source, 400).removesuffix(" ..."))
    return _Subject("", "", ran, looks=ran is not None and only_looks(ran))


# -- in a summary ------------------------------------------------------------------------------------------------------

_STARTS = tuple(
    f"- {label}"
    for labels in _ALL
    for label in (
        f"{labels.plan} (",
        f"{labels.files}: ",
        f"{labels.pending}: `",
        f"{labels.running}: ",
        f"{labels.last}: `",
        f"{labels.branch}: ",
        f"{labels.error} `",
        f"{labels.stopped}: `",
    )
)
_FILE = re.compile(
    r"`(?P<path>[^`]+)` \((?P<how>created|edited|read)(?:, (?:at “(?P<place>[^”]*)”|(?P<lines>lines? [^)]*)))?\)"
)
_PROCESS = re.compile(r"(?P<id>\S+?)(?: \(`(?P<command>[^`]*)`\))?(?:, port (?P<ports>[\d, ]+))?$")


def inherited_frontier(previous: str | None) -> Frontier | None:
    """Return the frontier that an earlier summary states; None if it states none."""
    if not previous:
        return None
    document = SummaryDocument.parse(previous)
    found = _Inherited()
    for section in ("In Progress", "Blocked", "Next Steps"):
        for item in document.items[section]:
            found.take(item)
    return found.frontier if found.is_any else None


@dataclass
class _Inherited:
    """The frontier that is being read from an earlier summary."""

    frontier: Frontier = field(default_factory=Frontier)
    is_any: bool = False

    def take(self, item: str) -> None:
        for labels in _ALL:
            if self._parse(item.removeprefix("- "), labels):
                self.is_any = True
                return

    def _parse(self, item: str, labels: _Labels) -> bool:
        first, _, rest = item.partition("\n")
        now = self.frontier
        if first.startswith(f"{labels.plan} ("):
            self.frontier = replace(now, plan=tuple(checklist(rest)))
        elif first.startswith(f"{labels.files}: "):
            files = (FileInHand(m["path"], m["how"], m["place"] or m["lines"] or "") for m in _FILE.finditer(first))
            self.frontier = replace(now, files=tuple(files))
        elif first.startswith(f"{labels.running}: ") and (process := _PROCESS.match(first.partition(": ")[2])):
            ports = tuple(filter(None, (process["ports"] or "").split(", ")))
            self.frontier = replace(
                now, running=(*now.running, BackgroundProcess(process["id"], process["command"] or "", ports))
            )
        elif first.startswith(f"{labels.error} `"):
            lines = tuple(line.removeprefix("  ") for line in rest.split("\n") if line.strip())
            error = OpenError(first.partition("`")[2].rpartition("`")[0], lines)
            self.frontier = replace(now, errors=(*now.errors, error))
        elif first.startswith(f"{labels.branch}: "):
            branch, _, commit = first.partition(": ")[2].partition(" @ ")
            self.frontier = replace(now, branch=branch, commit=commit)
        elif first.startswith(f"{labels.last}: `"):
            last, _, outcome = first.partition(": `")[2].partition("`")
            self.frontier = replace(now, last=last, outcome=outcome.partition("→ ")[2])
        else:
            return first.startswith((f"{labels.pending}: `", f"{labels.stopped}: `"))
        return True


def without_frontier(previous: str) -> str:
    """Return an earlier summary without the frontier's lines, which every compaction writes anew."""
    document = SummaryDocument.parse(previous)
    return SummaryDocument(
        {section: [item for item in document.items[section] if not is_frontier_item(item)] for section in SECTIONS}
    ).render()


def place_frontier(
    summary: str, frontier: Frontier, budget: int, count: Callable[[str], int], phrases: Phrases | None = None
) -> str:
    """Return a summary with the frontier at the head of its sections; the summary's other items give way to it."""
    items = frontier.items(phrases)
    if not items:
        return summary
    document = SummaryDocument.parse(summary)
    for section, ours in items.items():
        others = [
            item for item in document.items[section] if not is_frontier_item(item) and not _repeats(item, frontier)
        ]
        document.items[section] = [*ours, *others]
    if "Blocked" not in items:
        document.items["Blocked"] = [item for item in document.items["Blocked"] if not is_frontier_item(item)]
    return document.fit(budget, count, lambda item: is_frontier_item(item) or bool(newest_label(item))) or summary


def _repeats(item: str, frontier: Frontier) -> bool:
    """Return whether an item of a summary only repeats an error that the frontier names."""
    plain = one_line(item.lstrip("-*• "))
    errors = [one_line(f"{error.source} {error.text}") for error in frontier.errors]
    command = plain[1:].partition("`")[0].removesuffix(" ...") if plain.startswith("`") else ""
    if command and any(error.source.startswith(command) for error in frontier.errors):
        return True
    return bool(plain) and any(plain in text for text in errors)


def is_frontier_item(item: str) -> bool:
    """Return whether an item of a summary has one of the frontier's fixed beginnings."""
    return item.startswith(_STARTS)


def fit_frontier(
    frontier: Frontier, budget: int, count: Callable[[str], int], phrases: Phrases | None = None
) -> Frontier:
    """Return the frontier within its share of a summary's budget, with lines shortened and lesser parts left out."""
    allowed = int(budget * _BUDGET_SHARE)

    def fits(candidate: Frontier) -> bool:
        items = candidate.items(phrases)
        return count("\n".join(item for section in items.values() for item in section)) <= allowed

    if fits(frontier):
        return frontier
    tried = replace(
        frontier,
        outcome=clip(frontier.outcome, _LEAST_LINE),
        last=clip(frontier.last, _LEAST_LINE),
        files=tuple(file._replace(place="") for file in frontier.files),
        errors=tuple(
            error._replace(source=clip(error.source, _LEAST_LINE), lines=error.lines[:2]) for error in frontier.errors
        ),
    )
    for reduced in _reductions(tried):
        if fits(reduced):
            return reduced
    return Frontier(frontier.request, frontier.request_at)


def _reductions(frontier: Frontier) -> Iterable[Frontier]:
    """Yield smaller and smaller versions of a frontier."""
    yield frontier
    frontier = replace(frontier, branch="", commit="", stopped=())
    yield frontier
    frontier = replace(frontier, errors=frontier.errors[-2:], files=frontier.files[-6:])
    yield frontier
    frontier = replace(frontier, last="", outcome="", errors=frontier.errors[-1:], files=frontier.files[-3:])
    yield frontier
    open_items = tuple(item for item in frontier.plan if item.state in ("in_progress", "pending"))
    frontier = replace(frontier, plan=open_items)
    yield frontier
    yield replace(frontier, plan=open_items[:3], files=frontier.files[-1:])
    yield replace(frontier, plan=(), files=())
    yield replace(frontier, plan=(), files=(), running=(), pending=())
