"""What an index says about phrases, parts of words, tools and times, on each kind of database."""

from __future__ import annotations

from everlong.store import Store
from tests.store.search.saying import Said, Sayer, within


def test_a_phrase_is_found_wherever_a_long_text_is_cut(said: Said) -> None:
    words = [f"word{number} step{number}" for number in range(200)]
    said.say(" ".join(words), "ok")
    for number in range(0, 199, 3):
        assert len(said.texts(f'"step{number} word{number + 1}"')) == 1
    assert said.texts('"step7 word9"') == []


def test_an_answer_is_taken_out_of_the_index_after_its_call(store: Store) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
    store.record(
        [
            {"role": "user", "content": "look at the gauge"},
            {"role": "assistant", "content": "gauge call", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "the gauge says 7"},
            {"role": "assistant", "content": "done"},
        ]
    )
    sayer = Sayer(store)
    sayer.drain()
    assert set(sayer.texts("gauge", **within(tool="terminal"))) == {"gauge call\nterminal", "the gauge says 7"}
    for words in ('"gauge call"', '"gauge says"'):
        (hit,) = store.search(words).hits
        assert hit.node is not None
        store.forget([hit.node])
    assert sayer.texts("gauge") == ["look at the gauge"]
    assert sayer.texts("gauge", **within(tool="terminal")) == []
    if store.database.backend.name == "sqlite":
        with store.database.engine.connect() as connection:
            connection.exec_driver_sql("INSERT INTO search_passages(search_passages) VALUES('integrity-check')")
            connection.rollback()
