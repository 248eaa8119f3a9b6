"""The last step before choosing: what the user took back is no longer open, and what they asked last is said as such.

Works on the candidates of an outline; which requests are closed comes from comparing the user's own words. Runs after
the outline is built, so that the outline need not know that anything was taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from everlong.context.literals import is_summary
from everlong.context.summary.closed import Asked, Closing, closing_line, closings, is_same, meets
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.facts import ORDERS, Facts, read_facts
from everlong.context.summary.language import ALL, is_closing, without_label
from everlong.context.summary.outline import MUST, Candidate, Outline
from everlong.context.summary.takeback import TakenBack
from everlong.context.summary.tasks import Task
from everlong.context.summary.text import clip, one_line
from everlong.model import Message, typed_words

_OPEN = ("In Progress", "Next Steps")
_CLOSABLE = (*_OPEN, "Constraints & Preferences")
_NOW = tuple(f"- {phrases.now}: " for phrases in ALL)
"""How the goal begins that says what is wanted at the moment; each compaction finds it anew."""
_GOAL_LENGTH = 320
_MOST_CLOSINGS = 12


class Said(NamedTuple):
    """The user's own words, before, in and after the summarized turns."""

    opening: str
    turns: Sequence[Message]
    following: Sequence[Message]
    """The user's messages after the turns, oldest first; they stand in the tail, and the last is the newest request."""


def settle(outline: Outline, facts: Sequence[Facts], previous: SummaryDocument | None, said: Said) -> None:
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


def _is_told_by(task: Task, asked: Asked) -> bool:
    """Whether a task of the chronicle is the one that was asked for there."""
    whole = one_line(asked.whole or asked.text)
    return task.order == asked.order >= 0 or all(clause.text in whole for clause in task.clauses)


def _stops_all(closing: Closing, requests: Sequence[Asked]) -> bool:
    """Whether what was under way stopped with what was closed: all of the latest request before, or of the goal."""
    earlier = [asked for asked in requests if asked.order < closing.by.order]
    return closing.asked.is_closed and (closing.asked.order < 0 or closing.asked is earlier[-1])


def _requests(facts: Sequence[Facts], previous: SummaryDocument | None, said: Said) -> list[Asked]:
    """What the user asked, oldest first: the goal, what an earlier summary has as open, the turns, what follows."""
    goals = [item for item in previous.items["Goal"] if not item.startswith(_NOW)] if previous else []
    inherited = [*goals, *previous.items["Pending User Asks"]] if previous else []
    older = [without_label(item.removeprefix("- ")) for item in inherited]
    if said.opening and not (previous and previous.items["Goal"]):
        older.insert(0, clip(one_line(said.opening), 480))
    found = [Asked(place - len(older), text, text) for place, text in enumerate(older)]
    offered = False
    for order, fact in enumerate(facts):
        if fact.role == "user" and fact.said:
            is_opening = bool(found) and order == 0 and is_same(found[0].text, fact.said)
            if not is_opening:
                found.append(Asked(order, fact.said, _requested(said.turns[order]), fact.takes_back, offered))
        offered = fact.offers if fact.role == "assistant" and fact.said else offered and fact.role != "user"
    for place, message in enumerate(said.following):
        fact = read_facts(message)
        if fact.said and not (found and is_same(found[-1].text, fact.said)):
            after_offer = offered and not place
            found.append(Asked(len(facts) + place, fact.said, _requested(message), fact.takes_back, after_offer))
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


def _goal(outline: Outline, goal: Candidate, requests: Sequence[Asked], found: Sequence[Closing]) -> list[Candidate]:
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


def _has_goal(request: Asked, goal: str) -> bool:
    """Whether a goal, which is told in clauses, was taken from a request."""
    whole = one_line(request.whole)
    return bool(whole) and all(piece in whole for piece in goal.split(", "))


def _closed_by(candidate: Candidate, order: int, closers: Sequence[tuple[Asked, TakenBack]]) -> Closing | None:
    """What a later message made of a candidate by its name; None where it still holds."""
    for by, taken in closers:
        if order < by.order and taken.what and meets(taken, candidate.text):
            words = candidate.text.removeprefix("- ")
            asked = Asked(order, words, words)
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
