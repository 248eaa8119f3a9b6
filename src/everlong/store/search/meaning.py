"""The search by meaning: vectors for messages, and the scores of messages for a question.

Optional: without an embedder nothing here is loaded. Vectors are made when messages are indexed, never while they are
stored. A model that fails is left alone for a while, and the search goes by words as if there were none.
`bench.public.retrieval` measures what it finds beyond words: .06 to .2 more of the evidence in each data set.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import Connection, select

from everlong.errors import EverlongError, RequestRefused
from everlong.store import leases
from everlong.store.database import Database, ask
from everlong.store.schema import vector as vector_table, vector_state
from everlong.store.search.corpus import SearchDocument, load_documents, neighbours
from everlong.store.search.scope import SearchScope
from everlong.store.search.vectors import PASSAGE_VERSION, Embedder, VectorTable, passage_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Numbers = NDArray[np.int64]


_log = logging.getLogger("everlong.store")

WEIGHT = 0.3
"""The score of a message that is one standard deviation closer than the average; the best one by words has 1."""

PREVIOUS, NEXT = 0.7, 0.4
"""Shares of their similarity that the turns before and after lend to a short turn."""

SHORT = 200
"""Characters up to which a turn is short; the longer it is, the less its neighbours say about it."""

NEAREST = 60
"""The messages closest to a question that may be found without any of its words."""

AT_ONCE = 16
"""Messages that are embedded together."""

LATE = 1_000
"""Numbers before the last one with a vector among which messages may still appear: they are given before a commit."""

BLOCK = 1_024
"""Vectors that are compared with a question at a time."""

FIRST_PAUSE, LONGEST_PAUSE = 30.0, 3_600.0
"""Seconds that a model is left alone after its first failure, and after many."""

_LEASE, _LEASE_SECONDS = "vectors", 300.0
_KEPT_QUESTIONS = 8


class Meaning:
    """The vectors of one database, and the similarity of one tenant's messages to a question."""

    def __init__(self, database: Database, embedder: Embedder, tenant: str) -> None:
        self._database = database
        self._embedder = embedder
        self._table = VectorTable(database)
        self._cache = VectorCache(tenant)
        self._is_ready = False
        self._done = 0
        self._failures = 0
        self._resumes = 0.0
        self._vector_of = lru_cache(_KEPT_QUESTIONS)(self._question_vector)

    @property
    def model(self) -> str:
        """The model, and the version of the passages, that vectors belong to."""
        return f"{self._embedder.model_id}/{PASSAGE_VERSION}"

    # -- making vectors ------------------------------------------------------------------------------------------------

    def embed_pending(self, limit: int, seconds: float | None = None) -> int:
        """Make vectors for up to so many messages, oldest first; return for how many.

        A failure of the model is logged once and raises nothing; the messages are left for later.
        """
        if time.monotonic() < self._resumes:
            return 0
        if not self._is_ready:
            if self._database.write(partial(self._table.use_model, model=self.model)):
                _log.info("vectors for the search by meaning are made with %s", self._embedder.model_id)
            self._is_ready, self._done = True, 0
        held = leases.take(self._database, _LEASE, _LEASE_SECONDS) if self._missing(1) else None
        if held is None:  # nothing to do, or another process does it
            return 0
        try:
            return self._embed(limit, None if seconds is None else time.monotonic() + seconds)
        finally:
            leases.release(self._database, held)

    def count_pending(self) -> int:
        """Return how many messages have no vectors yet."""
        with self._database.read() as connection:
            return self._table.count_missing(connection)

    def _missing(self, limit: int) -> list[int]:
        with self._database.read() as connection:
            return self._table.missing(connection, self._done - LATE, limit)

    def _embed(self, limit: int, until: float | None) -> int:
        taken = 0
        while taken < limit and (until is None or time.monotonic() < until):
            seqs = self._missing(min(AT_ONCE, limit - taken))
            with self._database.read() as connection:
                documents = load_documents(connection, seqs)
            rows = self._rows(documents.values()) if seqs else None
            if rows is None:
                break
            made = {seq: rows.get(seq, b"") for seq in seqs}
            if not self._database.write(partial(self._table.add, model=self.model, rows=made)):
                self._is_ready = False
                break
            self._done = seqs[-1]
            taken += len(seqs)
        return taken

    def _rows(self, documents: Iterable[SearchDocument]) -> dict[int, bytes] | None:
        """Return the rows of messages; None if the model fails."""
        passages = {document.seq: text for document in documents if (text := passage_of(_spoken(document)))}
        if not passages:
            return {}
        texts = list(passages.values())
        try:
            vectors: Sequence[Floats | None] = list(self._vectors(texts, is_query=False))
        except RequestRefused:
            vectors = [self._vector_alone(text) for text in texts]
            if all(vector is None for vector in vectors):
                self._note_failure("it refuses every text")
                return None
        except Exception as error:  # noqa: BLE001 - whatever a model or its server does, messages must be found
            self._note_failure(error)
            return None
        self._failures = 0
        return {
            seq: vector.astype(np.float16).tobytes()
            for seq, vector in zip(passages, vectors, strict=True)
            if vector is not None
        }

    def _vector_alone(self, text: str) -> Floats | None:
        """Return the vector of a text; None if the model refuses it."""
        try:
            vector: Floats = self._vectors([text], is_query=False)[0]
        except RequestRefused:
            return None
        return vector

    def _vectors(self, texts: Sequence[str], *, is_query: bool) -> Floats:
        """Return vectors of length 1."""
        vectors = np.asarray(self._embedder.embed(texts, is_query=is_query), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise ValueError(f"{self._embedder.model_id} gave no vector for each of {len(texts)} texts")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: Floats = vectors / np.maximum(lengths, 1e-12)
        return unit

    def _note_failure(self, error: object) -> None:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self._failures += 1
        self._resumes = time.monotonic() + pause
        said = str(error) if isinstance(error, str | EverlongError) else f"{type(error).__name__}: {error}"
        log = _log.warning if self._failures == 1 else _log.info
        log(
            "%s does not work, so the search goes by words alone for %d seconds: %s",
            self._embedder.model_id,
            pause,
            said,
        )

    # -- asking --------------------------------------------------------------------------------------------------------

    def scores(
        self,
        connection: Connection,
        question: str,
        scope: SearchScope,
        seqs: Iterable[int],
        load: Callable[[Iterable[int]], Mapping[int, SearchDocument]],
    ) -> dict[int, float]:
        """Return scores of messages for a question: those that words have found, and those closest to it in meaning.

        Args:
            connection: A reading connection.
            question: The question, as it would be put to a speaker.
            scope: The messages that may be found.
            seqs: The messages that words have found.
            load: Reads messages, and returns those that may be found and may lend weight.
        """
        if self._table.model(connection) != self.model or time.monotonic() < self._resumes:
            return {}
        try:
            vector = self._vector_of(question)
        except Exception as error:  # noqa: BLE001 - as above
            self._note_failure(error)
            return {}
        cache = self._cache
        cache.refresh(connection, len(vector))
        some = cache.places_of(self._allowed(connection, scope))
        if not len(some):
            return {}
        cosines = cache.compare(vector, some)
        closest = cache.seqs[some[np.argsort(cosines)[-NEAREST:]]].tolist()
        near = load(closest)
        documents = {**near, **load([seq for seq in seqs if seq > 0])}
        beside = neighbours(connection, documents)
        pairs = [beside[seq] for seq in near if seq in beside]
        around = load([seq for pair in pairs for seq in pair if seq is not None and seq not in beside])
        documents.update(around)
        beside |= neighbours(connection, around)
        asked = {seq for pair in beside.values() for seq in pair if seq is not None}.union(documents)
        asked.difference_update(set(closest).difference(near))
        places = cache.places_of(asked)
        similar = dict(zip(cache.seqs[places].tolist(), cache.compare(vector, places).tolist(), strict=True))
        average, spread = _spread_of(cosines)
        found: dict[int, float] = {}
        for seq, document in documents.items():
            if seq in similar:
                before, after = beside.get(seq, (None, None))
                lent = PREVIOUS * _above(similar, before, average) + NEXT * _above(similar, after, average)
                lent *= min(1.0, SHORT / max(1, len(document.own_text)))
                found[seq] = WEIGHT * (similar[seq] - average + lent) / spread
        return found

    def _question_vector(self, text: str) -> Floats:
        vector: Floats = self._vectors([text], is_query=True)[0]
        self._failures = 0
        return vector

    def _allowed(self, connection: Connection, scope: SearchScope) -> list[int] | None:
        """Return the numbers of the messages in a scope; None for all of the tenant."""
        if not scope.is_filtered:
            return None
        found: list[int] = []
        for source in scope.sources():
            rows = ask(connection, f"SELECT {source.seq} FROM {source.rows} WHERE {source.where}", source.values)  # noqa: S608
            found += [row[0] for row in rows]
        return found


def _spoken(document: SearchDocument) -> str:
    """Return what a message says, without its speaker's name."""
    text = document.own_text
    head, colon, rest = text.partition(": ")
    return rest if colon and document.speaker and document.speaker in head else text


def _above(similar: Mapping[int, float], seq: int | None, average: float) -> float:
    """Return how far a message is closer than the average; 0 if there is none, or none that counts."""
    return 0.0 if seq is None else similar.get(seq, average) - average


def _spread_of(cosines: Floats) -> tuple[float, float]:
    """Return the average of similarities in order, and how far one with its neighbours lies from it."""
    average = float(cosines.mean())
    around = cosines - average
    return average, float((around + PREVIOUS * np.roll(around, 1) + NEXT * np.roll(around, -1)).std()) or 1.0


class VectorCache:
    """The vectors of a tenant that a process has read, in the order of their messages."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._state: tuple[str, int] | None = None
        self._last = 0
        self._forget(0)

    def _forget(self, size: int) -> None:
        self.seqs: Numbers = np.empty(0, np.int64)
        self._vectors: NDArray[np.float16] = np.empty((0, size), np.float16)

    def refresh(self, connection: Connection, size: int) -> None:
        """Read new vectors of a size, or all if some were removed."""
        state = connection.execute(select(vector_state.c.model, vector_state.c.removed)).one()
        if tuple(state) != self._state:
            self._state, self._last = (state.model, state.removed), 0
            self._forget(size)
        columns = (vector_table.c.id, vector_table.c.seq, vector_table.c.numbers)
        new = select(*columns).where(vector_table.c.tenant == self._tenant, vector_table.c.id > self._last)
        rows = connection.execute(new.order_by(vector_table.c.id)).all()
        if not rows:
            return
        self._last = rows[-1].id
        rows = [row for row in rows if len(row.numbers) == 2 * size]
        numbers = np.frombuffer(b"".join(bytes(row.numbers) for row in rows), np.float16).reshape(len(rows), size)
        seqs = np.concatenate((self.seqs, np.array([row.seq for row in rows], np.int64)))
        order = np.argsort(seqs)
        self.seqs = seqs[order]
        self._vectors = np.concatenate((self._vectors, numbers))[order]

    def places_of(self, seqs: Iterable[int] | None) -> Numbers:
        """Return the places of messages, those that have vectors; of all for None."""
        if seqs is None:
            return np.arange(len(self.seqs))
        return np.flatnonzero(np.isin(self.seqs, np.fromiter(seqs, dtype=np.int64)))

    def compare(self, vector: Floats, places: Numbers) -> Floats:
        """Return the similarity of the messages at some places to a vector."""
        found = np.empty(len(places), np.float32)
        for start in range(0, len(places), BLOCK):
            some = places[start : start + BLOCK]
            found[start : start + BLOCK] = self._vectors[some].astype(np.float32) @ vector
        return found
