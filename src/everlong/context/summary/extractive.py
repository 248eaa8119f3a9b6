"""The summarizer that needs no model: it quotes the conversation and is the fallback of every other summarizer.

    messages ──▶ facts ──▶ tasks ──▶ candidates ──▶ selection ──▶ document
       │        (facts)   (tasks,     (outline,     (selection)   (document)
       │                   goal)   closed_requests)     ▲
       └──▶ key lines (key_lines) ──────────────────────┘

Each message is read once into facts. Facts make tasks (a request and its outcome) and candidates (items with a section
and a worth); candidates that the user took back are closed. The selection fills the token budget with tasks, candidates
and key lines. The same input always gives the same summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from everlong.context.summarize import SummaryRequest
from everlong.context.summary.clauses import clauses, is_go_ahead, prose
from everlong.context.summary.closed_requests import UserWords, close_requests
from everlong.context.summary.document import CONSTRAINTS, SummaryDocument
from everlong.context.summary.facts import removed_by
from everlong.context.summary.figures import find_outdated
from everlong.context.summary.key_lines import MessageLine, group_lines, names_in
from everlong.context.summary.language import Phrases, newest_label, phrases_for, quotes_wrapper
from everlong.context.summary.newest_request import newest_line, whole_newest_line
from everlong.context.summary.outline import MUST, Around, Candidate, Outline, build_outline
from everlong.context.summary.selection import select
from everlong.context.text import clip, one_line
from everlong.model import text_of
from everlong.tokens.estimate import CHARS_PER_TOKEN

_ROOMY = 0.02
"""If a summary can hold this share of the turns, nearly every line becomes a candidate."""
_TIGHT = 120
"""Below this many tokens, a summary names the newest request only by the clause that asks."""
_OWN_WORDS = frozenset({CONSTRAINTS, "Key Decisions"})
_NUMBER = re.compile(r"- (?:\d+[.)、]\s*)?")
_NOTHING = "## Critical Context\n- …"


class ExtractiveSummarizer:
    """A summarizer that quotes and never invents.

    >>> engine = ContextCompressor(16_000, summarizer=ExtractiveSummarizer())  # as without one
    >>> _ = engine.compress(messages)
    >>> engine.last_report.summarizer
    'extractive'
    """

    name = "extractive"

    def summarize(self, request: SummaryRequest) -> str:
        """Return a structured summary within the budget."""
        facts = request.digests.facts(request.turns)
        spoken = [fact.said for fact in facts if fact.said]
        previous = _without_wrappers(SummaryDocument.parse(request.previous)) if request.previous else None
        unchanged = (*request.before, *request.after)
        phrases = phrases_for(spoken or [request.previous or ""])
        opening, latest = request.opening_words, request.newest_words
        around = Around(
            opening,
            latest,
            _describe_newest(request, phrases, latest),
            opening_stands=any(message is request.opening for message in unchanged),
        )
        outline = build_outline(facts, previous, phrases, around)
        outline.quotes_newest = not request.newest_stands
        following = [message for message in request.after if message["role"] == "user"]
        following += [] if request.latest_user is None else [request.latest_user]
        last = outline.tasks[-1] if outline.tasks and is_go_ahead(latest) else None
        close_requests(outline, facts, previous, UserWords(opening, request.turns, following))
        outline.name_continued(around.newest_item, last)
        _leave_out_rules(outline, request.rules)
        if request.errors_stated:
            outline.leave_out_failures()
        outline.leave_out_files(path for message in request.after for path in removed_by(message))
        outline.lines = group_lines(facts, _lines(request), phrases)
        _leave_out_stale(outline)
        if request.memory_context:
            wanted = f"- {clip(one_line(request.memory_context), 600)}"
            # The highest worth and the newest order, or key lines would crowd it out.
            outline.candidates.append(Candidate("Critical Context", outline.length, wanted, MUST))
        request.trace.begin(request.turns, outline)
        known = (name for message in unchanged for name in names_in(message))
        document = select(outline, request.budget_tokens, request.count, request.focus_topic, known, request.trace)
        return document.fit(request.budget_tokens, request.count, newest_label) or _NOTHING


def _lines(request: SummaryRequest) -> Sequence[tuple[MessageLine, ...]]:
    """Return the lines to choose from: nearly all of them if the summary has room for many."""
    roomy = has_room(sum(len(text_of(turn)) for turn in request.turns), request.budget_tokens)
    return (request.digests.many_lines if roomy else request.digests.few_lines)(request.turns)


def has_room(characters: int, budget_tokens: int) -> bool:
    """Return whether a budget has room for so much of some characters that nearly every line becomes a candidate."""
    return budget_tokens * CHARS_PER_TOKEN >= characters * _ROOMY


def _describe_newest(request: SummaryRequest, phrases: Phrases, latest: str) -> str:
    """Return the line on the newest request: whole if it stands nowhere beside the summary, else a few words."""
    if not latest:
        return ""
    if request.newest_stands:
        asking = [clause.text for clause in clauses(prose(latest)) if clause.wished or clause.asks]
        is_tight = request.budget_tokens < _TIGHT and asking
        return newest_line(phrases, asking[-1] if is_tight else latest)
    return whole_newest_line(phrases, latest, request.budget_tokens, request.count)


def _without_wrappers(previous: SummaryDocument) -> SummaryDocument:
    """Return an earlier summary without items that quote what a client added to the user's words."""
    return SummaryDocument(
        {section: [item for item in items if not quotes_wrapper(item)] for section, items in previous.items.items()}
    )


def _leave_out_rules(outline: Outline, rules: Sequence[str]) -> None:
    """Remove the user's rules from an outline: they stand in a block of their own."""
    said = [_letters(rule) for rule in rules]

    def is_rule(text: str) -> bool:
        words = _letters(_NUMBER.sub("", text))
        return bool(words) and any(words in rule for rule in said)

    outline.candidates = [one for one in outline.candidates if one.section != CONSTRAINTS or not is_rule(one.text)]
    for task in outline.tasks:
        task.clauses = tuple(clause for clause in task.clauses if not is_rule(clause.text))


def _leave_out_stale(outline: Outline) -> None:
    """Remove a person's clauses from an outline if a later clause has newer values for their figures."""
    told = [(task.order, clause.text) for task in outline.tasks for clause in task.clauses]
    said = [(one.order, one.text) for one in outline.candidates if one.section in _OWN_WORDS and one.worth < MUST]
    old = find_outdated([*told, *said])
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
    """Return only the letters and digits of a text, to recognise it however it is cut or quoted."""
    return "".join(filter(str.isalnum, text.casefold()))
