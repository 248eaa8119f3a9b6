"""What one message contributes to a summary, extracted once and remembered.

Sentences that state constraints, decisions and next steps; actions and their outcomes; the lines richest in entities.
Each message is read by itself, so its facts can be cached: a conversation that grew by a turn costs that turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from everlong.context.summary.actions import Action, Outcome, action_of, outcome_of
from everlong.context.summary.entities import entities
from everlong.context.summary.language import marks, sentences
from everlong.context.summary.text import clip, one_line
from everlong.model import Message, calls_of, text_of

SAID_LENGTH = 240
_SENTENCE_LENGTH = 260
_LINE_LENGTH = 220
_LOOK_AT = 16_000
"""Characters of a long text that are read: its beginning and its end."""

_LINES_PER_MESSAGE = {"user": 12, "assistant": 8, "tool": 6}
_CHARACTERS_PER_LINE = 700
_VALUE = re.compile(r"\d")
_SHORTEST_REQUIREMENT = 14
_LETTERS_IN_PROSE = 0.55
_LONGEST_REQUIREMENT = 400
_REQUIREMENTS_PER_MESSAGE = 8
_CACHE_SIZE = 200_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the original and the entities on it."""

    text: str
    entities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a message says, by kind."""

    role: str
    said: str = ""
    constraints: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    question: str = ""
    changes_mind: bool = False
    lines: tuple[Line, ...] = ()
    actions: tuple[tuple[str, str, Action], ...] = ()
    """Call id, tool name and what the call did."""
    outcome: Outcome | None = None
    call_id: str = ""


class FactsReader:
    """Reads messages and remembers what it read, by the message's own words."""

    def __init__(self) -> None:
        self._cache: dict[int, Facts] = {}

    def read(self, message: Message) -> Facts:
        """The facts of a message; read anew only if its words were never seen."""
        key = _fingerprint(message)
        facts = self._cache.get(key)
        if facts is None:
            if len(self._cache) >= _CACHE_SIZE:
                for old in list(self._cache)[: _CACHE_SIZE // 2]:
                    del self._cache[old]
            facts = self._cache[key] = read_facts(message)
        return facts

    def read_all(self, messages: Sequence[Message]) -> list[Facts]:
        """The facts of every message in order."""
        return [self.read(message) for message in messages]


def _fingerprint(message: Message) -> int:
    # A hash instead of the text itself, so that the cache keeps no conversation alive.
    return hash((message["role"], text_of(message), message.get("tool_call_id"), tuple(calls_of(message))))


def read_facts(message: Message) -> Facts:
    """The facts of one message."""
    text = _bounded(text_of(message))
    role = message["role"]
    if role == "tool":
        call_id = str(message.get("tool_call_id") or "")
        return Facts(role, outcome=outcome_of(text), call_id=call_id, lines=_best_lines(text, role))
    if role == "assistant":
        return _assistant_facts(message, text)
    found = sentences(text)
    told = [sentence for sentence in found if not sentence.endswith(("?", "？"))]
    questions = [sentence for sentence in found if sentence.endswith(("?", "？"))]
    return Facts(
        role,
        said=clip(one_line(text), SAID_LENGTH),
        constraints=_requirements(told),
        question=clip(one_line(questions[-1]), _SENTENCE_LENGTH) if questions else "",
        changes_mind=any(marks("change_of_mind", sentence) for sentence in found[:12]),
        lines=_best_lines("\n".join(found), role),
    )


def _requirements(told: Sequence[str]) -> tuple[str, ...]:
    """What a person demands or states as a fact: sentences that forbid or require, and those with exact values."""
    scored: list[tuple[float, int, str]] = []
    for place, sentence in enumerate(told):
        if not _SHORTEST_REQUIREMENT <= len(sentence) <= _LONGEST_REQUIREMENT or not _is_prose(sentence):
            continue
        values = len(set(entities(sentence))) + len(_VALUE.findall(sentence))
        worth = 2.0 * marks("constraint", sentence) + min(values, 3)
        if worth >= 1.0:
            scored.append((worth, place, clip(one_line(sentence), _SENTENCE_LENGTH)))
    best = sorted(scored, key=lambda entry: (-entry[0], entry[1]))[:_REQUIREMENTS_PER_MESSAGE]
    return tuple(text for _, _, text in sorted(best, key=lambda entry: entry[1]))


def _is_prose(text: str) -> bool:
    """Whether a person wrote this, rather than pasted it from a log or a program."""
    return sum(map(str.isalpha, text)) >= len(text) * _LETTERS_IN_PROSE


def _assistant_facts(message: Message, text: str) -> Facts:
    found = sentences(text)
    actions = tuple((call.id, call.name, action_of(call)) for call in calls_of(message))
    lines = [
        *_best_lines("\n".join(found), "assistant"),
        *_best_lines("\n".join(a.title for _, _, a in actions), "assistant"),
    ]
    return Facts(
        "assistant",
        said=clip(one_line(text), SAID_LENGTH),
        decisions=_marked("decision", found, 2),
        next_steps=_marked("next_step", found, 2),
        lines=tuple(lines),
        actions=actions,
    )


def _marked(kind: str, found: Sequence[str], most: int) -> tuple[str, ...]:
    chosen = [clip(one_line(s), _SENTENCE_LENGTH) for s in found if 8 <= len(s) <= 1_000 and marks(kind, s)]
    return tuple(chosen[:most])


def _bounded(text: str) -> str:
    return text if len(text) <= _LOOK_AT else f"{text[: _LOOK_AT * 2 // 3]}\n{text[-_LOOK_AT // 3 :]}"


def _best_lines(text: str, role: str) -> tuple[Line, ...]:
    """The lines of a text with the most entities for their length, in their order."""
    scored: list[tuple[float, int, Line]] = []
    for place, raw in enumerate(text.splitlines()):
        if len(raw) < 4:
            continue
        line = clip(raw.strip(), _LINE_LENGTH)
        names = tuple(dict.fromkeys(entities(line)))
        if names:
            scored.append((len(names) / (len(line) + 40), place, Line(line, names)))
    # A short result gets few lines, so that what is remembered stays well below what was said.
    per_line = _CHARACTERS_PER_LINE if role == "tool" else _CHARACTERS_PER_LINE // 5
    most = min(_LINES_PER_MESSAGE.get(role, 6), 1 + len(text) // per_line)
    if len(scored) > most:
        scored = sorted(sorted(scored, key=lambda entry: -entry[0])[:most], key=lambda entry: entry[1])
    return tuple(line for _, _, line in scored)
