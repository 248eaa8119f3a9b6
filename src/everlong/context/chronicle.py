"""The chronicle: the built-in summary, which quotes and guesses nothing.

It tells in order what the user said and what came of it, the plan, the files, the last failing command, and whole
lines of the originals for the names that nothing else has. `Chronicle` reads messages once and goes on where it ended,
so that a conversation of any length costs what it grows. `Chronicle.write` makes the document within a budget.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from string import punctuation
from typing import NamedTuple

from everlong.context.document import SummaryDocument
from everlong.context.literals import is_summary
from everlong.context.names import entities, names_by_line
from everlong.context.quoted_lines import (
    LineChoice,
    QuotedLine,
    SourceLines,
    fit_names,
    quotable_lines,
    richest,
    without_overtaken,
)
from everlong.context.record import PlanItem, Step, read_plan, read_steps, render_item
from everlong.context.text import (
    TextCount,
    clause_prefixes,
    clip,
    cut_at_clause,
    one_line,
    split_sentences,
    without_fences,
)
from everlong.model import Message, read_message, text_of, typed_words

__all__ = ["Chronicle", "OpenError", "TurnEntry"]

_LONGEST_WORDS = 4_000
"""Characters that are kept of a turn's words, and of its closing message."""
_MOST_OUTCOMES = 6
"""Outcomes of commands that are kept of one turn, the newest ones."""
_MOST_FILES = 12
"""Files that are added to a model's summary which does not name them."""
_MOST_SOURCES = 4_000
"""Sources whose lines are kept; the oldest are forgotten first."""
_LOOK_AT = 40_000
"""Characters of a message that are searched for lines, from its beginning and its end."""
_BESIDE_LENGTH = 240
"""Characters that are quoted of a request that stands beside the summary as a whole."""
_LEAST_WORDS = 90
"""Characters of a turn's words that are quoted at least.

With 60 more single facts of chats are found (.77, not .68), but two thirds of the quotes break off too soon to be
understood.
"""
_COURTESY_LENGTH = 40
"""A sentence of fewer characters without a name is mostly thanks or agreement."""
_NAME_WORTH = 3
"""A cut that loses a name weighs as much as a cut this many times smaller that loses none."""
_CUT_WORTH = 3
"""A cut inside a clause counts as so many names."""
_LEAST_TOKENS = 35
"""Tokens that the shortest quote of a longer turn takes about."""
_ENOUGH_NAMES = 3
"""Turns with so many names are all worth the same."""
_ITEM_TOKENS = 8
"""Tokens of an item besides the quote."""
_FRONTIER_SHARE = 0.4
_GOAL_SHARE = 0.12
_FILES_SHARE = 0.1
_CARRIED_SHARE = 0.15
"""The share of the budget that one item of an earlier summary may take."""
_FOCUS_SHARE = 0.65
_LONGEST_MEMORY = 600
_OUTCOMES_SHARE = 0.4
_NAMES_SHARE = 0.5
"""The share of the room for quoted lines that is kept for names alone; lines take the part that names do not need."""
_FILLINGS = 3
"""Rounds in which more lines are chosen: a name that a chosen line shows frees the room kept for it."""
_LEAST_UNUSED = 0.01
_LEAST_SHARE = 0.05
"""The share of the budget that quoted lines and names get at least; in less there are only scraps."""
_HEADING_TOKENS = 6
_ROOMY = 600
"""Tokens from which on a budget also has room for what the tail tells."""
_USERS = 3.0
"""A line of the user is worth this many lines of others."""
_LONGEST_SOURCE = 70
"""Characters of a command above the lines that are quoted of it."""
_CHARS_PER_TOKEN = 3.5

