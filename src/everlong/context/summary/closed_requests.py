"""Closed requests: what the user asked for and later took back or replaced.

Each request is compared with the retractions after it, clause by clause, so that a goal of several parts keeps the
others. `close_requests` then closes the matching candidates of an outline, so that a summary never names them as open.
Only words are compared, not meanings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from everlong.context.literals import is_summary
from everlong.context.summary.document import CONSTRAINTS, SummaryDocument
from everlong.context.summary.facts import ORDERS, Facts, read_facts
from everlong.context.summary.language import NOW_LABELS, is_closing, without_label
from everlong.context.summary.newest_request import is_same
from everlong.context.summary.outline import MUST, Candidate, Outline
from everlong.context.summary.retractions import Retraction
from everlong.context.summary.tasks import Task
from everlong.context.text import clip, one_line
from everlong.model import Message, typed_words

_OPEN = ("In Progress", "Next Steps")
_CLOSABLE = (*_OPEN, CONSTRAINTS)
_GOAL_LENGTH = 320
_MOST_CLOSINGS = 12


class UserWords(NamedTuple):
    """The user's own words: before, in and after the summarized turns."""

    opening: str
    turns: Sequence[Message]
    following: Sequence[Message]
    """The user's messages after the turns, oldest first. They stand in the tail; the last is the newest request."""


def close_requests(outline: Outline, facts: Sequence[Facts], previous: SummaryDocument | None, said: UserWords) -> None:
    """Close everything in an outline that the user took back."""
    requests = _list_requests(facts, previous, said)
    found = find_closings(requests)
    closers = [(by, taken) for by in requests for taken in by.retractions]
    stopped = max((closing.by.order for closing in found if _stops_all(closing, requests)), default=None)
    under_way = set(previous.items["In Progress"]) if previous else set()
    last_said = max((order for order, fact in enumerate(facts) if fact.role == "assistant" and fact.said), default=-1)
    kept: list[Candidate] = []
    for candidate in outline.candidates:
        order = last_said if candidate.section == "In Progress" else candidate.order
        if candidate.section == "Goal" and candidate.text.startswith(NOW_LABELS):
            kept += [] if _is_retracted_wish(candidate, found) else [candidate]
        elif candidate.section == "Goal":
            kept += _current_goal(outline, candidate, requests, found)
        elif candidate.section == "Key Decisions" and is_closing(candidate.text):
            kept.append(candidate._replace(worth=MUST))
        elif (candidate.section in _CLOSABLE or candidate.text in under_way) and (
            closing := _find_closing(candidate, order, closers)
        ):
            if candidate.section in _OPEN and all(closing.by is not other.by for other in found):
                found.append(closing)  # the user never asked for it: it was the assistant's own plan
        elif (candidate.section in _OPEN or candidate.text in under_way) and stopped is not None and order < stopped:
            continue
        elif not _repeats(candidate, found, outline):
            kept.append(candidate)
    closed = [closing.asked for closing in found if closing.asked.is_closed]
    told = [*closed, *(closing.by for closing in found)]
    outline.tasks = [task for task in outline.tasks if not any(_is_request(task, asked) for asked in told)]
    outline.candidates = [*kept, *_closing_lines(outline, found)]


def _list_requests(facts: Sequence[Facts], previous: SummaryDocument | None, said: UserWords) -> list[UserRequest]:
    """Return the user's requests, oldest first: the goal, open ones of an earlier summary, the turns, the tail."""
    goals = [item for item in previous.items["Goal"] if not item.startswith(NOW_LABELS)] if previous else []
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
                found.append(
                    UserRequest(order, fact.said, _request_words(said.turns[order]), fact.retractions, offered)
                )
        offered = fact.offers if fact.role == "assistant" and fact.said else offered and fact.role != "user"
    for place, message in enumerate(said.following):
        fact = read_facts(message)
        if fact.said and not (found and is_same(found[-1].text, fact.said)):
            after_offer = offered and not place
            found.append(
                UserRequest(len(facts) + place, fact.said, _request_words(message), fact.retractions, after_offer)
            )
    return found


def _request_words(message: Message) -> str:
    """Return the words of a message that can be a request; text that poses as a summary asks for nothing."""
    return "" if is_summary(message) else typed_words(message)


def _is_retracted_wish(now: Candidate, found: Sequence[Closing]) -> bool:
    """Return whether the current wish was taken back, or is the retraction itself."""
    wanted = now.text.partition(": ")[2]
    closed = (closing.asked for closing in found if closing.asked.is_closed)
    return any(wanted in one_line(asked.whole) for asked in (*closed, *(closing.by for closing in found)))


