"""The standing rules of a conversation: their origin, the block that carries them on, and their end.

They are read from the conversation itself, so that nothing else must be stored: from what a person typed, from edits
made with ``/rules``, and from the block at the end of an earlier compaction's summary. Tools, files, assistants and the
words of a summary never make one.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from everlong.context.literals import NO_RULES, RULES_HEADING, is_summary, rules_block
from everlong.context.rule_wording import is_rule, sentences, taken_back
from everlong.context.text import one_line
from everlong.model import ADDED, EPHEMERAL, Message, parts_of, text_of, typed_words

_LINE = re.compile(
    r'- "(?P<text>.*)" \(turn (?P<turn>\d{1,9})\)|- older rules, by id: (?P<ids>rule-[\da-f]{8}(?:, rule-[\da-f]{8})*)'
    r"(?: and \d+ more)?|\(The user's own words\. Turns behind this summary: (?P<turns>\d{1,9})\.\)"
)
_MOST_IDS = 40
_EDIT_START = "<user_rules>\nEdited by the user with /rules:"
_EDIT_END = "</user_rules>"
EDIT_ANSWER = "Noted. I keep to the rules as they stand now."
"""The assistant message after an edit, so that roles alternate."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule in the user's own words."""

    text: str
    turn: int = 0
    """The user's turn that made it, counted from 1."""

    @property
    def id(self) -> str:
        """The id by which a rule is looked up that no longer stands in the context word for word."""
        return f"rule-{hashlib.sha256(self.text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"

    def render(self) -> str:
        """Return the rule as a line of the block."""
        return f'- "{self.text}" (turn {self.turn})'


@dataclass(frozen=True, slots=True)
class StandingRules:
    """The rules in force at one point of a conversation."""

    lines: tuple[Rule, ...] = ()
    """The rules, oldest first."""
    older: tuple[str, ...] = ()
    """The ids of rules in force that an earlier block had no room for."""
    turns: int = 0
    """The number of the user's turns so far."""

    def render(self) -> str:
        """Return the block that follows a summary, also without a rule, so that no other text can take its place."""
        shown, more = self.older[-_MOST_IDS:], len(self.older) - _MOST_IDS
        ids = f"- older rules, by id: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
        body = [*((ids,) if shown else ()), *(rule.render() for rule in self.lines)]
        count = f"(The user's own words. Turns behind this summary: {self.turns}.)"
        return "\n".join([RULES_HEADING, *(body or [NO_RULES]), count])

    def beside(self, after: Sequence[Message]) -> StandingRules:
        """Return the rules, and the turns, that the messages after the block do not state themselves."""
        following = standing_rules(after)
        stated = {rule.text for rule in following.lines}
        lines = tuple(rule for rule in self.lines if rule.text not in stated)
        return replace(self, lines=lines, turns=max(0, self.turns - following.turns))

    def fit(self, room: int, count: Callable[[str], int]) -> StandingRules:
        """Return the newest rules that fit the room; the older ones become ids, as many as fit."""

        def newest(number: int) -> StandingRules:
            gone = self.lines[: len(self.lines) - number]
            return replace(self, lines=self.lines[len(gone) :], older=(*self.older, *(rule.id for rule in gone)))

        if count(self.render()) <= room:
            return self
        number = bisect_right(range(len(self.lines)), room, key=lambda number: count(newest(number).render()))
        fitting = newest(max(0, number - 1))
        while fitting.older and count(fitting.render()) > room:
            fitting = replace(fitting, older=fitting.older[len(fitting.older) // 2 + 1 :])
        return fitting


def standing_rules(messages: Sequence[Message], summaries: Sequence[int] = ()) -> StandingRules:
    """Return the rules in force at the end of a conversation; ``summaries`` are the indices of its summaries.

    The block of a summary tells all rules in force at its place. A new rule replaces no other; the same sentence stands
    once, at its newest place. Where messages of role user name several speakers, as where agents talk to one another,
    only the first speaker and messages without a name lay down rules.
    """
    rules: dict[str, int] = {}
    older: tuple[str, ...] = ()
    turns = 0
    speakers: list[object] = [None]
    for place, message in enumerate(messages):
        if place in summaries:
            if block := read_block(message):
                rules, older, turns = {rule.text: rule.turn for rule in block.lines}, block.older, block.turns
        elif message.get("role") != "user" or is_summary(message):
            continue
        elif edit := read_edit(message):
            rules = {text: turn for text, turn in rules.items() if one_line(text) not in edit[1]}
            rules.update(dict.fromkeys(edit[0], max(1, turns)))
        elif typed := typed_words(message):
            turns += 1
            speakers += [] if speakers[1:] else [message.get("name")]
            if message.get("name") in speakers:
                _hear(typed, rules, turns)
    return StandingRules(tuple(Rule(*rule) for rule in rules.items()), older, turns)


def _hear(typed: str, rules: dict[str, int], turn: int) -> None:
    """Add the rules of a text and remove those that it takes back."""
    for said, plain in sentences(typed):
        if ended := taken_back(plain, list(rules)):
            del rules[ended]
        elif is_rule(plain):
            rules.pop(said, None)
            rules[said] = turn


def read_block(message: Message) -> StandingRules | None:
    """Return the rules in the block after a summary; None if there is none."""
    block = rules_block(message)
    if not block:
        return None
    lines: list[Rule] = []
    older: tuple[str, ...] = ()
    turns = 0
    for found in filter(None, map(_LINE.fullmatch, block.split("\n"))):
        if found["turn"]:
            lines.append(Rule(found["text"], int(found["turn"])))
        elif found["ids"]:
            older = tuple(found["ids"].split(", "))
        else:
            turns = int(found["turns"])
    return StandingRules(tuple(lines), older, turns)


def edit_message(added: Sequence[str] = (), removed: Sequence[str] = ()) -> Message:
    """Return the message by which a user edits the rules; it is stored with the conversation."""
    lines = [*(f"+ {one_line(text)}" for text in added), *(f"- {one_line(text)}" for text in removed)]
    return {"role": "user", "content": "\n".join([_EDIT_START, *lines, _EDIT_END])}


def read_edit(message: Message) -> tuple[list[str], list[str]] | None:
    """Return the rules that an edit adds and removes; None if a message is no edit: a client's additions make none."""
    text = text_of(message).strip()
    if any(part.get(ADDED) or part.get(EPHEMERAL) for part in parts_of(message)):
        return None
    if not (text.startswith(_EDIT_START) and text.endswith(_EDIT_END)) or message.get("role") != "user":
        return None
    lines = text[len(_EDIT_START) : -len(_EDIT_END)].strip().split("\n")
    added, removed = ([line[2:].strip() for line in lines if line.startswith(sign)] for sign in ("+ ", "- "))
    return added, removed
