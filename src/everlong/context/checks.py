"""The checks that a summary must pass. Each looks at one thing and names the faults that it finds.

    goal            the goal is what a person said, not a client's addition, code, or nobody's words
    newest request  the newest request is named as such, and no other one is
    rules           every standing rule is there, word for word
    frontier        open items, errors and files in hand are stated, and none of them is called done
    entities        enough of the names, numbers and paths of the conversation are kept
    invented        no name and no number that stands nowhere in the conversation
    contradiction   nothing is said the other way round than in the conversation
    wrapper         nothing that a client added stands as a statement
    code            no code, markup or data outside of Critical Context

`examine` runs them all, `score_of` turns their faults into a score from 0 to 1. `everlong.context.verify` gathers the
`Evidence`; nothing is mended here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from everlong.context.claims import ClaimClause, Statements, clauses_of, read_clause, telling_words
from everlong.context.frontier import Frontier, inherited_frontier, is_frontier_item, without_frontier
from everlong.context.summary.actions import is_failure
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.language import ALL, is_closing, newest_label, said_in, sentences
from everlong.context.summary.newest_request import is_cut_short, is_restated, is_stale
from everlong.context.text import clip, one_line

__all__ = ["GOOD", "Evidence", "SummaryFault", "examine", "score_of"]

GOOD = 0.8
"""A summary that scores less is mended; two in a row change the strategy."""
_FAILED = 0.72
"""The factor for a failed check."""
_FAILED_GOAL = 0.48
"""The factor for a wrong goal: the agent that goes on from it does something that nobody asked for."""
_FURTHER = 0.93
"""The factor for each further fault of the same check."""
_MOST_FURTHER = 4
_PLAIN_SHARE = 0.9
"""The score of a summary without a fault that keeps no name at all."""
_LEAST_KEPT = 0.04
_ENOUGH_KEPT = 0.35

_STATED = (
    "Goal",
    "Constraints & Preferences",
    "Done",
    "In Progress",
    "Blocked",
    "Key Decisions",
    "Resolved Questions",
    "Pending User Asks",
    "Next Steps",
)
_FURTHER_STATED = ("Relevant Files", "Critical Context", "Tools & Patterns")
_NO_CODE = (
    "Goal",
    "Constraints & Preferences",
    "Key Decisions",
    "Resolved Questions",
    "Pending User Asks",
    "Next Steps",
)
_WORD = re.compile(r"[A-Za-z][A-Za-z'’-]{2,}|[\u3400-\u9fff]{2}|\d[\d.,:]*\d|\d")
_COMMON = frozenset(
    """
    the and for with that this from are was were has have had will would can could should its not but you
    your our they them their then than into onto over under about after before user newest request all any
    each one two new use used using via per also only does did done now still more most some such so be been
    being is it in on to of a an at by as or if no
    """.split()  # noqa: SIM905 - words, as one reads them
)
_NEGATION = re.compile(
    r"\b(?:not|never|no|none|cannot|without|nor|neither|avoid|stop|forbid\w*|refuse\w*)\b|n't\b|n’t\b"
    r"|不要|不能|不得|不许|不用|禁止|别|没有|避免|从不|绝不|不再",
    re.IGNORECASE,
)
_LEAST_COMPARED = 3
_SAME_ITEM = 0.8
_NO_NEED = re.compile(r"(?:\bno need to|\bnot? |\bnever|n t|\bwithout having to|不必|不用|无需)\s*$")
_NOT_YET = re.compile(r"\b(?:not|never|yet|to be|fail\w*|asked|wants?)\b|n't\b|没|未|不|失败")
_ALL_DONE = re.compile(
    r"\b(?:everything|all(?: of it| tasks| items| steps)?|the (?:work|task)) (?:is|are|was|has been|have been) "
    r"(?:done|finished|complete|completed)\b|\bnothing (?:is |more is |more )?(?:left|to do|open|pending)\b"
    r"|全部完成|都做完了|没有剩余",
    re.IGNORECASE,
)
_CODE_LINE = re.compile(
    r"^[-*•\s]*(?:"
    r"[\w-]+\s*:\s*[^;{}]{1,60};\s*$|</?[a-zA-Z][\w-]*(?:\s[^>]*)?/?>.*|[.#]?[\w-]+(?:\s[.#>\w-]+)*\s*\{\s*$|[{}()\[\];,]+\s*$"
    r"|(?:const|let|var|function|import|export|return|class|def|from|public|private|static|async|await|if|for|while)\b"
    r"[^.!?]*[;{(:=]\s*$|[\w.]+\([^)]*\)\s*[;{]\s*$|@(?:media|import|keyframes)\b.*|[\w.\[\]'\"]+\s*[+-]?=\s*\S.*[;(]?$"
    r"|\"[\w-]+\"\s*:\s*.+,?\s*$|\$\s?\w+=|#include\b|SELECT\s.+\sFROM\s|(?:drwx|-rw)[rwx-]{6,}.*"
    r")"
)
_MARKUP = re.compile(r"<[^>]*>|\"[^\"]*\"|[\w-]+=\S+")
_PROSE = re.compile(r"(?<![\w.<#-])[A-Za-z]{2,}(?![\w(=:{-])|[\u3400-\u9fff]")
_LEAST_PROSE = 5
_NUMBER = re.compile(r"(?<![\w./#-])\$?\d+(?:[.,:]\d+)*(?![.,:]?\w*\d)(?:\s?(?:%|[a-zA-Z]{1,3}\b))?")
_VAGUE = frozenset(
    """
    a about and are as at by for from has have in is it of on or over than that the then these to was were
    with step line lines option
    """.split()  # noqa: SIM905 - words, as one reads them
)
"""Words beside a figure that do not tell its meaning."""
_LEAST_QUOTE = 20
"""Characters that a quote must have to be recognized."""
_ADDRESS = re.compile(r"\b(?:I|I'll|I'm|I'd|let me|you|your|shall we)\b|我|您|\?$")
"""Words by which a speaker addresses a listener (I, you, a question mark); a goal contains none of them."""
_FIGURES = re.compile(r"(?<!\w)\d[\d.,:]*")
_FIGURE_WORD = re.compile(r"\d[\d.,:]*|[^\W\d_]+")
_NEXT_WORD = re.compile(r"[\W_]*([^\W\d_]+)")
_NEAR = 48
"""Characters before a figure that nearly always contain the two words before it."""
_LOOK_AT = 20_000
"""Characters of a text that are read."""
_LONGEST_REQUEST = 1_000
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"(?<![.!?:•\"“(`/\-] )(?<!^)(?<=[a-z,;] )[A-Z][a-z]{2,}[A-Za-z]*\b")
_INITIAL_NAME = re.compile(r"\b[A-Z]\. ([A-Z][a-z]{2,})\b")
_KIND_OF = re.compile(r"\bthe ([a-z][\w-]+) (?:crate|library|package|framework|plugin|gem|driver)\b")
_FULL_NAME = re.compile(r"(?:^|(?<=[.!?:] ))([A-Z][a-z]{2,}) ([A-Z][a-z]{2,})\b", re.MULTILINE)
_LEADING = re.compile(r"(?:^|(?<=[.!?;:] ))([A-Z][a-z]{2,} [^.;]+)")
_ORDINALS = ("st", "nd", "rd", "th")
_WITH = re.compile(r"\b(?:with|has|have|including|plus) (?:an? |the )?([a-z]{4,})\b")


class SummaryFault(NamedTuple):
    """A fault that a check found."""

    check: str
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.what}"


@dataclass
class Evidence:
    """The facts of a conversation that a summary is checked against."""

    people: Sequence[str]
    """The texts of people, oldest first."""
    others: Sequence[str] = ()
    """The assistant's messages, oldest first."""
    said: Sequence[str] = ()
    """The texts of both, in the order of the conversation."""
    older: Sequence[str] = ()
    """The assistant's older messages, which are searched only for a claim word for word."""
    last_tool: int = 0
    """The number of texts in ``said`` before the last tool result."""
    since: Sequence[str] = ()
    """The assistant's texts and commands since the newest request."""
    changed: Sequence[str] | None = None
    """The files that were changed since then; None if nothing was changed at all."""
    is_trusted: bool = False
    """True if the summary is made of the conversation's own lines, so that only its statements are checked."""
    newest: str = ""
    rules: Sequence[str] = ()
    """The standing rules, word for word."""
    beside: Callable[[], str] = lambda: ""
    """The text that stands beside the summary."""
    frontier: Frontier | None = None
    is_wrapper: Callable[[str], bool] = lambda _: False
    is_no_goal: Callable[[str], bool] = lambda _: False
    """Tell whether an item quotes a client or a project's rules, not a person."""
    stands_with: Callable[[str, Set[str], int], bool] = lambda _, __, ___: False
    """Tell whether a figure stands near at least that many of some words anywhere in the conversation."""
    unknown: Callable[[set[str]], set[str]] = lambda _: set()
    """Picks the words that stand nowhere in the conversation."""
    invented: Callable[[str], Sequence[str]] = lambda _: ()
    contradictions: dict[str, list[SummaryFault]] = field(default_factory=dict)
    """The contradictions of each item that was checked so far; drafts and the finished summary share most items."""

    @cached_property
    def people_words(self) -> set[str]:
        """The telling words that people used."""
        return {word for text in self.people for word in _words(text)}

    @cached_property
    def statements(self) -> Statements:
        """All texts, for comparing sentence by sentence."""
        return Statements(self.said or (*self.people, *self.others), last_tool=self.last_tool)

    @cached_property
    def older_statements(self) -> Statements:
        """The assistant's older messages."""
        return Statements(self.older)

    @cached_property
    def recent_statements(self) -> Statements:
        """The texts and commands since the newest request."""
        return Statements(self.since)

    @cached_property
    def spoken(self) -> str:
        """The assistant's messages as one line."""
        return one_line(" ".join(self.others))

    @cached_property
    def figures(self) -> dict[tuple[str, ...], set[str]]:
        """The figures of the conversation by the words around them."""
        found: dict[tuple[str, ...], set[str]] = {}
        for text in (*self.people, *self.others):
            for around, figure in _figures(text):
                found.setdefault(around, set()).add(figure)
        return found


