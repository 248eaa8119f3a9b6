"""The search: a query and filters in, pages of hits out.

What is stored but not indexed yet is indexed first, so nothing is missed. The order is that of
`everlong.store.search.rank`, or by time. Pages follow each other by a cursor and do not shift when messages come in.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import orjson
from sqlalchemy import Connection

from everlong.errors import QueryError, StoreError
from everlong.store.database import Database, ask
from everlong.store.search.corpus import SearchDocument, is_of_tool, load_documents
from everlong.store.search.index import Index, SearchPlace
from everlong.store.search.query import Matcher, Mode, Query, normal, read_query
from everlong.store.search.rank import FIRST, WEIGHTS, Ranking, Weights
from everlong.store.search.scope import Filters, SearchScope, scope_for
from everlong.store.search.snippets import Snippet, snippet
from everlong.store.search.text import passage_spans, required_terms
from everlong.store.search.vectors import Embedder, question_text
from everlong.store.shown_path import ShownPlace, locate

if TYPE_CHECKING:
    from everlong.store.search.meaning import Meaning

Order = Literal["relevance", "time", "oldest"]


@dataclass(frozen=True, slots=True)
class Hit:
    """One message or summary that was found."""

    seq: int
    """Its number; negative for a summary."""
    node: bytes | None
    """The message's id; None for a summary."""
    session: str | None
    """The conversation that shows it, by its id; None where none does, as for what was taken back."""
    title: str | None
    branch: int
    turn: int
    """Its number in the conversation; in its branch where no conversation shows it."""
    role: str
    speaker: str
    at: float
    """The time at which it was said, in seconds since 1970."""
    snippet: Snippet
    is_match: bool
    """False where it was found for what stands right before or after it."""
    status: Literal["cancelled", "failed"] | None = None
    """The end of a reply that broke off; its turn is that of its request."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "session": self.session,
            "title": self.title,
            "turn": self.turn,
            "role": self.role,
            "speaker": self.speaker,
            "at": self.at,
            "node": self.node.hex() if self.node else None,
            "snippet": self.snippet.text,
            "marks": [list(mark) for mark in self.snippet.marks],
            "is_match": self.is_match,
            "status": self.status,
        }


@dataclass(frozen=True, slots=True)
class Page:
    """Some hits in order, the cursor of the next page (None after the last), and whether time ran out on the way."""

    hits: tuple[Hit, ...]
    cursor: str | None
    is_partial: bool


SORTED = 60
"""The newest texts with a phrase or a pattern that are sorted by all words of the query; older ones come by time.

