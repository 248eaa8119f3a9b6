"""Teasers: at most two earlier messages, out of the model's sight, that the newest request seems to ask about.

A teaser is a text for the model at the end of the user's newest message. It is no part of the message: the store keeps
it as an annex that nobody shows, searches or summarizes, and the host sends it again in the same place and the same
bytes. It belongs to the view under which it was made; the next compaction leaves it out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sqlalchemy import Connection, delete, select

from everlong.errors import NotStored
from everlong.model import text_of, typed_words
from everlong.store.compaction import view_at
from everlong.store.content import blob, encoded, value_of
from everlong.store.database import in_batches
from everlong.store.paths import Segment, segments_to
from everlong.store.schema import annex, content, node
from everlong.store.search.confidence import THRESHOLD, RecallSigns, best_passage, confidence, read_signs
from everlong.store.search.searcher import Filters
from everlong.store.search.text import terms_of
from everlong.store.upkeep.references import drop_unused
from everlong.store.views import items_of
from everlong.tokens import counter_for

if TYPE_CHECKING:
    from everlong.store.core import StoreCore
    from everlong.store.database import Database
    from everlong.store.paths import Reader
    from everlong.store.search.corpus import SearchDocument
    from everlong.store.search.searcher import Searcher
    from everlong.store.tree import Branch
    from everlong.store.views import ViewItem


KIND = "teaser"
"""The kind of an annex that holds a teaser."""

MOST = 2
"""Messages that one teaser names, at most."""

MOST_TOKENS = 300
"""Tokens of a teaser, at most."""

READ_TURN = "read_turn"
"""The tool that opens a message by its id, as the agent calls it."""

_ORD = 1_000_000
"""The place of a teaser among what stands beside a message: behind everything that its client sent."""
_ID_DIGITS = 12


class Teaser(NamedTuple):
    """A teaser: its text, the view under which it was made, and the messages that it quotes."""

    text: str
    view: int
    nodes: tuple[bytes, ...]


class Teasers:
    """The kept teasers of a store."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        sql = core.database.sql
        self._annex = sql(
            "INSERT INTO annex (tenant, branch, depth, ord, digest, kind, shown, first_ts) VALUES (?,?,?,?,?,?,?,?)"
            " ON CONFLICT DO NOTHING"
        )
        self._read = sql(
            "SELECT a.depth, c.bytes, c.codec FROM annex a JOIN content c ON c.digest = a.digest"
            " WHERE a.branch = ? AND a.depth > ? AND a.depth <= ? AND a.kind = 'teaser' AND c.state = 'live'"
        )

    def keep(self, at: Branch, teaser: Teaser) -> str:
        """Keep a teaser beside the message at a place; return the text that holds, which may be another process's.

        One that was made there under another view gives way.
        """
        tenant = self._core.tenant
        said = {"teaser": teaser.text, "view": teaser.view, "nodes": [ident.hex() for ident in teaser.nodes]}
        made = blob(tenant, encoded(said))

        def work(connection: Connection) -> str:
            path = segments_to(connection, at.id, at.depth)
            number = connection.execute(select(node.c.branch).where(node.c.id == at.head)).scalar()
            if number is None:
                raise NotStored(f"the message {at.head.hex()} is not stored, so nothing is kept beside it")
            held = self._texts(connection, path, at.depth - 1, at.depth, {teaser.view})
            if at.depth in held:
                return held[at.depth]
            connection.execute(
                delete(annex).where(annex.c.branch == number, annex.c.depth == at.depth, annex.c.kind == KIND)
            )
            self._core.recorder.add_contents(connection, tenant, [(made, ())])
            row = (tenant, number, at.depth, _ORD, made.digest, KIND, False, time.time())
            connection.exec_driver_sql(self._annex, row)
            return self._texts(connection, path, at.depth - 1, at.depth, {teaser.view}).get(at.depth, teaser.text)

        return self._core.database.write(work)

    def texts(self, at: Branch) -> dict[int, str]:
        """Return the teasers that are sent with a conversation under the view in force, by the depth of their message.

        Only messages after the view's cover have one.
        """
        with self._core.database.read() as connection:
            shown = view_at(connection, at)
            if shown is None:
                return {}
            path = segments_to(connection, at.id, at.depth)
            return self._texts(connection, path, shown.cover_depth, at.depth, {shown.id, shown.origin})

    def places(self, at: Branch) -> dict[int, str]:
        """Return the same by the place of the message in `Store.context`, counted from the end: 1 for the last one."""
        texts = self.texts(at)
        if not texts:
            return {}
        entries = self._core.entries(at, min(texts) - 1)
        numbered = {entry.depth: len(entries) - place for place, entry in enumerate(entries) if entry.id is not None}
        return {numbered[depth]: text for depth, text in texts.items() if depth in numbered}

    def _texts(
        self, connection: Connection, path: Sequence[Segment], low: int, high: int, views: set[int | None]
    ) -> dict[int, str]:
        found: dict[int, str] = {}
        for part in path:
            bottom, top = max(low, part.low), min(high, part.high)
            if bottom >= top:
                continue
            for depth, data, codec in connection.exec_driver_sql(self._read, (part.branch, bottom, top)):
                said = value_of(data, codec)
                if said["view"] in views:
                    found[depth] = said["teaser"]
        return found