def examine(summary: str, evidence: Evidence, kept: float, *, is_draft: bool = False) -> list[SummaryFault]:
    """Return the faults of a summary.

    A draft is not blamed for lacking what is added to it later: the newest request, the rules and the frontier.
    """
    document = SummaryDocument.parse(summary)
    faults = [
        *_check_goal(document, evidence),
        *_check_newest(document, evidence, is_draft=is_draft),
        *_check_frontier(document, summary, evidence, is_draft=is_draft),
        *_check_contradictions(document, evidence),
        *_check_wrappers(document, evidence),
        *_check_code(document),
    ]
    if not is_draft:
        faults += [*_check_rules(summary, evidence), *_check_invented(document, summary, evidence)]
        if kept < _LEAST_KEPT:
            faults.append(SummaryFault("entities", f"keeps {kept:.0%} of the names of the conversation"))
    return faults


def score_of(faults: Iterable[SummaryFault], kept: float) -> float:
    """Return the score, from 0 to 1, that faults and lost names leave."""
    score = _PLAIN_SHARE + (1 - _PLAIN_SHARE) * min(1.0, kept / _ENOUGH_KEPT)
    by_check: dict[str, int] = {}
    for fault in faults:
        by_check[fault.check] = by_check.get(fault.check, 0) + 1
    for check, count in by_check.items():
        score *= (_FAILED_GOAL if check == "goal" else _FAILED) * _FURTHER ** min(count - 1, _MOST_FURTHER)
    return round(score, 2)


