"""``update_todo``: the agent's to-do list, which stands in its own words behind every summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from everlong.model import calls_of, text_of

if TYPE_CHECKING:
    from everlong.agent.conversation import AgentConversation

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


def pin_todo(conversation: AgentConversation) -> None:
    """Pin the newest list of a conversation, in the place of the one before.

    Call it before a compaction only: a pin that moves changes the prompt that the provider has cached.
    """
    store, at = conversation.store, conversation.branch
    # The store is read only if the messages at hand contain a list.
    if at is None or not any(call.name == _NAME for message in conversation.messages for call in calls_of(message)):
        return
    entries = store.sessions.entries(conversation.session_id)
    written = {call.id for entry in entries for call in calls_of(entry.message) if call.name == _NAME}
    lists = [
        entry.id
        for entry in entries
        if entry.message.get("tool_call_id") in written and not entry.message.get("is_error")
    ]
    if not lists or lists[-1] is None:
        return
    for entry in store.pinned(at):
        if entry.id not in {None, lists[-1]} and text_of(entry.message).startswith(tuple(_MARKS.values())):
            store.unpin(entry.id)
    store.pin(lists[-1])
