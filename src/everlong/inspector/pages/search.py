"""The search over everything that was said: hits with their highlights and what stands around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, get_args

from everlong.errors import NotStored, QueryError
from everlong.model import whole_text
from everlong.redaction import redact
from everlong.store.conversations import ConversationLine
from everlong.store.search import Filters
from everlong.store.search.searcher import Order
from everlong.store.transcripts import one_line
from everlong.store.whereabouts import find_whereabouts

if TYPE_CHECKING:
    from everlong.store import Store
    from everlong.store.search import Hit
    from everlong.store.search.snippets import Snippet
    from everlong.store.whereabouts import Whereabouts

__all__ = ["MODES", "ORDERS", "Marked", "fate_of", "marked_pieces", "read_search"]

MODES = ("auto", "phrase", "substring", "regex")
ORDERS: tuple[Order, ...] = get_args(Order)
_ROLES = ("user", "assistant", "tool", "summary")
_LIMIT = 20
_CLIP = 160
_NEAR = 12
"""Turns around a hit in which the messages before and after it are looked for."""


class Marked(NamedTuple):
    """A piece of a snippet."""

    text: str
    is_match: bool


class Around(NamedTuple):
    """A message beside a hit."""

    role: str
    text: str


class FoundHit(NamedTuple):
    """One hit of a search, its words in pieces, and the messages beside it."""

    hit: Hit
    pieces: tuple[Marked, ...]
    before: Around | None
    after: Around | None


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of hits."""

    text: str
    mode: str
    role: str
    session: str
    order: Order
    hits: tuple[FoundHit, ...]
    next_cursor: str | None
    is_partial: bool
    problem: str
    """The reason why this cannot be searched for; empty if it can."""


def read_search(store: Store, query: Mapping[str, str]) -> SearchPage:
    """Return the hits that an address asks for."""
    text = query.get("q", "").strip()[:1_000]
    mode = query.get("mode", "auto")
    mode = mode if mode in MODES else "auto"
    role = query.get("role", "")
    role = role if role in _ROLES else ""
    session = query.get("session", "")[:100]
    order: Order = next((one for one in ORDERS if one == query.get("order")), "relevance")
    page = partial(SearchPage, text, mode, role, session, order)
    if not text:
        return page((), None, is_partial=False, problem="")
    filters = Filters(session=session or None, role=role or None)
    try:
        cursor = query.get("cursor") or None
        found = store.search(text, mode=mode, order=order, filters=filters, limit=_LIMIT, cursor=cursor)
    except (QueryError, NotStored) as error:
        return page((), None, is_partial=False, problem=str(error))
    hits = tuple(_found(store, hit) for hit in found.hits if hit.is_match)
    return page(hits, found.cursor, found.is_partial, "")


def fate_of(store: Store, hit: Hit) -> Whereabouts | None:
    """Return what has become of a hit; None for a summary, and for a message that is gone meanwhile."""
    found = [] if hit.node is None else find_whereabouts(store, hit.node.hex(), limit=1)
    return found[0] if found else None


def marked_pieces(snippet: Snippet) -> Iterator[Marked]:
    """Yield a snippet in pieces: matches, and what stands between them; without marks if there is a secret in it."""
    end = 0
    if (cleaned := redact(snippet.text)) != snippet.text:
        yield Marked(cleaned, is_match=False)
        return
    for start, stop in snippet.marks:
        if start > end:
            yield Marked(snippet.text[end:start], is_match=False)
        yield Marked(snippet.text[start:stop], is_match=True)
        end = stop
    if end < len(snippet.text):
        yield Marked(snippet.text[end:], is_match=False)


def _found(store: Store, hit: Hit) -> FoundHit:
    before, after = (None, None) if hit.session is None else _around(store, hit.session, hit.turn)
    return FoundHit(hit, tuple(marked_pieces(hit.snippet)), before, after)


def _around(store: Store, ident: str, turn: int) -> tuple[Around | None, Around | None]:
    """Return the messages before and after a turn."""
    before: Around | None = None
    for line in store.conversations.entries(ident, after=max(0, turn - _NEAR), to=turn + _NEAR):
        if not isinstance(line, ConversationLine) or line.turn is None or line.status is not None:
            continue
        if line.turn > turn:
            return before, _beside(line)
        if line.turn < turn:
            before = _beside(line)
    return before, None


def _beside(line: ConversationLine) -> Around:
    text = one_line(whole_text(line.entry.message))
    cut = text if len(text) <= _CLIP else f"{text[:_CLIP].rstrip()} …"
    return Around(one_line(str(line.entry.message.get("role"))), cut)