Also the best ones for a path or an identifier, of which those come first that have it as it was typed.
"""

EMBEDDING_SECONDS = 0.5
"""Seconds after which `Searcher.index_pending` leaves further vectors for the next time."""

MAX_LIMIT = 1_000
_INDEXED_AT_ONCE = 256
SECONDS = 2.0
_NO_FILTERS = Filters()


def index_for(database: Database) -> Index:
    """Return the index that goes with a database."""
    if database.backend.name == "sqlite":
        from everlong.store.search.sqlite import SQLiteIndex  # noqa: PLC0415 - only the one that is used

        return SQLiteIndex(database)
    from everlong.store.search.postgres import PostgresIndex  # noqa: PLC0415 - as above

    return PostgresIndex(database)


class Searcher:
    """The search over the documents of one tenant; it also keeps the index of the database."""

    def __init__(
        self,
        database: Database,
        tenant: str = "local",
        weights: Weights = WEIGHTS,
        *,
        embedder: Embedder | None = None,
    ) -> None:
        self.database = database
        self.tenant = tenant
        self.weights = weights
        self.embedder = embedder
        self.index = index_for(database)

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
        leave_out: Callable[[SearchDocument], bool] | None = None,
    ) -> Page:
        """Return one page of what was said about something.

        Args:
            text: What to look for; in mode ``auto`` any words, with what must be there in double quotes.
            mode: ``auto``, ``phrase`` or ``substring`` (as it stands, whatever the case), or ``regex``.
            order: ``relevance``, ``time`` for the newest first, or ``oldest``.
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
        state = read_cursor(cursor) if cursor else None
        if query.is_empty:
            return Page((), None, is_partial=False)
        is_whole = self._catch_up(seconds)
        with self.database.read() as connection:
            if state is None:
                state = Cursor(ask(connection, "SELECT coalesce(max(seq), 0) FROM node").fetchone()[0])
            scope = scope_for(connection, self.tenant, filters, state.upto)
            deadline = time.monotonic() + seconds
            walk = SearchWalk(self, connection, query, scope, filters.tool, order, deadline, leave_out)
            shown, further = _take_page(walk, walk.rank(), state, limit)
            hits = hits_of(connection, self.tenant, shown, walk)
        return Page(tuple(hits), further.pack() if further else None, is_partial=walk.is_partial or not is_whole)

    def _catch_up(self, seconds: float) -> bool:
        """Index what is stored and not indexed yet; return False if some is left, as where nothing may be written."""
        self.index.ensure()
        until = time.monotonic() + seconds
        while self.index.has_pending():
            try:
                taken = self.index.index_pending(_INDEXED_AT_ONCE)
            except StoreError:
                return False
            if not taken or time.monotonic() > until:
                return False
        return True

    def index_pending(self, limit: int = 256, *, gives_way: bool = False) -> int:
        """Index up to so many documents that are stored but not indexed; return how many were taken off the list.

        With ``gives_way`` it is slower, and others who write hardly notice.
        """
        taken = self.index.index_pending(limit, gives_way=gives_way)
        self.embed_pending(limit, EMBEDDING_SECONDS)
        return taken

    @cached_property
    def meaning(self) -> Meaning | None:
        """The search by meaning; None without an embedder."""
        if self.embedder is None:
            return None
        from everlong.store.search.meaning import Meaning  # noqa: PLC0415 - loads numpy

        return Meaning(self.database, self.embedder, self.tenant)

    def embed_pending(self, limit: int = 256, seconds: float | None = None) -> int:
        """Make vectors for up to so many messages that have none, newest first; return how many it was done for.

        Makes none without an embedder, while its model fails, and while another process makes them.
        """
        return 0 if self.meaning is None else self.meaning.embed_pending(limit, seconds)

    def count_unembedded(self) -> int:
        """Return how many messages have no vectors yet; 0 without an embedder."""
        return 0 if self.meaning is None else self.meaning.count_pending()


class ShownDocument(NamedTuple):
    """A document of a page, whether it matches itself or stands beside something that does, and its best passage."""

    document: SearchDocument
    is_match: bool = True
    place: int | None = None


def _take_page(
    walk: SearchWalk, ranked: Sequence[int], state: Cursor, limit: int
) -> tuple[list[ShownDocument], Cursor | None]:
    """Return the documents of one page, ranked ones before others, and the state if more follow."""
    shown: list[ShownDocument] = []
    taken = state.taken
    while taken < len(ranked) and len(shown) < limit:
        seq = ranked[taken]
        if seq not in walk.loaded:
            walk.load(ranked[taken : taken + min(limit, BATCH)])
        taken += 1
        if seq in walk.loaded and walk.may_show(walk.loaded[seq]):
            shown.append(ShownDocument(walk.loaded[seq], *walk.match_of(seq)))
    state = replace(state, taken=taken)
    if taken < len(ranked) or not walk.is_by_time:
        return shown, state if taken < len(ranked) else None
    last = state.tail or walk.sorted_until
    for document in walk.matches(last):
        if len(shown) == limit:  # there is one more, so there is another page
            return shown, replace(state, tail=last)
        last = SearchPlace(document.ts, document.seq)
        if walk.may_show(document):
            shown.append(ShownDocument(document))
    return shown, replace(state, tail=last) if walk.is_partial else None


# -- reading documents -------------------------------------------------------------------------------------------------

BATCH = 64
"""The number of documents that are read together."""

_MOST_AT_ONCE = 1_024
_WORDS = 4
"""Terms of a phrase or a part of a text that are looked up; the others only count when the text is read."""


