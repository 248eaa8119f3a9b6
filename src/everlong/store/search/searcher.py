"""Searching: a query and filters in, pages of hits out.

What is stored but not indexed yet is looked through directly, so nothing is missed. The order is that of
`everlong.store.search.rank`, or by time. Pages follow each other by a cursor and do not shift when messages come in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import get_args

from sqlalchemy import Connection

from everlong.errors import QueryError
from everlong.store.database import Database
from everlong.store.search.corpus import Corpus, Loaded, in_scope
from everlong.store.search.cursor import Cursor, read_cursor
from everlong.store.search.hits import Page, Shown, hits_of
from everlong.store.search.index import Index, Place
from everlong.store.search.match import Matcher
from everlong.store.search.query import Mode, Query, normal, read_query, widened
from everlong.store.search.rank import Candidate, Figures, ranked
from everlong.store.search.scope import Filters, scope_for
from everlong.store.search.unindexed import weighed
from everlong.store.search.upkeep import Upkeep
from everlong.store.search.walk import BATCH, Order, Walk
from everlong.store.search.words import folded

CANDIDATES = 300
"""How many of the best by words are carried from page to page in their ranking; what follows comes newest first."""

READ_BYTES = 40_000
"""Bytes of texts that are read to rank what a question finds, and as many again of their neighbours; else half."""

MAX_LIMIT = 1_000
SECONDS = 2.0
_NO_FILTERS = Filters()


class Searcher:
    """Searches the documents of one tenant and keeps the index of the database."""

    def __init__(self, database: Database, tenant: str = "local") -> None:
        self.database = database
        self.tenant = tenant
        self.corpus = Corpus(database)
        self.index = index_for(database)
        self.upkeep = Upkeep(database, self.index, self.corpus)

    def search(  # noqa: PLR0913 - each is one thing a caller may want otherwise
        self,
        text: str,
        *,
        mode: Mode = "auto",
        order: Order = "relevance",
        filters: Filters = _NO_FILTERS,
        limit: int = 10,
        cursor: str | None = None,
        seconds: float = SECONDS,
        leave_out: Callable[[Loaded], bool] = lambda _: False,
    ) -> Page:
        """One page of what was said about something.

        Args:
            text: What to look for; in mode ``auto`` any words, with what must be there in double quotes.
            mode: ``auto``, ``phrase`` or ``substring`` (as it stands, whatever the case), or ``regex``.
            order: ``relevance``, or ``time`` for the newest first.
            filters: Conversation, role, tool, times.
            limit: Hits on a page, up to 1,000.
            cursor: The cursor of the page before.
            seconds: After this long a search through texts stops, and the page says that it is partial.
            leave_out: Documents for which this is true are not found, and lend no weight to those beside them.
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
            walk = self._walk(connection, query, filters, order, upto, seconds, leave_out)
            if state is None:
                state = self._begun(walk, upto)
            elif state.is_fragment:
                _look_for_fragment(walk)
            shown, state = _taken(walk, state, limit)
            hits = hits_of(connection, self.tenant, shown, walk.query, walk.weights)
        more = bool(state.waiting or state.has_tail)
        return Page(tuple(hits), state.packed(identity) if more else None, is_partial=walk.is_partial)

    def index_pending(self, limit: int = 256, *, gives_way: bool = False) -> int:
        """Index up to so many documents that are stored but not indexed; the number that were taken off the list.

        With ``gives_way`` it is slower, and others who write hardly notice.
        """
        return self.upkeep.index_pending(limit, gives_way=gives_way)

    def _walk(
        self,
        connection: Connection,
        query: Query,
        filters: Filters,
        order: Order,
        upto: int,
        seconds: float,
        leave_out: Callable[[Loaded], bool],
    ) -> Walk:
        scope = scope_for(connection, self.tenant, filters, upto)
        size = self.index.size(connection)
        has_pending = self.corpus.has_pending(connection)
        if not size.summaries and not has_pending and filters.role is None:
            scope = replace(scope, is_messages_only=True)  # there is no summary to look for
        weights = widened(query.terms) if query.is_question else dict(query.terms)
        return Walk(
            connection,
            self.corpus,
            self.index,
            query,
            weights,
            scope,
            filters.tool,
            size,
            order,
            Matcher(query, weights),
            time.monotonic() + seconds,
            has_pending,
            leave_out,
        )

    def _begun(self, walk: Walk, upto: int) -> Cursor:
        """The state before the first page: what is ranked, and whether anything comes after it."""
        if walk.order == "time" or not walk.query.is_ranked:
            return Cursor(upto, has_tail=True)
        if walk.query.is_literal:
            return _begun_with_literals(walk, upto)
        found = self.index.ranked(walk.connection, walk.asked, walk.scope, CANDIDATES)
        waiting, figures = weighed(
            walk.pending(),
            walk.weights,
            walk.size,
            found.frequencies,
            lambda document: walk.has_words(document) and not walk.leave_out(document),
        )
        walk.loaded |= {document.seq: document for document in waiting}
        first = [document.seq for document in waiting[:CANDIDATES]] + [seq for seq, _ in found.found]
        if not first and not walk.query.is_question:
            _look_for_fragment(walk)
            return Cursor(upto, has_tail=True, is_fragment=True)
        is_all = found.is_all and len(waiting) <= CANDIDATES
        return Cursor(upto, waiting=tuple(_ranked(walk, first, figures)), has_tail=not is_all)


