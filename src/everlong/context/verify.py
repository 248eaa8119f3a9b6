"""The quality of a summary, measured against the turns that it replaces.

A `Yardstick` gathers the evidence of one conversation and scores any summary of it by the checks of
`everlong.context.checks`. A long conversation is measured on an even sample of its turns, so that measuring never
costs more than compacting. Whether a list is valid is another question, which the invariants answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from copy import copy
from functools import cached_property
from typing import Literal

from everlong.context.checks import Evidence, SummaryFault, examine, score_of
from everlong.context.frontier import Frontier
from everlong.context.invariants import LatestUserTurn
from everlong.context.report import Quality
from everlong.context.summary.actions import action_of
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.entities import entities
from everlong.context.summary.language import quotes_wrapper, said_in
from everlong.context.summary.newest_request import is_restated
from everlong.context.text import one_line
from everlong.model import Message, Reading, calls_of, is_system, read_message, readable_text, text_of, typed_words
from everlong.redaction import REDACTED

_LATELY, _MOST_SAID = 120, 4_000
"""The number of newest messages, and the characters of each, that are compared with a summary sentence by sentence."""
_LEAST_QUOTE, _COMPARED = 20, 80
"""Characters that a quote must have to be recognized, and the characters of it that are compared."""
_MOST_TURNS = 120
_MOST_CHARACTERS = 800
_WEIGHTS = {"user": 3.0, "assistant": 2.0}
_MOST_SUSPECTS = 400
_LEAST_WORDS = 8
_LEAST_BEGUN = 3
"""Characters that the end of a text must have to count as a word that broke off."""
_AT_ONCE = 64
"""The number of texts that are searched as one."""
_MOST_SEARCHED = 4_000_000
"""Characters of the source that are searched for a summary's words."""
_BESIDE = 60
_LOOKS = re.compile(r"get|find|search|list|read|look|fetch|query|sql|think|show|todo|update_plan|ask", re.IGNORECASE)
"""Tools that change nothing, or only the plan."""
_JOINTS = re.compile(r"[:=@#?&]+")
_WORD = re.compile(r"[A-Za-z]{5,}|[\u3400-\u9fff]{2}")