# -- the checks --------------------------------------------------------------------------------------------------------


def _check_goal(document: SummaryDocument, evidence: Evidence) -> list[SummaryFault]:
    faults: list[SummaryFault] = []
    for item in document.items["Goal"]:
        plain = said_in(item)
        if evidence.is_no_goal(item):
            faults.append(SummaryFault("goal", f"a client's words, not a person's: {clip(plain, 80)}"))
        elif _is_code(item):
            faults.append(SummaryFault("goal", f"code, not a person's words: {clip(plain, 80)}"))
        elif _ADDRESS.search(plain) and len(plain) >= _LEAST_QUOTE and one_line(plain) in evidence.spoken:
            faults.append(SummaryFault("goal", f"the assistant's words, not a person's: {clip(plain, 80)}"))
        else:
            words = _words(plain)
            strange = [word for word in words if word not in evidence.people_words]
            if evidence.people_words and len(words) >= _LEAST_COMPARED and len(strange) > 0.6 * len(words):
                faults.append(SummaryFault("goal", f"nobody asked for it: {clip(plain, 80)}"))
    return faults


def _check_newest(document: SummaryDocument, evidence: Evidence, *, is_draft: bool) -> list[SummaryFault]:
    """Return the faults of the newest request: a client's words, another request, missing, or cut short."""
    if not evidence.newest:
        return []
    named = [item for item in document.items["Pending User Asks"] if newest_label(item)]
    wrong = [item for item in named if evidence.is_no_goal(item)]
    if wrong:
        return [SummaryFault("goal", f"a client's words are called the newest request: {clip(said_in(wrong[0]), 80)}")]
    stale = [item for item in named if is_stale(item, evidence.newest)]
    if stale:
        return [SummaryFault("newest request", f"another request is called the newest: {clip(said_in(stale[0]), 80)}")]
    if not is_draft and not is_restated(document, evidence.newest):
        return [SummaryFault("newest request", f"not named: {clip(one_line(evidence.newest), 80)}")]
    is_cut = bool(named) and all(is_cut_short(item, evidence.newest) for item in named)
    if is_cut and not is_draft and evidence.newest not in evidence.beside():
        return [SummaryFault("newest request", f"only a part of it: {clip(said_in(named[0]), 80)}")]
    return []


