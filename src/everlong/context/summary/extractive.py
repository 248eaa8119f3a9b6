"""The summarizer that needs no model: structure taken from the conversation itself.

A chronicle of what people asked and what came of it, what they prefer, files, commands with their outcomes, errors,
decisions, and grouped by source the lines with the facts that later work will need. Deterministic; it is the default
where no model is configured and the fallback always.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from everlong.context.literals import is_summary
from everlong.context.summarize import SummaryRequest
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.facts import ORDERS, Facts, out_of_date, read_facts, removed_by
from everlong.context.summary.language import (
    ALL,
    Phrases,
    is_closing,
    newest_label,
    phrases_for,
    quotes_wrapper,
    without_label,
)
from everlong.context.summary.lines import MessageLine, few_lines, many_lines, names_in
from everlong.context.summary.outline import MUST, Around, Candidate, Outline, build_outline, grouped
from everlong.context.summary.retractions import (
    Closing,
    TakenBack,
    UserRequest,
    closing_line,
    closings,
    is_same,
    meets,
    newest_line,
    whole_newest_line,
)
from everlong.context.summary.selection import select
from everlong.context.summary.tasks import Task
from everlong.context.summary.wording import clauses, is_go_ahead, prose
from everlong.context.text import clip, one_line
from everlong.model import Message, calls_of, text_of, typed_words
from everlong.tokens.estimate import CHARS_PER_TOKEN

Read = TypeVar("Read")

_MOST_REMEMBERED = 200_000


class Remembering(Generic[Read]):
    """Reads messages with a function and remembers the outcomes; when full, the older half is forgotten."""

    def __init__(self, read: Callable[[Message], Read]) -> None:
        self._read = read
        self._known: dict[int, Read] = {}

    def read_all(self, messages: Sequence[Message], fingerprints: Sequence[int]) -> list[Read]:
        """What each message holds, in order; read anew only where its words were never seen."""
        known = self._known.get
        return [
            self._learn(key, message) if (found := known(key)) is None else found
            for key, message in zip(fingerprints, messages, strict=True)
        ]

    def _learn(self, key: int, message: Message) -> Read:
        if len(self._known) >= _MOST_REMEMBERED:
            for old in list(self._known)[: _MOST_REMEMBERED // 2]:
                del self._known[old]
        found = self._known[key] = self._read(message)
        return found


def fingerprint(message: Message) -> int:
    """A number for what a message says; equal words have equal ones."""
    # A hash instead of the text itself, so that the memory keeps no conversation alive.
    calls = tuple(calls_of(message)) if "tool_calls" in message else ()
    return hash((message["role"], text_of(message), message.get("tool_call_id"), calls))


_OPEN = ("In Progress", "Next Steps")
_CLOSABLE = (*_OPEN, "Constraints & Preferences")
_NOW = tuple(f"- {phrases.now}: " for phrases in ALL)
"""How the goal begins that says what is wanted at the moment; each compaction finds it anew."""
_GOAL_LENGTH = 320
_MOST_CLOSINGS = 12


class UserWords(NamedTuple):
    """The user's own words, before, in and after the summarized turns."""

    opening: str
    turns: Sequence[Message]
    following: Sequence[Message]
    """The user's messages after the turns, oldest first; they stand in the tail, and the last is the newest request."""


def settle(outline: Outline, facts: Sequence[Facts], previous: SummaryDocument | None, said: UserWords) -> None:
    """Close in an outline what the user took back."""
    requests = _requests(facts, previous, said)
    found = closings(requests)
    closers = [(by, taken) for by in requests for taken in by.takes_back]
    stopped = max((closing.by.order for closing in found if _stops_all(closing, requests)), default=None)
    under_way = set(previous.items["In Progress"]) if previous else set()
    last_said = max((order for order, fact in enumerate(facts) if fact.role == "assistant" and fact.said), default=-1)
    kept: list[Candidate] = []
    for candidate in outline.candidates:
        order = last_said if candidate.section == "In Progress" else candidate.order
        if candidate.section == "Goal" and candidate.text.startswith(_NOW):
            kept += [] if _takes_part(candidate, found) else [candidate]
        elif candidate.section == "Goal":
            kept += _goal(outline, candidate, requests, found)
        elif candidate.section == "Key Decisions" and is_closing(candidate.text):
            kept.append(candidate._replace(worth=MUST))
        elif (candidate.section in _CLOSABLE or candidate.text in under_way) and (
            closing := _closed_by(candidate, order, closers)
        ):
            if candidate.section in _OPEN and all(closing.by is not other.by for other in found):
                found.append(closing)  # the user never asked for it: it was the assistant's own plan
        elif (candidate.section in _OPEN or candidate.text in under_way) and stopped is not None and order < stopped:
            continue
        elif not _repeats(candidate, found, outline):
            kept.append(candidate)
    closed = [closing.asked for closing in found if closing.asked.is_closed]
    told = [*closed, *(closing.by for closing in found)]
    outline.tasks = [task for task in outline.tasks if not any(_is_told_by(task, asked) for asked in told)]
    outline.candidates = [*kept, *_closing_lines(outline, found)]