class Yardstick:
    """The measure for summaries of one stretch of a conversation.

    Args:
        turns: the messages that a summary replaces.
        around: the messages beside it; without them a summary is measured by itself.
        source: all messages that it may draw on.
        more: further texts that it may draw on, such as an earlier summary.
        latest: the last user message, which must stand beside the summary.
        newest: the person's newest request in their own words.
        frontier: the state of the work that a summary must match.
        rules: the user's standing rules.
    """

    def __init__(  # noqa: PLR0913 - everything that a summary is held against
        self,
        turns: Sequence[Message],
        around: Sequence[Message] = (),
        source: Sequence[Message] | None = None,
        more: Iterable[str | None] = (),
        latest: Message | None = None,
        newest: str = "",
        *,
        frontier: Frontier | None = None,
        rules: Sequence[str] = (),
    ) -> None:
        self._turns = turns
        self._around = around
        self._source = turns if source is None else source
        self._more = [text for text in more if text]
        self._latest = latest
        self.newest = newest or (typed_words(latest) if latest is not None else "")
        self._step = max(1, -(-len(turns) // _MOST_TURNS))
        self._frontier = frontier
        self._standing_rules = rules
        self._names: dict[str, frozenset[str]] = {}
        self._drafts: dict[tuple[str, bool], list[SummaryFault]] = {}
        self._known: dict[str, bool] = {}
        self._near: dict[tuple[str, frozenset[str], int], bool] = {}
        self._sightings: dict[str, tuple[list[str], Iterator[str]]] = {}
        """The texts with a figure that were found so far, and those that were not searched yet."""

    def kept_share(self, summary: str) -> float:
        """Return the share of the turns' entities, weighted by use, that a summary or the messages beside it keep."""
        total = sum(self.wanted.values())
        if not total:
            return 1.0
        there = self._names_in(summary)
        lost = sum(weight for name, weight in self._lost_around.items() if name not in there)
        return 1.0 - lost / total

    def score(self, summary: str, *, is_trusted: bool = False) -> float:
        """Return the score of a draft, from 0 to 1.

        A draft need not have what is added to every one later: the newest request, the rules and the frontier. One
        that ``is_trusted`` is made of the conversation's own lines.
        """
        faults = [*self._examine_draft(summary, is_trusted=is_trusted), *self._lost_request()]
        # Among drafts without a fault the fuller one is better.
        return round(score_of(faults, 1.0) * (0.6 + 0.4 * self.kept_share(summary)), 2)

    def draft_faults(self, summary: str) -> tuple[str, ...]:
        """Return the faults of a draft, in words for the summarizer that mends it."""
        return tuple(map(str, self._examine_draft(summary)))

    def _examine_draft(self, summary: str, *, is_trusted: bool = False) -> list[SummaryFault]:
        found = self._drafts.get((summary, is_trusted))
        if found is None:
            evidence = self._evidence_with(is_trusted=is_trusted)
            found = self._drafts[summary, is_trusted] = examine(summary, evidence, 1.0, is_draft=True)
        return found

    def _evidence_with(self, beside: str = "", *, is_trusted: bool = False) -> Evidence:
        """Return the evidence for one summary; everything that was read of the conversation is shared."""
        evidence = copy(self._evidence)
        evidence.beside = lambda: f"{self._around_text}\n{beside}"
        if is_trusted:
            evidence.invented, evidence.unknown, evidence.is_trusted = (lambda _: ()), (lambda _: set()), True
        return evidence

    def faults(self, summary: str, beside: str = "", *, is_trusted: bool = False) -> list[SummaryFault]:
        """Return the faults of a finished summary; ``beside`` is text that will stand with it.

        A summary that ``is_trusted`` is made of the conversation's own lines, so nothing in it can be invented.
        """
        evidence = self._evidence_with(beside, is_trusted=is_trusted)
        return [*examine(summary, evidence, self.kept_share(summary)), *self._lost_request()]

    def grade(self, summary: str, beside: str = "", *, is_trusted: bool = False) -> float:
        """Return the score of a finished summary, from 0 to 1."""
        return score_of(self.faults(summary, beside, is_trusted=is_trusted), self.kept_share(summary))

    def _lost_request(self) -> list[SummaryFault]:
        return [] if self._is_latest_intact else [SummaryFault("newest request", "it does not stand after the summary")]

    @cached_property
    def _evidence(self) -> Evidence:
        """The evidence that a summary is checked against."""
        own: list[str] = []
        others: list[str] = []
        said: list[str] = [*self._more]
        older: list[str] = []
        last_tool, lately = 0, len(self._source) - _LATELY
        for place, message in enumerate(self._source):
            if message["role"] == "user":
                own.append(typed_words(message))
                said.append(own[-1])
            elif message["role"] == "tool":
                last_tool = len(said)
            elif message["role"] == "assistant" and place < lately:
                older.append(text_of(message)[:_MOST_SAID])
            elif message["role"] == "assistant":
                others.append(text_of(message)[:_MOST_SAID])
                said.append(others[-1])
        since, changed = self._done_since
        return Evidence(
            people=[text for text in (*own, self.newest, *self._more) if text],
            others=others,
            said=[*said, self.newest] if self.newest not in own[-1:] else said,
            older=older,
            last_tool=last_tool,
            since=since,
            changed=changed,
            newest=self.newest,
            rules=self._standing_rules,
            frontier=self._frontier,
            is_wrapper=self.is_wrapper,
            is_no_goal=self.is_no_goal,
            stands_with=self._stands_with,
            unknown=self._unknown,
            invented=self.invented,
        )

    @cached_property
    def _done_since(self) -> tuple[list[str], list[str] | None]:
        """The texts and commands since the newest request, and the changed files; None if nothing was changed."""
        since: list[str] = []
        changed: list[str] | None = None
        for message in reversed(self._source):
            if message["role"] == "user" and typed_words(message):
                break
            if message["role"] != "assistant":
                continue
            since.append(text_of(message)[:_MOST_SAID])
            for call in calls_of(message):
                action = action_of(call)
                since.append(action.title)
                if action.changes or (action.kind == "other" and not _LOOKS.match(call.name)):
                    changed = [*(changed or ()), *action.paths]
        return since, changed

    def _stands_with(self, figure: str, words: Set[str], least: int) -> bool:
        """Return whether a figure stands near at least that many of some words anywhere in the source."""
        key = (figure, frozenset(words), least)
        found = self._near.get(key)
        if found is None:
            found = self._near[key] = self._find_beside(figure, words, least)
        return found

    def _find_beside(self, figure: str, words: Set[str], least: int) -> bool:
        whole = re.compile(rf"(?<![\w.,:-]){re.escape(figure)}(?!\w*\d|[.,:]\d)")
        for text in self._texts_with(figure):
            place = text.find(figure)
            if text.isascii() and text.find(figure, place + _BESIDE) >= 0:  # it is all over the text: look once
                lowered = text.lower()
                if sum(map(lowered.__contains__, words)) < least:
                    continue
            while place >= 0:
                beside = text[max(0, place - _BESIDE) : place + len(figure) + _BESIDE].lower()
                if sum(map(beside.__contains__, words)) >= least and whole.match(text, place):
                    return True
                place = text.find(figure, place + 1)
        return False

    def _texts_with(self, figure: str) -> Iterator[str]:
        """Yield the texts of the source with a figure, newest first; none is searched twice for the same one."""
        found, rest = self._sightings.setdefault(figure, ([], iter(self._source_texts)))
        yield from found
        for text in rest:
            if figure in text:
                found.append(text)
                yield text

    @cached_property
    def _around_text(self) -> str:
        return "\n".join(text_of(message) for message in self._around)

    def is_wrapper(self, item: str) -> bool:
        """Return whether an item of a summary quotes a client's addition to the user's words, not a person."""
        return self._is_quoted_from(self._client_additions, item)

    def is_no_goal(self, item: str) -> bool:
        """Return whether an item quotes a client's addition or a project's rule, which are no goal and no request."""
        return self.is_wrapper(item) or self._is_quoted_from(self._project_rules, item)

    def _is_quoted_from(self, texts: str, item: str) -> bool:
        said = one_line(said_in(item)).removesuffix(" ...")[:_COMPARED]
        if not (quotes_wrapper(item) or (len(said) >= _LEAST_QUOTE and said in texts)):
            return False
        return not any(_has_in_order(typed_words(m), said) for m in self._source if m["role"] == "user")

    def measure(
        self,
        summary: str,
        *,
        invented: tuple[str, ...] = (),
        problems: tuple[str, ...] = (),
        extract_score: float | None = None,
        beside: str = "",
        is_trusted: bool = False,
    ) -> Quality:
        """Return the quality of a compaction with this summary; the other arguments tell how it was made."""
        faults = self.faults(summary, beside, is_trusted=is_trusted)
        return Quality(
            score=score_of(faults, self.kept_share(summary)),
            faults=tuple(map(str, faults)),
            entities_kept=round(self.kept_share(summary), 4),
            invented=invented,
            sections=SummaryDocument.parse(summary).filled_sections(),
            latest_request_intact=self._is_latest_intact,
            newest_request_restated=is_restated(SummaryDocument.parse(summary), self.newest),
            sampled=self._step > 1,
            problems=problems,
            extract_score=extract_score,
        )

    def missing(self, summary: str) -> list[str]:
        """Return the turns' entities that stand neither in a summary nor beside it, the weightiest first."""
        there = self._names_in(summary)
        lost = [(-weight, name) for name, weight in self._lost_around.items() if name not in there]
        return [name for _, name in sorted(lost)]

    def invented(self, summary: str) -> tuple[str, ...]:
        """Return the entities of a summary that its source has nowhere."""
        # A count that the summary itself made up of many turns (×12) is an observation, not an invention.
        suspects = [
            name
            for name in dict.fromkeys(entities(REDACTED.sub(" ", summary)))
            if name not in self.wanted and (not name.isdigit() or len(name) > 3)
        ][:_MOST_SUSPECTS]
        pieces = {name: [p for p in _JOINTS.split(name) if len(p) > 1] or [name] for name in suspects}
        unknown = self._unknown({piece for parts in pieces.values() for piece in parts} | set(suspects))
        found = [
            name
            for name in suspects
            if name in unknown and any(p in unknown and not (p.isdigit() and len(p) < 4) for p in pieces[name])
        ]
        # The file's name in an invented path is invented with it.
        return tuple(name for name in found if not any(name != other and name in other for other in found))

    def relatedness(self, summary: str) -> float:
        """Return the share of a summary's words that its source has too; 1 if there are too few words to tell."""
        words = set(_WORD.findall(summary.lower()))
        if len(words) < _LEAST_WORDS:
            return 1.0
        strange = words - self._vocabulary
        if len(strange) > 0.5 * len(words):  # the sample may have missed them: look further before judging
            looked_at = 0
            for message in reversed(self._source):
                for text in _texts(message):
                    lowered = text.lower()
                    strange -= {word for word in strange if word in lowered}
                    looked_at += len(text)
                if not strange or looked_at > _MOST_SEARCHED:
                    break
        return 1 - len(strange) / len(words)

    def breaks_off_in(self, word: str) -> bool:
        """Return whether the source has only longer words that begin with this one."""
        lowered = word.lower()
        if len(lowered) < _LEAST_BEGUN or lowered in self._vocabulary or word in self.wanted:
            return False
        as_written, in_any_case, looked_at = {""}, {""}, 0
        for text in self._source_texts:
            if looked_at > _MOST_SEARCHED or "whole" in as_written:
                break
            looked_at += len(text)
            as_written.add(_sighting(word, text))
            in_any_case.add(_sighting(lowered, text.lower()))
        # The exact case is the better evidence: Mark may be a cut Markdown although the text has the word mark.
        sightings = as_written if len(as_written) > 1 else in_any_case
        return "begun" in sightings and "whole" not in sightings

    # -- contents of the source ----------------------------------------------------------------------------------------

    @cached_property
    def wanted(self) -> dict[str, float]:
        """The entities of the turns; those that people and models wrote, and those that recur, weigh more."""
        by_weight: dict[float, list[str]] = {}
        named: list[str] = []  # each name as often as texts have it
        for message in self._turns[:: self._step]:
            mine = by_weight.setdefault(_WEIGHTS.get(message["role"], 1.0), [])
            for text in _readable_texts(message):
                names = set(entities(text[:_MOST_CHARACTERS]))
                named += names
                mine += names
        weights: dict[str, float] = {}
        for weight in sorted(by_weight):
            weights.update(dict.fromkeys(by_weight[weight], weight))
        return {name: weights[name] * min(count, 5) for name, count in Counter(named).items()}

    @cached_property
    def _lost_around(self) -> dict[str, float]:
        """The wanted entities that no message beside the summary has, so that only the summary can keep them."""
        there = {
            name
            for message in self._around
            if not is_system(message)
            for text in _texts(message)
            for name in entities(text)
        }
        return {name: weight for name, weight in self.wanted.items() if name not in there}

    @cached_property
    def _client_additions(self) -> str:
        """The text that clients added to the user's words."""
        return "\n".join(one_line(read.added) for read in self._read_messages if read.added)

    @cached_property
    def _project_rules(self) -> str:
        """The project's rules that clients sent along; they are no goal."""
        return "\n".join(one_line(read.rules) for read in self._read_messages if read.rules)

    @cached_property
    def _read_messages(self) -> list[Reading]:
        """The user's messages with more in them than a person's words."""
        found = (read_message(message) for message in self._source if message["role"] == "user")
        return [read for read in found if read.added or read.rules]

    @cached_property
    def _vocabulary(self) -> set[str]:
        sampled = [text[:_MOST_CHARACTERS] for m in self._turns[:: self._step] for text in _texts(m)]
        return {word for text in [*sampled, *self._more] for word in _WORD.findall(text.lower())}

    @cached_property
    def _is_latest_intact(self) -> bool:
        if not self._around:
            return True
        source = self._source if self._latest is None else [self._latest]
        return not LatestUserTurn(source).check(self._around)

    def _names_in(self, summary: str) -> frozenset[str]:
        names = self._names.get(summary)
        if names is None:
            names = self._names[summary] = frozenset(entities(summary))
        return names

    def _unknown(self, names: set[str]) -> set[str]:
        """Return those names that no text of the source has."""
        remaining = {name for name in names if name not in self._known}
        for start in range(0, len(self._source_texts), _AT_ONCE):
            if not remaining:
                break
            text = "\n".join(self._source_texts[start : start + _AT_ONCE])
            found = {name for name in remaining if name in text and _stands_in(name, text)}
            self._known.update(dict.fromkeys(found, True))
            remaining -= found
        self._known.update(dict.fromkeys(remaining, False))
        return {name for name in names if not self._known[name]}

    @cached_property
    def _source_texts(self) -> list[str]:
        """All texts of the source, newest first, because most names are found there."""
        texts = [*self._more]
        for message in reversed(self._source):
            if text := text_of(message):
                texts.append(text)
            if message.get("tool_calls"):
                texts += [part for call in calls_of(message) for part in (call.arguments, call.name) if part]
        return texts


def _readable_texts(message: Message) -> list[str]:
    return [readable_text(message), *(call.arguments for call in calls_of(message))]


def _texts(message: Message) -> list[str]:
    return [text_of(message), *(call.arguments for call in calls_of(message))]


def _stands_in(name: str, text: str) -> bool:
    """Return whether a text has a name as a whole, not as part of a longer one."""
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if not (_is_inside(text, start - 1, start) or _is_inside(text, end - 1, end)):
            return True
        start = text.find(name, start + 1)
    return False


def _sighting(word: str, text: str) -> Literal["whole", "begun", ""]:
    """Return whether a text has a word as a whole, only words that begin with it, or neither."""
    found: Literal["begun", ""] = ""
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        if not _is_inside(text, start - 1, start):
            if not _is_inside(text, end - 1, end):
                return "whole"
            found = "begun"
        start = text.find(word, end)
    return found


def _is_inside(text: str, left: int, right: int) -> bool:
    """Return whether two neighbouring characters belong to one word."""
    if left < 0 or right >= len(text):
        return False
    # In JSON a line break is written as \n, so a letter after a backslash may belong to the line break.
    if left > 0 and text[left - 1] == "\\" and text[left] in "nrt":
        return False
    return _is_name_character(text[left]) and _is_name_character(text[right])


def _is_name_character(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _has_in_order(text: str, quote: str) -> bool:
    """Return whether a text has all words of a quote in their order, perhaps with others between them."""
    words = iter(text.split())
    return all(word in words for word in quote.split())
