"""One search under way: what it looks for and where, and the walk through all that matches, newest first.

Joins what the index offers with what it does not hold yet, looks at texts where only they can tell, and stops when the
time is over. The order by relevance is made elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection

from everlong.store.search.corpus import Corpus, Loaded
from everlong.store.search.document import answered_calls, called_tools, tools_of
from everlong.store.search.index import Index, Place, Scope, SearchTerms, Size, Wanted
from everlong.store.search.match import Matcher
from everlong.store.search.query import Query, normal
from everlong.store.search.words import is_dense, terms_of_word, words_of

Order = Literal["relevance", "time"]

BATCH = 64
"""Documents that are looked at together."""

_MOST_AT_ONCE = 1_024
_READ_AT_ONCE = 24
_NEAR = 8
_CALL_WITHIN = 64


@dataclass(slots=True)
class Walk:
    """A query with its weights and scope, on one connection; remembers what it has read."""

    connection: Connection
    corpus: Corpus
    index: Index
    query: Query
    weights: dict[str, float]
    scope: Scope
    tool: str | None
    size: Size
    order: Order
    matcher: Matcher
    deadline: float
    has_pending: bool
    leave_out: Callable[[Loaded], bool]
    loaded: dict[int, Loaded] = field(default_factory=dict)
    is_partial: bool = False

    @property
    def asked(self) -> SearchTerms:
        """What the index is asked for."""
        return SearchTerms(tuple(self.weights), self.query.starts, self.query.rows)

    def has_words(self, document: Loaded) -> bool:
        """Whether a document has any word of the query."""
        return self.matcher.has_words(document.text, document.plain)

    def pending(self) -> Iterable[Loaded]:
        """What is stored in the scope and not indexed yet."""
        return self.corpus.pending(self.connection, self.scope) if self.has_pending else ()

    def load(self, seqs: Iterable[int]) -> None:
        """Read documents that are not read yet."""
        missing = [seq for seq in seqs if seq not in self.loaded]
        self.loaded |= self.corpus.load(self.connection, missing, self.scope.tenant)

    def load_some(self, seqs: Sequence[int], room: int) -> None:
        """Read documents in order until so many bytes of text are read."""
        for start in range(0, len(seqs), _READ_AT_ONCE):
            part = [seq for seq in seqs[start : start + _READ_AT_ONCE] if seq not in self.loaded]
            self.load(part)
            read = [self.loaded[seq] for seq in part if seq in self.loaded]
            room -= sum(_weight(document.text) for document in read if not self.leave_out(document))
            if room <= 0:
                return

    def counts(self, seq: int) -> bool:
        """Whether a document is read and is not to be left out."""
        return seq in self.loaded and not self.leave_out(self.loaded[seq])

    def matches(self, after: Place | None) -> Iterator[Loaded]:
        """All documents that match, newest first, after a place."""
        if self.query.is_literal:
            return self.verified(after)
        return (document for document in self._offered(after) if self.has_words(document))

    def verified(self, after: Place | None) -> Iterator[Loaded]:
        """Documents that have what must be there; ends early when the time is over."""
        for document in self._offered(after):
            if time.monotonic() > self.deadline:
                self.is_partial = True
                return
            try:
                if self.matcher.has_required(document.text):
                    self.loaded[document.seq] = document
                    yield document
            except TimeoutError:  # the pattern cannot cope with this text
                continue

    def _offered(self, after: Place | None) -> Iterator[Loaded]:
        """What the index offers and what it does not hold yet, in one order."""
        waiting = sorted(
            (document for document in self.pending() if after is None or self._key(document) < self._key(after)),
            key=self._key,
        )
        size = BATCH
        while True:
            places = self._places(after, size)
            missing = [place.seq for place in places if place.seq not in self.loaded]
            found = self.loaded | self.corpus.load(self.connection, missing, self.scope.tenant)
            for place in places:
                while waiting and self._key(waiting[-1]) > self._key(place):
                    yield waiting.pop()
                if waiting and waiting[-1].seq == place.seq:  # where the index has no say, it offers everything
                    waiting.pop()
                if place.seq in found:
                    yield found[place.seq]
            if len(places) < size:
                yield from reversed(waiting)
                return
            after = places[-1]
            size = min(2 * size, _MOST_AT_ONCE)

    def _key(self, of: Loaded | Place) -> tuple[float, int]:
        return (of.ts, of.seq) if self.order == "time" else (0.0, of.seq)

    def _places(self, after: Place | None, size: int) -> list[Place]:
        by_time = self.order == "time"
        if self.query.is_literal:
            wanted = _wanted(self.query)
            return self.index.containing(self.connection, wanted, self.scope, after, size, by_time=by_time)
        return self.index.matching(self.connection, self.asked, self.scope, after, size, by_time=by_time)

    def has_tool(self, document: Loaded) -> bool:
        """Whether a document is a call of the wanted tool, or its answer; True where no tool is wanted."""
        if self.tool is None or self.tool in tools_of(document.message):
            return True
        wanted = set(answered_calls(document.message))
        seq: int | None = document.seq
        for _ in range(_CALL_WITHIN):  # the call stands shortly before its answer
            if not wanted or seq is None:
                return False
            seq = self.corpus.neighbours(self.connection, [seq]).get(seq, (None, None))[0]
            before = self.corpus.load(self.connection, [seq], self.scope.tenant).get(seq) if seq is not None else None
            if before is None:
                return False
            named = called_tools(before.message)
            if any(named.get(ident) == self.tool for ident in wanted):
                return True
            wanted -= named.keys()
        return False


def _wanted(query: Query) -> Wanted:
    """What the index can say about what must be there."""
    if query.pattern is not None:
        return Wanted(tuple(map(normal, query.hints)))
    near, needles = [], list(query.required)
    for phrase in query.phrases:
        # Of each word the whole; its parts, where it has any, stand in between, and they are fewer than its letters.
        terms = [terms[0] for word in words_of(phrase) if (terms := terms_of_word(word)) and not is_dense(terms[0])]
        if len(terms) > 1:
            near.append((tuple(terms[:_NEAR]), len(phrase)))
        else:
            needles.append(phrase)
    return Wanted(tuple(needles), tuple(near))


def _weight(text: str) -> int:
    """About how many bytes a text has."""
    return len(text) if text.isascii() else 3 * len(text)