@dataclass
class SearchWalk:
    """A query in its scope, on one connection; remembers what it has read."""

    searcher: Searcher
    connection: Connection
    query: Query
    scope: SearchScope
    tool: str | None
    order: Order
    deadline: float
    leave_out: Callable[[SearchDocument], bool] | None
    loaded: dict[int, SearchDocument] = field(default_factory=dict)
    is_partial: bool = False
    sorted_until: SearchPlace | None = None
    """The last of the newest texts that were sorted by words."""
    ranking: Ranking | None = None

    @property
    def is_by_time(self) -> bool:
        """True if documents come by time after those that are ranked: by wish, or because their texts decide."""
        return self.order != "relevance" or self.query.is_literal

    def rank(self) -> list[int]:
        """Return the documents that come by relevance."""
        if self.order != "relevance":
            return []
        ranked = self._rank_words() if self.query.is_ranked else []
        if not ranked and not self.query.is_question and not self.query.is_literal:
            # None of its words is known, so it is looked for within words.
            self.query = Query(self.query.text, "auto", required=(normal(self.query.text),))
        if not self.query.is_literal:
            return ranked
        newest = list(islice(self._find_required(None), SORTED))
        if newest:
            self.sorted_until = SearchPlace(newest[-1].ts, newest[-1].seq)
        places = {seq: number for number, seq in enumerate(ranked)}
        newest.sort(key=lambda one: places.get(one.seq, len(places)))
        return [one.seq for one in newest]

    def match_of(self, seq: int) -> tuple[bool, int | None]:
        """Return whether a ranked document matches itself, and the place of its best passage."""
        if self.ranking is None or self.query.is_literal:
            return True, None
        place = self.ranking.place(seq)
        return place is not None, place

    def _rank_words(self) -> list[int]:
        # The search by meaning is for questions only: it would push exact words down.
        meaning = self.searcher.meaning if self.query.is_question else None
        weights = self.searcher.weights
        self.ranking = ranking = Ranking(self.searcher.index, self.connection, self.query, self.scope, weights)
        dense: dict[int, float] = {}
        if self.leave_out is not None or meaning is not None:
            first = ranking.best(FIRST)
            self.load(first)
            ranking.drop(seq for seq in first if not self._counts(seq))
        if meaning is not None:
            question = question_text(self.query.text, {one.speaker for one in self.loaded.values()})
            dense = meaning.scores(self.connection, question, self.scope, list(self.loaded), self._load_found)
        ranked = ranking.sort(dense)
        if self.query.literals and not self.query.is_question:  # only the text tells whether it stands there so
            best = ranked[:SORTED]
            self.load(best)
            plain = {seq: normal(document.text) for seq, document in self.loaded.items()}
            best.sort(key=lambda seq: sum(name not in plain.get(seq, "") for name in self.query.literals))
            ranked[:SORTED] = best
        return ranked

    def _load_found(self, seqs: Iterable[int]) -> dict[int, SearchDocument]:
        """Read documents; return those that may be found."""
        self.load(seqs)
        return {seq: self.loaded[seq] for seq in seqs if self._counts(seq)}

    def load(self, seqs: Iterable[int]) -> None:
        """Read documents of the scope that are not read yet."""
        missing = [seq for seq in seqs if seq not in self.loaded]
        self.loaded |= load_documents(self.connection, missing, self.scope)

    def _counts(self, seq: int) -> bool:
        """Return whether a document is in the scope and not to be left out."""
        return seq in self.loaded and (self.leave_out is None or not self.leave_out(self.loaded[seq]))

    def matches(self, after: SearchPlace | None) -> Iterator[SearchDocument]:
        """Yield all documents that match, in order, after a place."""
        return self._find_required(after) if self.query.is_literal else self._find_offered(after)

    def _find_required(self, after: SearchPlace | None) -> Iterator[SearchDocument]:
        """Yield the documents with all required contents; end early when the time is over."""
        matcher = Matcher(self.query)
        for document in self._find_offered(after):
            if time.monotonic() > self.deadline:
                self.is_partial = True
                return
            try:
                if matcher.has_required(document.text):
                    self.loaded[document.seq] = document
                    yield document
            except TimeoutError:  # the pattern cannot cope with this text
                continue

    def _find_offered(self, after: SearchPlace | None) -> Iterator[SearchDocument]:
        """Yield the documents that the index offers, in order."""
        groups: list[tuple[str, ...]] = [(*self.query.terms, *self.query.starts)]
        if self.query.is_literal:
            groups = [(term,) for term in _required_of_index(self.query)]
        size = BATCH
        while True:
            ways = {"by_time": self.order != "relevance", "is_oldest_first": self.order == "oldest"}
            places = self.searcher.index.offer(self.connection, groups, self.scope, after, size, **ways)
            missing = [place.seq for place in places if place.seq not in self.loaded]
            found = self.loaded | load_documents(self.connection, missing, self.scope)
            yield from (found[place.seq] for place in dict.fromkeys(places) if place.seq in found)
            if len(places) < size:
                return
            after = places[-1]
            size = min(2 * size, _MOST_AT_ONCE)

    def may_show(self, document: SearchDocument) -> bool:
        """Return whether a document that was found may stand on a page."""
        self.loaded.setdefault(document.seq, document)
        if not self._counts(document.seq):
            return False
        return self.tool is None or is_of_tool(self.connection, document, self.tool)