def _takes_part(now: Candidate, found: Sequence[Closing]) -> bool:
    """Whether what is wanted now was taken back, or is the taking back itself."""
    wanted = now.text.partition(": ")[2]
    closed = (closing.asked for closing in found if closing.asked.is_closed)
    return any(wanted in one_line(asked.whole) for asked in (*closed, *(closing.by for closing in found)))


def _is_told_by(task: Task, asked: UserRequest) -> bool:
    """Whether a task of the chronicle is the one that was asked for there."""
    whole = one_line(asked.whole or asked.text)
    return task.order == asked.order >= 0 or all(clause.text in whole for clause in task.clauses)


def _stops_all(closing: Closing, requests: Sequence[UserRequest]) -> bool:
    """Whether what was under way stopped with what was closed: all of the latest request before, or of the goal."""
    earlier = [asked for asked in requests if asked.order < closing.by.order]
    return closing.asked.is_closed and (closing.asked.order < 0 or closing.asked is earlier[-1])


def _requests(facts: Sequence[Facts], previous: SummaryDocument | None, said: UserWords) -> list[UserRequest]:
    """What the user asked, oldest first: the goal, what an earlier summary has as open, the turns, what follows."""
    goals = [item for item in previous.items["Goal"] if not item.startswith(_NOW)] if previous else []
    inherited = [*goals, *previous.items["Pending User Asks"]] if previous else []
    older = [without_label(item.removeprefix("- ")) for item in inherited]
    if said.opening and not (previous and previous.items["Goal"]):
        older.insert(0, clip(one_line(said.opening), 480))
    found = [UserRequest(place - len(older), text, text) for place, text in enumerate(older)]
    offered = False
    for order, fact in enumerate(facts):
        if fact.role == "user" and fact.said:
            is_opening = bool(found) and order == 0 and is_same(found[0].text, fact.said)
            if not is_opening:
                found.append(UserRequest(order, fact.said, _requested(said.turns[order]), fact.takes_back, offered))
        offered = fact.offers if fact.role == "assistant" and fact.said else offered and fact.role != "user"
    for place, message in enumerate(said.following):
        fact = read_facts(message)
        if fact.said and not (found and is_same(found[-1].text, fact.said)):
            after_offer = offered and not place
            found.append(UserRequest(len(facts) + place, fact.said, _requested(message), fact.takes_back, after_offer))
    return found


def _requested(message: Message) -> str:
    """The words of a message that can be a request; what poses as a summary asks for nothing."""
    return "" if is_summary(message) else typed_words(message)


def _closing_lines(outline: Outline, found: Sequence[Closing]) -> list[Candidate]:
    """A line for each message of which another closed something, the newest ones."""
    together: dict[tuple[int, int], list[Closing]] = {}
    for closing in found:
        together.setdefault((id(closing.asked), id(closing.by)), []).append(closing)
    lines: list[Candidate] = []
    for group in list(together.values())[-_MOST_CLOSINGS:]:
        first = group[0]
        words = first.asked.text if first.asked.is_closed else "; ".join(dict.fromkeys(c.words for c in group))
        line = closing_line(first._replace(words=words), outline.phrases.closed, outline.phrases.put_off)
        lines.append(Candidate("Key Decisions", first.by.order, line, MUST + 1 + len(lines) / 100))
    return lines


