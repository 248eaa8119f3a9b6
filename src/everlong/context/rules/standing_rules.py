"""The standing rules of a conversation: their origin, the block that carries them on, and their end.

They are read from the conversation itself, so that nothing else must be stored: from people's turns, project
instructions that a client put into one, edits made with ``/rules``, and the block after an earlier summary. Only a
person's turn makes a rule; tools, assistants and quotations never do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from everlong.context.literals import RULES_HEADING, is_summary, rules_block
from everlong.context.rules.detection import found_rules, read_sentences
from everlong.context.rules.prose import Kind
from everlong.context.rules.retraction import lifted_by, replaces, says_as_much
from everlong.context.text import one_line
from everlong.model import Message, read_message, text_of

Source = Literal["user", "project"]
_LINE = re.compile(r'^- "(?P<text>.*)" \((?P<project>project instructions, )?turn (?P<turn>\d+)\)$')
_LIFTED_LINE = re.compile(r'^- no longer in force: "(?P<text>.*)"$')
_IDS_LINE = re.compile(
    r"^- older rules, by id: (?P<ids>rule-[\da-f]{8}(?:, rule-[\da-f]{8})*)(?P<more> and \d+ more)?$"
)
_COUNT_LINE = re.compile(r"^\(The user's own words; (?P<turns>\d+) turns? so far\.\)$")
_SOURCE_LINE = re.compile(r"(?![-#*\s])[^\n]*[:：]$")
_SAYS_MORE = re.compile(r"(?:^|\W)(?!User\b|用户)[^\W\d_]{2,}|^\s*$")
_DOUBLE_SPACE = re.compile(r"(?<=\S) {2,}")
_ID_DIGITS = 8
_MOST_IDS = 40
_MOST_IN_FORCE = 400
"""The most rules that each new one is compared with; only pasted text has more."""
_EDIT_START = "<user_rules>\nEdited by the user with /rules:"
_EDIT_END = "</user_rules>"
_LONGEST_EDIT = 1_000
EDIT_ANSWER = "Noted. I keep to the rules as they stand now."
"""The assistant message after an edit, so that roles alternate."""
_PINNED_START = "[Pinned: kept word for word"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule in the user's own words."""

    text: str
    kind: Kind = "rule"
    turn: int = 0
    """The user's turn that made it, counted from 1."""
    source: Source = "user"

    @property
    def id(self) -> str:
        """The id by which a rule is looked up that no longer stands in the context word for word."""
        digest = hashlib.sha256(one_line(self.text).casefold().encode("utf-8", "surrogatepass")).hexdigest()
        return f"rule-{digest[:_ID_DIGITS]}"

    def render(self) -> str:
        """Return the rule as a line of the block."""
        origin = "project instructions, " if self.source == "project" else ""
        return f'- "{self.text}" ({origin}turn {self.turn})'


