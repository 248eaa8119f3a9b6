"""The plan or todo list of an agent, with the state of each item, as the agent last wrote it.

A list is recognized by its shape rather than by its tool's name, so that TodoWrite, update_plan, manage_todo_list and
similar tools are read alike: whole lists, lists merged by id, single items that are added, changed or ticked off,
Markdown checklists in an argument (Cline's ``task_progress``) and, without such a tool, checklists in the agent's
messages. A call that failed or was refused changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from everlong.context.record import Step
from everlong.context.text import one_line
from everlong.model import Message, text_of

__all__ = ["PlanItem", "State", "checklist", "read_plan", "render_item"]

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
        if _may_plan(step) and not step.failed and not step.was_stopped:
            plan.take(step)
    if plan.is_kept_by_tool or plan.items:
        said = [] if plan.is_kept_by_tool else _last_said(messages)
        return said or plan.items
    said = _last_said(messages)
    is_under_way = bool(steps) or any(item.state != "pending" for item in said)
    return said if is_under_way else []  # in a plain chat, a list with nothing done is advice


def _last_said(messages: Sequence[Message]) -> list[PlanItem]:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            text = text_of(message)
            found = checklist(text) if "[" in text else []
            if len(found) >= _LEAST_SAID:
                return found
    return []


@dataclass
class _Plan:
    """The plan so far, while the calls are read in order."""

    items: list[PlanItem]
    is_kept_by_tool: bool = field(default=False)

    def take(self, step: Step) -> None:
        """Apply one call."""
        del self.items[:-_MOST_ITEMS]
        name, arguments = step.call.name, step.arguments
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
        if _PLANNING.search(name):
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


def _may_plan(step: Step) -> bool:
    """Return whether a call may change a plan; a quick look rules out most calls."""
    return bool(_PLANNING.search(step.call.name)) or (
        "task_progress" in step.call.arguments and "task_progress" in step.arguments
    )


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
