"""With an embedder, questions find messages by meaning; everything else stays as it is."""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sqlalchemy import func, select

from everlong.errors import NetworkFailure
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.opening import open_database
from everlong.store.schema import vector
from tests.examples import few
from tests.store.search.saying import Sayer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SAME = {"hound": "terrier", "adopt": "rescued"}
SIZE = 256


class WordEmbedder:
    """A model that knows a few synonyms; remembers every text that it was given."""

    def __init__(self, model_id: str = "words") -> None:
        self.model_id = model_id
        self.texts: list[str] = []
        self.questions: list[str] = []
        self.error: Exception | None = None

    def embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        if self.error is not None:
            raise self.error
        (self.questions if is_query else self.texts).extend(texts)
        found = np.full((len(texts), SIZE), 1e-3, np.float32)
        for place, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                digest = hashlib.sha256(SAME.get(word, word).encode()).digest()
                found[place, int.from_bytes(digest[:4], "big") % SIZE] += 1.0
        return found


QUESTION = "Which hound did they adopt?"
ANSWER = "Yesterday we rescued a brown terrier."
FILLER = [f"Remark number {n} on gardening, soil and rain." for n in range(40)]


@pytest.fixture(params=few(["sqlite", "postgresql"]))
def own_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of its own, because the model is one for the whole database."""
    url = tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("schema_url")
    opened = open_database(url)
    yield opened
    opened.close()


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def sayer(own_database: Database, embedder: WordEmbedder) -> Sayer:
    return Sayer(Store(own_database, embedder=embedder))


def drain(store: Store) -> None:
    """Index everything and make all vectors."""
    while store.searcher.index_pending():
        pass
    while store.searcher.embed_pending():
        pass


def rows_in(store: Store) -> int:
    with store.database.read() as connection:
        return int(connection.execute(select(func.count()).select_from(vector)).scalar_one())


def test_a_question_finds_what_was_said_in_other_words(sayer: Sayer) -> None:
    sayer.say(*FILLER[:20], ANSWER, *FILLER[20:])
    assert ANSWER not in Sayer(Store(sayer.store.database)).texts(QUESTION)
    drain(sayer.store)
    assert sayer.texts(QUESTION)[0] == ANSWER
    hit = sayer.store.search(QUESTION).hits[0]
    assert not hit.is_match


@pytest.mark.parametrize("query", ["hound adopt", '"hound"', "terrier.py"])
def test_only_questions_go_by_meaning(sayer: Sayer, embedder: WordEmbedder, query: str) -> None:
    sayer.say(ANSWER, *FILLER)
    drain(sayer.store)
    sayer.texts(query)
    assert embedder.questions == []


def test_a_message_that_was_stored_before_the_model_came_gets_vectors(own_database: Database) -> None:
    before = Sayer(Store(own_database))
    before.say(ANSWER, *FILLER)
    drain(before.store)
    store = Store(own_database, embedder=WordEmbedder())
    drain(store)
    assert Sayer(store).texts(QUESTION)[0] == ANSWER
    assert store.searcher.count_unembedded() == 0


def test_another_model_makes_all_vectors_anew(sayer: Sayer, own_database: Database) -> None:
    sayer.say(ANSWER, *FILLER)
    drain(sayer.store)
    count = rows_in(sayer.store)
    other = WordEmbedder("other")
    store = Store(own_database, embedder=other)
    drain(store)
    assert rows_in(store) == count
    assert ANSWER in other.texts
    with own_database.read() as connection:
        assert set(connection.execute(select(vector.c.model)).scalars()) == {"other/1"}
    assert Sayer(store).texts(QUESTION)[0] == ANSWER


def test_a_forgotten_message_leaves_no_vector(sayer: Sayer) -> None:
    branch = sayer.say(ANSWER, *FILLER)
    drain(sayer.store)
    count = rows_in(sayer.store)
    first = sayer.store.entries(branch)[0].id
    assert first is not None
    sayer.store.forget([first])
    assert rows_in(sayer.store) == count - 1
    assert sayer.store.verify().problems == []
    assert all("terrier" not in text for text in sayer.texts(QUESTION))


def test_a_message_that_is_forgotten_while_its_vector_is_made_gets_none(sayer: Sayer, embedder: WordEmbedder) -> None:
    branch = sayer.say(ANSWER, "Congratulations!")
    first = sayer.store.entries(branch)[0].id
    assert first is not None
    usual = embedder.embed

    def embed_slowly(*given: object, **options: object) -> object:
        made = usual(*given, **options)  # type: ignore[arg-type]
        Store(sayer.store.database).forget([first])
        return made

    embedder.embed = embed_slowly  # type: ignore[method-assign, assignment]
    drain(sayer.store)
    assert rows_in(sayer.store) == 1
    assert sayer.store.verify().problems == []


def test_each_tenant_finds_only_its_own(own_database: Database, embedder: WordEmbedder) -> None:
    mine, other = (Sayer(Store(own_database, name, embedder=embedder)) for name in ("mine", "other"))
    mine.say(*FILLER)
    other.say(ANSWER, *FILLER)
    drain(mine.store)
    assert ANSWER not in mine.texts(QUESTION)
    assert other.texts(QUESTION)[0] == ANSWER


def test_a_model_that_fails_is_left_alone_and_told_once(
    sayer: Sayer, embedder: WordEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    sayer.say("The lamp is in the cellar.", *FILLER)
    embedder.error = NetworkFailure("nobody answers", provider="ollama")
    with caplog.at_level(logging.WARNING, "everlong.store"):
        sayer.drain()
        sayer.drain()
        assert sayer.texts("Where is the lamp?")[0] == "The lamp is in the cellar."
    assert [record.getMessage() for record in caplog.records if "by words alone" in record.getMessage()] == [
        "words does not work, so the search goes by words alone for 30 seconds: nobody answers"
    ]
    assert sayer.store.searcher.count_unembedded() == 41