def _is_request(task: Task, asked: UserRequest) -> bool:
    """Return whether a task of the chronicle is a given request."""
    whole = one_line(asked.whole or asked.text)
    return task.order == asked.order >= 0 or all(clause.text in whole for clause in task.clauses)


def _stops_all(closing: Closing, requests: Sequence[UserRequest]) -> bool:
    """Return whether a closing also stops work in progress: it closed the goal, or all of the request before."""
    earlier = [asked for asked in requests if asked.order < closing.by.order]
    return closing.asked.is_closed and (closing.asked.order < 0 or closing.asked is earlier[-1])


def _current_goal(
    outline: Outline, goal: Candidate, requests: Sequence[UserRequest], found: Sequence[Closing]
) -> list[Candidate]:
    """Return the goal as it stands now: unchanged, without what was taken back, or replaced."""
    said = goal.text.removeprefix("- ")
    asked = next((request for request in requests if is_same(request.text, said) or _states_goal(request, said)), None)
    own = [closing for closing in found if closing.asked is asked]
    if asked is None or not own:
        return [goal]
    if not asked.is_closed:
        words = "; ".join(dict.fromkeys(closing.words for closing in own))
        return [goal._replace(text=f"{goal.text} ({outline.phrases.closed}: {clip(words, _GOAL_LENGTH)})")]
    later = requests[requests.index(own[-1].by) + 1 :]
    waiting = [request.text for request in later if not request.is_closed and not request.retractions]
    now = own[-1].taken.instead or next(iter(waiting), "")
    return [goal._replace(text=f"- {clip(now, _GOAL_LENGTH)}")] if now else []


def _states_goal(request: UserRequest, goal: str) -> bool:
    """Return whether a goal, which is told in clauses, comes from a request."""
    whole = one_line(request.whole)
    return bool(whole) and all(piece in whole for piece in goal.split(", "))


def _find_closing(
    candidate: Candidate, order: int, closers: Sequence[tuple[UserRequest, Retraction]]
) -> Closing | None:
    """Return the closing of a candidate that a later message takes back by name; None if it still holds."""
    for by, taken in closers:
        if order < by.order and taken.what and mentions(taken, candidate.text):
            words = candidate.text.removeprefix("- ")
            asked = UserRequest(order, words, words)
            asked.close()
            return Closing(asked, words, by, taken)
    return None


def _repeats(candidate: Candidate, found: Sequence[Closing], outline: Outline) -> bool:
    """Return whether a candidate only quotes a closed request, or the words that closed it."""
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


def _closing_lines(outline: Outline, found: Sequence[Closing]) -> list[Candidate]:
    """Return a candidate for each pair of closed and closing message, the newest ones."""
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


# -- requests and the retractions that close them ----------------------------------------------------------------------

_CLAUSE = re.compile(r"[,;，；、。！!\n]+|(?<=\w)[.?？](?=\s|$)|\s(?:and|then|but|plus)\s", re.IGNORECASE)
_MOST_CLAUSES = 24
_WORD = re.compile(r"[A-Za-z0-9_][\w./-]*[\w]|[A-Za-z0-9]|[\u3400-\u9fff]+")
_STOP_WORDS = re.compile(
    r"the|an?|to|of|for|in|on|with|or|please|can|could|would|you|i|we|want|need|like|should|lets?|us|my|our|your|its?"
    r"|this|that|these|those|is|are|be|do|does|just|now|so|also|some|any|from|by|at|as|into|up|out|about|me|there|here"
    r"|which|part|things?|stuff|idea|plan|task|request|feature|work|whole|entire|ones?|all|last|previous|earlier"
)
_HAN_FILLER = re.compile(r"[的了吧请把给我你帮一个这那]")
_USES = re.compile(r"\b(?:use|using|go with|switch(?: over)? to|take|try)\b|用|换成|改成", re.IGNORECASE)
_LEADING = 2
"""A request is about what it names first: a verb, perhaps an adjective, and the thing."""
_STRONG_SHARE = 0.5
_HAN_SHARE = 0.3
_ASKED_LENGTH, _CLOSER_LENGTH = 90, 140


@dataclass
class UserRequest:
    """One request of the user, what it takes back, and which of its clauses were taken back later."""

    order: int
    text: str
    """The request in short."""
    whole: str
    """The words that can be taken back."""
    retractions: tuple[Retraction, ...] = ()
    after_offer: bool = False
    """True if the assistant had just asked something, so that a bare "no" is an answer."""
    closed: set[int] = field(default_factory=set)

    @cached_property
    def clauses(self) -> tuple[str, ...]:
        """The parts that can be taken back separately; computed on demand, since few users take anything back."""
        return _separable_clauses(self.whole)

    @property
    def is_closed(self) -> bool:
        """True if nothing of it is left."""
        return bool(self.closed) and len(self.closed) == len(self.clauses)

    def close(self) -> None:
        """Close all of it."""
        self.closed = set(range(len(self.clauses)))


