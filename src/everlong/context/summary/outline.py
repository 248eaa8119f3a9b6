"""From facts to candidates: everything a summary could say, with its section, its place in time and its worth.

Reads the facts of the turns in order and the summary they continue. Does not know the budget: choosing is the next
step's business.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from everlong.context.summary.actions import Action, Outcome
from everlong.context.summary.closed import is_same
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.facts import Facts
from everlong.context.summary.language import Phrases, marks, without_label
from everlong.context.summary.lines import Line
from everlong.context.summary.text import clip, one_line

_COMMAND = re.compile(r"`([^`]+)`")
_FILE_ITEM = re.compile(r"- `?([^\s`]+)`?(?: — (.*))?$")
_TOOL_COUNT = re.compile(r"([\w.-]+) ×(\d+)")
_LOOKING = re.compile(
    r"^(?:cd \S+ && )?(?:ls|cat|head|tail|grep|rg|find|pwd|wc|nl|sed -n|git (?:status|log|diff|show))\b"
)
MUST = 50.0
"""What is worth this much is chosen before anything else: what was asked last, and what was taken back."""
_GOAL = 20.0
_WHOLE_GOAL, _BRIEF_GOAL = 480, 60
_MOSTLY = 0.8
_MOST_COUNTED = 9
_INHERITED = 0.8
"""What an item of the earlier summary is worth beside an equal one of the new turns."""


class Candidate(NamedTuple):
    """Something that could stand in the summary."""

    section: str
    order: int
    text: str
    worth: float


class KeyLine(NamedTuple):
    """A line that could stand under critical context, with who wrote it and when."""

    order: float
    """The turn, and behind the point the place in it, so that neighbours stay neighbours."""
    line: Line
    weight: float


class LineGroup(NamedTuple):
    """Neighbouring lines by one writer; each is a key line, as far behind the first as its place says."""

    order: float
    weight: float
    lines: Sequence[Line]

    def key_line(self, place: int) -> KeyLine:
        """One of the lines, by its place in the group, from the front or, if negative, from the end."""
        line = self.lines[place]
        return KeyLine(self.order + place % len(self.lines) / 1_000, line, self.weight)


def all_lines(groups: Iterable[LineGroup]) -> Iterator[KeyLine]:
    """Every line of some groups."""
    return (group.key_line(place) for group in groups for place in range(len(group.lines)))


@dataclass(slots=True)
class _File:
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
    lines: Sequence[LineGroup] = ()
    """The lines of each turn."""
    inherited_lines: list[KeyLine] = field(default_factory=list)
    files: dict[str, _File] = field(default_factory=dict)
    tools: Counter[str] = field(default_factory=Counter)
    failures: dict[str, tuple[int, Outcome]] = field(default_factory=dict)
    succeeded: set[str] = field(default_factory=set)
    quotes_newest: bool = False
    """The newest request stands nowhere else, so its item is quoted whole."""

    def add(self, section: str, order: int, text: str, worth: float) -> None:
        """One more candidate; newer ones are worth somewhat more."""
        recency = 0.6 + 0.4 * max(0, order) / max(1, self.length)
        self.candidates.append(Candidate(section, order, text, worth * recency))

    def line_groups(self) -> list[LineGroup]:
        """Every line that could stand under critical context, oldest first."""
        return [*(LineGroup(kept.order, kept.weight, (kept.line,)) for kept in self.inherited_lines), *self.lines]


def grouped(roles: Sequence[str], lines: Iterable[Sequence[Line]]) -> list[LineGroup]:
    """The lines of each turn, weighed by who wrote it; turns without any are left out."""
    unanswered = len(roles)
    while unanswered and roles[unanswered - 1] == "tool":
        unanswered -= 1
    return [
        LineGroup(order, _LINE_WEIGHTS.get(role, 1.0) if order < unanswered else _UNANSWERED, mine)
        for order, (role, mine) in enumerate(zip(roles, lines, strict=True))
        if mine
    ]


_UNANSWERED = 2.0
"""What a result is worth that no one has answered to yet: the next step starts from it."""
_LINE_WEIGHTS = {"user": 4.0, "assistant": 4.0, "tool": 1.0}
"""What people and models wrote themselves is what they go on to use."""


def build_outline(
    facts: Sequence[Facts],
    previous: SummaryDocument | None,
    phrases: Phrases,
    opening: str,
    latest: str,
    newest_item: str = "",
    *,
    opening_stands: bool = False,
) -> Outline:
    """Everything that a summary of these turns, continuing an earlier one, could say.

    Where the opening stands word for word beside the summary, the goal is named in a few words only. ``latest`` is the
    newest request, ``newest_item`` the line that names it.
    """
    outline = Outline(phrases, len(facts))
    if opening and not (previous and previous.items["Goal"]):
        length = _BRIEF_GOAL if opening_stands else _WHOLE_GOAL
        outline.add("Goal", -1, f"- {clip(one_line(opening), length)}", _GOAL)
    outcomes = _outcomes(facts)
    for order, fact in enumerate(facts):
        outline.candidates += [_requirement(order, f"- {rule}") for rule in fact.rules]
        if fact.role == "user":
            _user(outline, order, fact, facts, latest)
        elif fact.role == "assistant":
            _assistant(outline, order, fact, outcomes)
    _end_state(outline, facts)
    if newest_item:
        outline.candidates.append(Candidate("Pending User Asks", outline.length, newest_item, 2 * MUST))
    if previous is not None:
        _inherit(outline, previous, latest, has_next=any(c.section == "Next Steps" for c in outline.candidates))
    _finish(outline)
    return outline


def _outcomes(facts: Sequence[Facts]) -> dict[tuple[int, str], Outcome]:
    """The outcome of each call, by the order of its assistant message and its id."""
    found: dict[tuple[int, str], Outcome] = {}
    caller = -1
    for order, fact in enumerate(facts):
        if fact.actions:
            caller = order
        elif fact.outcome is not None:
            found.setdefault((caller, fact.call_id), fact.outcome)
    return found


def _user(outline: Outline, order: int, fact: Facts, facts: Sequence[Facts], latest: str) -> None:
    if not fact.said:
        return
    is_latest = bool(latest) and clip(one_line(latest), len(fact.said)).startswith(fact.said[:200])
    is_one_rule = len(fact.constraints) == 1 and len(fact.constraints[0]) > _MOSTLY * len(fact.said)
    if not (is_latest or is_one_rule or fact.changes_mind):
        outline.add("Done", order, f'- {outline.phrases.user_said}: "{fact.said}"', 1.45)
    for sentence in () if is_latest else fact.constraints:  # the newest request stands word for word anyway
        outline.candidates.append(_requirement(order, f"- {sentence}"))
    if fact.changes_mind:
        outline.add("Key Decisions", order, f'- {outline.phrases.user_said}: "{fact.said}"', 3.5)
    if fact.question:
        answer = next((later.said for later in facts[order + 1 :][:40] if later.role == "assistant" and later.said), "")
        if answer:
            outline.add("Resolved Questions", order, f"- {fact.question} → {clip(answer, 160)}", 1.8)


def _requirement(order: int, text: str) -> Candidate:
    """A rule or a stated fact; it does not age: what was said in the first hour holds until it is taken back."""
    values = len(entities(text)) + any(map(str.isdigit, text))
    worth = 1.0 + marks("constraint", text) + 0.5 * min(4, values)
    return Candidate("Constraints & Preferences", order, text, worth * 60 / (60 + len(text)))


def _assistant(outline: Outline, order: int, fact: Facts, outcomes: dict[tuple[int, str], Outcome]) -> None:
    for sentence in fact.decisions:
        outline.add("Key Decisions", order, f"- {sentence}", 1.6)
    if order >= outline.length * 0.8 - 8:
        for sentence in fact.next_steps:
            outline.add("Next Steps", order, f"- {sentence}", 1.5)
    for call_id, tool, action in fact.actions:
        outline.tools[tool] += 1
        _action(outline, order, action, outcomes.get((order, call_id)))


def _action(outline: Outline, order: int, action: Action, outcome: Outcome | None) -> None:
    for path in action.paths:
        entry = outline.files.setdefault(path, _File())
        entry.order = order
        entry.writes += action.kind == "write"
        entry.edits += action.kind == "edit"
        entry.reads += action.kind in ("read", "run")
    if action.kind == "read":
        return
    failed = outcome is not None and outcome.failed
    # Looking for something and not finding it is no obstacle.
    if outcome is not None and action.kind in ("run", "other") and not _LOOKING.match(action.title):
        if failed:
            outline.failures[action.title] = (order, outcome)
            outline.succeeded.discard(action.title)
        else:
            outline.failures.pop(action.title, None)
            outline.succeeded.add(action.title)
    outline.add("Done", order, _action_line(outline.phrases, action, outcome), _action_worth(action, failed=failed))


def _action_line(phrases: Phrases, action: Action, outcome: Outcome | None) -> str:
    verb = {"write": phrases.wrote, "edit": phrases.edited}.get(action.kind, phrases.ran)
    came_out = f" → {outcome.line}" if outcome is not None and outcome.line else ""
    if action.kind == "write" or (action.kind == "edit" and action.title in action.paths):
        files = ", ".join(f"`{path}`" for path in action.paths)
        return f"- {verb} {files}{came_out if outcome is not None and outcome.failed else ''}"
    return f"- {verb} `{clip(action.title, 140)}`{came_out}"


def _action_worth(action: Action, *, failed: bool) -> float:
    if action.kind in ("write", "edit"):
        return 1.3
    if _LOOKING.match(action.title):
        return 0.5
    return 1.4 if failed else 1.1


def _end_state(outline: Outline, facts: Sequence[Facts]) -> None:
    """What was under way and what stood in the way when the summarized turns ended."""
    for fact in reversed(facts):
        if fact.role == "assistant" and fact.said:
            outline.add("In Progress", outline.length, f"- {fact.said}", 3.0)
            break
    for title, (order, outcome) in outline.failures.items():
        if order >= outline.length * 0.5:
            text = f"- `{clip(title, 120)}` {outline.phrases.failed}: {outcome.line}"
            outline.add("Blocked", order, text, 2.0)


def _inherit(outline: Outline, previous: SummaryDocument, latest: str, *, has_next: bool) -> None:
    """Carry an earlier summary on: what was in progress is done, what was fixed or asked anew goes."""
    moved = {"In Progress": "Done", "Pending User Asks": "Done"}
    worths = {
        "Goal": _GOAL,
        "Key Decisions": 2.0,
        "Done": 1.3,
        "Resolved Questions": 1.6,
    }
    for section, items in previous.items.items():
        for place, item in enumerate(items):
            order = place - len(items)
            if section == "Relevant Files":
                _inherit_file(outline, item, order)
            elif section == "Tools & Patterns":
                outline.tools.update({name: int(count) for name, count in _TOOL_COUNT.findall(item)})
            elif section == "Critical Context":
                outline.inherited_lines.append(KeyLine(order, Line.of(item.removeprefix("- ")), 2.0))
            elif section == "Constraints & Preferences":
                outline.candidates.append(_requirement(order, item))
            elif section == "Blocked":
                _inherit_obstacle(outline, item, order)
            elif section != "Next Steps" or not has_next:
                kept = moved.get(section, section)
                text = item if section != "Pending User Asks" else _answered(outline, item, latest)
                if text:
                    outline.candidates.append(Candidate(kept, order, text, worths.get(kept, 1.5) * _INHERITED))


def _answered(outline: Outline, item: str, latest: str) -> str:
    """An older request as something that was said; empty where it is still the newest, and said as such."""
    asked = without_label(item.removeprefix("- "))
    return "" if is_same(asked, latest) else f"- {outline.phrases.user_said}: {asked}"


def _inherit_obstacle(outline: Outline, item: str, order: int) -> None:
    command = _COMMAND.search(item)
    if command is None or command[1] not in outline.succeeded:
        outline.candidates.append(Candidate("Blocked", order, item, 0.9))


def _inherit_file(outline: Outline, item: str, order: int) -> None:
    match = _FILE_ITEM.match(item)
    if match is None:
        outline.candidates.append(Candidate("Relevant Files", order, item, 1.0))
        return
    entry = outline.files.setdefault(match[1], _File(order=order))
    entry.note = match[2] or ""


def _finish(outline: Outline) -> None:
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
    if outline.tools:
        used = ", ".join(f"{name} {_times(count)}" for name, count in outline.tools.most_common(12))
        outline.add("Tools & Patterns", outline.length, f"- {phrases.tools_used}: {used}", 1.0)


def _times(count: int) -> str:
    """How often; a larger number would read like a fact of the conversation, which it is not."""
    return f"×{count}" if count <= _MOST_COUNTED else f"×{_MOST_COUNTED}+"