def drop_teasers(connection: Connection, tenant: str, nodes: set[bytes]) -> None:
    """Delete the teasers that quote some messages, with their words."""
    held = select(annex.c.seq, annex.c.digest, content.c.bytes, content.c.codec).join(
        content, content.c.digest == annex.c.digest
    )
    gone = {ident.hex() for ident in nodes}
    kept = annex.c.tenant == tenant, annex.c.kind == KIND, content.c.state == "live"
    rows = connection.execute(held.where(*kept)).all()
    quoting = [row for row in rows if not gone.isdisjoint(value_of(row.bytes, row.codec)["nodes"])]
    for some in in_batches([row.seq for row in quoting]):
        connection.execute(delete(annex).where(annex.c.seq.in_(some)))
    drop_unused(connection, {bytes(row.digest) for row in quoting})


# -- finding -----------------------------------------------------------------------------------------------------------

_QUESTION_CHARS = 2_000
_LOOKED_AT = 6
"""Hits among which messages are chosen; those that only repeat the question are left out."""
_SAME = 0.8
"""Share of a message's terms from which on it repeats the question."""
_LENGTHS = (200, 120, 60, 30)
"""Characters that are quoted of each message; the first length with which the whole is small enough."""
_BEGINNING, _END = "<everlong-recall>", "</everlong-recall>"


class Candidate(NamedTuple):
    """A message out of sight that may be asked about."""

    node: bytes
    passage: str
    """The sentences that have most of the question's words."""
    at: float


class Candidates(NamedTuple):
    """The best messages for a question, the signs that they are meant, and the view that hides them."""

    found: list[Candidate]
    signs: RecallSigns
    view: int


class SearchedStore(Protocol):
    """A store with a search, as `everlong.store.Store` is one."""

    database: Database
    tenant: str
    reader: Reader

    @property
    def searcher(self) -> Searcher:
        """The search over the tenant's conversations."""
        ...


def find_teaser(store: SearchedStore, at: Branch, question: str, opener: str = READ_TURN) -> Teaser | None:
    """Return the teaser for the user's newest message; None if nothing out of sight is meant with confidence.

    Args:
        store: the store.
        at: the place of the message.
        question: the user's own words.
        opener: the tool by which the model opens a message.
    """
    candidates = find_candidates(store, at, question)
    if candidates is None or confidence(candidates.signs) < THRESHOLD:
        return None
    chosen = candidates.found[:MOST]
    return Teaser(_compose(chosen, opener), candidates.view, tuple(one.node for one in chosen))


def find_candidates(store: SearchedStore, at: Branch, question: str) -> Candidates | None:
    """Return what the user said out of the model's sight about a question; None if there is nothing.

    Out of sight is what the view in force covers and does not keep word for word, whatever engine made it. Only the
    words that a person typed count, no file or result in the user's name: an assistant's words about a thing outnumber
    those that decided it.
    """
    question = question[:_QUESTION_CHARS]
    with store.database.read() as connection:
        shown = view_at(connection, at)
        if shown is None:
            return None
        items = items_of(connection, store.reader, shown.id)
        branches = {part.branch for part in segments_to(connection, at.id, shown.cover_depth)}
    in_sight = _InSight(items, branches, at.head)
    filters = Filters(path=(at.id, shown.cover_depth), role="user")
    asked = set(terms_of(question))
    texts: dict[bytes, tuple[str, float]] = {}
    hits = store.searcher.search(question, filters=filters, limit=_LOOKED_AT, leave_out=in_sight).hits
    with store.database.read() as connection:
        documents = store.searcher.corpus.load(connection, [hit.seq for hit in hits], store.tenant)
    for hit in hits:
        text = typed_words(documents[hit.seq].message) if hit.seq in documents else ""
        if hit.node is not None and not _repeats(text, asked):
            texts[hit.node] = text, hit.at
        if len(texts) == MOST:
            break
    if not texts:
        return None
    rarities = store.searcher.rarities(question)
    found = [Candidate(node, best_passage(text, rarities).text, at) for node, (text, at) in texts.items()]
    return Candidates(found, read_signs(question, rarities, [text for text, _ in texts.values()]), shown.id)


def _repeats(text: str, asked: set[str]) -> bool:
    """Return whether a text says hardly more than the question: it was asked before, and answers nothing."""
    said = set(terms_of(text))
    return len(said & asked) >= _SAME * len(said)


class _InSight:
    """Tells which documents the model sees anyway, or that nobody said."""

    def __init__(self, items: Sequence[ViewItem], branches: set[int], newest: bytes) -> None:
        self._kept = [(item.from_depth, item.to_depth) for item in items if item.kind == "keep"]
        self._told = "\n".join(text_of(item.message) for item in items if item.message is not None)
        self._branches = branches
        self._newest = newest

    def __call__(self, document: SearchDocument) -> bool:
        if document.id == self._newest or document.branch not in self._branches:
            return True
        if any(low < document.depth <= high for low, high in self._kept):
            return True
        said = typed_words(document.message)
        return not said or said in self._told  # the summary, or a request that is repeated behind it


def _compose(chosen: Sequence[Candidate], opener: str) -> str:
    """Return the text of a teaser, with as much of each message as the tokens allow."""
    count = counter_for(None).count_text
    text = ""
    for length in _LENGTHS:
        lines = [_line(one, length) for one in chosen]
        text = "\n".join(
            [
                _BEGINNING,
                "Possibly relevant earlier messages of the user, no longer in your context. The user does not see "
                f"this list. Open a message with {opener} if it matters; ignore them otherwise.",
                *lines,
                _END,
            ]
        )
        if count(text) <= MOST_TOKENS:
            break
    return text


def _line(one: Candidate, length: int) -> str:
    said = " ".join(one.passage.split()).replace("everlong-recall", "everlong recall")
    quoted = said if len(said) <= length else f"{said[:length].rstrip()}…"
    when = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%d")
    return f'- {one.node.hex()[:_ID_DIGITS]} ({when}, user): "{quoted}"'
