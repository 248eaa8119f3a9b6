"""Whatever was said is found, whatever is asked is answered, and pages follow each other without a gap."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from everlong.errors import QueryError
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.search import Mode
from everlong.store.search.query import normal
from tests.examples import examples
from tests.store.search.saying import Said

_SOME = "lamp Lamps read_file src/app.py 数据库 锁 café x1 the to Ω don't a-b 😀 1,400"
_WORDS = st.sampled_from(_SOME.split())
_TEXTS = st.one_of(
    st.lists(_WORDS, min_size=1, max_size=8).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
)
_OPERATORS = """" * ( ) AND NOT OR NEAR( : - ^ ' \\ % \0 lamp 锁"""
_SIGNS = _OPERATORS.split(" ")
_QUERIES = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(_SIGNS)).map(" ".join))
_QUICK = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=[True, False], ids=["indexed", "pending"])
def is_indexed(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


def _fresh(database: Database, is_indexed: bool) -> Said:
    return Said(Store(database, uuid.uuid4().hex), is_indexed=is_indexed)


@_QUICK
@given(query=_QUERIES, mode=st.sampled_from(["auto", "phrase", "substring", "regex"]))
def test_any_query_is_answered_or_refused_in_our_own_words(said: Said, query: str, mode: Mode) -> None:
    said.say("the lamp 锁 'quoted' 100% a_b \\ x")
    try:
        page = said.store.search(query, mode=mode, seconds=5.0)
    except QueryError:
        assert mode == "regex"
    else:
        assert len(page.hits) <= 1


@_QUICK
@given(texts=st.lists(_TEXTS, min_size=1, max_size=4), data=st.data())
def test_every_stretch_of_what_was_said_is_found(
    database: Database, is_indexed: bool, texts: list[str], data: st.DataObject
) -> None:
    said = _fresh(database, is_indexed)
    said.say(*texts)
    text = data.draw(st.sampled_from(texts))
    start = data.draw(st.integers(0, len(text) - 1))
    stretch = text[start : start + data.draw(st.integers(1, 20))]
    assume(normal(stretch) and normal(stretch) in normal(text))
    assert text.strip() in {found.strip() for found in said.texts(stretch, mode="substring")}


@_QUICK
@given(words=st.lists(_WORDS, min_size=1, max_size=8), data=st.data())
def test_every_word_and_every_phrase_of_what_was_said_is_found(
    database: Database, is_indexed: bool, words: list[str], data: st.DataObject
) -> None:
    said = _fresh(database, is_indexed)
    text = " ".join(words)
    said.say("nothing like it", text)
    assert text in said.texts(data.draw(st.sampled_from(words)))
    start = data.draw(st.integers(0, len(words) - 1))
    phrase = " ".join(words[start : start + data.draw(st.integers(1, 8))])
    assert text in said.texts(phrase, mode="phrase")
    assert text in said.texts(f'"{phrase}"')


@settings(_QUICK, max_examples=examples(20))
@given(
    count=st.integers(0, 40),
    limit=st.integers(1, 15),
    order=st.sampled_from(["relevance", "time"]),
    query=st.sampled_from(["lamp", "lamp row", "What lamp is it?", '"lamp"', "锁"]),
)
def test_pages_are_complete_and_do_not_shift_when_messages_come_in(
    database: Database, is_indexed: bool, count: int, limit: int, order: str, query: str
) -> None:
    said = _fresh(database, is_indexed)
    told = [f"lamp 锁 {'row ' * (number % 3)}{number}" for number in range(count)]
    said.say("nothing", *told)
    whole = [hit.seq for hit in said.store.search(query, limit=1_000, order=order).hits]
    seen: list[int] = []
    cursor = None
    while True:
        page = said.store.search(query, limit=limit, cursor=cursor, order=order)
        seen += [hit.seq for hit in page.hits]
        assert len(page.hits) == limit or page.cursor is None
        said.say(f"lamp 锁 row {uuid.uuid4()}")
        said.drain()
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == whole
    assert {said.text_of(seq) for seq in seen} >= set(told)
    assert len(seen) == len(set(seen))
