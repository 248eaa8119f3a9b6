"""The newest request in a summary: the item that names it, and whether a summary names the right one."""

from __future__ import annotations

import re

from everlong.context.claims import telling_words
from everlong.context.summary.clauses import cut_at_clause
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.language import Phrases, newest_label, quotes_wrapper, without_label
from everlong.context.text import TextCount, clip, one_line

_SECTION = "Pending User Asks"
_BRIEF_LENGTH = 240
_WHOLE_LENGTH = 6_000
_MOST_OF_BUDGET = 0.4
"""The largest share of a summary's budget for a newest request that is quoted whole."""
_WORD = re.compile(r"[A-Za-z0-9_]{2,}|[\u3400-\u9fff]")
_LEAST_SHARED = 0.5
_LEAST_NAMED = 0.75


def newest_line(phrases: Phrases, latest: str) -> str:
    """Return the item that names the newest request."""
    return f"- {phrases.newest_request}: {cut_at_clause(latest, _BRIEF_LENGTH)}"


def whole_newest_line(phrases: Phrases, latest: str, budget: int, count: TextCount) -> str:
    """Return the item that quotes the newest request whole, shortened only if it is very long."""
    words, length = one_line(latest), _WHOLE_LENGTH
    while length > _BRIEF_LENGTH and count(clip(words, length)) > budget * _MOST_OF_BUDGET:
        length //= 2
    return f"- {phrases.newest_request}: {clip(words, length)}"


def inherited_newest(previous: str | None) -> str:
    """Return the newest request that an earlier summary names; empty if it names none."""
    items = SummaryDocument.parse(previous).items[_SECTION] if previous else []
    return next((without_label(item) for item in items if newest_label(item) and not quotes_wrapper(item)), "")


def is_same(one: str, other: str) -> bool:
    """Return whether two texts are one request, perhaps cut short."""
    first, second = (one_line(text).removesuffix(" ...").casefold() for text in (one, other))
    return bool(first and second) and (first.startswith(second[:200]) or second.startswith(first[:200]))


def names_newest(item: str, latest: str) -> bool:
    """Return whether an item is labelled as the newest request and has most of its words."""
    if not newest_label(item):
        return False
    said, asked = without_label(item), clip(one_line(latest), 2_000)
    if is_same(said, asked):
        return True
    if len(asked) <= _BRIEF_LENGTH and not _names_most(said, asked):
        return False
    words = set(_WORD.findall(said.lower()))
    return bool(words) and len(words & set(_WORD.findall(asked.lower()))) >= _LEAST_SHARED * len(words)


def is_restated(document: SummaryDocument, latest: str) -> bool:
    """Return whether a summary names the newest request as such."""
    return not latest.strip() or any(names_newest(item, latest) for item in document.items[_SECTION])


def is_cut_short(item: str, latest: str) -> bool:
    """Return whether an item names only the beginning of a request short enough to be named whole."""
    asked = one_line(latest)
    return len(asked) <= _BRIEF_LENGTH and not _names_most(without_label(item), asked)


def is_stale(item: str, latest: str) -> bool:
    """Return whether an item calls another request the newest."""
    return bool(newest_label(item)) and not names_newest(item, latest)


def _names_most(said: str, asked: str) -> bool:
    telling = telling_words(asked)
    return len(telling & telling_words(said)) >= _LEAST_NAMED * len(telling)


def restate_newest(
    document: SummaryDocument, extract: SummaryDocument, latest: str, *, quotes: bool = False
) -> SummaryDocument:
    """Return the document with the extract's newest-request line, if it has none or ``quotes`` is set."""
    if is_restated(document, latest) and not (quotes and is_restated(extract, latest)):
        return document
    items = {section: list(entries) for section, entries in document.items.items()}
    items[_SECTION] = [
        item for item in items[_SECTION] if not (newest_label(item) if quotes else is_stale(item, latest))
    ]
    items[_SECTION] = [*(item for item in extract.items[_SECTION] if names_newest(item, latest)), *items[_SECTION]]
    return SummaryDocument(items)