@dataclass(frozen=True, slots=True)
class StandingRules:
    """The rules in force at one point of a conversation."""

    lines: tuple[Rule, ...] = ()
    """The rules, oldest first."""
    lifted: tuple[str, ...] = ()
    """The texts of rules that were taken back or replaced."""
    older: tuple[str, ...] = ()
    """The ids of rules in force that an earlier block had no room for."""
    turns: int = 0
    """The number of the user's turns so far."""

    def render(self) -> str:
        """Return the block that follows a summary; empty if no rule is in force."""
        body = [
            *((_ids_line(self.older),) if self.older else ()),
            *(rule.render() for rule in self.lines),
            *(f'- no longer in force: "{text}"' for text in self.lifted),
        ]
        if not body:
            return ""
        count = f"(The user's own words; {self.turns} turn{'' if self.turns == 1 else 's'} so far.)"
        return "\n".join([RULES_HEADING, *body, count])

    def beside(self, before: Sequence[Message], after: Sequence[Message]) -> StandingRules:
        """Return the rules that the messages before and after the block do not state themselves.

        A rule that was taken back but stands in the messages before is named as no longer in force.
        """
        leading, following = (one_line("\n".join(map(_user_text, around))) for around in (before, after))
        lines = tuple(rule for rule in self.lines if rule.text not in leading and rule.text not in following)
        return replace(self, lines=lines, lifted=tuple(text for text in self.lifted if text in leading))

    def fit(self, room: int, count: Callable[[str], int]) -> StandingRules:
        """Return as many rules as fit; the others become ids, wishes before rules and the oldest first."""
        if count(self.render()) <= room:
            return self
        order = sorted(self.lines, key=lambda rule: (rule.kind == "rule" and rule.source == "user", rule.turn))
        dropped: set[str] = set()
        fitting = self
        for rule in order:
            dropped.add(rule.id)
            kept = tuple(one for one in self.lines if one.id not in dropped)
            gone = tuple(one.id for one in self.lines if one.id in dropped)
            fitting = replace(self, lines=kept, older=(*self.older, *gone))
            if count(fitting.render()) <= room:
                return fitting
        ids = fitting.older
        while ids and count(fitting.render()) > room:
            ids = ids[len(ids) // 2 + 1 :]
            fitting = replace(fitting, older=ids, lifted=())
        return fitting if ids else StandingRules(turns=self.turns)


def _ids_line(ids: Sequence[str]) -> str:
    shown = ids[-_MOST_IDS:]
    more = f" and {len(ids) - len(shown)} more" if len(ids) > len(shown) else ""
    return f"- older rules, by id: {', '.join(shown)}{more}"


def _user_text(message: Message) -> str:
    return text_of(message) if message.get("role") == "user" else ""


def standing_rules(messages: Sequence[Message], summaries: Sequence[int] = ()) -> StandingRules:
    """Return the rules in force at the end of a conversation; ``summaries`` are the indices of its summaries."""
    collector = _Collector()
    for place, message in enumerate(messages):
        if place in summaries:
            collector.carry_on(read_block(text_of(message)))
        elif message.get("role") == "user" and not is_summary(message) and not _repeats_pinned(message):
            collector.hear(message)
    return StandingRules(
        tuple(collector.rules),
        tuple(dict.fromkeys(collector.lifted)),
        tuple(dict.fromkeys(collector.older)),
        collector.turns,
    )


@dataclass
class _Collector:
    """The rules in force so far, while a conversation is read."""

    rules: list[Rule] = field(default_factory=list)
    lifted: list[str] = field(default_factory=list)
    older: list[str] = field(default_factory=list)
    turns: int = 0

    def carry_on(self, block: StandingRules) -> None:
        """Take in the block of an earlier compaction, which is newer than the messages before it."""
        self.rules = [rule for rule in self.rules if rule.text not in block.lifted]
        known = {rule.text for rule in self.rules}
        self.rules += [rule for rule in block.lines if rule.text not in known]
        self.lifted += block.lifted
        self.older += block.older
        self.turns = max(self.turns, block.turns)

    def hear(self, message: Message) -> None:
        """Take in one message of the user."""
        if edit := read_edit(message):
            added, removed = edit
            self._lift([at for at, rule in enumerate(self.rules) if rule.text in removed])
            for text in added:
                self._add(Rule(text, "rule", max(1, self.turns), "user"))
            return
        reading = read_message(message)
        if reading.typed and not reading.is_command:
            self.turns += 1
        for rule in found_rules(reading.rules, of_project=True) if reading.rules else ():
            self._add(Rule(rule.text, rule.kind, max(1, self.turns), "project"))
        for sentence in read_sentences(reading.typed):
            ended = lifted_by(sentence.text, [rule.text for rule in self.rules])
            self._lift(ended)
            if ended and not sentence.text.lower().lstrip().startswith("stop"):
                continue  # it only takes back
            for rule in sentence.rules:
                self._add(Rule(rule.text, rule.kind, self.turns, "user"))

    def _lift(self, places: Sequence[int]) -> None:
        self.lifted += [self.rules[place].text for place in places]
        self.rules = [rule for place, rule in enumerate(self.rules) if place not in places]

    def _add(self, rule: Rule) -> None:
        """Add a rule and lift those that it repeats or contradicts.

        Of wishes that say the same, the one that says more is kept.
        """
        self._lift([place for place, old in enumerate(self.rules) if replaces(rule.text, old.text)])
        if rule.kind == "preference":
            wishes = [old for old in self.rules if old.kind == "preference"]
            if any(says_as_much(old.text, rule.text) and not says_as_much(rule.text, old.text) for old in wishes):
                return
            said_again = {old.text for old in wishes if says_as_much(rule.text, old.text)}
            self.rules = [old for old in self.rules if old.kind != "preference" or old.text not in said_again]
        self.lifted = [text for text in self.lifted if text != rule.text]
        self.rules.append(rule)
        if len(self.rules) > _MOST_IN_FORCE:
            surplus = self.rules[:-_MOST_IN_FORCE]
            self.older += [old.id for old in surplus]
            self.rules = self.rules[len(surplus) :]


def _repeats_pinned(message: Message) -> bool:
    """Return whether a message only repeats pinned text, which makes no new rule."""
    return text_of(message).startswith(_PINNED_START)


def read_block(text: str) -> StandingRules:
    """Return the rules in an earlier compaction's block; none if the text has no block."""
    lines: list[Rule] = []
    lifted: list[str] = []
    older: list[str] = []
    turns = 0
    for line in rules_block(text).split("\n")[1:]:
        if match := _LINE.match(line):
            said = match["text"]
            kind: Kind = next((rule.kind for rule in found_rules(said)), "rule")
            lines.append(Rule(said, kind, int(match["turn"]), "project" if match["project"] else "user"))
        elif match := _LIFTED_LINE.match(line):
            lifted.append(match["text"])
        elif match := _IDS_LINE.match(line):
            older += match["ids"].split(", ")
        elif match := _COUNT_LINE.match(line):
            turns = int(match["turns"])
    return StandingRules(tuple(lines), tuple(lifted), tuple(older), turns)


def without_lifted(summary: str, lifted: Sequence[str], in_force: Sequence[str]) -> str:
    """Return a summary without the words of lifted rules; lines with nothing else are dropped."""
    gone = [text for text in lifted if not any(text in kept for kept in in_force)]
    if not any(text in summary for text in gone):
        return summary
    lines: list[str] = []
    for line in summary.split("\n"):
        rest = line
        for text in gone:
            rest = rest.replace(text, "")
        if rest == line:
            if not line.startswith("  "):
                _drop_empty_source(lines)
            lines.append(line)
        elif rest.strip() and _SAYS_MORE.search(rest):
            lines.append(_DOUBLE_SPACE.sub(" ", rest).rstrip())
    _drop_empty_source(lines)
    return "\n".join(lines)


def _drop_empty_source(lines: list[str]) -> None:
    """Remove the last line if it names a source without lines."""
    if lines and _SOURCE_LINE.match(lines[-1]):
        lines.pop()


def edit_message(added: Sequence[str] = (), removed: Sequence[str] = ()) -> Message:
    """Return the message by which a user edits the rules; it is stored with the conversation."""
    lines = [*(f"+ {one_line(text)}" for text in added), *(f"- {one_line(text)}" for text in removed)]
    return {"role": "user", "content": "\n".join([_EDIT_START, *lines, _EDIT_END])}


def read_edit(message: Message) -> tuple[list[str], list[str]] | None:
    """Return the rules that an edit adds and removes; None if a message is no edit."""
    text = text_of(message).strip()
    if not (text.startswith(_EDIT_START) and text.endswith(_EDIT_END)) or message.get("role") != "user":
        return None
    lines = text[len(_EDIT_START) : -len(_EDIT_END)].strip().split("\n")
    added = [line[2:].strip()[:_LONGEST_EDIT] for line in lines if line.startswith("+ ")]
    return added, [line[2:].strip() for line in lines if line.startswith("- ")]
