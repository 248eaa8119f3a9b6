"""The to-do list: the agent's own words, kept beside the conversation and found again in it."""

from __future__ import annotations

import json

from everlong.agent.tools import TodoItem, TodoList
from everlong.model import Message

ITEMS = [
    {"text": "Read the tide table", "status": "done"},
    {"text": "Mend  the pier:\n  two planks", "status": "in_progress"},
    {"text": "Paint", "status": "pending"},
]


def call(name: str, arguments: str) -> Message:
    return {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": name, "arguments": arguments}}]}


def test_the_latest_valid_list_is_found_in_a_conversation() -> None:
    messages: list[Message] = [
        call("update_todo", json.dumps({"items": ITEMS[:1]})),
        call("update_todo", json.dumps({"items": [*ITEMS, {"text": "New"}]})),
        call("update_todo", '{"items": [{"status": "done"}]}'),
        call("update_todo", "{broken"),
        call("update_todo", "[]"),
        call("read_file", json.dumps({"items": []})),
        {"role": "user", "content": "go on"},
    ]
    found = TodoList.from_messages(messages)
    assert [item.text for item in found.items] == [*(item["text"] for item in ITEMS), "New"]
    assert found.items[3] == TodoItem(text="New", status="pending")
    assert TodoList.from_messages([]).text == ""