def _check_rules(summary: str, evidence: Evidence) -> list[SummaryFault]:
    """Return the standing rules that are lost or reversed."""
    if not evidence.rules:
        return []
    standing = f"{summary}\n{evidence.beside()}"
    lost = [rule for rule in evidence.rules if rule not in standing]
    if lost:  # perhaps with other marks and spaces
        standing = _plain(standing)
        lost = [rule for rule in lost if _plain(rule) not in standing]
    faults = [SummaryFault("rules", f"lost: {clip(rule, 80)}") for rule in lost]
    lines = [_plain(line) for line in summary.splitlines()]
    for rule in map(_plain, evidence.rules):
        taken_back = [line for line in lines if _NO_NEED.search(line.partition(rule)[0]) and rule in line]
        faults += [SummaryFault("rules", f"turned round: {clip(line, 80)}") for line in taken_back]
    return faults


def _check_frontier(
    document: SummaryDocument, summary: str, evidence: Evidence, *, is_draft: bool
) -> list[SummaryFault]:
    """Return plan items with a wrong state, open ones called done, stale lines, and items not stated."""
    frontier = evidence.frontier
    if frontier is None:
        return []
    faults: list[SummaryFault] = []
    done = [(item, telling_words(item)) for item in document.items["Done"]]
    for item in frontier.plan:
        words = telling_words(item.text)
        if item.state in ("pending", "in_progress") and words:
            said = next((text for text, told in done if len(words & told) >= _SAME_ITEM * len(words)), "")
            if said and not _says_no(said):
                faults.append(SummaryFault("frontier", f"open, but called done: {clip(item.text, 80)}"))
    faults += _check_called_done(document, evidence)
    stated = inherited_frontier(summary)
    if stated is not None and stated.plan:
        states = {_plain(item.text): item.state for item in frontier.plan}
        stale = [item for item in stated.plan if states.get(_plain(item.text), item.state) != item.state]
        faults += [SummaryFault("frontier", f"its state is another one: {clip(item.text, 80)}") for item in stale]
    faults += [
        SummaryFault("frontier", f"not as it is: {clip(one_line(item), 80)}")
        for item in _frontier_items(document)
        if item not in _current_items(frontier) and not item.startswith(("- Plan (", "- 计划 ("))
    ]
    gone = [] if stated is None else [item for item in stated.plan if item.text not in {i.text for i in frontier.plan}]
    faults += [SummaryFault("frontier", f"not in the plan as last written: {clip(item.text, 80)}") for item in gone]
    if is_draft:
        return faults
    text = _plain(summary)
    wanted = [item.text for item in frontier.plan if item.state in ("pending", "in_progress")]
    wanted += [error.lines[-1] for error in frontier.errors if error.lines]
    wanted += [file.path for file in frontier.files]
    faults += [
        SummaryFault("frontier", f"not stated: {clip(one_line(part), 80)}")
        for part in wanted
        if _plain(part) not in text
    ]
    return faults


