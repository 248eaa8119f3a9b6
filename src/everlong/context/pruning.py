"""The pruning of messages without a model: clearing old tool results, shortening results and texts.

Takes lists that satisfy the invariants and returns new ones. The caller decides which range is old.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from everlong.context.literals import CLEARED_RESULT
from everlong.context.text import TextCount, shorten_message
from everlong.model import Message, calls_of, has_reasoning, parts_of, text_of, with_content

MessageCount = Callable[[Message], int]

SHORTEST_RESULT = 12
"""The least tokens of a shortened result: enough for the words that say it was cleared."""
SHORTEST_TEXT = 48
"""The least tokens of a person's or a model's shortened text."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Messages with their token counts, and the number of changed ones."""

    messages: list[Message]
    counts: list[int]
    changed: int

    @property
    def tokens(self) -> int:
        """The tokens of all messages."""
        return sum(self.counts)


def clear_results(messages: Sequence[Message], counts: Sequence[int], min_chars: int, count: MessageCount) -> Pruned:
    """Replace every tool result of more than ``min_chars`` characters by a fixed text."""
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
    # An image or a file in a result costs as much as a long text.
    return len(text_of(message)) > min_chars or any("text" not in part for part in parts_of(message))


def shorten_texts(
    pruned: Pruned, max_tokens: int, count: MessageCount, count_text: TextCount, spared: Set[int] = frozenset()
) -> Pruned:
    """Shorten the longest texts until the messages fit, as far as possible; ``spared`` indices stay whole."""
    work = _Shortening(pruned, max_tokens, count, count_text)
    for index in sorted(range(len(work.messages)), key=lambda place: -work.counts[place]):
        if work.over <= 0:
            break
        if index not in spared:
            work.shorten(index, max(SHORTEST_TEXT, work.text_tokens(index) - work.over))
    return work.result()


def shorten_results(pruned: Pruned, max_tokens: int, count: MessageCount, count_text: TextCount) -> Pruned:
    """Shorten the largest tool results until the messages fit, as far as possible."""
    work = _Shortening(pruned, max_tokens, count, count_text)
    if work.over <= 0:
        return pruned
    results = [index for index, message in enumerate(work.messages) if message["role"] == "tool"]
    results.sort(key=lambda place: work.counts[place])
    room = sum(work.counts[index] for index in results) - work.over
    for position, index in enumerate(results):
        # The largest shrink to a common size; what the small ones do not need is theirs.
        size = min(work.counts[index], room // (len(results) - position))
        if size < work.counts[index]:
            frame = max(0, work.counts[index] - work.text_tokens(index))
            work.shorten(index, max(SHORTEST_RESULT, size - frame))
        room -= work.counts[index]
    return work.result()


class _Shortening:
    """Messages that are being shortened, and the tokens that they are still over the limit."""

    def __init__(self, pruned: Pruned, max_tokens: int, count: MessageCount, count_text: TextCount) -> None:
        self.messages, self.counts, self._changed = list(pruned.messages), list(pruned.counts), pruned.changed
        self.over = pruned.tokens - max_tokens
        self._count = count
        self._count_text = count_text

    def text_tokens(self, index: int) -> int:
        """Count the tokens of a message's text."""
        return self._count_text(text_of(self.messages[index]))

    def shorten(self, index: int, room: int) -> None:
        """Shorten a message's text to ``room`` tokens, if that makes the message smaller."""
        shortened = shorten_message(self.messages[index], room, self._count_text)
        saved = self.counts[index] - self._count(shortened)
        if saved > 0:
            self.over -= saved
            self.counts[index] -= saved
            self.messages[index] = shortened
            self._changed += 1

    def result(self) -> Pruned:
        """Return the messages as they are now."""
        return Pruned(self.messages, self.counts, self._changed)


def least_tail_tokens(messages: Sequence[Message], counts: Sequence[int]) -> int:
    """Return the size of a tail whose results, and then its answers, are as short as possible."""
    frame = 40  # the message around a shortened text: ids, name, the mark of the gap
    least = {"tool": SHORTEST_RESULT + frame, "assistant": SHORTEST_TEXT + frame}
    return sum(
        tokens if calls_of(message) or has_reasoning(message) else min(tokens, least.get(message["role"], tokens))
        for message, tokens in zip(messages, counts, strict=True)
    )
