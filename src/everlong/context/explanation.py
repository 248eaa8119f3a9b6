"""The explanation of a compaction: for each line of the conversation, why it was kept or dropped.

`ContextCompressor.explain` compacts with a `CompactionRecord` and returns an `Explanation`. Its lines come from
`explain_lines`: `_ConversationAccount` judges the messages that stay, are cleared or are shortened, `_SummaryAccount`
the words of the messages that the summary replaces. The decisions are made in `boundary`, `pruning` and
`summary.selection`. Only a compaction made for this purpose can be explained; stored ones have their report.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

from everlong.context.compaction import CompactionEnd, CompactionRecord
from everlong.context.literals import (
    CLEARED_RESULT,
    RULES_HEADING,
    SUMMARY_PREFIX,
    is_acknowledgement,
    is_summary,
    rules_block,
)
from everlong.context.report import CompactionReport
from everlong.context.rules import StandingRules, read_block
from everlong.context.summarize import WrittenSummary
from everlong.context.summary.clauses import clauses
from everlong.context.summary.digest import without_control_words
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.extractive import ExtractiveSummarizer
from everlong.context.summary.key_lines import KeyedLine, argument_texts, cut_lines, raw_lines, structured
from everlong.context.summary.language import sentences
from everlong.context.summary.outline import Candidate
from everlong.context.summary.trace import EARLIER, SummaryPlace, TraceNote, TraceRecording
from everlong.context.text import one_line
from everlong.model import Message, calls_of, is_image, is_reasoning, part_text, parts_of, read_message, text_of

Fate = Literal["kept", "quoted", "told", "partly", "unclear", "dropped"]
"""The fate of a line.

kept: it stands in its place. quoted: the summary has its words. told: the summary names all that it names.
partly: its parts fared differently. unclear: a model wrote the summary, and nothing tells whether it is in there.
dropped: it is gone.
"""
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of some words, and the reason.

    >>> explained = ContextCompressor(16_000).explain(messages)
    >>> verdict: Verdict = explained.lines[-1].parts[0]
    >>> verdict.fate
    'kept'
    """

    text: str
    fate: Fate
    rule: str
    """The reason in a word or two that does not change, for programs."""
    reason: str
    """The reason in a sentence, for people."""
    section: str | None = None
    """The heading of the summary that the words, or others for them, stand under."""
    item: str | None = None
    """The summary's item that says it."""
    names: tuple[str, ...] = ()
    """The names, paths, numbers and ids that the words brought into the summary."""
    also: int | None = None
    """For dropped words, the first message of the result that has the very same words."""
    lost: tuple[str, ...] = ()
    """For dropped words, the names in them that the result has nowhere."""