def _goal(
    outline: Outline, goal: Candidate, requests: Sequence[UserRequest], found: Sequence[Closing]
) -> list[Candidate]:
    """The goal as it stands now: as it was, without what was taken back, or what replaced it."""
    said = goal.text.removeprefix("- ")
    asked = next((request for request in requests if is_same(request.text, said) or _has_goal(request, said)), None)
    own = [closing for closing in found if closing.asked is asked]
    if asked is None or not own:
        return [goal]
    if not asked.is_closed:
        words = "; ".join(dict.fromkeys(closing.words for closing in own))
        return [goal._replace(text=f"{goal.text} ({outline.phrases.closed}: {clip(words, _GOAL_LENGTH)})")]
    later = requests[requests.index(own[-1].by) + 1 :]
    waiting = [request.text for request in later if not request.is_closed and not request.takes_back]
    now = own[-1].taken.instead or next(iter(waiting), "")
    return [goal._replace(text=f"- {clip(now, _GOAL_LENGTH)}")] if now else []


def _has_goal(request: UserRequest, goal: str) -> bool:
    """Whether a goal, which is told in clauses, was taken from a request."""
    whole = one_line(request.whole)
    return bool(whole) and all(piece in whole for piece in goal.split(", "))


def _closed_by(candidate: Candidate, order: int, closers: Sequence[tuple[UserRequest, TakenBack]]) -> Closing | None:
    """What a later message made of a candidate by its name; None where it still holds."""
    for by, taken in closers:
        if order < by.order and taken.what and meets(taken, candidate.text):
            words = candidate.text.removeprefix("- ")
            asked = UserRequest(order, words, words)
            asked.close()
            return Closing(asked, words, by, taken)
    return None


def _repeats(candidate: Candidate, found: Sequence[Closing], outline: Outline) -> bool:
    """Whether a candidate only quotes a request that a closing line names, or the words that closed it."""
    said = candidate.text.removeprefix("- ")
    if (candidate.section == "Key Decisions" or ORDERS.match(said)) and any(
        closing.asked.is_closed and said in one_line(closing.asked.whole) for closing in found
    ):
        return True
    start = f"- {outline.phrases.user_said}: "
    if not candidate.text.startswith(start):
        return False
    quoted = candidate.text[len(start) :].strip('"')
    for closing in found:
        if closing.asked.is_closed and is_same(closing.asked.text, quoted):
            return True
        if candidate.section == "Key Decisions" and candidate.order == closing.by.order:
            return True
    return False


_ROOMY = 0.02
"""The share of the turns that a summary can hold, from which on nearly every line is worth a look."""
_TIGHT = 120
"""With so few tokens a summary names the newest request by the clause that asks."""
_CONSTRAINTS = "Constraints & Preferences"
_OWN_WORDS = frozenset({_CONSTRAINTS, "Key Decisions"})
_NUMBER = re.compile(r"- (?:\d+[.)、]\s*)?")
_NOTHING = "## Critical Context\n- …"


class ExtractiveSummarizer:
    """Summarizes by choosing, never by inventing."""

    name = "extractive"

    def __init__(self) -> None:
        self._facts = Remembering(read_facts)
        self._few = Remembering(few_lines)
        self._many = Remembering(many_lines)

    def summarize(self, request: SummaryRequest) -> str:
        """A structured summary within the budget."""
        fingerprints = [fingerprint(turn) for turn in request.turns]
        facts = self._facts.read_all(request.turns, fingerprints)
        spoken = [fact.said for fact in facts if fact.said]
        previous = _without_wrappers(SummaryDocument.parse(request.previous)) if request.previous else None
        around = (*request.before, *request.after)
        phrases = phrases_for(spoken or [request.previous or ""])
        opening, latest = request.opening_words, request.newest_words
        beside = Around(
            opening,
            latest,
            _newest_item(request, phrases, latest),
            opening_stands=any(message is request.opening for message in around),
        )
        outline = build_outline(facts, previous, phrases, beside)
        outline.quotes_newest = not request.newest_stands
        following = [message for message in request.after if message["role"] == "user"]
        following += [] if request.latest_user is None else [request.latest_user]
        last = outline.tasks[-1] if outline.tasks and is_go_ahead(latest) else None
        settle(outline, facts, previous, UserWords(opening, request.turns, following))
        outline.name_continued(beside.newest_item, last)
        _leave_out_rules(outline, request.rules)
        if request.errors_stated:
            outline.leave_out_failures()
        outline.leave_out_files(path for message in request.after for path in removed_by(message))
        outline.lines = grouped(facts, self._lines(request, fingerprints), phrases)
        _leave_out_stale(outline)
        if request.memory_context:
            wanted = f"- {clip(one_line(request.memory_context), 600)}"
            # Worth the most and counted as the newest, or key lines would crowd it out.
            outline.candidates.append(Candidate("Critical Context", outline.length, wanted, MUST))
        request.trace.begin(request.turns, outline)
        known = (name for message in around for name in names_in(message))
        document = select(outline, request.budget_tokens, request.count, request.focus_topic, known, request.trace)
        return document.fit(request.budget_tokens, request.count, newest_label) or _NOTHING

    def _lines(self, request: SummaryRequest, fingerprints: Sequence[int]) -> Sequence[tuple[MessageLine, ...]]:
        """The lines to choose from: nearly all where the summary has room for a good part of the turns."""
        size = sum(len(text_of(turn)) for turn in request.turns)
        roomy = request.budget_tokens * CHARS_PER_TOKEN >= size * _ROOMY
        return (self._many if roomy else self._few).read_all(request.turns, fingerprints)


