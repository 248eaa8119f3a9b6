"""Draws up the account of a finished compaction: every line of the original, in order, with what became of it.

Follows each message from the original through the repair into the result, by the plan that was carried out. What the
summary made of its turns is read from the notes on its choice.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from everlong.context.explain import ExplainedLine, Fate, Verdict
from everlong.context.literals import (
    CLEARED_RESULT,
    RULES_HEADING,
    SUMMARY_PREFIX,
    is_acknowledgement,
    is_summary,
    rules_block,
)
from everlong.context.recorder import Ended, Recorder
from everlong.context.rules import StandingRules, read_block
from everlong.context.summary.account import SummaryAccount, says
from everlong.context.summary.entities import entities
from everlong.context.summary.lines import structured
from everlong.context.summary.records import Told
from everlong.context.summary.text import one_line
from everlong.context.units import Unit, pieces_of, units_of
from everlong.model import Message, calls_of, text_of

_WORD = re.compile(r"[^\W_]+")


def explained_lines(original: Sequence[Message], recorder: Recorder) -> tuple[ExplainedLine, ...]:
    """The verdict on every line of a conversation that was compacted with this recorder."""
    if recorder.ended is None:
        raise ValueError("the recorder has seen no compaction")
    return tuple(_Account(original, recorder.ended, recorder).lines())


class _Account:
    """One compaction's account."""

    def __init__(self, original: Sequence[Message], ended: Ended, recorder: Recorder) -> None:
        self._original = original
        self._ended = ended
        self._recorder = recorder
        self._places = _places(original, ended.repaired)
        self._read: tuple[int, Sequence[Told]] = (-1, ())
        self._summary = None if ended.written is None else SummaryAccount(recorder.trace, ended.written)

    def lines(self) -> Iterator[ExplainedLine]:
        for index, message in enumerate(self._original):
            units = list(units_of(message))
            for unit, parts in zip(units, self._verdicts(self._places.get(index), message, units), strict=True):
                told = tuple(map(self._in_the_result, parts))
                yield ExplainedLine(index, message["role"], unit.line, unit.call, unit.text, told)

    def _verdicts(self, place: int | None, message: Message, units: list[Unit]) -> list[list[Verdict]]:
        """The verdicts on each line of a message."""
        if place is None:
            return _all(units, "dropped", "repair", _why_removed(message))
        plan = self._ended.plan
        if self._summary is None:
            return self._kept(place, place, units)
        if place < plan.head_end:
            return self._kept(place, place, units)
        if place >= plan.tail_start:
            return self._kept(place, len(self._ended.messages) - len(self._ended.repaired) + place, units)
        if plan.repeat_latest and place == self._ended.layout.latest_user:
            reason = "the latest request, repeated word for word after the summary"
            return _all(units, "kept", "latest request", reason)
        if place in self._ended.layout.inserted:
            return [[self._inserted(message, unit)] for unit in units]
        return [self._summarized(place, message["role"], unit) for unit in units]

    # -- messages that stay ----------------------------------------------------------------------------------------

    def _kept(self, place: int, result_place: int, units: list[Unit]) -> list[list[Verdict]]:
        """The verdicts on a message that stands in the result, perhaps changed."""
        rule, reason = self._why_kept(place)
        was, now = self._ended.repaired[place], self._ended.messages[result_place]
        if text_of(now).startswith(text_of(was)):  # the same, or with the note behind it
            return _all(units, "kept", rule, reason)
        if text_of(now) == CLEARED_RESULT:
            least = self._ended.prune_min_chars
            why = f"an old tool result of more than {least} characters: cleared"
            if len(text_of(was)) <= least or place >= self._ended.plan.tail_start:
                why = "a tool result for which no room was left: cleared"
            return [[self._of_changed(unit, "cleared", why, reason)] for unit in units]
        kept = _still_there([unit.text for unit in units if _is_own(unit)], text_of(now))
        why = f"left out of the middle of a message that had to be shortened ({reason})"
        verdicts: list[list[Verdict]] = []
        for unit in units:
            part = next(kept) if _is_own(unit) else ""
            if part and part != unit.text:
                stands = Verdict(part, "kept", "shortened", f"stays of a line that was cut ({reason})")
                verdicts.append([stands, Verdict(unit.text[len(part) :].strip(), "dropped", "shortened", why)])
            elif part:
                verdicts.append([Verdict(unit.text, "kept", rule, f"{reason}; the message was shortened around it")])
            else:
                verdicts.append([self._of_changed(unit, "shortened", why, reason)])
        return verdicts

    @staticmethod
    def _of_changed(unit: Unit, rule: str, why: str, reason: str) -> Verdict:
        """Of a message whose words were taken, calls and thinking stay."""
        if unit.call is not None or unit.text == "[thinking]":
            return Verdict(unit.text, "kept", "kept", reason)
        return Verdict(unit.text, "dropped", rule, why)

    def _why_kept(self, place: int) -> tuple[str, str]:
        ended = self._ended
        if place < ended.layout.system_end:
            return "system prompt", "the system prompt always stays"
        if place == ended.layout.latest_user:
            return "latest request", "the latest request always stays word for word"
        if self._summary is None:
            unchanged = ended.outcome == "unchanged"
            why = "nothing had to be compacted" if unchanged else "nothing was summarized, only old results cleared"
            return "unchanged", why
        if place < ended.plan.head_end:
            return "first exchange", "in the head: the first exchange is protected (protect_first_n)"
        return self._why_in_tail(place)

    def _why_in_tail(self, place: int) -> tuple[str, str]:
        limits, layout, size = self._ended.limits, self._ended.layout, len(self._ended.repaired)
        if place >= layout.pending_start:
            return "pending call", "in the tail: a call that still waits for its result always stays"
        if self._tokens_from[place] <= limits.tail:
            return "tail budget", f"in the tail: the newest messages, within its budget of {limits.tail:,} tokens"
        if size - place <= limits.keep_last:
            return "protected last", f"in the tail: one of the last {limits.keep_last} messages (protect_last_n)"
        return "tail group", "in the tail: part of a group of a call and its results, which is not parted"

    @cached_property
    def _tokens_from(self) -> list[int]:
        """The tokens of each message and all after it."""
        sums, total = [], 0
        for count in reversed(self._ended.counts):
            total += count
            sums.append(total)
        return sums[::-1]

    # -- messages that the summary stands for ----------------------------------------------------------------------

    def _summarized(self, place: int, role: str, unit: Unit) -> list[Verdict]:
        assert self._summary is not None  # noqa: S101 - only a summary has turns that it stands for
        if not unit.is_words:
            return [Verdict(unit.text, "dropped", "no words", "a summary holds words only")]
        turn = self._turns.get(place)
        if turn is None:
            reason = "not read: of a very long stretch the built-in summary reads an even choice of messages"
            found = self._summary.by_model(unit.text)
            return [found if found.fate != "dropped" else replace(found, rule="not read", reason=reason)]
        pieces = pieces_of(unit, role, self._records(place) if role == "tool" else ())
        if not pieces:
            return [Verdict(unit.text, "dropped", "names nothing", "of a record, it names keys only")]
        verdicts = (self._summary.verdict(turn, piece, is_argument=unit.call is not None) for piece in pieces)
        return [self._as_rule(verdict) if role == "user" else verdict for verdict in verdicts]

    def _as_rule(self, verdict: Verdict) -> Verdict:
        """The verdict on a user's words, or that they stand after the summary as a rule."""
        words = one_line(verdict.text)
        if not any(rule.text in words or words in rule.text for rule in self._rules.lines):
            return verdict
        reason = "a standing rule of the user, word for word after the summary"
        return Verdict(verdict.text, "quoted", "standing rule", reason, RULES_HEADING.rstrip(":"))

    def _records(self, place: int) -> Sequence[Told]:
        """The records as which a result was read, if it was."""
        if self._read[0] != place:
            self._read = (place, structured(self._ended.repaired[place]))
        return self._read[1]

    def _inserted(self, message: Message, unit: Unit) -> Verdict:
        assert self._summary is not None  # noqa: S101 - as above
        if is_acknowledgement(message):
            reason = "the acknowledgement of an earlier summary; a new one is put in where it is needed"
            return Verdict(unit.text, "dropped", "acknowledgement", reason)
        if unit.line == 1 and unit.text.startswith(SUMMARY_PREFIX[:20]):
            reason = "announces the earlier summary; the new one has its own first words"
            return Verdict(unit.text, "dropped", "announcement", reason)
        if unit.text.startswith(RULES_HEADING) or unit.text in rules_block(text_of(message)).split("\n"):
            carried = any(rule.render() == unit.text for rule in self._rules.lines)
            reason = (
                "a standing rule, carried over" if carried else "of the block of standing rules, which is made anew"
            )
            fate: Fate = "quoted" if carried else "dropped"
            return Verdict(unit.text, fate, "standing rule", reason)
        return self._summary.carried_over(unit.text)

    @cached_property
    def _rules(self) -> StandingRules:
        """The rules in the block after the summary."""
        said = (text_of(message) for message in self._ended.messages if is_summary(message))
        return read_block(next(said, ""))

    @cached_property
    def _turns(self) -> dict[int, int]:
        """For each repaired message that the summarizer read, which of its turns it was."""
        found: dict[int, int] = {}
        turns = self._recorder.trace.turns
        for place in range(self._ended.plan.head_end, self._ended.plan.tail_start):
            if len(found) < len(turns) and self._ended.repaired[place] is turns[len(found)]:
                found[place] = len(found)
        return found

    # -- words that are gone from their place, and stand elsewhere -------------------------------------------------

    def _in_the_result(self, verdict: Verdict) -> Verdict:
        """A dropped line's verdict, with where the very same words stand all the same, else which names are lost."""
        if verdict.fate != "dropped":
            return verdict
        # Most lines have a word that stands nowhere in the result, so that few are looked for.
        if self._words.issuperset(_WORD.findall(verdict.text)):
            also = next((place for place, text in enumerate(self._texts) if says(text, verdict.text)), None)
            if also is not None:
                return replace(verdict, also=also)
        lost = tuple(name for name in dict.fromkeys(entities(verdict.text)) if name not in self._names)
        return replace(verdict, lost=lost) if lost else verdict

    @cached_property
    def _names(self) -> set[str]:
        calls = (call.arguments for message in self._ended.messages for call in calls_of(message))
        return {name for text in (*self._texts, *calls) for name in entities(text)}

    @cached_property
    def _texts(self) -> list[str]:
        return [one_line(text_of(message)) for message in self._ended.messages]

    @cached_property
    def _words(self) -> set[str]:
        return {word for text in self._texts for word in _WORD.findall(text)}


