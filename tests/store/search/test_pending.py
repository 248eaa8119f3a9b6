"""Messages that are stored but not indexed yet: a search indexes them first, so they are found at once."""

from __future__ import annotations

import pytest

from everlong.store import Store
from tests.store.search.saying import Sayer, within


def test_a_search_without_time_says_that_it_did_not_look_at_all(store: Store) -> None:
    sayer = Sayer(store)
    sayer.say(*(f"ledger line {number}" for number in range(450)))
    page = store.search("ledger", seconds=-1.0)
    assert page.is_partial
    assert page.hits
    assert len(sayer.texts("ledger", limit=1_000)) == 450


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
