"""The outline: everything a summary could say, as candidates with a section, an order and a worth.

Built from the facts of the turns, in order, and from the summary that they continue. A section gets only what belongs
there: preferences from people, decisions that were made, steps that are steps. The outline does not know the budget;
the selection does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from everlong.context.summary.actions import Action, ActionKind, ActionOutcome, is_looking
from everlong.context.summary.clauses import (
    Clause,
    clauses,
    conclude,
    is_go_ahead,
    is_statement,
    join_clauses,
    plain_line,
    prose,
)
from everlong.context.summary.document import CONSTRAINTS, SummaryDocument
from everlong.context.summary.facts import Facts
from everlong.context.summary.goal import central_goal, goal_in
from everlong.context.summary.key_lines import KeyLine, LineGroup, MessageLine
from everlong.context.summary.language import NOW_LABELS, Phrases, is_closing, marks, without_label
from everlong.context.summary.newest_request import is_same
from everlong.context.summary.retractions import find_retractions
from everlong.context.summary.tasks import Task, cut_into_tasks, task_line, tasks_in_summary
from everlong.context.text import clip

_COMMAND = re.compile(r"`([^`]+)`")
_FILE_ITEM = re.compile(r"- `?([^\s`]+)`?(?: — (.*))?$")
_SCRIPT = re.compile(r"(\s-[ce]|\bsed -i)\s+(['\"]).*", re.DOTALL)
"""A program on the command line: code, which says nothing among sentences."""
_CUT_SHORT = re.compile(r"\s*2>&1|\s*\|\s*(?:tail|head|grep)\b[^|]*")
_NOT_YET = re.compile(
    r"\b(?:don't|do not) (?:write|change|edit|create|implement|code|build|touch)\b[^.]*\byet\b"
    r"|(?:先|暂时)(?:不要|别|不)(?:写|改|动|创建|编辑)",
    re.IGNORECASE,
)
"""A wish that nothing be written for now."""
_NEW_DEADLINE = re.compile(
    r"\bnew (?:\w+ ){0,2}deadline\b|\bdeadline (?:was |is )?(?:moved|extended|pushed)", re.IGNORECASE
)
_BRIEF_WISH = 48
_CHOOSES = re.compile(r"\b(?:i'll|i will|let's|let us) (?:use|go with|take|keep|pay)\b", re.IGNORECASE)
_NEEDS = re.compile(r"\b(?:needs?|wants?|should|must|let's)\b|需要|应该", re.IGNORECASE)
_ABOUT = re.compile(r'[^("]{1,40} \("(.+?)"?\)?')
"""A go-ahead followed by what it is about."""
_CALLED_IN_VAIN = re.compile(
    r"command not found|No module named|No such file|[Uu]nknown option|[Uu]sage:|[Cc]ommand aborted"
)
_PROCEDURE = re.compile(
    r"\b(?:i'll|i will|i'm going to|we'll|we will|let me|i should|i need to)(?: \w+ly| now| also| just| first)? "
    r"(?:check|grep|look|run|re-?run|read|try|search|verify|view|inspect|test|see|start|print|find|assume|proceed)\b"
    r"|\bsince i (?:am|cannot|can't|can not|don't|do not|have)\b",
    re.IGNORECASE,
)
"""Sentences in which an agent looks into something and decides nothing."""
MUST = 50.0
"""From this worth on, a candidate is chosen before all others: the newest request, and requests taken back."""
_GOAL = 20.0
_NOW = 3.4
"""The current wish stands whole or not at all: the newest request says it as well."""
_LARGEST_COUNT = 9
_INHERITED = 0.8
"""The factor for an item of the earlier summary beside an equal one of the new turns."""
_FEW_TASKS, _MANY_TASKS = 1, 6
"""Up to few tasks, the goal is the first request and the newest request says the rest. After many, work has moved on.
"""
_FILES_TOGETHER = 6
_RECENT = 0.8
"""Next steps named before this share of the turns have been taken or given up since."""


class Candidate(NamedTuple):
    """An item that could stand in the summary."""

    section: str
    order: int
    text: str
    worth: float


@dataclass(slots=True)
class _FileFacts:
    writes: int = 0
    edits: int = 0
    reads: int = 0
    order: int = 0
    note: str = ""


@dataclass(slots=True)
class Outline:
    """All candidates of a summary."""

    phrases: Phrases
    length: int
    candidates: list[Candidate] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    """The tasks, oldest first; those of an earlier summary before those of the turns."""
    lines: Sequence[LineGroup] = ()
    """The key lines of each turn."""
    inherited_lines: list[KeyLine] = field(default_factory=list)
    files: dict[str, _FileFacts] = field(default_factory=dict)
    failures: dict[str, tuple[int, ActionOutcome]] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    at_work: bool = False
    """True if tools are used; false if the conversation is only talk."""
    quotes_newest: bool = False
    """True if the newest request stands nowhere else, so that its item quotes it whole."""

    def add(self, section: str, order: int, text: str, worth: float) -> None:
        """Add a candidate; newer ones are worth somewhat more."""
        recency = 0.6 + 0.4 * max(0, order) / max(1, self.length)
        self.candidates.append(Candidate(section, order, text, worth * recency))

    def name_continued(self, newest: str, task: Task | None) -> None:
        """Add to a newest request such as "continue" what it is about, unless that was taken back."""
        if task is None or not any(task is other for other in self.tasks):
            return
        if any(marks("change_of_mind", clause.text) for clause in task.clauses):
            return
        about = f'{newest} ("{join_clauses(task.clauses[:2], task.clauses)}")'
        self.candidates = [one._replace(text=about) if one.text == newest else one for one in self.candidates]

    def leave_out_failures(self) -> None:
        """Drop failed commands, of this summary and of the one before."""
        own = f" {self.phrases.failed}: "
        self.candidates = [
            candidate
            for candidate in self.candidates
            if not (candidate.section == "Blocked" and candidate.text.startswith("- `") and own in candidate.text)
        ]

    def leave_out_files(self, paths: Iterable[str]) -> None:
        """Drop removed files, and the files of removed folders."""
        for gone in paths:
            starts = (f"- `{gone}`", f"- `{gone.rstrip('/')}/")
            self.candidates = [
                candidate
                for candidate in self.candidates
                if not (candidate.section == "Relevant Files" and candidate.text.startswith(starts))
            ]

    def line_groups(self) -> list[LineGroup]:
        """Return every line that could stand under critical context, oldest first."""
        inherited = (LineGroup(kept.order, kept.weight, (kept.line,), kept.source) for kept in self.inherited_lines)
        return [*inherited, *self.lines]


@dataclass(frozen=True, slots=True)
class Around:
    """The words around the summarized turns."""

    opening: str = ""
    """The first words of the person."""
    latest: str = ""
    """The newest request."""
    newest_item: str = ""
    """The item that names the newest request."""
    opening_stands: bool = False
    """True if the opening stands word for word beside the summary, so that the goal need not say all of it."""


def build_outline(
    facts: Sequence[Facts], previous: SummaryDocument | None, phrases: Phrases, around: Around
) -> Outline:
    """Return everything that a summary of these turns could say, continuing an earlier summary."""
    outline = Outline(phrases, len(facts))
    outcomes = _outcomes(facts)
    outline.at_work = bool(previous and previous.items["Relevant Files"]) or any(fact.actions for fact in facts)
    told, others = tasks_in_summary(previous.items["Done"]) if previous else ([], {})
    mine = cut_into_tasks(facts, outcomes, at_work=outline.at_work)
    _mark_open(mine, facts, around.latest)
    outline.tasks = [*told, *(task for task in mine if task.clauses and not task.is_open)]
    _add_goal(outline, mine, told, previous, around)
    for order, fact in enumerate(facts):
        outline.candidates += [_preference(order, f"- {rule}", 2) for rule in fact.rules]
        if fact.role == "user":
            _add_user(outline, order, fact, around.latest)
        elif fact.role == "assistant":
            _add_assistant(outline, order, fact, outcomes)
    for task in mine:
        _add_answer(outline, task)
    for task in mine:
        if task.is_open or not task.clauses:
            _add_steps(outline, task)
    _add_end_state(outline, facts, mine[-1])
    if around.newest_item:
        outline.candidates.append(Candidate("Pending User Asks", outline.length, around.newest_item, 2 * MUST))
    if previous is not None:
        _inherit(outline, previous, others, around.latest)
    _retire_deadlines(outline)
    _retire_delays(outline, facts)
    _add_files(outline)
    return outline


def _outcomes(facts: Sequence[Facts]) -> dict[tuple[int, str], ActionOutcome]:
    """Return the outcome of each call, by the order of its assistant message and its id."""
    found: dict[tuple[int, str], ActionOutcome] = {}
    caller = -1
    for order, fact in enumerate(facts):
        if fact.actions:
            caller = order
        elif fact.outcome is not None:
            found.setdefault((caller, fact.call_id), fact.outcome)
    return found


def _mark_open(tasks: Sequence[Task], facts: Sequence[Facts], latest: str) -> None:
    """Mark the task in force as open; none is if the newest request is not among the turns."""
    for task in tasks:
        task.is_open = bool(latest) and task.order >= 0 and is_same(facts[task.order].said, latest)
    if not latest:
        tasks[-1].is_open = tasks[-1].order >= 0


def _add_goal(
    outline: Outline, mine: Sequence[Task], told: Sequence[Task], previous: SummaryDocument | None, around: Around
) -> None:
    """Add the overall goal: the first request, or what most of a long talk is about."""
    inherited = [item for item in previous.items["Goal"] if not item.startswith(NOW_LABELS)] if previous else []
    known = inherited[0].removeprefix("- ") if len(inherited) == 1 else ""
    found = "" if outline.at_work else central_goal([*told, *mine], around.opening, known)
    if found and (not inherited or known):
        outline.add("Goal", -1, f"- {found}", _GOAL)
    elif not inherited and around.opening:
        outline.add("Goal", -1, f"- {goal_in(around.opening, brief=around.opening_stands)}", _GOAL)
    else:
        outline.candidates += [Candidate("Goal", place - 9, item, _GOAL) for place, item in enumerate(inherited)]
    goals = " ".join(candidate.text for candidate in outline.candidates)
    moved_on = outline.at_work and not is_same(around.latest, around.opening)
    now = _wanted_now(mine, around.latest, few=len(mine) + len(told) <= _FEW_TASKS) if moved_on else ""
    if now and now not in goals:
        has_moved_on = len(mine) + len(told) > _MANY_TASKS
        if has_moved_on:
            first = f"- {goal_in(around.opening, brief=around.opening_stands)}"
            outline.candidates = [_as_beginning(outline, goal, first) for goal in outline.candidates]
        worth = _GOAL / 2 if has_moved_on else _NOW
        outline.candidates.append(Candidate("Goal", outline.length, f"- {outline.phrases.now}: {now}", worth))


def _as_beginning(outline: Outline, goal: Candidate, first: str) -> Candidate:
    """Return a goal labelled as the beginning if it is the first request; any other as it is."""
    is_first = goal.section == "Goal" and goal.text == first
    return goal._replace(text=f"- {outline.phrases.began}: {first[2:]}") if is_first else goal


def _wanted_now(mine: Sequence[Task], latest: str, *, few: bool) -> str:
    """Return what a person wants now: the newest request, or the last wish before it if that only answers."""
    if _CHOOSES.search(latest):
        return ""  # the newest request says it
    said = [] if is_go_ahead(latest) else clauses(prose(latest))
    if any(clause.wished or clause.asks or (clause.stands and not is_statement(clause.text)) for clause in said):
        wishes = [clause for clause in said if clause.stands and _is_wish(clause)]
        if few or (wishes and all(clause.is_question for clause in wishes) and not _NEEDS.search(latest)):
            return ""
        brief = wishes[: 1 if wishes and len(wishes[0].text) > _BRIEF_WISH else 2]
        return join_clauses(brief, said) if brief else goal_in(latest, brief=True)
    for task in reversed(mine):
        for clause in task.clauses if not task.is_open else ():
            asks_for = _is_wish(clause) and clause.stands and not clause.is_question and not clause.points
            if asks_for and not find_retractions(clause.text, [clause.text]):
                return clause.text.rstrip("?")
    return ""


def _is_wish(clause: Clause) -> bool:
    """Return whether a clause asks for something, or says what is needed."""
    return (
        clause.wished or clause.text.endswith("?") or bool(_NEEDS.search(clause.text)) or not is_statement(clause.text)
    )


def _add_user(outline: Outline, order: int, fact: Facts, latest: str) -> None:
    if not fact.said:
        return
    if bool(latest) and is_same(fact.said, latest):
        return  # the newest request has an item of its own
    for clause in fact.preferences:
        outline.candidates.append(_preference(order, f"- {clause.text}", clause.figures))
    decided = [f"- {clause}" for clause in fact.decisions]
    if fact.changes_mind and fact.retractions and not decided and not fact.said.endswith("..."):
        decided = [f'- {outline.phrases.user_said}: "{fact.said}"']
    for text in decided:
        outline.add("Key Decisions", order, text, 3.0)


def _retire_deadlines(outline: Outline) -> None:
    """Drop deadlines that a later clause has moved."""
    wishes = [candidate for candidate in outline.candidates if candidate.section == CONSTRAINTS]
    moved = [wish.order for wish in wishes if _NEW_DEADLINE.search(wish.text)]
    old = {wish for wish in wishes if moved and wish.order < max(moved) and "deadline" in wish.text}
    if old:
        outline.candidates = [candidate for candidate in outline.candidates if candidate not in old]


def _retire_delays(outline: Outline, facts: Sequence[Facts]) -> None:
    """Drop wishes that nothing be written yet, once files have been written since."""
    written = [
        order for order, fact in enumerate(facts) if any(act.kind in {"write", "edit"} for _, _, act in fact.actions)
    ]
    if not written:
        return
    outline.candidates = [
        one
        for one in outline.candidates
        if not (one.section == CONSTRAINTS and one.order < max(written) and _NOT_YET.search(one.text))
    ]


def _preference(order: int, text: str, figures: int) -> Candidate:
    """Return a preference as a candidate; it does not age, because it holds until it is taken back."""
    worth = 1.5 + 0.5 * min(3, figures)
    return Candidate(CONSTRAINTS, order, text, worth * 60 / (60 + len(text)))


def _add_assistant(outline: Outline, order: int, fact: Facts, outcomes: dict[tuple[int, str], ActionOutcome]) -> None:
    if fact.actions or fact.is_short:  # long answers explain possible decisions; they make none
        for sentence in fact.decisions:
            if not _PROCEDURE.search(sentence) and ", or " not in sentence:
                outline.add("Key Decisions", order, f"- {sentence}", 1.6)
    for call_id, _, action in fact.actions:
        _add_action(outline, order, action, outcomes.get((order, call_id)))


def _add_action(outline: Outline, order: int, action: Action, outcome: ActionOutcome | None) -> None:
    failed = outcome is not None and outcome.failed
    for gone in action.removed:
        for path in [path for path in outline.files if path == gone or path.startswith(f"{gone.rstrip('/')}/")]:
            del outline.files[path]
    for path in action.paths:
        entry = outline.files.setdefault(path, _FileFacts())
        entry.order = order
        entry.writes += action.kind == "write"
        entry.edits += action.kind == "edit"
        entry.reads += action.kind in ("read", "run")
    if outcome is not None and (action.kind == "other" or (action.kind == "run" and not is_looking(action.title))):
        if failed:
            outline.failures[action.title] = (order, outcome)
            outline.succeeded.discard(action.title)
        else:
            outline.failures.pop(action.title, None)
            outline.succeeded.add(action.title)


def _add_answer(outline: Outline, task: Task) -> None:
    """Add a plain question with its plain answer, and drop its task."""
    if len(task.clauses) == 1 and task.clauses[0].asks and task.answers:
        answer = task.answers[0]
        if answer.is_short and answer.conclusion.concludes and not answer.actions:
            text = f"- {task.clauses[0].text} → {answer.conclusion.concludes}"
            outline.add("Resolved Questions", task.order, text, 1.8)
            if not task.is_work:
                outline.tasks = [other for other in outline.tasks if other is not task]


def _add_steps(outline: Outline, task: Task) -> None:
    """Add the steps of an open task, or of work without a request; a closed task's own line tells its steps."""
    newest = {_bare_command(action.title): order for order, action, _ in task.actions}
    last = {path: order for order, action, _ in task.actions if action.changes for path in action.paths}
    changed: dict[str, ActionKind] = {}
    for order, action, outcome in task.actions:
        failed = outcome is not None and outcome.failed
        if action.changes and action.paths and not failed:  # the name of the file says enough: the edit itself is code
            changed |= {path: changed.get(path, action.kind) for path in action.paths if last[path] == order}
            continue  # a file is named once, where it was changed last
        if (
            action.looks
            or action.prepares
            or not _is_worth_telling(action, outcome)
            or newest[_bare_command(action.title)] > order
        ):
            continue  # only the last run of a repeated command counts
        _add_changes(outline, order, changed)
        changed = {}
        outline.add("Done", order, _action_line(outline.phrases, action, outcome), 1.4 if failed else 1.1)
    if task.actions:
        _add_changes(outline, task.actions[-1][0], changed)