def _required_of_index(query: Query) -> list[str]:
    """Return terms that a text has if it has the required contents, the longest words first."""
    found = [term for phrase in query.phrases for term in required_terms(phrase, is_whole=True)]
    for needle in (*query.required, *map(normal, query.hints)):
        found += required_terms(needle, is_whole=False)
    return sorted(dict.fromkeys(found), key=len, reverse=True)[:_WORDS]


# -- hits --------------------------------------------------------------------------------------------------------------


def hits_of(connection: Connection, tenant: str, shown: Sequence[ShownDocument], walk: SearchWalk) -> list[Hit]:
    """Return hits for the documents of a page."""
    places = [ShownPlace(item.document.branch, item.document.depth, item.document.id) for item in shown]
    located = locate(connection, tenant, places)
    hits: list[Hit] = []
    for (document, is_match, best), place in zip(shown, places, strict=True):
        where = located[place]
        hits.append(
            Hit(
                seq=document.seq,
                node=document.id,
                session=where.conversation,
                title=where.title,
                branch=document.branch,
                turn=where.turn,
                role=document.role,
                speaker=document.speaker,
                at=document.ts,
                snippet=_snippet(document, best, walk),
                is_match=is_match,
                status=where.status,
            )
        )
    return hits


def _snippet(document: SearchDocument, place: int | None, walk: SearchWalk) -> Snippet:
    """Return words around a match that a person, a model or a tool said; a client's only where nothing else matches."""
    spans = [] if place is None else passage_spans(document.own_text)
    span = spans[min(place, len(spans) - 1)] if place is not None else None
    own = snippet(document.own_text, walk.query, span)
    return own if own.marks or document.own_text == document.text else snippet(document.text, walk.query)


# -- the cursor --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cursor:
    """The state of a search between two pages: what there was when it began, and how far it has come.

    The ranking is made anew for each page; as it counts what there was, pages do not shift.
    """

    upto: int
    """The newest message that there was."""
    taken: int = 0
    """The documents of the ranking that earlier pages have shown or passed over."""
    tail: SearchPlace | None = None
    """The place where the documents by time go on; None before they have begun."""

    def pack(self) -> str:
        """Return the cursor as a text."""
        state = [self.upto, self.taken, *(self.tail or ())]
        return base64.urlsafe_b64encode(orjson.dumps(state)).decode("ascii").rstrip("=")


def read_cursor(text: str) -> Cursor:
    """Read a cursor that a page of the same search gave; raises `QueryError` for a text that is none."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        upto, taken, *tail = orjson.loads(data)
        return Cursor(int(upto), int(taken), SearchPlace(float(tail[0]), int(tail[1])) if tail else None)
    except (ValueError, TypeError, IndexError) as error:
        raise QueryError(f"{text[:40]!r} is no cursor; take it from the page before, as it is") from error
