"""What became of the words that a summary stands for: quoted under which heading and why, or dropped and why.

Reads the notes that were taken while the summary was chosen and holds them against the summary as it was written in
the end. Where a model wrote it there are no notes on its choices, and only what can be found in its words is claimed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from everlong.context.explain import Verdict
from everlong.context.summarize import Written
from everlong.context.summary.digest import without_control_words
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.extractive import ExtractiveSummarizer
from everlong.context.summary.lines import raw_lines
from everlong.context.summary.outline import Candidate
from everlong.context.summary.text import one_line
from everlong.context.summary.trace import EARLIER, Note, Recording, Said
from everlong.context.summary.wording import clauses
from everlong.model import Message, calls_of, read_message

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
"""Whose words stand in items that belong to no one turn."""
_FILE = re.compile(r"- `(.+?)`")
_BEGINNING = 24
"""Characters at the beginning of some words by which they are known although they were cut short."""
_TELLING = 12
"""Characters from which on equal words are the same words, wherever they stand."""
_MOST_NAMED = 6


class SummaryAccount:
    """Passes verdicts on the words of summarized turns."""

    def __init__(self, notes: Recording, written: Written) -> None:
        self._notes = notes
        self._written = written
        self._by_model = written.summarizer != ExtractiveSummarizer.name
        self._flat = one_line(written.text)
        self._names = set(entities(written.text))
        self._items = [
            Said(section, item)
            for section, items in SummaryDocument.parse(written.text).items.items()
            for item in items
        ]
        self._standing: dict[int, list[Note]] = defaultdict(list)
        self._anywhere: list[Note] = []
        self._files: dict[str, Note] = {}
        self._repeated: dict[int, list[Note]] = defaultdict(list)
        self._index_candidates()
        self._quoted_lines: dict[int, list[Note]] = defaultdict(list)
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

    def _stands(self, note: Note) -> bool:
        return note.decision == "taken" and self._has(note.text)

    def _has(self, text: str) -> bool:
        return without_control_words(text) in self._written.text

    # -- words of turns --------------------------------------------------------------------------------------------

    def verdict(self, turn: int, piece: str, *, is_argument: bool = False) -> Verdict:
        """What became of a sentence or piece of a turn, or of a call's arguments in it."""
        message = self._notes.turns[turn]
        note = self._notes.line(turn, piece)
        if note is not None and self._stands(note):
            return _as_key_line(piece, note)
        found = self._own_item(turn, piece, "" if is_argument else message["role"]) or self._fragment(turn, piece)
        if found is not None:
            return found
        if self._by_model:
            return self.by_model(piece, was_chosen=note is not None and note.decision == "taken")
        repeated = next(
            (n for n in self._others(turn) if n.decision == "said" and says(one_line(n.source), piece)), None
        )
        if repeated is not None and (note is None or note.decision != "said"):
            note = repeated
        if note is None:
            return self._not_offered(turn, piece)
        return self._passed_over(piece, note)

    def _own_item(self, turn: int, piece: str, role: str) -> Verdict | None:
        """The verdict on words that stand in an item which was made of them."""
        near = [*self._standing[turn], *self._standing[self._callers.get(turn, turn)]]
        if piece in self._files:
            near.append(self._files[piece])
        anywhere = [n for n in self._anywhere if role in _SPEAKERS.get(n.section, ()) and len(piece) >= _TELLING]
        for note in (*near, *anywhere):
            if says(one_line(note.text), piece):
                return _as_item(piece, note, role, "")
        if len(piece) > _BEGINNING:
            for note in (*near, *anywhere):
                if piece[:_BEGINNING] in one_line(note.text):
                    return _as_item(piece, note, role, ", cut short")
        for clause in clauses(piece) if role == "user" else ():
            for note in near:
                if says(one_line(note.text), clause.text):
                    return _as_item(piece, note, role, ", cut short to the clause that says something")
        return None

    def _fragment(self, turn: int, piece: str) -> Verdict | None:
        """The verdict on a piece that was itself cut where the reading of a long message broke off."""
        for note in self._quoted_lines[turn]:
            if len(note.source) >= _TELLING and note.source in piece:
                return _as_key_line(piece, note, ", cut short where the reading of a long message broke off")
        return None

    def _others(self, turn: int) -> Iterable[Note]:
        return (*self._repeated[turn], *self._repeated[self._callers.get(turn, turn)])

    def _not_offered(self, turn: int, piece: str) -> Verdict:
        if not entities(piece):
            return Verdict(piece, "dropped", "names nothing", "names no path, number, identifier or address")
        if self._raw[0] != turn:
            self._raw = (turn, frozenset(raw_lines(self._notes.turns[turn])))
        if piece not in self._raw[1]:
            message = self._notes.turns[turn]
            if message["role"] in ("user", "tool") and says(one_line(read_message(message).added), piece):
                reason = "written by the client around the words of the user or of a tool"
                return Verdict(piece, "dropped", "client's own", reason)
            reason = "not read: of a very long message only the beginning and the end are"
            return Verdict(piece, "dropped", "not read", reason)
        if len(piece) < 4:
            return Verdict(piece, "dropped", "too short", "too short to say anything by itself")
        offered = self._notes.offered[turn]
        most = "the one line" if offered == 1 else f"the {offered} lines"
        reason = f"not weighed: of this message only {most} with the most names for the length"
        return Verdict(piece, "dropped", "not weighed", reason)

    def _passed_over(self, piece: str, note: Note) -> Verdict:
        if note.decision == "said":
            said = self._notes.where(note.source) or self._notes.where(piece)
            if said is None or not self._has(said.text):  # what said it was itself given up in the end
                return Verdict(piece, "dropped", "said already", "all it names was said already")
            reason = f"all it names is said already, under {said.section}"
            return Verdict(piece, "dropped", "said already", reason, said.section, without_control_words(said.text))
        if note.decision == "too_long":
            reason = f"longer ({note.cost} tokens) than what was left ({note.left}) when its turn came"
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

    def by_model(self, piece: str, *, was_chosen: bool = False) -> Verdict:
        """What can be said of words where another summarizer chose: whether they, or all they name, can be found."""
        writer, names = self._written.summarizer, tuple(dict.fromkeys(entities(piece)))
        if len(piece) >= _TELLING and says(self._flat, piece):
            said = next((said for said in self._items if says(one_line(said.text), piece)), None)
            reason = f"{writer} wrote the summary and put it there in these words"
            return Verdict(piece, "quoted", "by model", reason, *(said or (None, None)))
        missing = [name for name in names if name not in self._names]
        if names and not missing:
            said = next((said for said in self._items if names[0] in entities(said.text)), None)
            reason = f"told by {writer}, who wrote the summary: it has all that this names ({_named(names)})"
            return Verdict(piece, "told", "by model", reason, *(said or (None, None)))
        if not names:
            reason = f"{writer} wrote the summary, and this names nothing by which it could be found there"
            return Verdict(piece, "unclear", "by model", reason)
        reason = f"{writer} wrote the summary and does not name {_named(missing)}"
        if was_chosen:
            reason += "; the built-in summary would have had it, but not enough room was left for its lines"
        return Verdict(piece, "dropped", "by model", reason)

    def carried_over(self, text: str) -> Verdict:
        """What became of a line of an earlier summary."""
        if re.match(r"#{2,3}\s", text):
            return Verdict(text, "dropped", "heading", "a heading of the earlier summary; the new one has its own")
        words = text.removeprefix("- ")
        if self._by_model:
            return self.by_model(words)
        said = next((said for said in self._items if says(one_line(said.text), words)), None)
        if said is not None:
            return Verdict(text, "quoted", "carried over", "carried over from the earlier summary", *said)
        path = _FILE.match(text)
        if path and path[1] in self._files:
            item = without_control_words(self._files[path[1]].text)
            reason = "carried over from the earlier summary and updated"
            return Verdict(text, "told", "carried over", reason, "Relevant Files", item)
        earlier = (n for n in self._repeated_anywhere() if says(one_line(n.source), words))
        note = self._notes.line(EARLIER, words) or next(earlier, None)
        if note is not None:
            return self._passed_over(text, note)
        reason = "of the earlier summary, and settled or replaced by what came after it"
        return Verdict(text, "dropped", "settled", reason)

    def _repeated_anywhere(self) -> Iterable[Note]:
        return (note for order, notes in self._repeated.items() if order < 0 for note in notes)


