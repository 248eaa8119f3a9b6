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


def test_a_long_phrase_is_found_wherever_a_long_text_is_cut(said: Said) -> None:
    words = [f"the w{number} of a s{number}" for number in range(120)]
    said.say(" ".join(words), "ok")
    for number in range(0, 110, 4):
        assert len(said.texts(f'"{" ".join(words[number : number + 6])}"')) == 1


def test_phrases_are_found_in_several_passages_of_one_text(said: Said) -> None:
    filler = " ".join(f"word{number}" for number in range(150))
    said.say(f"a red lantern {filler} an old pier", f"a red pier {filler} an old lantern")
    assert [text[:13] for text in said.texts('"red lantern" "old pier"')] == ["a red lantern"]
    assert said.texts('"red lantern" "old lantern"') == []


def test_a_run_of_dense_script_is_found_wherever_a_long_text_is_cut(said: Said) -> None:
    text = "".join(chr(0x4E00 + (number * 37) % 5_000) for number in range(1_400))
    said.say(text, "ok")
    for place in range(380, 1_300, 23):
        for length in (2, 3, 7, 30):
            assert len(said.texts(text[place : place + length], mode="substring")) == 1
    assert said.texts(text[410] + text[400], mode="substring") == []


def test_a_phrase_of_function_words_and_one_other_is_found(said: Said) -> None:
    said.say("what is it to be or not", "the pier, to be sure", "a pier is to be")
    assert said.texts('"the pier"') == ["the pier, to be sure"]
    assert said.texts('"to be or not"') == ["what is it to be or not"]


def test_a_number_at_the_end_of_a_phrase_may_go_on_in_the_text(said: Said) -> None:
    said.say("it cost 1,000 dollars", "paid 12,000 euros")
    assert said.texts('"000 dollars"') == ["it cost 1,000 dollars"]
    assert said.texts('"cost 1"') == ["it cost 1,000 dollars"]


def test_a_number_is_found_with_and_without_its_commas(said: Said) -> None:
    said.say("it cost 1,250,000 dollars", "a ship of 1250000 tons")
    for query in ("1250000", "1,250,000", "what about 1250000?"):
        assert len(said.texts(query)) == 2


def test_two_characters_are_found_in_the_oldest_of_many_texts(said: Said) -> None:
    said.say("the code is xq7", *(f"plain text {number}" for number in range(300)))
    page = said.store.search("q7", mode="substring")
    assert [said.text_of(hit.seq) for hit in page.hits] == ["the code is xq7"]
    assert not page.is_partial
    assert said.texts("7q", mode="substring") == []


def test_a_part_of_a_very_long_word_is_found(said: Said) -> None:
    blob = "".join(f"k{number:03d}" for number in range(100))
    said.say(f"data {blob} end", "other")
    assert len(said.texts("k050k051", mode="substring")) == 1
    assert len(said.texts("k098k099 e", mode="substring")) == 1


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


def test_a_role_that_few_messages_have_is_found_among_many(said: Said) -> None:
    said.say(*(f"lamp {number}" for number in range(40)))
    assert len(said.texts("lamp", limit=100, **within(role="user"))) == 20
    assert said.texts("lamp", **within(role="system")) == []