_FILLERS = frozenset(
    """
    thanks thank you thx ok okay yes yep yeah sure go on ahead continue proceed please great perfect nice good cool keep
    going resume next done weiter danke gut ja bitte merci oui continuez continúa gracias sí obrigado sim спасибо да
    дальше продолжай 继续 谢谢 好的 好 是的 ありがとう はい 続けて
    """.split()  # noqa: SIM905 - words, as one reads them
)
"""Words of turns that only thank, agree or say to go on."""
_SIGNS = punctuation + "…。！，"
_NEW_GOAL = re.compile(
    r"\b(?:the|our|my|new|next) (?:\w+ )?(?:goal|task|aim|objective)(?: is)? now\b|\bnow (?:the|our|my) (?:goal|task)\b"
    r"|\bnew (?:goal|task|objective):|(?:现在|新)的?(?:目标|任务)|\bdas (?:neue )?Ziel ist jetzt\b|\bnuevo objetivo\b",
    re.IGNORECASE,
)
_FILE = re.compile(r"(?:^|, )([^,]+) \((created|edited)\)(?=, |$)")
_QUOTED_TURN = re.compile(r'[^"]*"(?P<words>.*)" \(turn (?P<number>\d{1,9})\)$', re.DOTALL)
_TURN_LINE = re.compile(
    r'- turn (?P<number>\d{1,9}), (?:"(?P<words>.*?)"|the goal|the newest request)(?: → (?P<came>.*))?$', re.DOTALL
)
_LEFT_OUT = ("elided", "truncated", "left out")
_ELIDED = re.compile(
    rf"^.*\n(?:</?\w+>\n){{0,3}}.*\d (?:char\w*|lines|bytes|tokens) (?:{'|'.join(_LEFT_OUT)})\b.*"
    r"(?:\n</?\w+>){0,3}(?:\n.*)?$",
    re.MULTILINE,
)
"""Matches a harness's note that it left something out, and the line on each side, which it mostly cut."""
_TOLD = re.compile(r"(?:sent along in )?turn \d")
_CAPITAL = re.compile(r"(?<=[a-z,] )[A-Z]\w+")


class OpenError(NamedTuple):
    """A command that failed and has not run better since."""

    title: str
    lines: tuple[str, ...]
    turn: int
    """The number of the user's turn in which it failed."""

    def render(self) -> str:
        """Return the command with the last lines of its result, as an item."""
        return "\n".join([f"- `{self.title}` failed:", *(f"  {line}" for line in self.lines)])


@dataclass
class TurnEntry:
    """A turn of the user: their words, and what came of them."""

    number: int
    words: str
    closing: str = ""
    """The assistant's closing message, or its newest words while the turn is under way."""
    is_closed: bool = False
    outcomes: dict[str, str] = field(default_factory=dict)
    """The latest outcome of each command that mattered, by its subject."""


