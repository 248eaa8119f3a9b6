"""What one message contributes to a summary besides its own lines.

Sentences that state constraints, decisions and next steps; actions and their outcomes. Each message is read by itself,
so that its facts can be remembered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from everlong.context.literals import is_summary
from everlong.context.summary.actions import Action, Outcome, action_of, outcome_of
from everlong.context.summary.entities import entities
from everlong.context.summary.language import marks, sentences
from everlong.context.summary.takeback import TakenBack, taken_back
from everlong.context.summary.text import beginning, clip, one_line
from everlong.model import Message, calls_of, read_message, text_of

SAID_LENGTH = 240
_SENTENCE_LENGTH = 260
_LOOK_AT = 16_000
"""Characters of a long text that are read: its beginning and its end."""

_VALUE = re.compile(r"\d")
_NO_LETTER = re.compile(r"[\W\d_]+")
_NO_ASCII_LETTERS = bytes(byte for byte in range(128) if not chr(byte).isalpha())
_WIDE = re.compile(r"[^\u0000-\u2e7f]")
_SHORTEST_REQUIREMENT = 14
_LETTERS_IN_PROSE = 0.55
_NAMES_IN_PROSE = 0.5
_LONGEST_REQUIREMENT = 400
_REQUIREMENTS_PER_MESSAGE = 8
_MOST_VALUES = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """What a message says, by kind."""

    role: str
    said: str = ""
    constraints: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    """What the project's instructions demand, which a client sends along."""
    decisions: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    question: str = ""
    changes_mind: bool = False
    takes_back: tuple[TakenBack, ...] = ()
    offers: bool = False
    """Whether an assistant's message ends with a question."""
    actions: tuple[tuple[str, str, Action], ...] = ()
    """Call id, tool name and what the call did."""
    outcome: Outcome | None = None
    call_id: str = ""


def read_facts(message: Message) -> Facts:
    """The facts of one message."""
    role = message["role"]
    if role == "assistant":
        return _assistant_facts(message, _bounded(text_of(message)))
    if is_summary(message):  # it poses as a summary: said by the user, but no source of rules and requests
        return Facts(role, said=beginning(text_of(message), SAID_LENGTH))
    read = read_message(message)
    if role == "tool":
        call_id = str(message.get("tool_call_id") or "")
        rules = _requirements(sentences(_bounded(read.rules))) if read.rules else ()
        return Facts(role, outcome=outcome_of(_bounded(read.material)), call_id=call_id, rules=rules)
    text = _bounded(read.typed)
    found = sentences(text)
    told = [sentence for sentence in found if not sentence.endswith(("?", "？"))]
    questions = [sentence for sentence in found if sentence.endswith(("?", "？"))]
    return Facts(
        role,
        said=beginning(text, SAID_LENGTH),
        constraints=_requirements(told),
        rules=_requirements(sentences(_bounded(read.rules))) if read.rules else (),
        question=clip(one_line(questions[-1]), _SENTENCE_LENGTH) if questions else "",
        changes_mind=any(marks("change_of_mind", sentence) for sentence in found[:12]),
        takes_back=taken_back(text, found),
    )


def _requirements(told: Sequence[str]) -> tuple[str, ...]:
    """What a person demands or states as a fact: sentences that forbid or require, and those with exact values."""
    scored: list[tuple[float, int, str]] = []
    most_worthy = 0
    for place, sentence in enumerate(told):
        if most_worthy == _REQUIREMENTS_PER_MESSAGE:
            break  # none can be worth more, and of equals the first are chosen
        if not _SHORTEST_REQUIREMENT <= len(sentence) <= _LONGEST_REQUIREMENT or not _has_letters(sentence):
            continue
        names = entities(sentence)
        if not _is_prose(sentence, names):
            continue
        values = len(set(names)) + len(_VALUE.findall(sentence))
        worth = 2.0 * marks("constraint", sentence) + min(values, _MOST_VALUES)
        if worth >= 1.0:
            scored.append((worth, place, sentence))
            most_worthy += worth == 2.0 + _MOST_VALUES
    best = sorted(scored, key=lambda entry: (-entry[0], entry[1]))[:_REQUIREMENTS_PER_MESSAGE]
    return tuple(clip(one_line(text), _SENTENCE_LENGTH) for _, _, text in sorted(best, key=lambda entry: entry[1]))


def _has_letters(text: str) -> bool:
    letters = text.encode().translate(None, _NO_ASCII_LETTERS) if text.isascii() else _NO_LETTER.sub("", text)
    return len(letters) >= len(text) * _LETTERS_IN_PROSE


def _is_prose(text: str, names: Sequence[str]) -> bool:
    """Whether a person wrote this, rather than pasted it from a log or a program."""
    named = sum(map(len, names))
    if named <= len(text) * _NAMES_IN_PROSE:
        return True
    wide = len(_WIDE.findall(text))  # one such character says as much as two letters
    return named <= (len(text) + wide) * _NAMES_IN_PROSE


def _assistant_facts(message: Message, text: str) -> Facts:
    found = sentences(text)
    actions = tuple((call.id, call.name, action_of(call)) for call in calls_of(message))
    return Facts(
        "assistant",
        said=beginning(text, SAID_LENGTH),
        decisions=_marked("decision", text, found, 2),
        next_steps=_marked("next_step", text, found, 2),
        actions=actions,
        offers=text.rstrip().endswith(("?", "？")),
    )


def _marked(kind: str, text: str, found: Sequence[str], most: int) -> tuple[str, ...]:
    """The first sentences of a kind; most texts have none, which one look at all of it tells."""
    if not marks(kind, text):
        return ()
    chosen = (clip(one_line(s), _SENTENCE_LENGTH) for s in found if 8 <= len(s) <= 1_000 and marks(kind, s))
    return tuple(islice(chosen, most))


def _bounded(text: str) -> str:
    return text if len(text) <= _LOOK_AT else f"{text[: _LOOK_AT * 2 // 3]}\n{text[-_LOOK_AT // 3 :]}"
