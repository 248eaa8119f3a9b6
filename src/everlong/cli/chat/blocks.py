"""Markdown that is still being written, cut where a part of it is complete.

A paragraph, a list, a table or a fenced block is handed on as soon as it cannot change any more, so that what is shown
is never shown again in another way. Pure text; knows no terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MarkdownBlocks"]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class MarkdownBlocks:
    """Collects words as they come and gives back whole blocks."""

    def __init__(self) -> None:
        self._line = ""
        self._block: list[str] = []
        self._fence = ""

    @property
    def pending(self) -> str:
        """What has come and is not complete yet."""
        return "\n".join([*self._block, self._line]) if self._line or self._block else ""

    def add(self, text: str) -> Iterator[str]:
        """Take in more words; the blocks that they complete."""
        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            yield from self._add_line(line.removesuffix("\r"))

    def end(self) -> Iterator[str]:
        """The end of the text; what is left of it."""
        if self._line:
            line, self._line = self._line, ""
            yield from self._add_line(line)
        yield from self._taken()
        self._fence = ""

    def drop(self) -> None:
        """Forget what has come and was not handed on."""
        self._line, self._block, self._fence = "", [], ""

    def _add_line(self, line: str) -> Iterator[str]:
        fence = _FENCE.match(line)
        if self._fence:
            self._block.append(line)
            if fence and fence[1].startswith(self._fence) and not line[fence.end() :].strip():
                self._fence = ""
                yield from self._taken()
            return
        if fence:
            yield from self._taken()
            self._fence = fence[1]
            self._block.append(line)
        elif line.strip():
            self._block.append(line)
        elif self._block and not _is_list(self._block[-1]):
            yield from self._taken()
        elif self._block:
            self._block.append(line)  # a list may go on after an empty line
            if len(self._block) > 1 and not self._block[-2].strip():
                yield from self._taken()

    def _taken(self) -> Iterator[str]:
        block, self._block = "\n".join(self._block).strip("\n"), []
        if block.strip():
            yield block


def _is_list(line: str) -> bool:
    return bool(re.match(r"\s*([-*+]|\d+[.)])\s|\s{2,}\S", line))