def _check_called_done(document: SummaryDocument, evidence: Evidence) -> list[SummaryFault]:
    """Return the parts of the newest request that are called done although nobody did them or said so."""
    if evidence.is_trusted or not evidence.newest:
        return []
    frontier = evidence.frontier
    is_open = evidence.changed is None or (frontier is not None and bool(frontier.errors or frontier.pending))
    faults = [
        SummaryFault("frontier", f"not all is done: {clip(said_in(item), 80)}")
        for section in ("Done", "In Progress", "Next Steps")
        for item in document.items[section]
        if is_open and _ALL_DONE.search(item)
    ]
    asked = [clause for clause in clauses_of(evidence.newest[:_LONGEST_REQUEST]) if len(clause.words) > 1]
    wanted = {word for clause in asked for word in clause.words}
    for item in document.items["Done"]:
        if is_frontier_item(item) or is_closing(item):
            continue
        for clause in clauses_of(said_in(item)):
            if _NOT_YET.search(clause.text) or not _is_asked(clause, asked, wanted) or _is_backed(clause, evidence):
                continue
            faults.append(SummaryFault("frontier", f"asked for, but nobody did it yet: {clip(clause.text, 80)}"))
    return faults


def _is_asked(clause: ClaimClause, asked: Sequence[ClaimClause], wanted: set[str]) -> bool:
    if len(clause.words) >= _LEAST_COMPARED and len(clause.words & wanted) >= 0.6 * len(clause.words):
        return True
    return any(
        len(clause.words & one.words) >= max(2, 0.7 * len(one.words)) for one in asked if clause.names & one.names
    )


def _is_backed(clause: ClaimClause, evidence: Evidence) -> bool:
    """Return whether the conversation backs a clause: somebody said it, or files were changed for it."""
    if evidence.changed is not None:
        named = {word for word in clause.words if "/" in word or "." in word}
        if not named or any(path.lower().endswith(word.strip("./")) for path in evidence.changed for word in named):
            return True
    if evidence.recent_statements.says(set(clause.words), 0.6):
        return True
    earlier = [text for text in evidence.said if evidence.newest not in text]
    return Statements(earlier).says(set(clause.words), 0.8)


def _frontier_items(document: SummaryDocument) -> list[str]:
    return [item for section in _STATED for item in document.items[section] if is_frontier_item(item)]


def _current_items(frontier: Frontier) -> set[str]:
    return {item for phrases in ALL for items in frontier.items(phrases).values() for item in items}


