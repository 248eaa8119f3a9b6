"""Tasks: a conversation cut by what people asked, and the chronicle that tells each task in a line.

A task is a request in the user's words and its outcome: files, commands, the sentence that concludes the answer. Words
that only say to go on belong to the task before them. The chronicle chooses clause by clause: figures and names first,
newer before older, nothing twice. A clause stands whole or not at all.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from everlong.context.summary.actions import Action, ActionOutcome
from everlong.context.summary.clauses import LEFT_OUT, NEXT, Clause, figures_in, is_statement, join_clauses
from everlong.context.summary.facts import Facts
from everlong.context.summary.figures import WORD, figures_and_names, tells_change
from everlong.context.summary.language import Phrases
from everlong.context.text import clip

_LINE = re.compile(r'- "(?P<asked>.+?)"(?: → (?P<came>.+))?$', re.DOTALL)
_OF_IT = re.compile(r"\b(?:it|them)\b", re.IGNORECASE)
"""Pronouns for something that was named before."""
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")
_MOST_CLAUSES = 3_000
_WORDY = 5
"""A clause without figures needs this many words for its full worth."""
_FIRST, _LATER = 0.35, 0.2
"""The base worth of a request's first clause, and of the clauses after it."""
_FIGURE, _MOST_FIGURES = 0.8, 2.5
_CHANGED = 1.8
"""The factor for a clause that gives a new value."""
_OLDEST = 0.75
"""The factor for the oldest task: it still holds unless something newer says otherwise."""
_LENGTH_BIAS = 24
"""Characters added to the length of each clause, so that the shortest do not win by being short."""
_HANGING = 0.5
"""The factor for a clause whose antecedent is not chosen."""
_ASKED = 0.5
"""The factor for a question with figures: they were asked about, not laid down."""
_SMALL_QUESTION = 0.4
"""The factor for a question without names or figures: it has been answered."""
_LEAST_SHARED = 2
_UNNAMED = 0.15
"""The factor for a figure whose subject is not named."""
_LEAST_UNSAID = 0.3
"""The least share of new words in a clause without figures; below it, the clause repeats others."""
_SAID_AGAIN = 0.5
_LINE_TOKENS = 4
_MOST_FILES, _MOST_CALLS = 6, 2
_OUTCOME_LENGTH = 160
_ANSWER_LENGTH = 200


@dataclass(slots=True)
class Task:
    """A request and its outcome."""

    order: int
    """The turn of the request; negative for tasks of an earlier summary."""
    clauses: tuple[Clause, ...] = ()
    stated: tuple[Clause, ...] = ()
    """Preferences and circumstances that the request mentions."""
    told_outcome: str = ""
    """The outcome as an earlier summary tells it."""
    actions: list[tuple[int, Action, ActionOutcome | None]] = field(default_factory=list)
    answers: list[Facts] = field(default_factory=list)
    is_open: bool = False

    @property
    def is_work(self) -> bool:
        """True if tools were used."""
        return bool(self.actions)

    def outcome(self, phrases: Phrases) -> str:
        """Return the outcome in a few words: files, the last telling command, the answer's conclusion."""
        if self.told_outcome:
            return self.told_outcome
        parts = [*self._changed_files(phrases), *self._commands(phrases), *self._conclusion()]
        return "; ".join(dict.fromkeys(parts))

    def _changed_files(self, phrases: Phrases) -> list[str]:
        changed = [
            path
            for _, action, outcome in self.actions
            if action.changes and not (outcome and outcome.failed)
            for path in action.paths
        ]
        names = list(dict.fromkeys(path.rsplit("/", 1)[-1] for path in changed))
        if not names:
            return []
        more = f" +{len(names) - _MOST_FILES}" if len(names) > _MOST_FILES else ""
        return [f"{phrases.wrote.lower()} {', '.join(names[:_MOST_FILES])}{more}"]

    def _commands(self, phrases: Phrases) -> list[str]:
        """Return the last command that tells something, else the other calls that did something."""
        ran = next((step for step in reversed(self.actions) if step[1].kind == "run" and not step[1].looks), None)
        if ran is not None:
            _, action, outcome = ran
            if outcome is not None and outcome.told:
                failed = f"{phrases.failed}: " if outcome.failed else ""
                return [f"`{clip(action.title, 80)}`: {failed}{clip(outcome.told, _OUTCOME_LENGTH)}"]
        calls = {
            action.title: outcome
            for _, action, outcome in self.actions
            if action.kind == "other" and outcome is not None and not action.looks
        }
        return [
            f"`{clip(title, 100)}`{f' {phrases.failed}: {outcome.told}' if outcome.failed else ''}"
            for title, outcome in list(calls.items())[-_MOST_CALLS:]
        ]

    def _conclusion(self) -> list[str]:
        for answer in reversed(self.answers):
            said = answer.conclusion.reports if self.is_work else answer.conclusion.concludes
            if said and (self.is_work or self._is_answer(said)):
                return [said.rstrip(".")]
        return []

    def _is_answer(self, said: str) -> bool:
        """Return whether a conclusion is about the request, rather than about an example."""
        asked = " ".join(clause.text for clause in self.clauses).lower()
        shared = sum(word.lower() in asked for word in set(WORD.findall(said)) if len(word) > 3)
        figures, given = set(_NUMBER.findall(said)), set(_NUMBER.findall(asked))
        is_on_it = bool(given) if len(figures) == 1 else not figures or bool(figures & given)
        return shared >= _LEAST_SHARED and is_on_it