def index_for(database: Database) -> Index:
    """The index that goes with a database."""
    if database.backend.name == "sqlite":
        from everlong.store.search.sqlite import SQLiteIndex  # noqa: PLC0415 - only the one that is used

        return SQLiteIndex()
    from everlong.store.search.postgres import PostgresIndex  # noqa: PLC0415 - as above

    return PostgresIndex()


def _look_for_fragment(walk: Walk) -> None:
    """No word of the query is known: maybe it is a part of one."""
    walk.query = Query(walk.query.text, walk.query.mode, required=(normal(walk.query.text),))
    walk.weights = {}
    walk.matcher = Matcher(walk.query, {})


def _begun_with_literals(walk: Walk, upto: int) -> Cursor:
    """Texts that have what must be there, ranked by all the words; the newest ones, if they are very many."""
    documents = list(islice((one for one in walk.verified(None) if not walk.leave_out(one)), CANDIDATES))
    frequencies = walk.index.ranked(walk.connection, walk.asked, walk.scope, 1).frequencies
    candidates = {document.seq: _candidate(document) for document in documents}
    figures = Figures(walk.size.documents, walk.size.average_length, frequencies)
    best = [seq for seq, _, _ in ranked(walk.query, walk.weights, candidates, figures, walk.matcher.may_have_words)]
    ranking = dict.fromkeys([*best, *candidates])
    last = Place(documents[-1].ts, documents[-1].seq) if documents else None
    has_tail = len(documents) >= CANDIDATES or walk.is_partial
    return Cursor(upto, waiting=tuple(ranking), tail=last, has_tail=has_tail)


def _ranked(walk: Walk, seqs: list[int], figures: Figures) -> list[int]:
    """Ranked by the texts as far as there is room to read them, the others after them as they came."""
    wide = walk.query.is_question
    room = READ_BYTES if wide else READ_BYTES // 2
    walk.load_some(seqs, room)
    inside = [seq for seq in seqs if walk.counts(seq)]
    beside: dict[int, tuple[int | None, int | None]] = {}
    around: dict[int, None] = {}
    if wide or len(walk.query.text.split()) > 1:  # a single word is not met by others next door
        beside = walk.corpus.neighbours(walk.connection, inside)
        around = dict.fromkeys(
            seq for pair in beside.values() for seq in pair if seq is not None and seq not in walk.loaded
        )
        walk.load_some(list(around), room)
    if wide:
        beside |= walk.corpus.neighbours(walk.connection, [seq for seq in around if walk.counts(seq)])
    candidates = {
        seq: _candidate(walk.loaded[seq], beside.get(seq, (None, None)))
        for seq in (*inside, *around)
        if walk.counts(seq)
    }
    found = [
        seq
        for seq, _, matches in ranked(walk.query, walk.weights, candidates, figures, walk.matcher.may_have_words)
        if (matches or wide) and in_scope(walk.loaded[seq], walk.scope)
    ]
    return list(dict.fromkeys([*found, *seqs]))


def _candidate(document: Loaded, beside: tuple[int | None, int | None] = (None, None)) -> Candidate:
    own = document.own_text
    plain = document.plain if own == document.text else folded(own)
    return Candidate(document.seq, own, plain, document.role, document.speaker, document.ts, *beside)


def _taken(walk: Walk, state: Cursor, limit: int) -> tuple[list[Shown], Cursor]:
    """The documents of one page, and the state after it."""
    shown: list[Shown] = []
    taken = 0
    for start in range(0, len(state.waiting), BATCH):
        part = state.waiting[start : start + BATCH]
        walk.load(part)
        for seq in part:
            taken += 1
            document = walk.loaded.get(seq)
            if document is not None and not walk.leave_out(document) and walk.has_tool(document):
                shown.append(Shown(document, is_match=walk.query.is_literal or walk.has_words(document)))
            if len(shown) == limit:
                break
        if len(shown) == limit:
            break
    passed = (*state.shown, *state.waiting[:taken])
    state = replace(state, shown=passed, waiting=state.waiting[taken:])
    if state.waiting or not state.has_tail or len(shown) == limit:
        return shown, state
    return _taken_from_tail(walk, state, shown, limit)


def _taken_from_tail(walk: Walk, state: Cursor, shown: list[Shown], limit: int) -> tuple[list[Shown], Cursor]:
    known = set(state.shown)
    last = state.tail
    for document in walk.matches(state.tail):
        if len(shown) == limit:  # there is one more, so there is another page
            return shown, replace(state, tail=last)
        last = Place(document.ts, document.seq)
        if document.seq not in known and not walk.leave_out(document) and walk.has_tool(document):
            shown.append(Shown(document, is_match=True))
    return shown, replace(state, tail=last, has_tail=walk.is_partial)