def _is_worth_telling(action: Action, outcome: ActionOutcome | None) -> bool:
    """Return whether a step is worth telling: not a command without a result, one that failed to start, or a script."""
    if action.kind != "run":
        return not (outcome is not None and outcome.failed)  # a failure is told as an open error, or was fixed since
    if action.removes:
        return True
    if outcome is None or not outcome.told or _SCRIPT.search(action.title):
        return False
    return not _CALLED_IN_VAIN.search(outcome.told)


def _add_changes(outline: Outline, order: int, kinds: Mapping[str, ActionKind]) -> None:
    """Add the files written or edited between two other steps, as one step each."""
    for kind, verb in (("write", outline.phrases.wrote), ("edit", outline.phrases.edited)):
        shown = [f"`{path}`" for path, how in kinds.items() if how == kind]
        for start in range(0, len(shown), _FILES_TOGETHER):
            together = ", ".join(shown[start : start + _FILES_TOGETHER])
            outline.add("Done", order, f"- {verb} {together}", 1.4)


def _action_line(phrases: Phrases, action: Action, outcome: ActionOutcome | None) -> str:
    came_out = f" → {outcome.told}" if outcome is not None and outcome.told else ""
    if action.changes and action.paths:
        verb = phrases.wrote if action.kind == "write" else phrases.edited
        return f"- {verb} {', '.join(f'`{path}`' for path in action.paths)}{came_out}"
    return f"- {phrases.ran} `{_shown_command(action.title)}`{came_out}"


