"""The todo list through compactions and restarts: which message holds the newest one, pinned when its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from everlong.agent.tools.todo import NAME, TodoList
from everlong.errors import StoreError
from everlong.model import Message, calls_of

if TYPE_CHECKING:
    from everlong.agent.conversation import Conversation
    from everlong.agent.tools.toolbox import ToolResult
    from everlong.model import ToolCall
    from everlong.store.paths import Entry

__all__ = ["TodoKeeper"]

_NEAR = 64
"""A call stands at most so many blocks before its result."""


class TodoKeeper:
    """Keeps the todo list of one conversation."""

    def __init__(self, conversation: Conversation, todo: TodoList, warn: Callable[[str], None]) -> None:
        self._conversation = conversation
        self._todo = todo
        self._warn = warn
        self._node: bytes | None = None
        self._pinned: bytes | None = None

    def noted(self, call: ToolCall, result: ToolResult, nodes: Sequence[bytes]) -> None:
        """A call was answered; if it was one that wrote the list, its result holds it now."""
        if call.name == NAME and result.outcome == "done" and nodes:
            self._node = nodes[-1]

    def pin(self) -> None:
        """Have the list told in its own words behind the summary that is about to be made.

        To be called then and not earlier: a pin that moves changes what the provider has cached.
        """
        store = self._conversation.store
        if self._node is None or self._node == self._pinned:
            return
        try:
            if self._pinned is not None:
                store.unpin(self._pinned)
            store.pin(self._node)
        except StoreError as error:
            self._warn(f"the todo list could not be pinned: {error}")
            return
        self._pinned = self._node

    def restore(self) -> None:
        """Find the newest list of a stored conversation: in this session's messages, else among what is pinned."""
        store, at = self._conversation.store, self._conversation.branch
        if at is None:
            return
        for entry in store.pinned(at):
            self._read(store.entries(at, max(-1, entry.depth - _NEAR), entry.depth), entry.id)
        self._pinned = self._node
        # What was said in this session is in the messages: only where a list is among them it is looked up.
        if any(call.name == NAME for message in self._conversation.messages for call in calls_of(message)):
            self._read(store.sessions.entries(self._conversation.session_id))

    def _read(self, said: Sequence[Entry], only: bytes | None = None) -> None:
        """Take over the lists that results confirm, the newest last; or the one of a single result."""
        written: dict[object, Message] = {}
        for entry in said:
            message = entry.message
            written |= {call.id: message for call in calls_of(message) if call.name == NAME}
            confirms = message.get("role") == "tool" and not message.get("is_error") and only in {None, entry.id}
            if confirms and (call_message := written.get(message.get("tool_call_id"))) is not None:
                self._todo.replace(TodoList.from_messages([call_message]).items)
                self._node = entry.id
