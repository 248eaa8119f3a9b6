"""Stored but not indexed yet: the texts of pending documents, cut into terms once and kept in memory.

Which documents are pending, and which of them are in the scope of a search, the database says each time; only what a
content says is remembered, by its digest. So it does not matter which process stores, indexes or forgets.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from everlong.store.search.corpus import CHUNK, Corpus, PendingDocument
from everlong.store.search.index import PERSON, FoundPassage, IndexSize, RequiredContents, SearchScope
from everlong.store.search.query import normal
from everlong.store.search.rank import Figures
from everlong.store.search.text import passage_terms

MOST_CHARACTERS = 8_000_000
"""Characters of pending texts that are remembered; the texts of others are read by every search."""

_BREAK = "\n"


class PendingText:
    """One text as the search sees it: its terms by passage, and its characters."""

    __slots__ = ("passages", "plain", "seen", "terms")

    def __init__(self, text: str) -> None:
        self.terms = _BREAK.join(f" {terms} " for terms in passage_terms(text))
        """The terms between spaces; passages are parted by line breaks."""
        self.passages = self.terms.count(_BREAK) + 1
        self.plain = normal(text)
        self.seen = 0

    @property
    def weight(self) -> int:
        """The characters that it takes."""
        return len(self.terms) + len(self.plain)

    def may_contain(self, wanted: RequiredContents, words: Iterable[str]) -> bool:
        """Return False if something that is wanted is missing; signs of neighbours are not looked at."""
        return all(f" {word} " in self.terms for word in words) and all(one in self.plain for one in wanted.needles)

    def has_any(self, terms: Iterable[str], starts: Iterable[str]) -> bool:
        """Return whether any of some terms is in it, or one that begins so."""
        return any(f" {term} " in self.terms for term in terms) or any(f" {start}" in self.terms for start in starts)


class WeighedTexts(NamedTuple):
    """Pending texts with any word that is asked for, best first, and the statistics of all passages."""

    found: list[FoundPassage]
    figures: Figures


class PendingTexts:
    """The texts of a database's pending documents, as far as there is room for them."""

    def __init__(self, corpus: Corpus, most_characters: int = MOST_CHARACTERS) -> None:
        self._corpus = corpus
        self._most = most_characters
        self._texts: dict[bytes, PendingText] = {}
        self._size = 0
        self._searches = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._texts)

    def read(
        self, connection: Connection, scope: SearchScope, is_over: Callable[[], bool]
    ) -> Iterator[tuple[PendingDocument, PendingText]]:
        """Yield the pending documents of a scope, the newest first, until time is over."""
        with self._lock:
            self._searches += 1
            search = self._searches
        rows = self._corpus.pending_documents(connection, scope)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            known = self._known(part, search)
            missing = [row for row in part if row.digest not in known]
            if missing:
                if start and is_over():
                    return
                loaded = self._corpus.load(connection, [row.seq for row in missing], scope.tenant)
                for row in missing:
                    if row.seq in loaded:
                        known[row.digest] = PendingText(loaded[row.seq].text)
                        self._keep(row.digest, known[row.digest], search)
            yield from ((row, known[row.digest]) for row in part if row.digest in known)

    def _known(self, rows: Sequence[PendingDocument], search: int) -> dict[bytes, PendingText]:
        with self._lock:
            known = {row.digest: self._texts[row.digest] for row in rows if row.digest in self._texts}
        for text in known.values():
            text.seen = search
        return known

    def _keep(self, digest: bytes, text: PendingText, search: int) -> None:
        """Remember a text; where there is no room, in place of those that this search and the last did not need."""
        text.seen = search
        with self._lock:
            if digest in self._texts:
                return
            if self._size + text.weight > self._most:
                old = [key for key, one in self._texts.items() if one.seen < search - 1]
                self._size -= sum(self._texts.pop(key).weight for key in old)
            if self._size + text.weight <= self._most:
                self._texts[digest] = text
                self._size += text.weight


def weigh(
    texts: Iterable[tuple[PendingDocument, PendingText]],
    weights: Mapping[str, float],
    starts: Sequence[str],
    size: IndexSize,
    frequencies: Mapping[str, int],
) -> WeighedTexts:
    """Return the best passages of the texts with any word, best first; ``frequencies`` are those of the index."""
    needles = [(term, f" {term} ") for term in weights]
    begun = [f" {start}" for start in starts]
    holding = Counter(frequencies)
    found: list[tuple[PendingDocument, int, int, list[str]]] = []
    passages = length = 0
    for row, text in texts:
        passages += text.passages
        length += text.terms.count(" ") - text.passages
        here = [(term, needle) for term, needle in needles if needle in text.terms]
        if not here and not any(start in text.terms for start in begun):
            continue
        for number, terms in enumerate(text.terms.split(_BREAK)):
            has = [term for term, needle in here if needle in terms]
            if has or any(start in terms for start in begun):
                holding.update(has)
                found.append((row, number, terms.count(" ") - 1, has))
    whole = size.passages + passages
    average = max(1.0, (size.average_length * size.passages + length) / whole) if whole else 1.0
    figures = Figures(whole, average, holding)
    worth = {term: weight * figures.idf(term) for term, weight in weights.items()}
    best: dict[int, FoundPassage] = {}
    for row, number, terms_here, has in found:
        score = sum(worth[term] for term in has) * 2.2 / (1.3 + 0.9 * terms_here / average)
        score *= PERSON if row.role == "user" else 1.0
        if row.seq not in best or score > best[row.seq].score:
            best[row.seq] = FoundPassage(row.seq, number, score)
    times = {row.seq: row.ts for row, *_ in found}
    return WeighedTexts(
        sorted(best.values(), key=lambda one: (-one.score, -times.get(one.seq, -math.inf), -one.seq)), figures
    )
