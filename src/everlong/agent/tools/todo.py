"""``update_todo``: the agent's to-do list, which every summary tells."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["pending", "in_progress", "done"]

_NAME = "update_todo"
_MARKS: dict[Status, str] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class TodoItem(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(frozen=True)

    text: str = Field(min_length=1, description="What is to be done.")
    status: Status = Field("pending", description="Where it stands.")


def update_todo(items: list[TodoItem]) -> str:
    """Write down what there is to do, and where each thing stands. The list given here replaces the one before.

    Use it for work of several steps, and keep it up to date: it stays in sight when earlier messages are summarized.

    Args:
        items: The whole list, in order.
    """
    return "\n".join(f"{_MARKS[item.status]} {item.text}" for item in items) or "[the list is empty]"


def describe_todo(args: dict[str, Any]) -> str:
    """Return a call in one line: how many items there are, and how many are done."""
    states = [item["status"] if isinstance(item, dict) else item.status for item in args["items"]]
    return f"{_NAME} {states.count('done')} of {len(states)} done"