def _bare_command(title: str) -> str:
    """Return a command without redirections and filters that only shorten its output."""
    return _CUT_SHORT.sub("", title).strip() if "|" in title or ">" in title else title


def _shown_command(title: str) -> str:
    """Return a command without the program on its line."""
    return clip(_SCRIPT.sub(r"\1 …", title), 140)


def _add_end_state(outline: Outline, facts: Sequence[Facts], last: Task) -> None:
    """Add what was in progress, blocked and next when the summarized turns ended."""
    answer = last.answers[-1] if last.answers else None
    if answer is not None and answer.stated and not answer.actions and last.is_open and last.order >= 0:
        outline.add("Done", outline.length, task_line(last, last.clauses[:3], last.outcome(outline.phrases)), 3.0)
    steps = [(order, fact) for order, fact in enumerate(facts) if fact.next_steps]
    for order, fact in steps[-2:]:
        if order >= outline.length * _RECENT - 8 and (fact.actions or last.is_work or fact.is_short):
            for sentence in fact.next_steps:
                outline.add("Next Steps", order, f"- {sentence}", 1.5)
    for title, (order, outcome) in outline.failures.items():
        if order >= outline.length * 0.5:
            text = f"- `{clip(title, 120)}` {outline.phrases.failed}: {outcome.line}"
            outline.add("Blocked", order, text, 2.0)


