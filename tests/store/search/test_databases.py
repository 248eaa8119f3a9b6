"""A question finds the same, in the same order, whichever database keeps the store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bench.store.searching import texts, word_of_rank

from everlong.store import Store
from everlong.store.search import rank
from tests.examples import length

_FORMS = ("When did the {} reach the {} with its {}?", "{} {}", "Where is the {} that {} keeps?", '"{}" {}', "{}")


@pytest.mark.spec("7.6")
def test_pages_are_the_same_on_a_file_and_on_a_server(
    tmp_path: Path, schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank, "ROWS", 20)  # so that most frequencies are estimated, as in a large store
    rng = random.Random(5)
    said = [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts(300))]
    with Store.open(tmp_path / "store.db") as here, Store.open(schema_url) as there:
        for store in (here, there):
            for start in range(0, len(said), 100):
                store.record(said[start : start + 100])
            while store.searcher.index_pending():
                pass
        for number in range(length(40, 200)):
            words = [word_of_rank(int(10 ** rng.uniform(0.7, 4.4))) for _ in range(3)]
            query = _FORMS[number % len(_FORMS)].format(*words)
            pages = [[hit.seq for hit in store.search(query, seconds=60.0).hits] for store in (here, there)]
            assert pages[0] == pages[1], query