def cut_into_tasks(
    facts: Sequence[Facts], outcomes: dict[tuple[int, str], ActionOutcome], *, at_work: bool = False
) -> list[Task]:
    """Return the tasks of some turns; work before the first request is a task without words.

    With ``at_work``, a short reply to the assistant's question belongs to the task in question.
    """
    tasks = [Task(-1)]
    offered = False
    for order, fact in enumerate(facts):
        if fact.role == "user" and fact.clauses and not fact.goes_ahead:
            goes_on = order > 0 and facts[order - 1].role == "user"  # one request in two messages
            if at_work and tasks[-1].clauses and (goes_on or (offered and is_answer(fact))):
                tasks[-1].clauses += fact.clauses
            else:
                tasks.append(Task(order, fact.clauses, fact.preferences))
        elif fact.role == "assistant":
            offered = fact.offers if fact.said else offered
            tasks[-1].answers.append(fact)
            tasks[-1].actions += [
                (order, action, outcomes.get((order, call_id))) for call_id, _, action in fact.actions
            ]
    return tasks


def is_answer(fact: Facts) -> bool:
    """Return whether a person's words after a question answer it: short, and no question themselves."""
    return len(fact.said) <= _ANSWER_LENGTH and not any(clause.asks for clause in fact.clauses)


def tasks_in_summary(items: Sequence[str]) -> tuple[list[Task], dict[int, str]]:
    """Return the tasks that an earlier summary tells of, and its other items by their order."""
    tasks: list[Task] = []
    others: dict[int, str] = {}
    for order, item in enumerate(items, -len(items)):
        told = _LINE.match(item)
        if told is None:
            others[order] = item
            continue
        pieces = [piece for part in told["asked"].split(LEFT_OUT) for piece in part.split(NEXT) if piece]
        found = tuple(
            Clause(piece, figures_in(piece), piece.endswith("?"), wished=not is_statement(piece)) for piece in pieces
        )
        tasks.append(Task(order, found, told_outcome=told["came"] or ""))
    return tasks, others


def task_line(task: Task, chosen: Sequence[Clause], came: str) -> str:
    """Return a task as an item of a summary."""
    asked = join_clauses(chosen, task.clauses)
    return f'- "{asked}"' + (f" → {came}" if came else "")


# -- what fits ---------------------------------------------------------------------------------------------------------