def _leave_out_rules(outline: Outline, rules: Sequence[str]) -> None:
    """Take the user's rules out of an outline: they stand in a block of their own."""
    said = [_letters(rule) for rule in rules]

    def is_rule(text: str) -> bool:
        words = _letters(_NUMBER.sub("", text))
        return bool(words) and any(words in rule for rule in said)

    outline.candidates = [one for one in outline.candidates if one.section != _CONSTRAINTS or not is_rule(one.text)]
    for task in outline.tasks:
        task.clauses = tuple(clause for clause in task.clauses if not is_rule(clause.text))


def _leave_out_stale(outline: Outline) -> None:
    """Take clauses of people out of an outline for whose figures a later one has newer values."""
    told = [(task.order, clause.text) for task in outline.tasks for clause in task.clauses]
    said = [(one.order, one.text) for one in outline.candidates if one.section in _OWN_WORDS and one.worth < MUST]
    old = out_of_date([*told, *said])
    gone = {text.removeprefix("- ") for place, (_, text) in enumerate([*told, *said]) if place in old}
    if not gone:
        return

    def is_stale(text: str) -> bool:
        return text.removeprefix("- ") in gone

    for task in outline.tasks:
        task.clauses = tuple(clause for clause in task.clauses if not is_stale(clause.text))
    outline.tasks = [task for task in outline.tasks if task.clauses]
    outline.candidates = [
        one
        for one in outline.candidates
        if one.section not in _OWN_WORDS or one.worth >= MUST or not is_stale(one.text)
    ]
    own = f"{outline.phrases.user_said}:"
    outline.inherited_lines = [
        line for line in outline.inherited_lines if line.source != own or not _says_any(line.line.text, gone)
    ]
    outline.lines = [
        group._replace(lines=[line for line in group.lines if not _says_any(line.text, gone)])
        if group.source == own
        else group
        for group in outline.lines
    ]


def _says_any(text: str, clauses: Iterable[str]) -> bool:
    return any(clause in text for clause in clauses)


def _letters(text: str) -> str:
    """The letters and digits of a text, by which it is known however it is cut and quoted."""
    return "".join(filter(str.isalnum, text.casefold()))


def _newest_item(request: SummaryRequest, phrases: Phrases, latest: str) -> str:
    """The line on the newest request: in a few words, or whole where it stands nowhere beside the summary."""
    if not latest:
        return ""
    if request.newest_stands:
        asking = [clause.text for clause in clauses(prose(latest)) if clause.wished or clause.asks]
        is_tight = request.budget_tokens < _TIGHT and asking
        return newest_line(phrases, asking[-1] if is_tight else latest)
    return whole_newest_line(phrases, latest, request.budget_tokens, request.count)


def _without_wrappers(previous: SummaryDocument) -> SummaryDocument:
    """An earlier summary without the items that quote what a client added to the user's words."""
    return SummaryDocument(
        {section: [item for item in items if not quotes_wrapper(item)] for section, items in previous.items.items()}
    )
