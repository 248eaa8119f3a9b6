"""One message: its words, where it was said, and what has become of it since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everlong.errors import NotStored
from everlong.inspector.pages.transcript import ShownMessage, shown_message
from everlong.store.conversations import ConversationLine
from everlong.store.search.corpus import called_tools
from everlong.store.shown_path import find_message
from everlong.store.whereabouts import Whereabouts, find_whereabouts

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["MessagePage", "message_at", "read_message_page"]

LONGEST = 400_000
"""Characters of a piece that the page of a message shows."""
_SHORT = 1_500
"""Characters of a piece that is shown beside something else."""
_LOOK_BACK = 8


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One message."""

    message: ShownMessage
    conversation: str | None
    title: str
    fate: Whereabouts
    can_pin: bool


def read_message_page(store: Store, ident: str) -> MessagePage:
    """Return a message by the beginning of its id; raise `NotStored` if there is none, or several."""
    found = find_message(store, ident)
    fate = find_whereabouts(store, found.node.hex(), limit=1)
    if not fate:
        raise NotStored(f"there is no message with the id {ident!r}")
    line = _line_of(store, found.session, found.turn, found.node)
    if line is None:
        raise NotStored(f"the message {ident!r} is in no conversation that is shown")
    tools = _tools_around(store, found.session, found.turn)
    return MessagePage(
        message=shown_message(line, tools, is_pinned=fate[0].is_pinned, most=LONGEST),
        conversation=found.session,
        title=fate[0].title or "",
        fate=fate[0],
        can_pin=fate[0].state not in {"forgotten", "taken back", "outside", "broken off", "left out"},
    )


def message_at(store: Store, conversation: str, turn: int) -> ShownMessage | None:
    """Return the message of a turn, of a long one its beginning; None if there is none."""
    for line in store.conversations.entries(conversation, after=turn - 1, to=turn):
        if isinstance(line, ConversationLine) and line.status is None:
            return shown_message(line, _tools_around(store, conversation, turn), most=_SHORT)
    return None


def _line_of(store: Store, conversation: str | None, turn: int, node: bytes) -> ConversationLine | None:
    if conversation is None:
        return None
    for line in store.conversations.entries(conversation, after=turn - 1, to=turn):
        if isinstance(line, ConversationLine) and line.entry.id == node:
            return line
    return None


def _tools_around(store: Store, conversation: str | None, turn: int) -> dict[str, str]:
    tools: dict[str, str] = {}
    if conversation is not None:
        for line in store.conversations.entries(conversation, after=max(0, turn - _LOOK_BACK), to=turn):
            if isinstance(line, ConversationLine):
                tools |= called_tools(line.entry.message)
    return tools
