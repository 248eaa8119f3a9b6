"""The plan of an agent: read from whatever tool its client keeps it with."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import Message
from everlong.context.chronicle import Chronicle
from tests.context.builders import assistant, call, user

WANTED = [("completed", "Read the berth tables"), ("in_progress", "Write the parser"), ("pending", "Test it")]


def plan(*messages: Message) -> list[tuple[str, str]]:
    return [(item.state, item.text) for item in Chronicle().extended([user("Import the tables."), *messages]).plan]


@pytest.mark.spec("9.7")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("TodoWrite", {"todos": [{"content": t, "status": s, "activeForm": t} for s, t in WANTED]}),
        ("update_plan", {"explanation": "now", "plan": [{"step": t, "status": s} for s, t in WANTED]}),
        ("todowrite", {"todos": [{"id": str(n), "content": t, "status": s} for n, (s, t) in enumerate(WANTED)]}),
        ("update_todo", {"items": [{"text": t, "status": "done" if s == "completed" else s} for s, t in WANTED]}),
        ("manage_todo_list", {"todoList": [{"id": n, "title": t, "status": s} for n, (s, t) in enumerate(WANTED)]}),
        (
            "read_file",
            {"path": "a.py", "task_progress": "- [x] Read the berth tables\n- [~] Write the parser\n- [ ] Test it"},
        ),
    ],
)
def test_a_plan_is_read_whatever_its_tool_is_called(name: str, arguments: dict[str, Any]) -> None:
    assert plan(*call(1, name, "ok", **arguments)) == WANTED


def test_a_plan_that_was_refused_is_none_and_a_list_that_the_agent_says_counts_without_a_tool() -> None:
    todos = [{"content": "A", "status": "pending"}]
    assert plan(*call(1, "TodoWrite", "<tool_use_error>invalid</tool_use_error>", todos=todos)) == []
    said = assistant("The plan:\n- [x] Read the berth tables\n- [ ] Test it")
    assert plan(said, *call(1, "bash", "a.py", command="ls")) == [WANTED[0], WANTED[2]]