def _all(units: list[Unit], fate: str, rule: str, reason: str) -> list[list[Verdict]]:
    return [[Verdict(unit.text, "kept" if fate == "kept" else "dropped", rule, reason)] for unit in units]


def _is_own(unit: Unit) -> bool:
    return unit.call is None and unit.is_words


def _why_removed(message: Message) -> str:
    if message["role"] == "tool":
        return "a result that answers no call: taken out when the list was mended"
    return "taken out when the list was mended"


def _still_there(lines: Sequence[str], now: str) -> Iterator[str]:
    """Of each line what a shortened text still has of it: all, its beginning or end at the cut, or nothing."""
    left = [line.strip() for line in now.splitlines() if line.strip()]
    front = 0
    while front < min(len(lines), len(left)) and lines[front] == left[front]:
        front += 1
    back = 0
    while back < min(len(lines), len(left)) - front and lines[-1 - back] == left[-1 - back]:
        back += 1
    for place, line in enumerate(lines):
        if place < front or place >= len(lines) - back:
            yield line
        elif place == front and front < len(left) and line.startswith(left[front]):
            yield left[front]
        else:
            yield ""


def _places(original: Sequence[Message], repaired: Sequence[Message]) -> dict[int, int]:
    """Where each message of the original stands in the repaired list; those that the repair took out are missing."""
    by_object: dict[int, deque[int]] = defaultdict(deque)
    for index, message in enumerate(original):
        by_object[id(message)].append(index)
    places: dict[int, int] = {}
    strange: list[int] = []
    for place, message in enumerate(repaired):
        if by_object.get(id(message)):
            places[by_object[id(message)].popleft()] = place
        else:
            strange.append(place)
    # A mended message is a copy of the one it came from, with the same words.
    by_words: dict[tuple[str, str], deque[int]] = defaultdict(deque)
    for index, message in enumerate(original):
        if index not in places:
            by_words[message["role"], text_of(message)].append(index)
    for place in strange:
        waiting = by_words.get((repaired[place]["role"], text_of(repaired[place])))
        if waiting:
            places[waiting.popleft()] = place
    return places
