"""``update_todo``: the agent replaces its to-do list."""

from __future__ import annotations

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.todo import TodoItem


def update_todo(items: list[TodoItem], context: ToolContext) -> str:
    """Write down what there is to do, and where each thing stands. The list given here replaces the one before.

    Use it for work of several steps, and keep it up to date: it stays in sight when earlier messages are summarized.

    Args:
        items: The whole list, in order.
    """
    context.todo.replace(items)
    return context.todo.text or "[the list is empty]"
