"""The to-do list: written whole, with the state of each item."""

from __future__ import annotations

from tests.agent.desk import Desk


def test_the_list_is_answered_with_the_state_of_each_item_and_told_in_one_line(desk: Desk) -> None:
    items = [
        {"text": "Paint the buoy", "status": "done"},
        {"text": "Light it", "status": "in_progress"},
        {"text": "Sail"},
    ]
    assert desk.done("update_todo", items=items) == "[x] Paint the buoy\n[>] Light it\n[ ] Sail"
    assert desk.done("update_todo", items=[]) == "[the list is empty]"
    assert "'items.0.text' is missing" in desk.failed("update_todo", items=[{"status": "done"}])