class Closing(NamedTuple):
    """A request, the words of it that were closed, and the message that closed them."""

    asked: UserRequest
    words: str
    by: UserRequest
    taken: Retraction


def _separable_clauses(text: str) -> tuple[str, ...]:
    """Return the parts of a request that can be taken back separately."""
    pieces = (one_line(piece).strip(" .-*•>") for piece in _split(text[:4_000]))
    return tuple(islice(filter(_words, pieces), _MOST_CLAUSES))


def _split(text: str) -> Iterator[str]:
    """Yield the text between clause ends, one by one, since only the first few are needed."""
    start = 0
    for end in _CLAUSE.finditer(text):
        yield text[start : end.start()]
        start = end.end()
    yield text[start:]


def find_closings(requests: Sequence[UserRequest]) -> list[Closing]:
    """Return everything that was closed, in order, and mark the clauses as closed."""
    found: list[Closing] = []
    for place, by in enumerate(requests):
        for taken in by.retractions:
            earlier = [asked for asked in requests[:place] if not is_same(asked.text, by.text)]
            if taken.what:
                found += _close_named(earlier, by, taken)
            elif earlier and not (by.after_offer and not taken.instead):
                found = _close_latest(earlier, by, taken, found)
    return found


def _close_named(earlier: Sequence[UserRequest], by: UserRequest, taken: Retraction) -> Iterator[Closing]:
    """Close every clause about the thing; if a longer clause only mentions it, close that part."""
    for asked in earlier:
        for number, clause in enumerate(asked.clauses):
            if number in asked.closed or not mentions(taken, clause):
                continue
            if _is_about(taken.what, clause):
                asked.closed.add(number)
                yield Closing(asked, clause, by, taken)
            else:
                yield Closing(asked, taken.what, by, taken)


def _close_latest(
    earlier: Sequence[UserRequest], by: UserRequest, taken: Retraction, found: list[Closing]
) -> list[Closing]:
    """Close the latest request wherever it is repeated; if only a verb names it, close the clause with that verb."""
    last = earlier[-1]
    if last.is_closed or (last.retractions and not any(t.instead for t in last.retractions)):
        return found  # a second "never mind" does not close the request before
    if taken.by_verb:
        using = [n for n, clause in enumerate(last.clauses) if _USES.search(clause) and n not in last.closed]
        if not using:
            return found
        last.closed.add(using[-1])
        return [*found, Closing(last, last.clauses[using[-1]], by, taken)]
    same = [asked for asked in earlier if asked is last or is_same(asked.text, last.text)]
    for asked in same:
        asked.close()
    # A request that was itself given up no longer closes what it closed.
    kept: list[Closing] = []
    for closing in found:
        if closing.by is last:
            closing.asked.closed.clear()
        else:
            kept.append(closing)
    return [*kept, *(Closing(asked, asked.text, by, taken) for asked in same[-1:])]


def mentions(taken: Retraction, text: str) -> bool:
    """Return whether a text mentions the thing that is taken back."""
    names, there = _words(taken.what), set(_words(text))
    hits = sum(name in there for name in names)
    return bool(hits) and (hits == len(names) if taken.soft else hits >= _STRONG_SHARE * len(names))


def _is_about(what: str, clause: str) -> bool:
    names, there = set(_words(what)), _words(clause)
    hits = [place for place, word in enumerate(there) if word in names]
    if not clause.isascii():
        return len(hits) >= _HAN_SHARE * len(there)
    return bool(hits) and (hits[0] <= _LEADING or len(hits) * 2 >= len(there))


def _words(text: str) -> list[str]:
    """Return the meaningful words of a text without their endings; Chinese in pairs of characters."""
    found: list[str] = []
    for match in _WORD.finditer(text):
        word = match[0].lower()
        if word[0] > "\u2e7f":
            plain = _HAN_FILLER.sub("", word)
            found += [plain[at : at + 2] for at in range(max(1, len(plain) - 1))] if plain else []
        elif not _STOP_WORDS.fullmatch(word):
            found.append(re.sub(r"(?:ing|ed|es|s|e)$", "", word) if len(word) > 4 else word)
    return found


def closing_line(closing: Closing, closed: str, put_off: str) -> str:
    """Return a closing as an item of a summary."""
    label = put_off if closing.taken.put_off else closed
    asked, said = clip(one_line(closing.words), _ASKED_LENGTH), clip(one_line(closing.by.text), _CLOSER_LENGTH)
    return f'- {label}: {asked} → "{said}"'
