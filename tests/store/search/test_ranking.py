"""The rules of the ranking: who said it, in which passage, what repeats it, what updates it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bench.store.searching import texts, word_of_rank

from everlong.model import Message
from everlong.store import Store
from everlong.store.search import rank
from tests.examples import length
from tests.store.search.saying import Sayer

pytestmark = pytest.mark.spec("7.6")

FILLER = [f"Paragraph {number} is about ropes, sails and the weather of the day." for number in range(80)]


@pytest.fixture
def apart(tmp_path: Path) -> Sayer:
    """A store of its own: how rare a word is depends on all that a database holds."""
    return Sayer(Store.open(tmp_path / "apart.db"))


def each_way(sayer: Sayer, query: str, limit: int = 10) -> list[list[str]]:
    """Return what a query finds while the texts are only stored, and when they are indexed."""
    found = [sayer.texts(query, limit=limit)]
    sayer.drain()
    return [*found, sayer.texts(query, limit=limit)]


def test_a_persons_words_come_before_an_assistants_repetition(apart: Sayer) -> None:
    said, repeated = "The harbour office moved to pier nine.", "Noted: the harbour office is on pier nine, pier nine."
    apart.say(said, repeated, "Thanks.", "Anything else?")
    for found in each_way(apart, "Where is the harbour office now?"):
        assert found.index(said) < found.index(repeated)


def test_a_long_answer_does_not_crowd_out_a_short_message(apart: Sayer) -> None:
    said = "My ferry leaves at 6:40."
    answers = ["\n".join([*FILLER[:40], f"Ferry plan {n}: a ferry, a ferry pass.", *FILLER[40:]]) for n in range(12)]
    apart.say(*(text for answer in answers for text in ("Go on.", answer)), said, "Good.")
    for found in each_way(apart, "When does my ferry leave?"):
        assert found[0] == said


def test_of_an_updated_fact_both_versions_are_shown_newest_first(apart: Sayer) -> None:
    old, new = "The crew of the ferry has 12 members.", "The crew of the ferry has 15 members."
    apart.say(old, "Fine.", "The ferry is blue.", "I see.", new, "Noted.", times=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    for found in each_way(apart, "How many members does the crew of the ferry have?"):
        assert found.index(old) == found.index(new) + 1


def test_a_named_speakers_words_come_before_what_others_say_about_it(apart: Sayer) -> None:
    apart.say(
        "Tom: Mia painted a boat, a blue boat with a sail",
        "Mia: I have only ever painted a sunset",
        "Tom: nice",
        "Mia: thanks",
    )
    for found in each_way(apart, "What has Mia painted?"):
        assert found[0] == "Mia: I have only ever painted a sunset"


def test_a_short_turn_lends_weight_to_its_answer_and_a_long_one_does_not(apart: Sayer) -> None:
    long = " ".join([*FILLER, "Which berth did the pilot choose?"])
    apart.say("Which berth did the pilot choose?", "Number four.", long, "Sounds good.")
    for found in each_way(apart, "Which berth did the pilot choose?"):
        assert "Number four." in found
        assert "Sounds good." not in found


def test_a_tools_answer_is_found_among_many_requests_with_the_other_words(apart: Sayer) -> None:
    log = "\n".join([*(f"sent volume {number} of 30" for number in range(30)), "copy to Tromso ended, 2 files skipped"])
    requests = [f"What do you think, shall we send list {number}, and is anything missing?" for number in range(40)]
    said: list[Message] = []
    for request in requests:
        said += [{"role": "user", "content": request}, {"role": "assistant", "content": "No."}]
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    said[41:41] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": log},
    ]
    apart.store.record(said)
    for found in each_way(apart, "What is missing from what we sent to Tromso?", limit=5):
        assert log in found


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
