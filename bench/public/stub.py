"""The model that every package gets: it copies the lines of the conversation that say most, within a limit.

It stands for a model that reads everything that it is given and never invents anything, so that what differs between
two packages is what they hand to their model, what they keep beside its answer, and what they do with the answer. It
needs nothing but the standard library: adapters run it in environments of their own.

A line counts for the names, paths and figures that no better line has, and for the words of a standing rule, per
length. Lines that are not in the conversation (a package's own instructions) are never copied.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import unescape
from typing import Any

__all__ = ["StubModel", "rough_tokens", "text_of"]

VERSION = 2
"""Changes with what the stub answers; the page names results of an earlier one."""
CHARS_PER_TOKEN = 3.6
LONGEST, SHORTEST = 400, 8
_RULE = re.compile(
    r"\b(?:always|never|must|should|don't|do not|only|prefer|avoid|make sure|instead of|from now on)\b", re.IGNORECASE
)
_NAME = re.compile(r"[\w./@:-]*[\d_/@][\w./@:-]*|[a-z]+[A-Z]\w*|\w+\.[a-z]{1,5}\b|[A-Z][a-z]+[A-Z]\w*|[A-Z]{2,}")
_SENTENCE = re.compile(r"(?<=[.!?。])\s+(?=[A-Z\"'(])|\n|\\n")
_LABEL = re.compile(r"^(?:[-*•]\s+|\d+\.\s+|\W{0,3}[A-Za-z][\w ()#-]{0,40}\W{0,3}:\s+)")
_TAGS = re.compile(r"^(?:<[^<>]+>\s*)+|(?:\s*<[^<>]+>)+$")
"""Tags around a line: some packages hand messages over as XML."""
_PROSE = re.compile(r"^[\w\"'(“][^{}<>;=|]*$")
RULE_WORTH = 2.0


def rough_tokens(text: str) -> int:
    """Return about how many tokens a text has, by its length."""
    return int(len(text) / CHARS_PER_TOKEN) + 1


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message in OpenAI's format."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def lines_of(text: str) -> list[str]:
    """Return the sentences and lines of a text that are long enough to say something, without bullets."""
    pieces = (" ".join(piece.split()) for piece in _SENTENCE.split(text))
    return [piece for piece in pieces if SHORTEST <= len(piece) <= LONGEST]


@dataclass
class StubModel:
    """A model that answers with lines of one conversation.

    Args:
        messages: the conversation; nothing else is ever copied.
        limit: the most tokens of an answer.
    """

    messages: Sequence[Mapping[str, Any]]
    limit: int
    calls: list[tuple[int, int]] = field(default_factory=list)
    """Tokens of each prompt and of its answer."""
    cpu: float = 0.0
    """CPU seconds of all answers, which are not the package's."""

    def answer(self, prompt: str, max_tokens: int | None = None) -> str:
        """Return the summary of a prompt."""
        start = time.process_time()
        limit = self.limit if max_tokens is None else min(self.limit, max_tokens)
        said = self._summary(prompt, limit) if limit > 0 else "None."
        self.calls.append((rough_tokens(prompt), rough_tokens(said)))
        self.cpu += time.process_time() - start
        return said

    def _summary(self, prompt: str, limit: int) -> str:
        lines = list(dict.fromkeys(self._own_lines(prompt)))
        if not lines:
            return "None."
        goal = next((line for line in lines if _PROSE.match(line) and len(line.split()) > 3), lines[0])
        room = limit - rough_tokens(goal) - 16
        rules, facts = self._chosen(lines, goal, room)
        parts = [("## Goal", [goal]), ("## Constraints & Preferences", rules), ("## Critical Context", facts)]
        return "\n".join("\n".join([title, *(f"- {line}" for line in held)]) for title, held in parts if held)

    def _own_lines(self, prompt: str) -> Iterable[str]:
        known = self._known
        for line in lines_of(prompt):
            bare = " ".join(unescape(_TAGS.sub("", line)).split())
            rest = next((one for one in (line, _LABEL.sub("", line), bare, _LABEL.sub("", bare)) if one in known), None)
            if rest is not None:
                yield rest

    @cached_property
    def _known(self) -> set[str]:
        """The lines of the conversation, with and without bullets and labels."""
        lines = {line for message in self.messages for text in _said(message) for line in lines_of(text)}
        return lines | {_LABEL.sub("", line) for line in lines}

    def _chosen(self, lines: Sequence[str], goal: str, room: int) -> tuple[list[str], list[str]]:
        """Return the lines worth most for their length: rules of people, and the others, each in their order."""
        names = [set(_NAME.findall(line)) for line in lines]
        is_rule = [bool(_PROSE.match(line) and _RULE.search(line)) for line in lines]
        worth = [
            (len(named) + RULE_WORTH * rule) / (len(line) + 40)
            for line, named, rule in zip(lines, names, is_rule, strict=True)
        ]
        known: set[str] = set()
        chosen: list[int] = []
        for place in sorted(range(len(lines)), key=lambda place: (-worth[place], -place)):
            if lines[place] == goal or not (names[place] - known or is_rule[place]):
                continue
            cost = rough_tokens(lines[place]) + 1
            if cost <= room:
                room -= cost
                known |= names[place]
                chosen.append(place)
        chosen.sort()
        return [lines[place] for place in chosen if is_rule[place]], [
            lines[place] for place in chosen if not is_rule[place]
        ]


def _said(message: Mapping[str, Any]) -> Iterable[str]:
    yield text_of(message)
    for call in message.get("tool_calls") or ():
        yield str((call.get("function") or {}).get("arguments") or "")