@dataclass
class Chronicle:
    """What was read so far."""

    turns: list[TurnEntry] = field(default_factory=list)
    plan: tuple[PlanItem, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    """Files that were changed and are still there, each with how; the newest last."""
    errors: dict[str, OpenError] = field(default_factory=dict)
    sources: dict[str, SourceLines] = field(default_factory=dict)
    """The lines of the newest message on each subject."""
    said: set[str] = field(default_factory=set)
    """The names that people and the assistant wrote themselves, not only read in an output."""
    steps: int = 0
    """Calls that were read so far."""
    changed: dict[str, int] = field(default_factory=dict)
    """When a file last changed, or a call last changed something else; the newest last."""
    last: Step | None = None
    pending: tuple[str, ...] = ()
    """Calls without a result at the end."""
    count: int = 0
    """The user's turns so far, also those that are not quoted."""
    reads_lines: bool = True
    """False to keep no lines to quote, which take most of the time; those that are out of date go all the same."""
    answers: int = 0
    """The assistant's messages so far."""
    carried: dict[str, list[str]] = field(default_factory=dict)
    """Items of an earlier summary that are told again as they are."""
    whole: dict[tuple[str, str], Message] = field(default_factory=dict)
    """The originals of messages that a compaction shortened in its tail, by call and shortened text."""
    _ran: dict[str, Step] = field(default_factory=dict)
    """The newest run of each command whose outcome is not kept yet."""

    @classmethod
    def carried_on(cls, previous: str | None, *, reads_lines: bool = True) -> Chronicle:
        """Return a chronicle that goes on from an earlier summary, where the originals are not at hand."""
        chronicle = cls(reads_lines=reads_lines)
        if previous:
            chronicle._take_over(SummaryDocument.parse(previous))
        return chronicle

    def remembering(self, messages: Sequence[Message], shown: Sequence[Message]) -> Chronicle:
        """Return the chronicle with the originals of the messages that are shown shortened, to read those later."""
        known = [self.whole.get(_key_of(message), message) for message in messages]
        pairs = zip(known, shown, strict=True)
        return replace(self, whole={_key_of(now): was for was, now in pairs if was is not now})

    def extended(
        self, messages: Sequence[Message], *, repeats: bool = False, reads_lines: bool | None = None
    ) -> Chronicle:
        """Return the chronicle of these messages too; this one stays as it is.

        With ``repeats`` the first message may be a request that was repeated after a summary, and is known already.
        """
        if repeats and messages and self.turns and _begins_with(messages[0], self.turns[-1].words):
            messages = messages[1:]
        if self.whole:
            messages = [self.whole.get(_key_of(message), message) for message in messages]
        longer = replace(
            self,
            turns=[
                replace(turn, outcomes=dict(turn.outcomes)) if turn is self.turns[-1] else turn for turn in self.turns
            ],
            files=dict(self.files),
            errors=dict(self.errors),
            sources=dict(self.sources),
            said=set(self.said),
            changed=dict(self.changed),
            _ran={},
            reads_lines=self.reads_lines if reads_lines is None else reads_lines,
        )
        longer.read(messages)
        return longer

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, messages: Sequence[Message]) -> None:
        """Take in the messages that follow."""
        steps = read_steps(messages)
        self.plan = tuple(read_plan(messages, steps, self.plan))
        at_message: dict[int, list[Step]] = {}
        for step in steps:
            at_message.setdefault(step.at, []).append(step)
        for index, message in enumerate(messages):
            role = message.get("role")
            if role == "user":
                self._hear(message, messages[index + 1] if index + 1 < len(messages) else {})
            elif role == "assistant":
                self.answers += 1
                self._take_answer(text_of(message), at_message.get(index, []))
        self._keep_outcomes()
        answered = [step.at for step in steps if step.result is not None]
        self.pending = tuple(s.title for s in steps if s.result is None and s.at >= (answered[-1] if answered else 0))
        while len(self.sources) > _MOST_SOURCES:
            del self.sources[next(iter(self.sources))]

    def _hear(self, message: Message, following: Message) -> None:
        found = read_message(message)
        was_run = found.is_command and read_message(following).is_local
        # Whoever wrote the first message in a user's name, it says what is to be done.
        typed = found.typed or (found.material if not self.count and not is_summary(message) else "")
        if typed and not found.is_local and not was_run:
            self.count += 1
            if not _is_filler(typed) or (not self.turns and not typed.startswith("/")):
                self._keep_outcomes()
                self.turns.append(TurnEntry(self.count, _words_of(typed)))
            lines = without_fences(typed)
            self._keep_lines(f"turn {self.count}", f"turn {self.count}, the user:", lines, _USERS, is_said=True)
        elif self.turns:
            self.turns[-1].is_closed = False  # a harness has the work go on
        if found.material:
            self._keep_lines(f"material {self.count}", f"sent along in turn {self.count}:", found.material, reads=None)

    def _take_answer(self, text: str, steps: Sequence[Step]) -> None:
        turn = self.turns[-1] if self.turns else TurnEntry(0, "")
        if text.strip():
            turn.closing, turn.is_closed = text[:_LONGEST_WORDS].strip(), not steps
            self._keep_lines(
                f"said {self.answers}",
                f"turn {self.count}, the assistant:",
                text if steps else without_fences(text),
                reads=None,
                is_said=True,
            )
        for step in steps:
            self._take_step(step)

    def _keep_outcomes(self) -> None:
        """Keep the outcomes of the commands that were read since the last call, for the turn that ran them."""
        outcomes = self.turns[-1].outcomes if self.turns else {}
        for subject, step in list(self._ran.items())[-_MOST_OUTCOMES:]:
            outcomes.pop(subject, None)
            outcomes[subject] = _outcome_line(step)
        for subject in list(outcomes)[:-_MOST_OUTCOMES]:
            del outcomes[subject]
        self._ran.clear()

    def _take_step(self, step: Step) -> None:
        self.steps += 1
        for event in step.events:
            self.changed.pop(event, None)
            self.changed[event] = self.steps
        for change in step.changes:
            known = self.files.pop(change.path, "")
            if change.how != "removed" and not change.path.startswith("/tmp/"):  # noqa: S108 - nothing is made there
                self.files[change.path] = known or change.how
        if step.result is not None and not step.was_stopped:
            self.last = step
            # A tool that was called again with other arguments, and worked, has made its error good.
            tried = step.subject if step.command or step.path else step.call.name
            self.errors.pop(tried, None)
            if step.failed:
                self.errors[tried] = OpenError(step.title, step.error_lines, self.count)
            # Changed files have their own section.
            if (step.command or not step.changes) and not step.only_looks:
                self._ran.pop(step.subject, None)
                self._ran[step.subject] = step
        source = f"$ {clip(step.title, _LONGEST_SOURCE)}" if step.command else f"{step.path or step.title}:"
        writes = frozenset(change.path.rpartition("/")[2] for change in step.changes)
        given = writes if step.command or step.path else None
        # Other arguments of one tool, such as a plan, are mostly a later version.
        about = step.subject if step.command or step.path else step.call.name
        self._keep_lines(f"{about} given", source, step.given, reads=given, is_said=True)
        if step.result:
            self._keep_lines(step.subject, source, step.result, reads=step.reads)

    def _keep_lines(
        self,
        subject: str,
        source: str,
        text: str,
        factor: float = 1.0,
        *,
        reads: frozenset[str] | None = frozenset(),
        is_said: bool = False,
    ) -> None:
        """Keep the lines of a message that name something, in place of older ones on the same subject."""
        self.sources.pop(subject, None)
        if not self.reads_lines:
            return
        if len(text) > _LOOK_AT:
            text = text[: _LOOK_AT // 2].rpartition("\n")[0] + "\n" + text[-_LOOK_AT // 2 :].partition("\n")[2]
        was_cut = any(map(text.__contains__, _LEFT_OUT))
        lines = quotable_lines(_ELIDED.sub("", text) if was_cut else text)
        named: dict[str, QuotedLine] = {}
        names_of = names_by_line([line.replace("\n", " ") for line, _ in lines])
        for (before, tells), (line, is_whole), names in zip((("", False), *lines), lines, names_of, strict=False):
            if names and line not in source:
                named.pop(line, None)
                stands = is_whole and not line.endswith(":")
                named[line] = QuotedLine(line, names, before if tells and " " in before else "", stands)
        if is_said:
            self.said.update(*(line.names for line in named.values()))
        if named:
            self.sources[subject] = SourceLines(source, richest(tuple(named.values())), factor, self.steps, reads)

    def _take_over(self, document: SummaryDocument) -> None:
        """Take in the lines of an earlier chronicle, or the items of a model's summary as they are."""
        self._take_over_turns(document)
        self.plan = tuple(read_plan([{"role": "assistant", "content": document.render()}], [], ()))
        for item in document.items["Relevant Files"]:
            folder, _, names = item.removeprefix("- ").rpartition("/: ")
            for name, how in _FILE.findall(names):
                self.files[f"{folder}/{name}" if folder else name] = how
        for item in document.items["Critical Context"]:
            source, *lines = item.split("\n")
            if lines:
                reads = None if _TOLD.match(source) else frozenset(["*"])
                self._keep_lines(f"carried {source}", source, "\n".join(lines), reads=reads)
            else:
                self.carried.setdefault("Critical Context", []).append(item)
        for section in ("Goal", "Constraints & Preferences", "Key Decisions", "Resolved Questions", "Tools & Patterns"):
            if document.items[section]:
                self.carried[section] = document.items[section]

    def _take_over_turns(self, document: SummaryDocument) -> None:
        """Take in the turns that an earlier chronicle quotes, in whichever section."""
        turns: dict[int, TurnEntry] = {}
        for item in (*document.items["Goal"], *document.items["Pending User Asks"]):
            if found := _QUOTED_TURN.match(item):
                turns[int(found["number"])] = TurnEntry(int(found["number"]), found["words"])
        for item in document.items["Done"]:
            first, *outcomes = item.split("\n")
            found = _TURN_LINE.match(first)
            if found is None:
                self.carried.setdefault("Done", []).append(item)
                continue
            number = int(found["number"])
            turn = turns.setdefault(number, TurnEntry(number, found["words"] or ""))
            came = filter(None, (found["came"], *(line.strip().removeprefix("- ") for line in outcomes)))
            turn.outcomes, turn.is_closed = {line: line for line in came}, True
        self.turns = [turns[number] for number in sorted(turns)]
        self.count = max(turns, default=0)

    def state_items(self) -> list[str]:
        """Return the plan, the files in hand and the last failing command, each as one item."""
        items = [_plan_item(self.plan)] if self.plan else []
        if self.files:
            newest = list(self.files.items())[-_MOST_FILES:]
            items.append(f"- Files changed: {', '.join(f'`{path}` ({how})' for path, how in newest)}")
        items += [f"- Last call, no result yet: `{title}`" for title in self.pending]
        if (error := self.open_error) is not None:
            items.append(error.render())
        return items

    @property
    def open_error(self) -> OpenError | None:
        """The last failing command of this turn or the one before; after two requests it is the past."""
        return next((error for error in reversed(self.errors.values()) if self.count - error.turn <= 1), None)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(
        self,
        budget: int,
        count: TextCount,
        *,
        now: Chronicle | None = None,
        beside: str = "",
        newest: str = "",
        focus: str = "",
        memory: str = "",
    ) -> str:
        """Return the document within a budget.

        Args:
            budget: the most tokens.
            count: the counter of tokens.
            now: the chronicle of the whole conversation; plan, files and errors are told as they stand there.
            beside: the text that stays beside the summary and need not be told again.
            newest: the newest request, in the user's words.
            focus: a topic; lines that name it come first.
            memory: text that a memory provider wants kept.
        """
        writing = _Writing(self, now or self, budget, count, beside, newest)
        writing.focus, writing.memory = focus, memory
        return writing.text()


class _Writing:
    """The making of one document."""

    def __init__(
        self, past: Chronicle, now: Chronicle, budget: int, count: TextCount, beside: str, newest: str
    ) -> None:
        self.past, self.now, self.budget, self.count, self.beside = past, now, budget, count, beside
        self.newest = newest
        self.outcomes_now = {turn.number: turn.outcomes for turn in self.now.turns}
        self.document = SummaryDocument()
        self.room = budget
        self.focus = self.memory = ""

    def text(self) -> str:
        """Return the finished document."""
        self._tell_state()
        self._tell_goal()
        for section, items in self.past.carried.items():
            for item in items if section != "Goal" else ():
                self._add(section, item, _CARRIED_SHARE)
        if self.memory:
            self._add("Critical Context", f"- {cut_at_clause(one_line(self.memory), _LONGEST_MEMORY)}")
        self._tell_files()
        self._tell_turns()
        self._quote_lines()
        asked = {item for section in ("Goal", "Pending User Asks") for item in self.document.items[section]}
        return self.document.fit(self.budget, self.count, keep=asked.__contains__)

    def _add(self, section: str, item: str, share: float | None = None) -> bool:
        """Add an item if there is room for it, within a share of the budget."""
        cost = self._cost(section, item, share)
        if cost:
            self.document.items[section].append(item)
            self.room -= cost
        return cost > 0

    def _cost(self, section: str, item: str, share: float | None = None) -> int:
        """Return the tokens of an item; 0 if there is no room for it."""
        cost = self.count(item) + 1 + (0 if self.document.items[section] else _HEADING_TOKENS)
        return cost if cost <= (self.room if share is None else min(self.room, int(self.budget * share))) else 0

    def _quote(self, words: str) -> str:
        """Return a request on one line; only its beginning if the whole stands beside the summary."""
        most = _BESIDE_LENGTH if self._is_beside(words) else self.budget * _GOAL_SHARE * _CHARS_PER_TOKEN
        return cut_at_clause(one_line(words), max(_LEAST_WORDS, int(most)))

    def _is_beside(self, words: str) -> bool:
        return words[:_BESIDE_LENGTH].partition("\n")[0] in self.beside

    def _tell_state(self) -> None:
        """Tell where the work stands: newest request, plan, last call, failing commands."""
        now, error = self.now, self.now.open_error
        turns = self.past.turns
        last = turns[-1] if turns and self.newest.startswith(turns[-1].words[:_BESIDE_LENGTH]) else None
        if self.newest and last and last is turns[0]:
            self._add("Pending User Asks", "- Newest request, repeated after this summary: the goal")
        elif self.newest:
            number = f" (turn {last.number})" if last else ""
            quoted = self._quote(self.newest)
            self._add("Pending User Asks", f'- Newest request, repeated after this summary: "{quoted}"{number}')
        if now.plan:
            rows = range(len(now.plan) - 1)
            at = bisect_left(rows, 1, key=lambda n: self._cost("In Progress", _plan_item(now.plan, n), _FRONTIER_SHARE))
            if at in rows:
                self._add("In Progress", _plan_item(now.plan, at), _FRONTIER_SHARE)
        if self.budget >= _ROOMY:  # the last call itself stands in the tail
            for title in now.pending:
                self._add("In Progress", f"- Last call, no result yet: `{title}`", _FRONTIER_SHARE)
            last_call = None if now.pending else now.last
            if last_call and not last_call.only_looks and last_call.title != (error and error.title):
                self._add("In Progress", f"- Last call: {_outcome_line(last_call)}", _FRONTIER_SHARE)
        if error is not None:
            self._add("Blocked", error.render(), _FRONTIER_SHARE)

    def _tell_goal(self) -> None:
        turns = [turn for turn in self.past.turns if turn.words]
        for item in self.past.carried.get("Goal", []):
            self._add("Goal", item, _GOAL_SHARE)
        if not turns or self.document.items["Goal"]:
            return
        first = next((turn for turn in turns if not turn.words.startswith("/")), turns[0])  # no command of a client
        named = [turn for turn in turns if turn is not first and _NEW_GOAL.search(turn.words)]
        for turn, what in [(first, "First request"), *((turn, "Goal named later") for turn in named[-1:])]:
            self._add("Goal", f'- {what}: "{self._quote(turn.words)}" (turn {turn.number})')

    def _tell_files(self) -> None:
        by_folder: dict[str, list[str]] = {}
        for path, how in reversed(self.now.files.items()):
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder, []).append(f"{name} ({how})")
        for folder, names in by_folder.items():
            self._add("Relevant Files", f"- {folder + '/: ' if folder else ''}{', '.join(names)}", _FILES_SHARE)

    def _tell_turns(self) -> None:
        """Quote the user's turns, each with what came of it; when room is short, the longest and oldest yield first."""
        turns = [turn for turn in self.past.turns if turn.words]
        if not turns:
            return
        room = self.room - _HEADING_TOKENS
        said = [self._quote(turn.words) if self._is_beside(turn.words) else turn.words for turn in turns]
        quotes = _share_room(map(_word_versions, said), room, self.count)
        left = room - sum(map(self.count, quotes))
        outcomes = _share_room(map(self._outcome_versions, turns), int(left * _OUTCOMES_SHARE), self.count)
        items = []
        goal = "\n".join(self.document.items["Goal"])
        for turn, words, outcome in zip(turns, quotes, outcomes, strict=True):
            if f"(turn {turn.number})" in goal:
                quoted = ", the goal"
            elif turn is turns[-1] and self.newest.startswith(turn.words[:_BESIDE_LENGTH]):
                quoted = ", the newest request"
            elif f'"{turn.words}"' in self.beside:
                quoted = ""  # a standing rule
            else:
                quoted = f', "{words}"' if words else ""
            if outcome or quoted.endswith('"'):
                items.append(f"- turn {turn.number}{quoted}" + (f" → {outcome}" if outcome else ""))
        self.document.items["Done"] += items
        self.room -= sum(self.count(item) + 1 for item in items) + _HEADING_TOKENS

    def _outcome_versions(self, turn: TurnEntry) -> Iterator[tuple[str, int]]:
        """Yield what came of a turn as it stands now: without its last sentences first, then its oldest commands."""
        said, later = self._closing(turn), self.outcomes_now.get(turn.number, {})
        ran = [later.get(subject, line) for subject, line in turn.outcomes.items()] if turn.is_closed else []
        for sentences in range(len(said), 1, -1):
            yield "; ".join([f'"{" ".join(said[:sentences])}"', *ran]), 0
        for start in range(len(ran) + 1):
            yield "; ".join([*(f'"{sentence}"' for sentence in said[:1]), *ran[start:]]), 0
        yield "", 0

    def _closing(self, turn: TurnEntry) -> list[str]:
        """Return the first paragraph of a turn's last answer; none while it is under way, and none in a plain chat.

        An answer without work before it begins politely: there, the first paragraph that names something.
        """
        if not turn.is_closed or not self.past.steps:
            return []
        for paragraph in without_fences(turn.closing).split("\n\n"):
            said = [sentence for sentence in split_sentences(paragraph) if not sentence.endswith(":")]
            if not _is_filler(" ".join(said)) and (turn.outcomes or entities(" ".join(said))):
                return said
        return []

    def _quote_lines(self) -> None:
        """Quote whole lines of the originals for the names that stand nowhere else."""
        known = set(entities("\n".join([self.beside, self.document.render()])))
        changed = self.now.changed
        sources = self.past.sources.items()
        fresh = [lines.as_of(changed) for subject, lines in sources if self.now.sources.get(subject) is lines]
        room = self.room - _HEADING_TOKENS
        if room < self.budget * _LEAST_SHARE:
            return
        choice = LineChoice(without_overtaken(fresh), known, self.past.said)
        most = room * (1 - _NAMES_SHARE) * _CHARS_PER_TOKEN
        if self.focus:
            choice.choose(most * _FOCUS_SHARE, frozenset(re.findall(r"\w{3,}", self.focus.casefold())))
        choice.choose(most - choice.spent)
        for _ in range(_FILLINGS):
            used = sum(map(self.count, choice.items()))
            unused = room - used - self.count(", ".join(choice.names_left()))
            if not used or unused < room * _LEAST_UNUSED:
                break
            choice.choose(unused * choice.spent / used)
        items = choice.items()
        room -= sum(map(self.count, items)) + len(items)
        if names := fit_names(choice.names_left(), room, self.count):
            items.append(f"- Names: {', '.join(names)}")
        self.document.items["Critical Context"] += items


