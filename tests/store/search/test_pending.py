"""Messages that are stored but not indexed yet: found at once, cut into terms once, whoever stores or indexes them."""

from __future__ import annotations

import pytest

from everlong.store import Store
from everlong.store.search.corpus import Corpus
from tests.store.search.saying import Sayer, within


def test_a_pending_text_is_read_by_the_first_search_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sayer = Sayer(store)
    sayer.say("a lantern on the quay", "the tide is late", "pilots wait")
    assert sayer.texts("lantern") == ["a lantern on the quay"]
    read: list[int] = []
    load = Corpus.load

    def counting(self: Corpus, connection, seqs, tenant=None):  # type: ignore[no-untyped-def]
        read.extend(seqs := list(seqs))
        return load(self, connection, seqs, tenant)

    monkeypatch.setattr(Corpus, "load", counting)
    assert store.search("what of the parrot?").hits == ()
    assert read == []


@pytest.mark.parametrize("query", ['"old pier"', "old pier", "ld pi"])
def test_pending_and_indexed_messages_come_in_one_order_by_time(store: Store, query: str) -> None:
    sayer = Sayer(store)
    mode = "substring" if query == "ld pi" else "auto"
    sayer.say("the old pier at dawn", "yes", times=[100.0, 101.0])
    sayer.drain()
    sayer.say("the old pier at noon", "yes", times=[50.0, 51.0])
    sayer.say("the old pier at dusk", "yes", times=[200.0, 201.0])
    found = sayer.texts(query, mode=mode, order="time")
    assert found == ["the old pier at dusk", "the old pier at dawn", "the old pier at noon"]
    assert sayer.texts(query, mode=mode, **within(before=90.0)) == ["the old pier at noon"]