class Chronicle:
    """A selection of the clauses and outcomes that say most for their room."""

    def __init__(
        self,
        tasks: Sequence[Task],
        phrases: Phrases,
        length: int,
        count: Callable[[str], int],
        said: Iterable[str],
        told: Iterable[str] = (),
    ) -> None:
        self._tasks = tasks
        self._phrases = phrases
        self._count = count
        self._first = min((task.order for task in tasks), default=0)
        self._span = max(1, length - self._first)
        self._names = set(said)
        self._words: set[str] = set()
        self._said: list[tuple[set[str], set[str]]] = []
        """The names and words of each chosen clause that has names."""
        self._chosen: dict[int, set[int]] = {}
        self._with_outcome: set[int] = set()
        self._told: set[str] = set(told)
        units = [(t, c) for t, task in enumerate(tasks) for c in range(len(task.clauses))][-_MOST_CLAUSES:]
        self._clause_words = {unit: set(map(str.lower, WORD.findall(self._clause(unit).text))) for unit in units}
        self._clause_names = {unit: figures_and_names(self._clause(unit).text) for unit in units}
        self._units = units

    def choose(self, allowance: int, related: Callable[[str], bool]) -> int:
        """Choose clauses within an allowance and return the tokens spent."""
        left = allowance
        heap = [(-self._value(unit, related), -unit[0], unit[1], unit) for unit in self._units]
        heapq.heapify(heap)
        while heap and left > _LINE_TOKENS:
            value, _, _, unit = heapq.heappop(heap)
            now = self._value(unit, related)
            if now < -value - 1e-9 and heap and -now > heap[0][0]:
                heapq.heappush(heap, (-now, -unit[0], unit[1], unit))
                continue
            together = [*self._subject(unit), unit]
            cost = sum(self._count(self._clause(one).text) + 1 for one in together)
            cost += 0 if unit[0] in self._chosen else _LINE_TOKENS - 1
            if cost > left or now <= 0:
                continue
            for one in together:
                self._chosen.setdefault(one[0], set()).add(one[1])
                self._told.add(self._clause(one).text)
                self._words |= self._clause_words[one]
                names = self._clause_names[one].keys()
                self._names |= names
                self._said += [(set(names), self._clause_words[one])] if names else []
            left -= cost
        return allowance - left

    def add_outcomes(self, allowance: int) -> int:
        """Add outcomes to the chosen tasks, newest first, and return the tokens spent."""
        left = allowance
        for place in sorted(self._chosen, reverse=True):
            came = self._tasks[place].outcome(self._phrases)
            cost = self._count(came) + 1
            if came and cost <= left:
                self._with_outcome.add(place)
                left -= cost
        return allowance - left

    def lines(self) -> list[tuple[Task, str]]:
        """Return the chosen tasks as items, oldest first."""
        found = []
        for place in sorted(self._chosen):
            task = self._tasks[place]
            chosen = [task.clauses[number] for number in sorted(self._chosen[place])]
            came = task.outcome(self._phrases) if place in self._with_outcome else ""
            found.append((task, task_line(task, chosen, came)))
        return found

    def _clause(self, unit: tuple[int, int]) -> Clause:
        return self._tasks[unit[0]].clauses[unit[1]]

    def _value(self, unit: tuple[int, int], related: Callable[[str], bool]) -> float:
        task, place = unit
        clause, words = self._clause(unit), self._clause_words[unit]
        if clause.text in self._told or not (clause.stands or self._is_carried(task)):
            return 0.0
        new = sum(says for name, says in self._clause_names[unit].items() if name not in self._names)
        novelty = len(words - self._words) / max(1, len(words))
        if new:
            worth = (_FIRST if place == 0 else _LATER) + _FIGURE * min(new, _MOST_FIGURES)
            worth *= (_CHANGED if tells_change(clause.text) else 1.0) * (0.5 + 0.5 * novelty)
            worth *= _ASKED if clause.is_question else 1.0
        else:
            plain = _SMALL_QUESTION if clause.is_question else 1.0
            worth = (_FIRST if place == 0 else _LATER) * plain * min(1.0, len(words) / _WORDY) * (0.15 + 0.85 * novelty)
        if clause.hangs and place - 1 not in self._chosen.get(task, ()):
            worth *= _HANGING
        names = self._clause_names[unit].keys()
        if names and not new and self._was_said(set(names), words):
            return 0.0
        if not clause.figures and novelty < _LEAST_UNSAID:
            return 0.0
        needs_other = clause.leans or (clause.figures and _OF_IT.search(clause.text))
        if needs_other and not self._is_carried(task) and not self._subject(unit):
            worth *= _UNNAMED
        recency = _OLDEST + (1.0 - _OLDEST) * (self._tasks[task].order - self._first) / self._span
        focus = 3.0 if related(clause.text) else 1.0
        return worth * recency * focus / (len(clause.text) + _LENGTH_BIAS)

    def _subject(self, unit: tuple[int, int]) -> list[tuple[int, int]]:
        """Return the clause that names what another one points to, unless the task already has one chosen."""
        task, place = unit
        if not (self._clause(unit).points or self._clause(unit).leans) or self._is_carried(task):
            return []
        clauses = self._tasks[task].clauses
        found = [at for at, clause in enumerate(clauses) if at != place and clause.stands and not clause.points]
        nearest = min(found, key=lambda at: (at > place, abs(at - place)), default=-1)
        return [(task, nearest)] if (task, nearest) in self._clause_words else []

    def _was_said(self, names: set[str], words: set[str]) -> bool:
        """Return whether a chosen clause has all of these names and half of these words."""
        return any(names <= said and len(words & other) >= _SAID_AGAIN * len(words) for said, other in self._said)

    def _is_carried(self, task: int) -> bool:
        """Return whether a task has a chosen clause that names its subject."""
        return any(self._tasks[task].clauses[place].stands for place in self._chosen.get(task, ()))
