"""Stored but not indexed yet: the texts of pending documents, read once and kept in memory.

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
from everlong.store.search.index import IndexSize, SearchScope
from everlong.store.search.passage_scores import PERSON, FoundPassage
from everlong.store.search.query import beginnings
from everlong.store.search.rank import Figures
from everlong.store.search.text import count_passages, folded, passage_spans, terms_of

MOST_CHARACTERS = 8_000_000
"""Characters of pending texts that are remembered; the texts of others are read by every search."""


class PassageTerms(NamedTuple):
    """The terms of a passage, and how many they are with repetitions."""

    terms: frozenset[str]
    length: int


class PendingText:
    """One text as the search sees it; the terms of a passage are made when a query may meet it there."""

    __slots__ = ("_terms", "plain", "seen", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = folded(text)
        self.seen = 0
        self._terms: dict[int, PassageTerms] = {}

    @property
    def weight(self) -> int:
        """The characters that it takes, with those of its terms."""
        return 2 * len(self.text) + len(self.plain)

    def has_any(self, pieces: Iterable[str]) -> bool:
        """Return whether any of some folded pieces stands in it."""
        return any(piece in self.plain for piece in pieces)

    def has_all(self, needles: Sequence[str]) -> bool:
        """Return whether all of some folded needles stand in it, with single spaces for any white space."""
        if not all(piece in self.plain for needle in needles for piece in needle.split()):
            return False
        plain = " ".join(self.plain.split())
        return all(needle in plain for needle in needles)

    def passages_with(self, pieces: Sequence[str]) -> Iterator[tuple[int, PassageTerms]]:
        """Yield the numbers of passages with any of some folded pieces, and their terms."""
        for number, (start, stop) in enumerate(passage_spans(self.text)):
            plain = folded(self.text[start:stop])
            if any(piece in plain for piece in pieces):
                if number not in self._terms:
                    terms = terms_of(self.text[start:stop])
                    self._terms[number] = PassageTerms(frozenset(terms), len(terms))
                yield number, self._terms[number]


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
    starts: tuple[str, ...],
    size: IndexSize,
    frequencies: Mapping[str, int],
) -> WeighedTexts:
    """Return the best passages of the texts with any word, best first; ``frequencies`` are those of the index."""
    pieces = [*beginnings(weights), *starts]
    holding = Counter(frequencies)
    found: list[tuple[PendingDocument, int, int, list[str]]] = []
    passages = 0
    for row, text in texts:
        passages += count_passages(text.text)
        if not text.has_any(pieces):
            continue
        for number, (terms, count) in text.passages_with(pieces):
            has = [term for term in weights if term in terms]
            if has or (starts and any(term.startswith(starts) for term in terms)):
                holding.update(has)
                found.append((row, number, count, has))
    average = size.average_length
    if found:
        length = sum(count for _, _, count, _ in found)
        average = max(1.0, (average * size.passages + length) / (size.passages + len(found)))
    figures = Figures(size.passages + passages, average, holding)
    worth = {term: weight * figures.idf(term) for term, weight in weights.items()}
    best: dict[int, FoundPassage] = {}
    for row, number, _, has in found:
        score = sum(worth[term] for term in has)
        score *= PERSON if row.role == "user" else 1.0
        if row.seq not in best or score > best[row.seq].score:
            best[row.seq] = FoundPassage(row.seq, number, score)
    times = {row.seq: row.ts for row, *_ in found}
    return WeighedTexts(
        sorted(best.values(), key=lambda one: (-one.score, -times.get(one.seq, -math.inf), -one.seq)), figures
    )
