"""First stage: old tool results are cleared and an oversized first exchange is shortened, without any model.

Works on lists that satisfy the invariants and returns new lists; which range is old is decided by the boundary stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from everlong.context.literals import CLEARED_RESULT
from everlong.context.shorten import TextCount, shorten_message
from everlong.model import Message, parts_of, text_of, with_content

MessageCount = Callable[[Message], int]

SHORTEST_RESULT = 48
"""Tokens below which a result that must shrink is not shortened further."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Messages with their token counts, and how many of them were changed."""

    messages: list[Message]
    counts: list[int]
    changed: int

    @property
    def tokens(self) -> int:
        """The tokens of all messages."""
        return sum(self.counts)


def clear_results(messages: Sequence[Message], counts: Sequence[int], min_chars: int, count: MessageCount) -> Pruned:
    """The messages with every tool result of more than ``min_chars`` characters replaced by a fixed text."""
    kept, sizes, changed = list(messages), list(counts), 0
    for index, message in enumerate(kept):
        if message["role"] != "tool" or not _is_long(message, min_chars):
            continue
        cleared = with_content(message, CLEARED_RESULT)
        tokens = count(cleared)
        if tokens < sizes[index]:  # two hundred spaces may be cheaper than the words that replace them
            kept[index], sizes[index] = cleared, tokens
            changed += 1
    return Pruned(kept, sizes, changed)


def _is_long(message: Message, min_chars: int) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        return len(content) > min_chars
    # A picture or a file in a result costs as much as a long text.
    return len(text_of(message)) > min_chars or any("text" not in part for part in parts_of(message))


def shorten_texts(
    pruned: Pruned, max_tokens: int, count: MessageCount, count_text: TextCount, spared: Set[int] = frozenset()
) -> Pruned:
    """Messages with their longest texts shortened until all fit, as far as texts can be; some may be spared."""
    messages, counts, changed = list(pruned.messages), list(pruned.counts), pruned.changed
    over = sum(counts) - max_tokens
    for index in sorted(range(len(messages)), key=lambda place: -counts[place]):
        if over <= 0:
            break
        if index in spared:
            continue
        message = messages[index]
        room = max(SHORTEST_RESULT, count_text(text_of(message)) - over)
        shortened = shorten_message(message, room, count_text)
        tokens = count(shortened)
        if tokens < counts[index]:
            over -= counts[index] - tokens
            messages[index], counts[index] = shortened, tokens
            changed += 1
    return Pruned(messages, counts, changed)


def shorten_results(pruned: Pruned, max_tokens: int, count: MessageCount, count_text: TextCount) -> Pruned:
    """Messages that are too large together, with their largest tool results shortened until they fit."""
    messages, counts, changed = list(pruned.messages), list(pruned.counts), pruned.changed
    over = sum(counts) - max_tokens
    if over <= 0:
        return pruned
    results = sorted((i for i in range(len(messages)) if messages[i]["role"] == "tool"), key=lambda at: -counts[at])
    left = sum(counts[index] for index in results)
    for position, index in enumerate(results):
        if over <= 0:
            break
        # Equal shares: the largest shrink to a common size instead of one vanishing altogether.
        share = (left - over) // (len(results) - position)
        left -= counts[index]
        frame = max(0, counts[index] - count_text(text_of(messages[index])))
        shortened = shorten_message(messages[index], max(SHORTEST_RESULT, share - frame), count_text)
        tokens = count(shortened)
        if tokens < counts[index]:
            over -= counts[index] - tokens
            messages[index], counts[index] = shortened, tokens
            changed += 1
    return Pruned(messages, counts, changed)


def least_tail_tokens(messages: Sequence[Message], counts: Sequence[int]) -> int:
    """What a tail costs when every tool result in it is as short as it gets."""
    frame = 40  # the message around a shortened text: ids, name, the mark of what was left out
    return sum(
        min(tokens, SHORTEST_RESULT + frame) if message["role"] == "tool" else tokens
        for message, tokens in zip(messages, counts, strict=True)
    )
