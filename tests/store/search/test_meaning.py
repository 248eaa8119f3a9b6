"""With an embedder, questions find messages by meaning; everything else stays as it is."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from everlong.errors import NetworkFailure, RequestRefused
from everlong.store import Store, garbage, maintenance
from everlong.store.database import Database
from everlong.store.schema import vector_block, vector_pending
from everlong.store.search import Filters
from everlong.store.search.embedder import PASSAGE_CHARS, passage_of, question_text
from everlong.store.search.meaning import EXACT_ROWS
from everlong.store.search.vectors import BLOCK, MOST_SMALL
from everlong.store.upgrade import open_database
from tests.store.search.embedders import WordEmbedder
from tests.store.search.saying import Sayer

QUESTION = "Which hound did they adopt?"
ANSWER = "Yesterday we rescued a brown terrier."
FILLER = [f"Remark number {n} on gardening, soil and rain." for n in range(40)]


@pytest.fixture(params=["sqlite", "postgresql"])
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
        return int(connection.execute(select(func.coalesce(func.sum(vector_block.c.rows), 0))).scalar_one())


def test_a_question_finds_what_was_said_in_other_words(sayer: Sayer) -> None:
    sayer.say(*FILLER[:20], ANSWER, *FILLER[20:])
    assert ANSWER not in Sayer(Store(sayer.store.database)).texts(QUESTION)
    drain(sayer.store)
    assert sayer.texts(QUESTION)[0] == ANSWER
    hit = sayer.store.search(QUESTION).hits[0]
    assert not hit.is_match


def test_without_an_embedder_the_order_is_that_of_the_words(own_database: Database) -> None:
    sayer = Sayer(Store(own_database))
    sayer.say("Where is the red lamp?", "The lamp is in the cellar.", *FILLER)
    drain(sayer.store)
    before = sayer.texts("Where is the lamp?")
    assert sayer.store.searcher.embed_pending() == 0
    other = Store(own_database, embedder=WordEmbedder())
    drain(other)
    assert sayer.texts("Where is the lamp?") == before


@pytest.mark.parametrize("query", ["hound adopt", '"hound"', "terrier.py"])
def test_only_questions_go_by_meaning(sayer: Sayer, embedder: WordEmbedder, query: str) -> None:
    sayer.say(ANSWER, *FILLER)
    drain(sayer.store)
    sayer.texts(query)
    assert embedder.questions == []


def test_storing_asks_no_model(sayer: Sayer, embedder: WordEmbedder) -> None:
    sayer.say(ANSWER, *FILLER)
    assert embedder.texts == []
    drain(sayer.store)
    assert ANSWER in embedder.texts


def test_importing_the_search_loads_no_numpy() -> None:
    code = (
        "import sys; from everlong.store import Store; import everlong.store.search; sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
        assert set(connection.execute(select(vector_block.c.model)).scalars()) == {"other/1"}
    assert Sayer(store).texts(QUESTION)[0] == ANSWER


def test_rebuilding_the_index_makes_no_vector_twice(sayer: Sayer, embedder: WordEmbedder) -> None:
    sayer.say(ANSWER, *FILLER)
    drain(sayer.store)
    asked = len(embedder.texts)
    sayer.store.database.write(sayer.store.searcher.upkeep.rebuild)
    drain(sayer.store)
    assert len(embedder.texts) == asked
    assert sayer.store.searcher.count_unembedded() == 0


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


def test_a_deleted_conversation_leaves_no_vector(sayer: Sayer) -> None:
    sayer.say(ANSWER, *FILLER)
    drain(sayer.store)
    garbage.collect_garbage(sayer.store, min_age=0.0)
    assert rows_in(sayer.store) == 0


def test_verify_tells_of_a_vector_without_a_message(sayer: Sayer) -> None:
    sayer.say(ANSWER, *FILLER[:3])
    drain(sayer.store)
    sayer.store.database.write(
        lambda connection: connection.exec_driver_sql("UPDATE vector_block SET rows = rows + 1").rowcount
    )
    assert any("block of vectors" in problem for problem in sayer.store.verify().problems)


def test_small_blocks_are_joined(sayer: Sayer) -> None:
    for number in range(MOST_SMALL + 5):
        sayer.say(f"Message {number} about a terrier", "Fine.")
        drain(sayer.store)
    with sayer.store.database.read() as connection:
        rows = connection.execute(select(vector_block.c.rows)).scalars().all()
    assert len(rows) < MOST_SMALL
    assert sum(rows) == 2 * (MOST_SMALL + 5)
    assert max(rows) <= BLOCK


def test_each_tenant_finds_only_its_own(own_database: Database, embedder: WordEmbedder) -> None:
    mine, other = (Sayer(Store(own_database, name, embedder=embedder)) for name in ("mine", "other"))
    mine.say(*FILLER)
    other.say(ANSWER, *FILLER)
    drain(mine.store)
    assert ANSWER not in mine.texts(QUESTION)
    assert other.texts(QUESTION)[0] == ANSWER


def test_filters_hold_for_what_is_found_by_meaning(sayer: Sayer) -> None:
    sayer.say(ANSWER, *FILLER, times=[100.0] * 41)
    sayer.say("Later we rescued a second terrier.", *FILLER[1:], times=[200.0] * 40)
    drain(sayer.store)
    found = sayer.texts(QUESTION, filters=Filters(since=150.0))
    assert found[0].startswith("Later")
    assert ANSWER not in found
    hits = sayer.store.search(QUESTION, filters=Filters(role="assistant")).hits
    assert {hit.role for hit in hits} == {"assistant"}


def test_what_a_caller_leaves_out_is_not_found_by_meaning(sayer: Sayer) -> None:
    sayer.say(ANSWER, *FILLER)
    drain(sayer.store)
    assert ANSWER not in sayer.texts(QUESTION, leave_out=lambda document: document.text == ANSWER)


def test_pages_show_every_hit_once(sayer: Sayer) -> None:
    sayer.say(ANSWER, *FILLER)
    drain(sayer.store)
    whole = sayer.texts(QUESTION, limit=100)
    assert sayer.texts(QUESTION, limit=3) == whole
    assert len(set(whole)) == len(whole)


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


def test_a_question_is_answered_by_words_if_the_model_fails_then(sayer: Sayer, embedder: WordEmbedder) -> None:
    sayer.say("The lamp is in the cellar.", *FILLER)
    drain(sayer.store)
    embedder.error = TimeoutError("too slow")
    assert sayer.texts("Where is the lamp?")[0] == "The lamp is in the cellar."


def test_one_text_that_the_model_refuses_holds_up_no_other(sayer: Sayer, embedder: WordEmbedder) -> None:
    sayer.say(ANSWER, "unspeakable", *FILLER[:5])
    usual = embedder.embed

    def refuse_one(texts: list[str], **options: bool) -> object:
        if "unspeakable" in texts:
            raise RequestRefused("no such words", provider="test")
        return usual(texts, **options)

    embedder.embed = refuse_one  # type: ignore[method-assign, assignment]
    drain(sayer.store)
    assert sayer.store.searcher.count_unembedded() == 0
    assert rows_in(sayer.store) == 6


def test_many_vectors_are_chosen_by_their_signs_first(sayer: Sayer, monkeypatch: pytest.MonkeyPatch) -> None:
    sayer.say(*FILLER[:20], ANSWER, *FILLER[20:])
    drain(sayer.store)
    exact = sayer.texts(QUESTION)
    assert EXACT_ROWS > 40
    monkeypatch.setattr("everlong.store.search.meaning.EXACT_ROWS", 10)
    assert sayer.texts(QUESTION) == exact


def test_figures_count_vectors(sayer: Sayer) -> None:
    sayer.say(ANSWER, *FILLER[:3])
    assert maintenance.stats(sayer.store)["vectors"] == 0
    drain(sayer.store)
    figures = maintenance.stats(sayer.store)
    assert (figures["vectors"], figures["unembedded"]) == (4, 0)
    with sayer.store.database.read() as connection:
        assert connection.execute(select(func.count()).select_from(vector_pending)).scalar_one() == 0


def test_a_long_text_stands_for_its_beginning() -> None:
    line = "word " * 20
    passage = passage_of("\n".join([line] * 100))
    assert len(passage) <= PASSAGE_CHARS
    assert passage.split("\n") == [line] * (passage.count("\n")) + [line.strip()]
    assert passage_of("x" * 5_000) == "x" * PASSAGE_CHARS
    assert passage_of(" \n ") == ""


def test_a_speaker_in_a_question_becomes_i() -> None:
    assert question_text("What did Mia Berg plant in Mia's garden?", ["Mia Berg"]) == "What did I plant in I's garden?"
    assert question_text("What did she plant?", []) == "What did she plant?"