def _inherit(outline: Outline, previous: SummaryDocument, others: Mapping[int, str], latest: str) -> None:
    """Carry an earlier summary on: work in progress becomes done; what was fixed or asked again goes."""
    has_next = any(candidate.section == "Next Steps" for candidate in outline.candidates)
    worths = {"Key Decisions": 3.0, "Done": 1.3, "Resolved Questions": 1.6}
    done = _without_repeated(outline, others)
    for section, items in previous.items.items():
        for order, item in done.items() if section == "Done" else enumerate(items, -len(items)):
            if section == "Relevant Files":
                _inherit_file(outline, item, order)
            elif section == "Critical Context":
                _inherit_lines(outline, item, order)
            elif section == CONSTRAINTS:
                outline.candidates.append(_preference(order, item, 1))
            elif section == "Blocked":
                _inherit_obstacle(outline, item, order)
            elif section == "Pending User Asks":
                _inherit_request(outline, item, order, latest)
            elif section == "In Progress" and not conclude([plain_line(item)]).reports:
                continue  # an announcement is no progress once the turn is over
            elif section != "Goal" and (section != "Next Steps" or not has_next):
                kept = "Done" if section == "In Progress" else section
                outline.candidates.append(Candidate(kept, order, item, worths.get(kept, 1.5) * _INHERITED))