def _check_invented(document: SummaryDocument, summary: str, evidence: Evidence) -> list[SummaryFault]:
    """Return the names and numbers that stand nowhere in the conversation."""
    # The frontier's own lines are held against the frontier.
    prose = "\n".join(one_line(said_in(item)) for item in _claiming(document, evidence))
    named = list(evidence.invented(without_frontier(summary)))
    written = {figure: found for found in _NUMBER.findall(prose) for figure in _FIGURE.findall(found)}
    as_written = evidence.unknown({*written.values()}) if written else set()
    counted = {figure for figure, found in written.items() if len(figure) > 1 and found in as_written}
    words = {*_NAME.findall(prose), *_INITIAL_NAME.findall(prose), *_KIND_OF.findall(prose)}
    pairs = _FULL_NAME.findall(prose)
    wanted = counted | words | {word for pair in pairs for word in pair}
    strange = evidence.unknown(wanted) if wanted else set()
    ordinals = evidence.unknown({f"{figure}{end}" for figure in strange & counted for end in _ORDINALS})
    lowered = evidence.unknown({word.lower() for word in strange if word.isalpha()})
    known = {word for word in strange if word.isalpha() and word.lower() not in lowered}
    known |= {figure for figure in strange & counted if any(f"{figure}{end}" not in ordinals for end in _ORDINALS)}
    named = [name for name in named if name.strip("$€£") not in known and not _is_money(name, evidence)]
    strange = (strange & (counted | words)) - known
    # A name at the beginning of a sentence is one by its company only: both words are strange there.
    everything = evidence.unknown({word for pair in pairs for word in pair}) if pairs else set()
    full = [" ".join(pair) for pair in pairs if set(pair) <= everything and pair[0].lower() in lowered]
    found = dict.fromkeys([*named, *full, *sorted(word for word in strange if not any(word in n for n in named))])
    return [
        *(SummaryFault("invented", f"stands nowhere in the conversation: {name}") for name in found),
        *_check_replaced_names(document, evidence),
    ]


def _is_money(name: str, evidence: Evidence) -> bool:
    """Return whether a name is an amount whose figure was said without its currency sign."""
    return name[0] in "$€£¥" and not evidence.unknown({name[1:]})


def _check_replaced_names(document: SummaryDocument, evidence: Evidence) -> list[SummaryFault]:
    """Return names at the beginning of a sentence in whose place another name was said with the same words."""
    faults: list[SummaryFault] = []
    for item in _claiming(document, evidence):
        for sentence in _LEADING.findall(said_in(item)):
            word = sentence.split(None, 1)[0]
            if word.lower() in _COMMON or not evidence.unknown({word}) or not evidence.unknown({word.lower()}):
                continue
            other = evidence.statements.other_name(sentence)
            if other:
                faults.append(
                    SummaryFault("invented", f"stands nowhere in the conversation: {word} (said was {other})")
                )
    return faults


def _claiming(document: SummaryDocument, evidence: Evidence) -> Iterator[str]:
    """Yield the items that make a claim."""
    sections = _STATED if evidence.is_trusted else (*_STATED, *_FURTHER_STATED)
    for section in sections:
        for item in document.items[section]:
            if not is_frontier_item(item) and (section in _STATED or not _is_code(item)):
                yield item


def _check_contradictions(document: SummaryDocument, evidence: Evidence) -> list[SummaryFault]:
    if evidence.is_trusted:  # made of the conversation's own lines, which cannot contradict it
        return []
    faults: list[SummaryFault] = []
    for item in _claiming(document, evidence):
        if is_closing(item) or newest_label(item) or "\n" in item:
            continue
        found = evidence.contradictions.get(item)
        if found is None:
            found = evidence.contradictions[item] = _find_contradictions(item, evidence)
        faults += found
    return list(dict.fromkeys(faults))