def _plan_item(plan: Sequence[PlanItem], left_out: int = 0) -> str:
    """Return a plan as one item; the oldest rows, which are left out first, are done."""
    done = sum(item.state == "completed" for item in plan)
    last = ", its last items" if left_out else ""
    return "\n".join(
        [f"- Plan ({done} of {len(plan)} done){last}:", *(f"  - {render_item(item)}" for item in plan[left_out:])]
    )


def _outcome_line(step: Step) -> str:
    told = "" if step.changes and not step.command else step.outcome  # an editor shows the file
    return f"`{step.title}`{' failed' if step.failed else ''}{f' → {told}' if told else ''}"


def _key_of(message: Message) -> tuple[str, str]:
    return str(message.get("tool_call_id")), text_of(message)


def _begins_with(message: Message, quoted: str) -> bool:
    """Return whether a user's message begins with words that may have been cut when they were quoted."""
    return message.get("role") == "user" and one_line(_words_of(typed_words(message))).startswith(
        one_line(quoted).removesuffix(" …")
    )


def _words_of(typed: str) -> str:
    """Return the words of a turn as they are kept: without code, and not too many."""
    return without_fences(typed[:_LONGEST_WORDS]).strip()


def _is_filler(words: str) -> bool:
    """Return whether a turn only thanks, agrees or says to go on."""
    said = list(filter(None, (word.strip(_SIGNS) for word in words.lower()[:80].split())))
    return (len(words) < 60 and all(word in _FILLERS for word in said)) or (words.startswith("/") and len(said) == 1)


