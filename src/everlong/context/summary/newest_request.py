"""TODO."""

from __future__ import annotations

import re

from everlong.context.claims import telling_words
from everlong.context.summary.clauses import cut_at_clause
from everlong.context.summary.document import SummaryDocument
from everlong.context.summary.language import Phrases, newest_label, quotes_wrapper, without_label
from everlong.context.text import TextCount, clip, one_line

SECTION = "Pending User Asks"
_LENGTH = 240
_WHOLE_LENGTH = 6_000
_MOST_OF_BUDGET = 0.4
"""What of a summary's budget the newest request may take where it is quoted whole."""
_NEWEST_WORD = re.compile(r"[A-Za-z0-9_]{2,}|[\u3400-\u9fff]")
_LEAST_SHARED = 0.5
_LEAST_NAMED = 0.75


def newest_line(phrases: Phrases, latest: str) -> str:
    """The item that names the newest request."""
    return f"- {phrases.newest_request}: {cut_at_clause(latest, _LENGTH)}"


def whole_newest_line(phrases: Phrases, latest: str, budget: int, count: TextCount) -> str:
    """The item with the newest request word for word, where it stands nowhere else; a very long one is cut short."""
    words, length = one_line(latest), _WHOLE_LENGTH
    while length > _LENGTH and count(clip(words, length)) > budget * _MOST_OF_BUDGET:
        length //= 2
    return f"- {phrases.newest_request}: {clip(words, length)}"


def inherited_newest(previous: str | None) -> str:
    """The newest request that an earlier summary names; empty where it names none."""
    items = SummaryDocument.parse(previous).items[SECTION] if previous else []
    return next((without_label(item) for item in items if newest_label(item) and not quotes_wrapper(item)), "")


def is_restated(document: SummaryDocument, latest: str) -> bool:
    """Whether a summary names the newest request as such."""
    return not latest.strip() or any(names_newest(item, latest) for item in document.items[SECTION])


def names_newest(item: str, latest: str) -> bool:
    """Whether an item is labelled as the newest request and is about it, in the same words or most of them."""
    if not newest_label(item):
        return False
    said, asked = without_label(item), clip(one_line(latest), 2_000)
    if is_same(said, asked):
        return True
    if len(asked) <= _LENGTH and not _names_most(said, asked):
        return False
    words = set(_NEWEST_WORD.findall(said.lower()))
    return bool(words) and len(words & set(_NEWEST_WORD.findall(asked.lower()))) >= _LEAST_SHARED * len(words)


def is_cut_short(item: str, latest: str) -> bool:
    """Whether an item names no more than the beginning of a request that is short enough to be named whole."""
    asked = one_line(latest)
    return len(asked) <= _LENGTH and not _names_most(without_label(item), asked)


def _names_most(said: str, asked: str) -> bool:
    telling = telling_words(asked)
    return len(telling & telling_words(said)) >= _LEAST_NAMED * len(telling)


def is_stale(item: str, latest: str) -> bool:
    """Whether an item calls another request the newest."""
    return bool(newest_label(item)) and not names_newest(item, latest)


def restated(
    document: SummaryDocument, extract: SummaryDocument, latest: str, *, quotes: bool = False
) -> SummaryDocument:
    """The document with the extract's line on the newest request, where it has none of its own or ``quotes`` is set."""
    if is_restated(document, latest) and not (quotes and is_restated(extract, latest)):
        return document
    items = {section: list(entries) for section, entries in document.items.items()}
    items[SECTION] = [item for item in items[SECTION] if not (newest_label(item) if quotes else is_stale(item, latest))]
    items[SECTION] = [*(item for item in extract.items[SECTION] if names_newest(item, latest)), *items[SECTION]]
    return SummaryDocument(items)


def is_same(one: str, other: str) -> bool:
    """Whether two texts are one request, perhaps cut short."""
    first, second = (one_line(text).removesuffix(" ...").casefold() for text in (one, other))
    return bool(first and second) and (first.startswith(second[:200]) or second.startswith(first[:200]))
