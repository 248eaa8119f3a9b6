"""Tokens by tool and by file: what the calls and results of a conversation take up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from everlong.model import Message, ToolCall, calls_of, find_groups
from everlong.store.conversations import ConversationLine
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.store import Conversation, Store

__all__ = ["TokenShare", "ToolsPage", "path_of", "read_tools", "share_tokens"]

TURNS = 2_000
"""Turns that are looked at, newest first."""
_MOST = 15
_PATHS = ("path", "file_path", "filePath", "filename", "file", "filepath", "target_file", "notebook_path")


class TokenShare(NamedTuple):
    """The tokens of the calls that have something in common, and of their results."""

    name: str
    calls: int
    call_tokens: int
    result_tokens: int

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.call_tokens + self.result_tokens


class ToolsPage(NamedTuple):
    """The largest tools and files of a conversation, and the tokens of all its messages."""

    tools: Sequence[TokenShare]
    files: Sequence[TokenShare]
    tokens: int
    is_cut: bool


def share_tokens(
    messages: Sequence[Message], counts: Sequence[int], counter: MessageCounter, name_of: Callable[[ToolCall], str]
) -> list[TokenShare]:
    """Return what calls and their results take up by the name of each call, largest first; calls without one do not."""
    calls: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    given: Counter[str] = Counter()
    for group in find_groups(messages).groups:
        names = {call.id: name_of(call) for call in calls_of(messages[group.start])}
        for call in calls_of(messages[group.start]):
            calls[names[call.id]] += 1
            asked[names[call.id]] += counter.count_text(call.arguments)
        for answer in group.answers:
            given[names.get(answer.call_id, "?")] += counts[answer.at]
    found = [TokenShare(name, calls[name], asked[name], given[name]) for name in calls if name]
    return sorted(found, key=lambda one: -one.tokens)


def path_of(call: ToolCall) -> str:
    """Return the file that a call names; empty if it names none."""
    try:
        told = json.loads(call.arguments)
    except ValueError:
        return ""
    values = [told.get(name) for name in _PATHS] if isinstance(told, dict) else []
    return next((value for value in values if isinstance(value, str)), "")


def read_tools(store: Store, found: Conversation) -> ToolsPage:
    """Return what the tools and files of a conversation's newest turns take up."""
    length = sum(max(0, run.high - run.low) for run in store.conversations.path(found.id).runs)
    lines = [
        line.entry
        for line in store.conversations.entries(found.id, after=max(0, length - TURNS))
        if isinstance(line, ConversationLine) and line.status is None
    ]
    messages = [entry.message for entry in lines]
    counter = MessageCounter(counter_for((found.model or "").rpartition(":")[2]))
    counts = counter.counts(messages)
    tools = share_tokens(messages, counts, counter, lambda call: call.name)
    files = share_tokens(messages, counts, counter, path_of)
    return ToolsPage(tools[:_MOST], files[:_MOST], sum(counts), is_cut=length > TURNS)