def _share_room(quotes: Iterable[Iterator[tuple[str, int]]], room: int, count: TextCount) -> list[str]:
    """Return the longest version of each quote with which all fit a room.

    Each quote comes as its versions, from the whole to the shortest, with the number of names that each one loses. The
    longest and oldest quotes are shortened first, and those that lose no names.
    """
    versions = list(quotes)
    told = [next(quote)[0] for quote in versions]
    per_character = count("\n".join(told)) / max(1, sum(map(len, told)))

    def cost(text: str) -> float:
        return len(text) * per_character + _ITEM_TOKENS if text else 0.0

    # Where not even the shortest versions fit, what names little is left out, the oldest first.
    least = [min(cost(text), _LEAST_TOKENS) for text in told]
    excess = sum(least) - room
    worth = list(map(_worth, told))
    least_worth = iter(sorted(range(len(told)), key=worth.__getitem__))
    while excess > 0 and (place := next(least_worth, None)) is not None:
        excess -= least[place]
        told[place] = ""
    over = sum(map(cost, told)) - room
    heap: list[tuple[float, int, str]] = []

    def offer(place: int) -> None:
        if version := next(versions[place], None):
            shorter, lost = version
            size = cost(told[place])
            gain = size * (size - cost(shorter)) * (1.5 - place / len(told) / 2) / (1 + _NAME_WORTH * lost)
            heapq.heappush(heap, (-gain, place, shorter))

    for place in (place for place, text in enumerate(told) if text and over > 0):
        offer(place)
    while over > 0 and heap:
        _, place, shorter = heapq.heappop(heap)
        over -= cost(told[place]) - cost(shorter)
        told[place] = shorter
        offer(place)
    while over > 0 and (place := next(least_worth, None)) is not None:
        over -= cost(told[place])
        told[place] = ""
    return told


