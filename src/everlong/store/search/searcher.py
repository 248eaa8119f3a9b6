"""Searching: a query and filters in, pages of hits out, and keeping the index up with what is stored.

What is stored but not indexed yet is looked through directly, so nothing is missed. The order is that of
`everlong.store.search.rank`, or by time. Pages follow each other by a cursor and do not shift when messages come in.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from sqlalchemy import Connection

from everlong.errors import QueryError
from everlong.store.database import Database
from everlong.store.search.corpus import Corpus, Loaded, in_scope
from everlong.store.search.cursor import Cursor, read_cursor
from everlong.store.search.document import answered_calls, called_tools, tools_of
from everlong.store.search.hits import Hit, Page, Shown, hits_of
from everlong.store.search.index import Asked, Index, Place, Scope, Size, Wanted
from everlong.store.search.match import Matcher
from everlong.store.search.query import Mode, Query, normal, read_query, widened
from everlong.store.search.rank import Candidate, Figures, ranked
from everlong.store.search.scope import Filters, scope_for
from everlong.store.search.upkeep import Upkeep
from everlong.store.search.words import is_dense, terms_of_word, words_of

Order = Literal["relevance", "time"]

CANDIDATES = 300
"""How many of the best by words are carried from page to page in their ranking; what follows comes newest first."""

READ_BYTES = 40_000
"""Bytes of texts that are read to rank the first page, and as many again of their neighbours."""

MAX_LIMIT = 1_000
SECONDS = 2.0
_BATCH = 64
_READ_AT_ONCE = 24
_NEAR = 8
_NO_FILTERS = Filters()


@dataclass(slots=True)
class _Search:
    """One search under way."""

    connection: Connection
    query: Query
    weights: dict[str, float]
    filters: Filters
    scope: Scope
    size: Size
    order: Order
    matcher: Matcher
    deadline: float
    has_pending: bool
    loaded: dict[int, Loaded] = field(default_factory=dict)
    is_partial: bool = False

    @property
    def asked(self) -> Asked:
        return Asked(tuple(self.weights), self.query.starts, self.query.rows)

    @property
    def is_verified(self) -> bool:
        """Whether texts have to be looked at to know what matches."""
        return self.query.is_literal


class Searcher:
    """Searches the documents of one tenant and keeps the index of the database."""

    def __init__(self, database: Database, tenant: str = "local") -> None:
        self.database = database
        self.tenant = tenant
        self.corpus = Corpus(database)
        self.index = index_for(database)
        self.upkeep = Upkeep(database, self.index, self.corpus)

    def search(
        self,
        text: str,
        *,
        mode: Mode = "auto",
        order: Order = "relevance",
        filters: Filters = _NO_FILTERS,
        limit: int = 10,
        cursor: str | None = None,
        seconds: float = SECONDS,
    ) -> Page:
        """One page of what was said about something.

        Args:
            text: What to look for; in mode ``auto`` any words, with what must be there in double quotes.
            mode: ``auto``, ``phrase`` or ``substring`` (as it stands, whatever the case), or ``regex``.
            order: ``relevance``, or ``time`` for the newest first.
            filters: Session or lineage, role, tool, times.
            limit: Hits on a page, up to 1,000.
            cursor: The cursor of the page before.
            seconds: After this long the search stops and the page says that it is partial.
        """
        if order not in get_args(Order):
            raise QueryError(f"the order {order!r} is not known; allowed are {', '.join(get_args(Order))}")
        if not 1 <= limit <= MAX_LIMIT:
            raise QueryError(f"a page of {limit} hits is not possible; ask for 1 to {MAX_LIMIT}")
        query = read_query(text, mode)
        identity = repr((self.tenant, text, mode, order, filters))
        state = read_cursor(cursor, identity) if cursor else None
        if query.is_empty:
            return Page((), None, is_partial=False)
        self.upkeep.ensure()
        with self.database.read() as connection:
            upto = state.upto if state else self.corpus.newest(connection)
            scope = scope_for(connection, self.tenant, filters, upto)
            size = self.index.size(connection)
            has_pending = self.corpus.has_pending(connection)
            if not size.summaries and not has_pending and filters.role is None:
                scope = replace(scope, is_messages_only=True)  # nothing to look for there
            weights = widened(query.terms) if query.is_question else dict(query.terms)
            deadline = time.monotonic() + seconds
            run = _Search(
                connection, query, weights, filters, scope, size, order, Matcher(query, weights), deadline, has_pending
            )
            return self._page(run, state or self._begun(run), limit, identity)

    def _page(self, run: _Search, state: Cursor, limit: int, identity: str) -> Page:
        shown, state = self._taken(run, state, limit)
        more = bool(state.waiting or state.has_tail)
        hits = hits_of(run.connection, self.corpus, self.tenant, shown, run.query, run.weights)
        return Page(tuple(hits), state.packed(identity) if more else None, is_partial=run.is_partial)

    # -- the first page: what to rank ------------------------------------------------------------------------------

    def _begun(self, run: _Search) -> Cursor:
        upto = run.scope.upto or 0
        if run.order == "time" or not run.query.is_ranked:
            return Cursor(upto, has_tail=True)
        if run.is_verified:
            return self._begun_verified(run, upto)
        found = self.index.ranked(run.connection, run.asked, run.scope, CANDIDATES)
        waiting = [document for document in self._pending(run) if self._has_words(run, document)]
        run.loaded |= {document.seq: document for document in waiting}
        first = [document.seq for document in waiting[:CANDIDATES]] + [seq for seq, _ in found.found]
        if not first and not run.query.is_question:
            return self._begun_as_substring(run, upto)
        figures = Figures(run.size.documents + len(waiting), run.size.average_length, found.frequencies)
        ranking = self._ranked(run, first, figures)
        is_all = found.is_all and len(waiting) <= CANDIDATES
        return Cursor(upto, (), tuple(ranking), None, has_tail=not is_all)

    def _begun_as_substring(self, run: _Search, upto: int) -> Cursor:
        """No word of the query is known: maybe it is a part of one."""
        needle = normal(run.query.text)
        run.query = replace(run.query, terms={}, starts=(), rows=(), literals=(), required=(needle,))
        run.weights = {}
        run.matcher = Matcher(run.query, {})
        found = list(_until(self._verified(run, None), CANDIDATES))
        return Cursor(upto, (), tuple(document.seq for document in found))

    def _begun_verified(self, run: _Search, upto: int) -> Cursor:
        """Texts that have what must be there, ranked by the other words; the newest ones, if they are very many."""
        documents = list(_until(self._verified(run, None), CANDIDATES))
        found = self.index.ranked(run.connection, run.asked, run.scope, 1)
        candidates = {document.seq: _candidate(document) for document in documents}
        figures = Figures(run.size.documents, run.size.average_length, found.frequencies)
        found_order = ranked(run.query, run.weights, candidates, figures, run.matcher.may_have_words)
        ranking = [seq for seq, _, _ in found_order]
        ranking += [document.seq for document in documents if document.seq not in set(ranking)]
        last = Place(documents[-1].ts, documents[-1].seq) if documents else None
        return Cursor(upto, (), tuple(ranking), last, has_tail=len(documents) >= CANDIDATES or run.is_partial)

    def _ranked(self, run: _Search, seqs: list[int], figures: Figures) -> list[int]:
        """Rank by the texts as far as there is room to read them, the others after them as they came."""
        wide = run.query.is_question
        self._read(run, seqs, READ_BYTES if wide else READ_BYTES // 2)
        inside = [seq for seq in seqs if seq in run.loaded]
        beside: dict[int, tuple[int | None, int | None]] = {}
        around: list[int] = []
        if wide or len(run.query.text.split()) > 1:  # a single word is not met by others next door
            beside = self.corpus.neighbours(run.connection, inside)
            around = [seq for pair in beside.values() for seq in pair if seq is not None and seq not in run.loaded]
            self._read(run, list(dict.fromkeys(around)), READ_BYTES if wide else READ_BYTES // 2)
        if wide:
            beside |= self.corpus.neighbours(run.connection, [seq for seq in around if seq in run.loaded])
        candidates = {
            seq: _candidate(run.loaded[seq], beside.get(seq, (None, None)))
            for seq in dict.fromkeys([*inside, *around])
            if seq in run.loaded
        }
        found = [
            seq
            for seq, _, matches in ranked(run.query, run.weights, candidates, figures, run.matcher.may_have_words)
            if (matches or wide) and in_scope(run.loaded[seq], run.scope)
        ]
        known = set(found)
        return found + [seq for seq in seqs if seq not in known]

    def _read(self, run: _Search, seqs: Sequence[int], room: int) -> None:
        """Load texts in order until the room is filled."""
        for start in range(0, len(seqs), _READ_AT_ONCE):
            part = [seq for seq in seqs[start : start + _READ_AT_ONCE] if seq not in run.loaded]
            found = self.corpus.load(run.connection, part, self.tenant)
            run.loaded |= found
            room -= sum(_weight(document.text) for document in found.values())
            if room <= 0:
                return

    # -- pages: what comes next -------------------------------------------------------------------------------------

    def _taken(self, run: _Search, state: Cursor, limit: int) -> tuple[list[Shown], Cursor]:
        """The documents of one page, and the state after it."""
        shown: list[Shown] = []
        waiting = list(state.waiting)
        passed = list(state.shown)
        while waiting and len(shown) < limit:
            part = waiting[:_BATCH]
            missing = [seq for seq in part if seq not in run.loaded]
            run.loaded |= self.corpus.load(run.connection, missing, self.tenant)
            for seq in part:
                waiting.pop(0)
                passed.append(seq)
                document = run.loaded.get(seq)
                if document is not None and self._has_tool(run, document):
                    shown.append(
                        Shown(document, self._has_words(run, document) or run.is_verified)
                    )
                if len(shown) == limit:
                    break
        state = Cursor(state.upto, tuple(passed), tuple(waiting), state.tail, state.has_tail)
        if waiting or not state.has_tail or len(shown) >= limit:
            return shown, state
        return self._taken_from_tail(run, state, shown, limit)

    def _taken_from_tail(
        self, run: _Search, state: Cursor, shown: list[Shown], limit: int
    ) -> tuple[list[Shown], Cursor]:
        known = set(state.shown)
        last = state.tail
        for document in self._rest(run, state.tail):
            if len(shown) == limit:  # there is one more, so there is another page
                return shown, replace(state, tail=last)
            last = Place(document.ts, document.seq)
            is_new = document.seq not in known and (run.is_verified or self._has_words(run, document))
            if is_new and self._has_tool(run, document):
                shown.append(Shown(document, is_match=True))
        return shown, replace(state, tail=last, has_tail=run.is_partial)

    def _rest(self, run: _Search, after: Place | None) -> Iterator[Loaded]:
        if run.is_verified or not run.query.is_ranked:
            return self._verified(run, after)
        return self._merged(run, after, is_checked=False)

    def _verified(self, run: _Search, after: Place | None) -> Iterator[Loaded]:
        """Documents that have what must be there, newest first; stops when the time is over."""
        for document in self._merged(run, after, is_checked=True):
            if time.monotonic() > run.deadline:
                run.is_partial = True
                return
            try:
                if run.matcher.has_required(document.text):
                    run.loaded[document.seq] = document
                    yield document
            except TimeoutError:
                continue

    def _merged(self, run: _Search, after: Place | None, *, is_checked: bool) -> Iterator[Loaded]:
        """What the index offers and what it does not hold yet, in one order."""
        by_time = run.order == "time"

        def key(place: Place) -> tuple[float, int]:
            return (place.ts, place.seq) if by_time else (0.0, place.seq)

        waiting = sorted(
            (
                document
                for document in self._pending(run)
                if (is_checked or self._has_words(run, document))
                and (after is None or key(Place(document.ts, document.seq)) < key(after))
            ),
            key=lambda document: key(Place(document.ts, document.seq)),
        )
        wanted = _wanted(run.query)
        size = _BATCH
        while True:
            if is_checked:
                places = self.index.containing(run.connection, wanted, run.scope, after, size, by_time=by_time)
            else:
                places = self.index.matching(run.connection, run.asked, run.scope, after, size, by_time=by_time)
            missing = [place.seq for place in places if place.seq not in run.loaded]
            found = run.loaded | self.corpus.load(run.connection, missing, self.tenant)
            for place in places:
                while waiting and key(Place(waiting[-1].ts, waiting[-1].seq)) > key(place):
                    yield waiting.pop()
                if waiting and waiting[-1].seq == place.seq:  # without needles, the pending ones are offered too
                    waiting.pop()
                if place.seq in found:
                    yield found[place.seq]
            if len(places) < size:
                yield from reversed(waiting)
                return
            after = places[-1]
            size = min(2 * size, 1_024)

    def _pending(self, run: _Search) -> Iterable[Loaded]:
        return self.corpus.pending(run.connection, run.scope) if run.has_pending else ()

    def _has_words(self, run: _Search, document: Loaded) -> bool:
        return run.matcher.has_words(document.text, document.plain)

    def _has_tool(self, run: _Search, document: Loaded) -> bool:
        tool = run.filters.tool
        if tool is None or tool in tools_of(document.message):
            return True
        wanted = set(answered_calls(document.message))
        seq: int | None = document.seq
        for _ in range(_BATCH):  # the call stands shortly before its answer
            if not wanted or seq is None:
                return False
            seq = self.corpus.neighbours(run.connection, [seq]).get(seq, (None, None))[0]
            before = self.corpus.load(run.connection, [seq], self.tenant).get(seq) if seq is not None else None
            if before is None:
                return False
            named = called_tools(before.message)
            if any(named.get(ident) == tool for ident in wanted):
                return True
            wanted -= named.keys()
        return False

    # -- upkeep -----------------------------------------------------------------------------------------------------

    def index_pending(self, limit: int = 256) -> int:
        """Index up to so many documents that are stored but not indexed; the number that were taken off the list."""
        return self.upkeep.index_pending(limit)


def index_for(database: Database) -> Index:
    """The index that goes with a database."""
    if database.backend.name == "sqlite":
        from everlong.store.search.sqlite import SQLiteIndex  # noqa: PLC0415 - only the one that is used

        return SQLiteIndex()
    from everlong.store.search.postgres import PostgresIndex  # noqa: PLC0415 - as above

    return PostgresIndex()


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


def _candidate(document: Loaded, beside: tuple[int | None, int | None] = (None, None)) -> Candidate:
    return Candidate(document.seq, document.text, document.plain, document.role, document.speaker, document.ts, *beside)


def _until(documents: Iterable[Any], limit: int) -> Iterator[Any]:
    for number, document in enumerate(documents):
        if number >= limit:
            return
        yield document