def _as_key_line(piece: str, note: Note, more: str = "") -> Verdict:
    what = f"adds {_named(note.added)}" if note.added else "says again what it names, in other company"
    item = without_control_words(note.text)
    return Verdict(piece, "quoted", "key line", f"a key line: {what}{more}", note.section, item, note.added)


def _as_item(piece: str, note: Note, role: str, more: str) -> Verdict:
    rule, reason = _RULES.get(note.section) or _DONE.get(role, ("action", "the log of actions"))
    item = without_control_words(note.text)
    return Verdict(piece, "quoted", rule, f"{reason}{more}", note.section, item, note.added)


def says(flat: str, words: str) -> bool:
    """Whether a text of one line has these words, none of them as a part of a longer word."""
    wanted = one_line(words)
    at = flat.find(wanted)
    while at >= 0 and wanted:
        end = at + len(wanted)
        before, after = flat[at - 1 : at], flat[end : end + 1]
        if not (before.isalnum() and wanted[0].isalnum()) and not (after.isalnum() and wanted[-1].isalnum()):
            return True
        at = flat.find(wanted, at + 1)
    return False


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _callers(turns: Sequence[Message]) -> dict[int, int]:
    """For each result the turn that called for it."""
    callers: dict[int, int] = {}
    caller = -1
    for turn, message in enumerate(turns):
        if message["role"] == "tool":
            callers[turn] = caller
        elif calls_of(message):
            caller = turn
    return callers