def _word_versions(text: str) -> Iterator[tuple[str, int]]:
    """Yield a turn's words, shorter each time, with the names that each version loses.

    First whole sentences go, those with the fewest names first, short ones before long and later ones before earlier;
    last the opening one, which mostly says what the turn is about. Then clauses go from its end.
    """
    yield one_line(text), 0
    sentences = split_sentences(text)
    names = [_named(sentence) for sentence in sentences]

    says = [len(sentence) >= _COURTESY_LENGTH for sentence in sentences]
    opening = says.index(True) if True in says else 0

    def worth(place: int) -> tuple[bool, int, bool, int]:
        return place == opening, names[place], says[place], -place

    *others, _ = sorted(range(len(sentences)), key=worth)
    kept = set(range(len(sentences)))
    for place in others:
        kept.remove(place)
        yield _joined(sentences, kept), names[place]
    if not _worth(text):
        yield "", _CUT_WORTH
    before = "… " if opening else ""
    for words in clause_prefixes(sentences[opening]):
        if len(words) < _LEAST_WORDS:
            break
        yield f"{before}{words} …", _CUT_WORTH + names[opening] - _named(words)


def _worth(words: str) -> int:
    """Return what a turn's words are worth where there is no room for all: names, and whether they state something.

    A question or an answer that names nothing is about what somebody said before.
    """
    return min(_ENOUGH_NAMES, _named(words) + ("?" not in words and not _is_filler(words.partition(" ")[0])))


def _named(text: str) -> int:
    """Return how many things a text of a person names: entities, and words with a capital inside a sentence."""
    return len({*entities(text), *_CAPITAL.findall(text)})


def _joined(sentences: Sequence[str], kept: set[int]) -> str:
    """Return the sentences that are kept, with a mark for each gap."""
    told = ""
    for place, sentence in enumerate(sentences):
        if place in kept:
            told += f" {one_line(sentence)}"
        elif not told.endswith("…"):
            told = f"{told.rstrip(',')} …"
    return told.strip()