def _without_repeated(outline: Outline, items: Mapping[int, str]) -> dict[int, str]:
    """Return the steps of an earlier summary that were not done again since."""
    again = {_bare_command(title) for title in (*outline.succeeded, *outline.failures)}
    ran = {f"- {outline.phrases.ran} `{_shown_command(title)}" for title in again}
    done = " ".join(candidate.text for candidate in outline.candidates if candidate.section == "Done")
    kept: dict[int, str] = {}
    for order, item in items.items():
        verb = next((verb for verb in (outline.phrases.wrote, outline.phrases.edited) if item[2:].startswith(verb)), "")
        paths = [path for path in _COMMAND.findall(item) if f"`{path}`" not in done] if verb else []
        if paths:
            kept[order] = f"- {verb} {', '.join(f'`{path}`' for path in paths)}"
        elif not verb and not any(item.startswith(command) for command in ran):
            kept[order] = item
    return kept


def _inherit_lines(outline: Outline, item: str, order: int) -> None:
    """Add the key lines of an earlier summary, each with its source."""
    if is_closing(item):  # model summaries put closings into this section
        outline.candidates.append(Candidate("Key Decisions", order, item, MUST))
        return
    first, *rest = item.split("\n")
    source = first if rest or first.startswith("$ ") or (first.endswith(":") and not first.startswith("- ")) else ""
    for place, line in enumerate(rest if source else [first.removeprefix("- "), *rest]):
        if line.strip():
            outline.inherited_lines.append(KeyLine(order + place / 1_000, MessageLine.of(line.strip()), 2.0, source))