def _find_contradictions(item: str, evidence: Evidence) -> list[SummaryFault]:
    """Return the places where an item says something else than the conversation."""
    frontier = evidence.frontier
    has_open_error = frontier is not None and (bool(frontier.errors) or is_failure(frontier.outcome))
    said = said_in(item)
    faults = [
        SummaryFault("contradiction", f"another figure than was said: {clip(' '.join((*around[:-1], figure)), 80)}")
        for around, figure in _figures(item)
        if figure not in evidence.figures.get(around, {figure})
        and not evidence.stands_with(figure, {*around}, len({*around}))
    ]
    claims = clauses_of(said)
    for clause in claims:
        if clause.text.rstrip().endswith("..."):
            continue
        is_contradicted = evidence.statements.contradicts(clause, has_open_error=has_open_error)
        if is_contradicted and not evidence.older_statements.quotes(clause.text):
            faults.append(SummaryFault("contradiction", f"said the other way round: {clip(clause.text, 80)}"))
    for claim in (*claims, *map(read_clause, sentences(said))):
        other = {f for f in evidence.statements.other_figures(claim) if not evidence.stands_with(f, claim.names, 1)}
        faults += [
            SummaryFault("contradiction", f"another figure than was said: {figure} in {clip(claim.text, 80)}")
            for figure in sorted(other)
        ]
    for sentence in sentences(said):
        claim = read_clause(sentence)
        faults += [
            SummaryFault("invented", f"stands nowhere in the conversation: {code} (said was {other_code})")
            for code, other_code in evidence.statements.other_code(sentence)
            if evidence.unknown({code})
        ]
        if turned := evidence.statements.reversed_order(sentence):
            faults.append(SummaryFault("contradiction", f"said the other way round: {clip(turned, 80)}"))
        faults += [
            SummaryFault("contradiction", f"there is none: {thing}")
            for thing in _WITH.findall(sentence)
            if evidence.statements.says_only_no(thing)
        ]
        faults += [
            SummaryFault("contradiction", f"an old value: {old} is {new} now")
            for old, new, about in evidence.statements.superseded
            if old in sentence and new not in sentence and claim.names & about
        ]
    return faults


def _check_wrappers(document: SummaryDocument, evidence: Evidence) -> list[SummaryFault]:
    items = (item for section in _STATED[1:] for item in document.items[section])
    return [
        SummaryFault("wrapper", f"a client's words: {clip(said_in(item), 80)}")
        for item in items
        if evidence.is_wrapper(item)
    ]


def _check_code(document: SummaryDocument) -> list[SummaryFault]:
    lines = [line for section in _NO_CODE for item in document.items[section] for line in item.split("\n")]
    found = [line for line in lines if _is_code(line)]
    return [SummaryFault("code", f"code where a statement belongs: {clip(line.strip(), 80)}") for line in found[:8]]


# -- words -------------------------------------------------------------------------------------------------------------


def _is_code(line: str) -> bool:
    """Return whether a line is code, markup or data, and not a sentence that names a tag or a setting."""
    return _CODE_LINE.match(line) is not None and len(_PROSE.findall(_MARKUP.sub(" ", line))) < _LEAST_PROSE


def _words(text: str) -> list[str]:
    return [word for found in _WORD.findall(text.lower()) if (word := found.strip("'’-.,:")) and word not in _COMMON]


def _says_no(text: str) -> bool:
    return len(_NEGATION.findall(text)) % 2 == 1


def _figures(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each figure of a text with the words around it: two before and one after, and the closest telling ones."""
    lowered = text[:_LOOK_AT].lower()
    for found in _FIGURES.finditer(lowered):
        after = _NEXT_WORD.match(lowered, found.end())
        before = _words_before(lowered, found.start()) if after else []
        if after and len(before) == 2 and before[0][0].isalpha() and before[1][0].isalpha():
            figure = found[0].rstrip(".,:")
            yield (*before, after[1]), figure
            if before[1] not in _VAGUE and after[1] not in _VAGUE:
                yield (before[1], after[1]), figure


def _words_before(text: str, place: int) -> list[str]:
    """Return the two words before a place, reading no more of the text than needed."""
    length = _NEAR
    words = _FIGURE_WORD.findall(text, max(0, place - length), place)
    while len(words) < 3 and length < place:  # the first one found may be the rest of a longer word
        length *= 2
        words = _FIGURE_WORD.findall(text, max(0, place - length), place)
    return words[-2:]


def _plain(text: str) -> str:
    """Return a text in lower case without quotes and emphasis, its spaces single."""
    for mark in "\"“”'’`*_":
        text = text.replace(mark, " ")
    return " ".join(text.split()).lower()