@dataclass(frozen=True, slots=True)
class ExplainedLine:
    """One line of the original conversation with the verdict on it.

    >>> explained = ContextCompressor(16_000).explain(messages)
    >>> line: ExplainedLine = explained.lines[-1]
    >>> line.role, [part.fate for part in line.parts]
    ('assistant', ['kept'])
    """

    message: int
    """The index of its message in the conversation, from 0."""
    role: str
    line: int
    """Its number in the message, from 1; lines of a call's arguments follow those of the text."""
    call: str | None
    """The tool whose call it belongs to; None for the message's own words."""
    text: str
    parts: tuple[Verdict, ...]
    """One verdict, or one for each sentence or piece that was judged by itself."""

    @property
    def fate(self) -> Fate:
        """The fate of the line; ``partly`` if its parts fared differently."""
        fates = {part.fate for part in self.parts}
        return fates.pop() if len(fates) == 1 else "partly"

    @property
    def reason(self) -> str:
        """The reason in a sentence; for several parts, the different reasons in their order."""
        return "; ".join(dict.fromkeys(part.reason for part in self.parts))

    def to_dict(self) -> dict[str, Any]:
        """Return the line as JSON-ready data."""
        return {**asdict(self), "fate": self.fate, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A compaction with a verdict on every line that is not blank.

    >>> explained: Explanation = ContextCompressor(16_000).explain(messages)
    >>> len(explained.messages) < len(messages) and len(explained.lines) >= len(messages)
    True
    """

    messages: list[Message]
    """The compacted conversation."""
    report: CompactionReport
    lines: tuple[ExplainedLine, ...]

    @property
    def fates(self) -> dict[Fate, int]:
        """The number of lines by fate, without zeros."""
        counted = Counter(line.fate for line in self.lines)
        return {fate: counted[fate] for fate in FATES if counted[fate]}

    def about(self, text: str) -> Explanation:
        """Return the explanation of the lines that contain a text in any case."""
        wanted = text.casefold()
        found = tuple(line for line in self.lines if wanted in line.text.casefold())
        return Explanation(self.messages, self.report, found)

    def by_message(self) -> Iterator[tuple[int, list[ExplainedLine]]]:
        """Yield the index and the lines of each message that has any."""
        for index, lines in groupby(self.lines, key=lambda line: line.message):
            yield index, list(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the fates and lines as JSON-ready data, without the messages and the report."""
        return {"fates": self.fates, "lines": [line.to_dict() for line in self.lines]}


_RULES = {
    "Goal": ("goal", "what the conversation set out to do"),
    "Constraints & Preferences": ("requirement", "a rule or an exact fact that the user stated"),
    "In Progress": ("under way", "what was under way when the summarized turns ended"),
    "Blocked": ("blocked", "what failed and was not mended"),
    "Key Decisions": ("decision", "a decision or the reason for one"),
    "Resolved Questions": ("question", "a question of the user's and its answer"),
    "Pending User Asks": ("request", "the request in force"),
    "Relevant Files": ("file", "a file that was read or changed"),
    "Next Steps": ("next step", "a next step that was named near the end"),
    "Critical Context": ("memory", "given along as something to keep"),
    "Tools & Patterns": ("tool", "a tool that was used"),
}
_DONE = {"user": ("request", "one of the user's requests"), "tool": ("action", "how an action came out")}
_SPEAKERS = {
    "Goal": ("user",),
    "Pending User Asks": ("user",),
    "In Progress": ("assistant",),
    "Resolved Questions": ("user", "assistant"),
}
"""The speakers whose words can be in items that belong to no single turn."""
_FILE = re.compile(r"- `(.+?)`")
_BEGINNING = 24
"""Characters by which words that were cut short are recognized."""
_TELLING = 12
"""Characters from which on equal words count as the same words anywhere."""
_MOST_NAMED = 6
_WORD = re.compile(r"[^\W_]+")


def explain_lines(original: Sequence[Message], recorder: CompactionRecord) -> tuple[ExplainedLine, ...]:
    """Return the verdict on every line of a conversation that was compacted with this recorder."""
    if recorder.ended is None:
        raise ValueError("the recorder has seen no compaction")
    return tuple(_ConversationAccount(original, recorder.ended, recorder).lines())


class _ConversationAccount:
    """The verdicts on all lines of one compacted conversation."""

    def __init__(self, original: Sequence[Message], ended: CompactionEnd, recorder: CompactionRecord) -> None:
        self._original = original
        self._ended = ended
        self._recorder = recorder
        self._places = _places(original, ended.repaired)
        self._read: tuple[int, Sequence[KeyedLine]] = (-1, ())
        self._summary = None if ended.written is None else _SummaryAccount(recorder.trace, ended.written)

    def lines(self) -> Iterator[ExplainedLine]:
        for index, message in enumerate(self._original):
            units = list(source_lines(message))
            for unit, parts in zip(units, self._judge_message(self._places.get(index), message, units), strict=True):
                verdicts = tuple(map(self._note_loss, parts))
                yield ExplainedLine(index, message["role"], unit.line, unit.call, unit.text, verdicts)

    def _judge_message(self, place: int | None, message: Message, units: list[SourceLine]) -> list[list[Verdict]]:
        """Return the verdicts on each line of a message."""
        if place is None:
            return _same_verdicts(units, "dropped", "repair", _why_removed(message))
        plan = self._ended.plan
        if self._summary is None or place < plan.head_end:
            return self._judge_kept(place, place, units)
        if place >= plan.tail_start:
            return self._judge_kept(place, len(self._ended.messages) - len(self._ended.repaired) + place, units)
        if plan.repeat_latest and place == self._ended.layout.latest_user:
            reason = "the latest request, repeated word for word after the summary"
            return _same_verdicts(units, "kept", "latest request", reason)
        if place in self._ended.layout.inserted:
            return [[self._judge_inserted(message, unit)] for unit in units]
        return [self._judge_summarized(place, message["role"], unit) for unit in units]

    # -- messages that stay ----------------------------------------------------------------------------------------

    def _judge_kept(self, place: int, result_place: int, units: list[SourceLine]) -> list[list[Verdict]]:
        """Return the verdicts on a message that stands in the result, perhaps changed."""
        rule, reason = self._why_kept(place)
        was, now = self._ended.repaired[place], self._ended.messages[result_place]
        if text_of(now).startswith(text_of(was)):  # the same, or with the note behind it
            return _same_verdicts(units, "kept", rule, reason)
        if text_of(now) == CLEARED_RESULT:
            least = self._ended.prune_min_chars
            why = f"an old tool result of more than {least} characters: cleared"
            if len(text_of(was)) <= least or place >= self._ended.plan.tail_start:
                why = "a tool result for which no room was left: cleared"
            return [[self._judge_changed(unit, "cleared", why, reason)] for unit in units]
        kept = _still_there([unit.text for unit in units if _is_own(unit)], text_of(now))
        why = f"left out of the middle of a message that had to be shortened ({reason})"
        verdicts: list[list[Verdict]] = []
        for unit in units:
            part = next(kept) if _is_own(unit) else ""
            if part and part != unit.text:
                stands = Verdict(part, "kept", "shortened", f"the rest of a line that was cut ({reason})")
                verdicts.append([stands, Verdict(unit.text[len(part) :].strip(), "dropped", "shortened", why)])
            elif part:
                verdicts.append([Verdict(unit.text, "kept", rule, f"{reason}; the message was shortened around it")])
            else:
                verdicts.append([self._judge_changed(unit, "shortened", why, reason)])
        return verdicts

    @staticmethod
    def _judge_changed(unit: SourceLine, rule: str, why: str, reason: str) -> Verdict:
        """Return the verdict on a line of a changed message; calls and thinking stay."""
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
        return "tail group", "in the tail: part of a group of a call and its results, which is never split"

    @cached_property
    def _tokens_from(self) -> list[int]:
        """The tokens of each message and all after it."""
        sums, total = [], 0
        for count in reversed(self._ended.counts):
            total += count
            sums.append(total)
        return sums[::-1]

    # -- messages that the summary replaces ------------------------------------------------------------------------

    def _judge_summarized(self, place: int, role: str, unit: SourceLine) -> list[Verdict]:
        assert self._summary is not None  # noqa: S101 - only a summary has turns that it stands for
        if not unit.is_words:
            return [Verdict(unit.text, "dropped", "no words", "a summary holds words only")]
        turn = self._turns.get(place)
        if turn is None:
            found = self._summary.judge_by_model(unit.text)
            if found.fate != "dropped" or self._summary.is_by_model:
                return [found]
            reason = "not read: the built-in summary reads only a sample of the messages of a very long conversation"
            return [replace(found, rule="not read", reason=reason)]
        pieces = _split_pieces(unit, role, self._records(place) if role == "tool" else ())
        if not pieces:
            return [Verdict(unit.text, "dropped", "names nothing", "names only the keys of a record")]
        verdicts = (self._summary.judge(turn, piece, is_argument=unit.call is not None) for piece in pieces)
        return [self._judge_rule(verdict) if role == "user" else verdict for verdict in verdicts]

    def _judge_rule(self, verdict: Verdict) -> Verdict:
        """Return the verdict on a user's words, or that they stand after the summary as a standing rule."""
        words = one_line(verdict.text)
        if not any(rule.text in words or words in rule.text for rule in self._rules.lines):
            return verdict
        reason = "a standing rule of the user, word for word after the summary"
        return Verdict(verdict.text, "quoted", "standing rule", reason, RULES_HEADING.rstrip(":"))

    def _records(self, place: int) -> Sequence[KeyedLine]:
        """Return the records that a result was read as, if any."""
        if self._read[0] != place:
            self._read = (place, structured(self._ended.repaired[place]))
        return self._read[1]

    def _judge_inserted(self, message: Message, unit: SourceLine) -> Verdict:
        assert self._summary is not None  # noqa: S101 - as above
        if is_acknowledgement(message):
            reason = "the acknowledgement of an earlier summary; a new one is inserted if it is needed"
            return Verdict(unit.text, "dropped", "acknowledgement", reason)
        if unit.line == 1 and unit.text.startswith(SUMMARY_PREFIX[:20]):
            reason = "announces the earlier summary; the new one has its own first words"
            return Verdict(unit.text, "dropped", "announcement", reason)
        if unit.text.startswith(RULES_HEADING) or unit.text in rules_block(message).split("\n"):
            carried = any(rule.render() == unit.text for rule in self._rules.lines)
            reason = (
                "a standing rule, carried over" if carried else "of the block of standing rules, which is made anew"
            )
            fate: Fate = "quoted" if carried else "dropped"
            return Verdict(unit.text, fate, "standing rule", reason)
        return self._summary.judge_earlier(unit.text)

    @cached_property
    def _rules(self) -> StandingRules:
        """The rules in the block after the summary."""
        summary = next(filter(is_summary, self._ended.messages), None)
        return (summary and read_block(summary)) or StandingRules()

    @cached_property
    def _turns(self) -> dict[int, int]:
        """The turn number of each repaired message that the summarizer read."""
        found: dict[int, int] = {}
        turns = self._recorder.trace.turns
        for place in range(self._ended.plan.head_end, self._ended.plan.tail_start):
            if len(found) < len(turns) and self._ended.repaired[place] is turns[len(found)]:
                found[place] = len(found)
        return found

    # -- dropped words that stand elsewhere ------------------------------------------------------------------------

    def _note_loss(self, verdict: Verdict) -> Verdict:
        """Add to a dropped line's verdict the message that has the same words, else the names that are lost."""
        if verdict.fate != "dropped":
            return verdict
        # Most lines have a word that the result lacks, so few need the slow search.
        if self._words.issuperset(_WORD.findall(verdict.text)):
            also = next((place for place, text in enumerate(self._texts) if _has_words(text, verdict.text)), None)
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


def _same_verdicts(units: list[SourceLine], fate: str, rule: str, reason: str) -> list[list[Verdict]]:
    return [[Verdict(unit.text, "kept" if fate == "kept" else "dropped", rule, reason)] for unit in units]


def _is_own(unit: SourceLine) -> bool:
    return unit.call is None and unit.is_words


def _why_removed(message: Message) -> str:
    if message["role"] == "tool":
        return "a result that answers no call: removed when the list was repaired"
    return "removed when the list was repaired"


def _still_there(lines: Sequence[str], now: str) -> Iterator[str]:
    """Yield the part of each line that a shortened text still has: all, its beginning at the cut, or nothing."""
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
    """Return the index of each original message in the repaired list, without those that the repair removed."""
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


class _SummaryAccount:
    """The verdicts on words that the summary replaces."""

    def __init__(self, notes: TraceRecording, written: WrittenSummary) -> None:
        self._notes = notes
        self._written = written
        self.is_by_model = written.summarizer != ExtractiveSummarizer.name
        self._flat = one_line(written.text)
        self._names = set(entities(written.text))
        self._items = [
            SummaryPlace(section, item)
            for section, items in SummaryDocument.parse(written.text).items.items()
            for item in items
        ]
        self._standing: dict[int, list[TraceNote]] = defaultdict(list)
        self._anywhere: list[TraceNote] = []
        self._files: dict[str, TraceNote] = {}
        self._repeated: dict[int, list[TraceNote]] = defaultdict(list)
        self._index_candidates()
        self._quoted_lines: dict[int, list[TraceNote]] = defaultdict(list)
        for note in notes.lines():
            if self._stands(note):
                self._quoted_lines[int(note.item.order) if note.item.order >= 0 else EARLIER].append(note)
        self._callers = _callers(notes.turns)
        self._raw: tuple[int, frozenset[str]] = (-2, frozenset())

    def _index_candidates(self) -> None:
        for note in self._notes.candidates():
            assert isinstance(note.item, Candidate)  # noqa: S101 - tells mypy what candidates() holds
            order = note.item.order
            if not self._stands(note):
                self._repeated[order].append(note)
            elif note.section == "Relevant Files" and (path := _FILE.match(note.text)):
                self._files[path[1]] = note
            elif note.section == "Resolved Questions" or not 0 <= order < self._notes.length:
                self._anywhere.append(note)
            if self._stands(note):
                self._standing[order].append(note)

    def _stands(self, note: TraceNote) -> bool:
        return note.decision == "taken" and self._has(note.text)

    def _has(self, text: str) -> bool:
        return without_control_words(text) in self._written.text

    # -- words of turns --------------------------------------------------------------------------------------------

    def judge(self, turn: int, piece: str, *, is_argument: bool = False) -> Verdict:
        """Return the verdict on a sentence or piece of a turn, or of a call's arguments in it."""
        note = self._notes.line(turn, piece)
        if note is not None and self._stands(note):
            return _as_key_line(piece, note)
        role = "" if is_argument else self._notes.turns[turn]["role"]
        found = self._judge_by_item(turn, piece, role) or self._judge_fragment(turn, piece)
        if found is not None:
            return found
        if self.is_by_model:
            return self.judge_by_model(piece, was_chosen=note is not None and note.decision == "taken")
        repeated = next(
            (n for n in self._others(turn) if n.decision == "said" and _has_words(one_line(n.source), piece)), None
        )
        if repeated is not None and (note is None or note.decision != "said"):
            note = repeated
        if note is None:
            return self._judge_not_offered(turn, piece)
        return self._judge_passed_over(piece, note)

    def _judge_by_item(self, turn: int, piece: str, role: str) -> Verdict | None:
        """Return the verdict on words from which an item of the summary was made; None if there is none."""
        near = [*self._standing[turn], *self._standing[self._callers.get(turn, turn)]]
        if piece in self._files:
            near.append(self._files[piece])
        anywhere = [n for n in self._anywhere if role in _SPEAKERS.get(n.section, ()) and len(piece) >= _TELLING]
        for note in (*near, *anywhere):
            if _has_words(one_line(note.text), piece):
                return _as_item(piece, note, role, "")
        if len(piece) > _BEGINNING:
            for note in (*near, *anywhere):
                if piece[:_BEGINNING] in one_line(note.text):
                    return _as_item(piece, note, role, ", cut short")
        for clause in clauses(piece) if role == "user" else ():
            for note in near:
                if _has_words(one_line(note.text), clause.text):
                    return _as_item(piece, note, role, ", cut short to the clause that says something")
        return None

    def _judge_fragment(self, turn: int, piece: str) -> Verdict | None:
        """Return the verdict on a piece that was cut because a long message is read in part; None for others."""
        for note in self._quoted_lines[turn]:
            if len(note.source) >= _TELLING and note.source in piece:
                return _as_key_line(piece, note, ", cut short where the reading of a long message broke off")
        return None

    def _others(self, turn: int) -> Iterable[TraceNote]:
        return (*self._repeated[turn], *self._repeated[self._callers.get(turn, turn)])

    def _judge_not_offered(self, turn: int, piece: str) -> Verdict:
        """Return the verdict on a piece that was never a candidate for the summary."""
        if not entities(piece):
            return Verdict(piece, "dropped", "names nothing", "names no path, number, identifier or address")
        if self._raw[0] != turn:
            self._raw = (turn, frozenset(raw_lines(self._notes.turns[turn])))
        if piece not in self._raw[1]:
            message = self._notes.turns[turn]
            if message["role"] in ("user", "tool") and _has_words(one_line(read_message(message).added), piece):
                reason = "written by the client around the words of the user or of a tool"
                return Verdict(piece, "dropped", "client's own", reason)
            reason = "not read: only the beginning and the end of a very long message are"
            return Verdict(piece, "dropped", "not read", reason)
        if len(piece) < 4:
            return Verdict(piece, "dropped", "too short", "too short to say anything by itself")
        offered = self._notes.offered[turn]
        most = "the one line" if offered == 1 else f"the {offered} lines"
        reason = f"not weighed: only {most} of this message with the most names for the length"
        return Verdict(piece, "dropped", "not weighed", reason)

    def _judge_passed_over(self, piece: str, note: TraceNote) -> Verdict:
        """Return the verdict on a candidate that was not chosen."""
        if note.decision == "said":
            said = self._notes.where(note.source) or self._notes.where(piece)
            if said is None or not self._has(said.text):  # the item that said it was given up in the end
                return Verdict(piece, "dropped", "said already", "all it names was said already")
            reason = f"all it names is said already, under {said.section}"
            return Verdict(piece, "dropped", "said already", reason, said.section, without_control_words(said.text))
        if note.decision == "too_long":
            reason = f"too long: {note.cost} tokens, when {note.left} were left"
            return Verdict(piece, "dropped", "too long", reason)
        if note.decision == "taken":
            reason = f"chosen for {note.section}, but given up because the whole was over the budget"
            return Verdict(piece, "dropped", "given up", reason)
        last = self._notes.last_worth
        if note.decision == "less" and last is not None:
            share = note.worth / last
            adds = f"{share:.0%} of what" if share < 0.99 else "no more than"
            reason = f"what it adds for its length is {adds} the last line taken adds"
            return Verdict(piece, "dropped", "worth less", reason)
        if note.decision == "outranked":
            reason = f"not looked at: {self._notes.looked_at:,} other lines add more for their length"
            return Verdict(piece, "dropped", "worth less", reason)
        return Verdict(piece, "dropped", "no room", f"no room was left under {note.section}")

    # -- words of a model and of earlier summaries -----------------------------------------------------------------

    def judge_by_model(self, piece: str, *, was_chosen: bool = False) -> Verdict:
        """Return the verdict on words in a model's summary: whether they, or all names in them, are found there."""
        writer, names = self._written.summarizer, tuple(dict.fromkeys(entities(piece)))
        if len(piece) >= _TELLING and _has_words(self._flat, piece):
            said = next((said for said in self._items if _has_words(one_line(said.text), piece)), None)
            reason = f"{writer} wrote the summary and put it there in these words"
            return Verdict(piece, "quoted", "by model", reason, *(said or (None, None)))
        missing = [name for name in names if name not in self._names]
        if names and not missing:
            said = next((said for said in self._items if names[0] in entities(said.text)), None)
            reason = f"told by {writer}, who wrote the summary: it has all that this names ({_list_names(names)})"
            return Verdict(piece, "told", "by model", reason, *(said or (None, None)))
        if not names:
            reason = f"{writer} wrote the summary, and this line has no name to search for there"
            return Verdict(piece, "unclear", "by model", reason)
        reason = f"{writer} wrote the summary and does not name {_list_names(missing)}"
        if was_chosen:
            reason += "; the built-in summary would have had it, but not enough room was left for its lines"
        return Verdict(piece, "dropped", "by model", reason)

    def judge_earlier(self, text: str) -> Verdict:
        """Return the verdict on a line of an earlier summary."""
        if re.match(r"#{2,3}\s", text):
            return Verdict(text, "dropped", "heading", "a heading of the earlier summary; the new one has its own")
        words = text.removeprefix("- ")
        if self.is_by_model:
            return self.judge_by_model(words)
        said = next((said for said in self._items if _has_words(one_line(said.text), words)), None)
        if said is not None:
            return Verdict(text, "quoted", "carried over", "carried over from the earlier summary", *said)
        path = _FILE.match(text)
        if path and path[1] in self._files:
            item = without_control_words(self._files[path[1]].text)
            reason = "carried over from the earlier summary and updated"
            return Verdict(text, "told", "carried over", reason, "Relevant Files", item)
        earlier = (n for n in self._repeated_anywhere() if _has_words(one_line(n.source), words))
        note = self._notes.line(EARLIER, words) or next(earlier, None)
        if note is not None:
            return self._judge_passed_over(text, note)
        reason = "from the earlier summary, and settled or replaced by later turns"
        return Verdict(text, "dropped", "settled", reason)

    def _repeated_anywhere(self) -> Iterable[TraceNote]:
        return (note for order, notes in self._repeated.items() if order < 0 for note in notes)


def _as_key_line(piece: str, note: TraceNote, more: str = "") -> Verdict:
    what = f"adds {_list_names(note.added)}" if note.added else "says again what it names, in other company"
    item = without_control_words(note.text)
    return Verdict(piece, "quoted", "key line", f"a key line: {what}{more}", note.section, item, note.added)


def _as_item(piece: str, note: TraceNote, role: str, more: str) -> Verdict:
    rule, reason = _RULES.get(note.section) or _DONE.get(role, ("action", "the log of actions"))
    item = without_control_words(note.text)
    return Verdict(piece, "quoted", rule, f"{reason}{more}", note.section, item, note.added)


def _has_words(flat: str, words: str) -> bool:
    """Return whether a text of one line has these words as whole words."""
    wanted = one_line(words)
    at = flat.find(wanted)
    while at >= 0 and wanted:
        end = at + len(wanted)
        before, after = flat[at - 1 : at], flat[end : end + 1]
        if not (before.isalnum() and wanted[0].isalnum()) and not (after.isalnum() and wanted[-1].isalnum()):
            return True
        at = flat.find(wanted, at + 1)
    return False


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _callers(turns: Sequence[Message]) -> dict[int, int]:
    """Return the calling turn of each result."""
    callers: dict[int, int] = {}
    caller = -1
    for turn, message in enumerate(turns):
        if message["role"] == "tool":
            callers[turn] = caller
        elif calls_of(message):
            caller = turn
    return callers


class SourceLine(NamedTuple):
    """A line of a message that is not blank; ``call`` names the tool if it is a line of a call's arguments."""

    line: int
    text: str
    call: str | None = None
    is_words: bool = True
    """False for a picture, a file or thinking."""


def source_lines(message: Message) -> Iterator[SourceLine]:
    """Yield every line of a message that is not blank, numbered from 1."""
    text, number = text_of(message), 0
    for line in text.splitlines() if message["role"] == "tool" else text.split("\n"):
        number += 1
        if line.strip():
            yield SourceLine(number, line.strip())
    for part in parts_of(message):
        if not part_text(part) and part.get("type", "text") != "text":
            number += 1
            yield SourceLine(number, _part_name(part), is_words=False)
    for call in calls_of(message):
        has_words = False
        for value in argument_texts(call.arguments):
            for line in value.splitlines():
                number += 1
                if line.strip():
                    has_words = True
                    yield SourceLine(number, line.strip(), call.name)
        if not has_words:
            number += 1
            yield SourceLine(number, f"{call.name}()", call.name)


def _part_name(part: dict[str, object]) -> str:
    if is_reasoning(part):
        return "[thinking]"
    return "[image]" if is_image(part) else f"[{part.get('type')}]"


def _split_pieces(unit: SourceLine, role: str, records: Sequence[KeyedLine] = ()) -> list[str]:
    """Return the sentences or pieces of a line that a summary chooses among, or the line itself.

    If structured data was read as records, the pieces are the records with names from the line.
    """
    if records and unit.call is None:
        names = set(entities(unit.text))
        return [record.text for record in records if not names.isdisjoint(entities(record.values))]
    spoken = unit.call is None and role != "tool"
    return cut_lines(sentences(unit.text) if spoken else [unit.text]) or [unit.text]
