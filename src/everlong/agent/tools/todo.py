"""The agent's to-do list, kept beside the conversation, so that no compaction removes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from everlong.model import Message, calls_of

Status = Literal["pending", "in_progress", "done"]

NAME = "update_todo"
_MARKS: dict[Status, str] = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


class TodoItem(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(frozen=True)

    text: str = Field(min_length=1, description="What is to be done.")
    status: Status = Field("pending", description="Where it stands.")


_ITEMS = TypeAdapter(list[TodoItem])


@dataclass
class TodoList:
    """The things to do, in the agent's own order and words."""

    items: list[TodoItem] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole list, one line per item; empty where there is none."""
        return "\n".join(f"{_MARKS[item.status]} {item.text}" for item in self.items)

    def replace(self, items: Sequence[TodoItem]) -> None:
        """Replace the whole list."""
        self.items = list(items)

    @classmethod
    def from_messages(cls, messages: Iterable[Message]) -> TodoList:
        """Return the list of the latest valid call of ``update_todo`` in a conversation; empty without one."""
        latest: list[TodoItem] = []
        for message in messages:
            for call in calls_of(message):
                if call.name == NAME:
                    latest = _read_items(call.arguments, latest)
        return cls(latest)


def describe_todo(args: dict[str, Any]) -> str:
    """Return a call in one line: how many items there are, and how many are done."""
    states = [item["status"] if isinstance(item, dict) else item.status for item in args["items"]]
    return f"{NAME} {states.count('done')} of {len(states)} done"


def _read_items(arguments: str, otherwise: list[TodoItem]) -> list[TodoItem]:
    try:
        return _ITEMS.validate_python(json.loads(arguments, strict=False)["items"])
    except (ValueError, LookupError, TypeError, RecursionError, ValidationError):  # it was answered with an error
        return otherwise
