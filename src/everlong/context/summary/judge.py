"""The judge of a model's summary: is it empty, a reply, broken off, off the subject, or invented?

It parses an answer, cuts out what must not stand, and names each problem for the report. Mending is up to the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from everlong.context.summary.digest import without_marks
from everlong.context.summary.document import SECTIONS, SummaryDocument
from everlong.context.summary.newest_request import is_stale
from everlong.context.verify import Yardstick
from everlong.errors import SummarizerError

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^\s*(?:```+|~~~+)\w*\s*\n(.*?)(?:\n\s*(?:```+|~~~+)\s*)?$", re.DOTALL)
_FIRST_HEADING = re.compile(r"^#{2,3}\s+\S", re.MULTILINE)
_REPLY = re.compile(
    r"[-*•\s]*(?:sure|certainly|of course|absolutely|great question|(?:okay|ok|great)[,!]"
    r"|here(?:'s| is| are) (?:the|your|a|an|my)\b|let me know|would you like|do you want me|shall i\b|i hope this"
    r"|hope this helps|feel free|happy to help|as an ai\b|i(?:'m| am) sorry|i (?:can't|cannot|can not) (?:help|assist)"
    r"|you(?:'re| are) welcome|当然[，,！!]|好的[，,！!]|希望对[你您]|如果[你您](?:还)?需要|请问[你您])",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override) (?:all |any |every )?(?:of )?(?:the |your |my |these )?"
    r"(?:previous|prior|above|earlier|preceding|system|original) (?:\w+ )?"
    r"(?:instructions?|prompts?|rules|messages?|directions?)"
    r"|忽略(?:以上|之前|先前|前面)的?(?:所有)?(?:指令|指示|提示)",
    re.IGNORECASE,
)
_POSING = re.compile(
    r"[-*•\s]*(?:\[CONTEXT (?:COMPACTION|SUMMARY)|\[Note: Some earlier conversation turns)", re.IGNORECASE
)
_UNFINISHED = re.compile(
    r"(?:[,;:(\[{/\\=&+<—–，、；：]|(?:^|\s)[-*•]|\b(?:the|a|an|and|or|of|to|in|with|for|that|by|from|at|on|as|because"
    r"|which|is|was|are|be|not|I|my|we|this))$"
)
_FINISHED = re.compile(r"[.!?。！？…)\]`\"'”]$")
_LAST_WORD = re.compile(r"[A-Za-z0-9_./-]+$")
_LONG_PREAMBLE = 300
_LEAST_RELATED = 0.3


class UnusableSummary(SummarizerError):  # noqa: N818 - reads as the fact that it states
    """An answer of which nothing can be used."""

    def __init__(self, reason: str, invented: tuple[str, ...] = ()) -> None:
        self.invented = invented
        super().__init__(reason)


@dataclass(slots=True)
class JudgedSummary:
    """A summary without the parts that must not stand, and the problems it had."""

    document: SummaryDocument
    problems: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    """Names that stand nowhere in the source; their lines are gone."""


def is_reply(text: str) -> bool:
    """Return whether a text begins like a reply to the user."""
    return _REPLY.match(text) is not None


def answer_document(answer: object) -> SummaryDocument:
    """Return an answer as a document, or raise an error that says why it is none."""
    return _parse(answer)[0]


def judge_answer(answer: object, yardstick: Yardstick, budget: int, count: Callable[[str], int]) -> JudgedSummary:
    """Return what can be used of an answer; raise if nothing can."""
    document, preamble, body = _parse(answer)
    if min(count(item) for items in document.items.values() for item in items) > budget:
        raise UnusableSummary(f"no part of the summary fits {budget} tokens")
    problems = _cut_faults(document, preamble, yardstick)
    hangs = str(answer).endswith((" ", "\t")) and not _FINISHED.search(body)
    if hangs or _breaks_off(body, yardstick, budget, count):
        problems.append("it breaks off before its end")
        _drop_last(document, body)
    invented = yardstick.invented(document.render())
    if invented:
        named = ", ".join(invented[:8]) + (f" and {len(invented) - 8} more" if len(invented) > 8 else "")
        problems.append(f"it names what stands nowhere in the conversation: {named}")
    related = yardstick.relatedness("\n".join(item for items in document.items.values() for item in items))
    if related < _LEAST_RELATED:
        off = f"the summary is off the subject: {related:.0%} of its words stand in the conversation"
        raise UnusableSummary("; ".join([off, *problems]), invented)
    if invented:
        _cut(document, _has_any(invented))
    if document.is_empty():
        raise UnusableSummary("; ".join(["nothing of the summary can stand", *problems]), invented)
    if not document.fit(budget, count):
        raise UnusableSummary(f"no part of the summary fits {budget} tokens")
    return JudgedSummary(document, tuple(problems), invented)


def _cut_faults(document: SummaryDocument, preamble: str, yardstick: Yardstick) -> list[str]:
    """Cut lines that do not belong into a summary, and return the problems they were."""
    problems: list[str] = []
    replies = _cut(document, lambda line: bool(_REPLY.match(line)))
    if replies or _REPLY.match(preamble) or len(preamble) > _LONG_PREAMBLE:
        problems.append("it answers the user instead of only summarizing")
    if _cut(document, lambda line: bool(_ORDER.search(line) or _POSING.match(line))):
        problems.append("it repeats orders or marks of the conversation as its own")
    if _cut(document, yardstick.is_wrapper):
        problems.append("it takes what the client added for the user's words")
    if _cut(document, lambda line: is_stale(line, yardstick.newest)):
        problems.append("it calls an older request the newest one")
    return problems


def _parse(answer: object) -> tuple[SummaryDocument, str, str]:
    """Return the document of an answer, the text before it, and its own text."""
    if not isinstance(answer, str) or not answer.strip():
        raise UnusableSummary("the summary is empty")
    text = _THOUGHT.sub("", without_marks(answer)).strip()
    fenced = _FENCE.match(text)
    text = fenced[1] if fenced and _FIRST_HEADING.search(fenced[1]) else text
    start = _FIRST_HEADING.search(text)
    document = SummaryDocument.parse(text[start.start() :]) if start else SummaryDocument()
    if start is None or document.is_empty():
        raise UnusableSummary("the answer has none of the summary's headings; it may be a refusal or a reply")
    return document, text[: start.start()].strip(), text[start.start() :].rstrip()


def _cut(document: SummaryDocument, unwanted: Callable[[str], bool]) -> bool:
    """Drop unwanted lines, and all of an item whose first line goes; return whether anything was dropped."""
    changed = False
    for section in SECTIONS:
        kept: list[str] = []
        for item in document.items[section]:
            first, *further = item.split("\n")
            lines = [] if unwanted(first) else [first, *(line for line in further if not unwanted(line))]
            changed = changed or len(lines) < 1 + len(further)
            if lines:
                kept.append("\n".join(lines))
        document.items[section] = kept
    return changed


def _has_any(names: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda line: any(name in line for name in names)


def _drop_last(document: SummaryDocument, body: str) -> None:
    """Drop the item in which a text broke off, whichever section came last."""
    last = body.splitlines()[-1].strip()
    for section in reversed(SECTIONS):
        if document.items[section] and document.items[section][-1].split("\n")[-1].strip() == last:
            document.items[section].pop()
            return


def _breaks_off(body: str, yardstick: Yardstick, budget: int, count: Callable[[str], int]) -> bool:
    """Return whether the text ends where no writer would end it."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    last = lines[-1]
    if last.startswith("#") or _UNFINISHED.search(last) or any(last.count(m) % 2 for m in ("`", "**", '"')):
        return True
    if any(last.count(opening) > last.count(closing) for opening, closing in ("()", "[]", "{}", "“”", "「」")):
        return True
    if _FINISHED.search(last):
        return False
    others = [line for line in lines[:-1] if not line.startswith("#")]
    if len(others) >= 3 and sum(bool(_FINISHED.search(line)) for line in others) >= 0.9 * len(others):
        return True
    word = _LAST_WORD.search(last)
    if word is not None and (yardstick.breaks_off_in(word[0]) or _is_begun(word[0], body)):
        return True
    return count(body) >= 0.98 * budget


def _is_begun(word: str, body: str) -> bool:
    """Return whether the last word is the beginning of longer words in the summary and stands nowhere else."""
    before = body[: -len(word)]
    return (
        len(word) > 2
        and bool(re.search(rf"\b{re.escape(word)}\w", before))
        and not re.search(rf"\b{re.escape(word)}\b", before)
    )