def _inherit_request(outline: Outline, item: str, order: int, latest: str) -> None:
    """Turn an older request into a task, unless it is still the newest."""
    asked = without_label(item.removeprefix("- "))
    about = _ABOUT.fullmatch(asked)
    asked = about[1] if about else asked
    if not is_same(asked, latest):
        told = [clause for clause in clauses(asked) if not clause.text.endswith("...")]
        found = tuple(told) or (Clause(asked, 0, asks=False),)
        place = next((at for at, task in enumerate(outline.tasks) if task.order >= 0), len(outline.tasks))
        outline.tasks.insert(place, Task(min(-1, order), found))


def _inherit_obstacle(outline: Outline, item: str, order: int) -> None:
    command = _COMMAND.search(item)
    if command is None or command[1] not in outline.succeeded:
        outline.candidates.append(Candidate("Blocked", order, item, 0.9))


def _inherit_file(outline: Outline, item: str, order: int) -> None:
    match = _FILE_ITEM.match(item)
    if match is None:
        outline.candidates.append(Candidate("Relevant Files", order, item, 1.0))
        return
    entry = outline.files.setdefault(match[1], _FileFacts(order=order))
    entry.note = match[2] or ""


def _add_files(outline: Outline) -> None:
    phrases = outline.phrases
    for path, entry in outline.files.items():
        done = [
            f"{verb}{f' {_times(count)}' if count > 1 else ''}"
            for verb, count in (
                (phrases.wrote, entry.writes),
                (phrases.edited, entry.edits),
                (phrases.read, entry.reads),
            )
            if count
        ]
        note = ", ".join(part.lower() for part in done) or entry.note
        worth = 2.2 if entry.writes or entry.edits or phrases.wrote.lower() in entry.note else 1.0
        outline.add("Relevant Files", entry.order, f"- `{path}`{f' — {note}' if note else ''}", worth)


def _times(count: int) -> str:
    """Return how often as text, capped: a large number would read like a fact of the conversation."""
    return f"×{count}" if count <= _LARGEST_COUNT else f"×{_LARGEST_COUNT}+"


# -- lines -------------------------------------------------------------------------------------------------------------
