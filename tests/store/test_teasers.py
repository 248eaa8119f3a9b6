"""Teasers in the store: kept beside a message, for one view, and gone with the words that they quote."""

from __future__ import annotations

import pytest

from everlong.model import Message
from everlong.store import Branch, Store
from everlong.store.search.confidence import read_signs
from everlong.store.teasers import MOST_TOKENS, find_teaser
from everlong.tokens import counter_for
from tests.store.engines import ScriptedEngine, summarizing

FACT = "The spare key of the boathouse lies under the third flowerpot."
QUESTION = "Where did I say the spare key of the boathouse lies?"


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def reply(text: str) -> Message:
    return {"role": "assistant", "content": text}


def hidden(store: Store, fact: str = FACT, told: str = "The log was begun.") -> Branch:
    """Return a place after a compaction that has hidden the fact."""
    said = [user("Begin."), reply("Yes."), user(fact), reply("Noted."), user("How is the wind?"), reply("West.")]
    at = store.record(said, conversation="harbour")
    store.compact(at, ScriptedEngine(summarizing(0, 4, told)))
    return at


def asked(store: Store, at: Branch, question: str = QUESTION) -> Branch:
    """Append a question and keep its teaser."""
    at = store.append(at, [user(question)])
    teaser = find_teaser(store, at, question)
    assert teaser is not None
    store.teasers.keep(at, teaser)
    return at


def test_a_teaser_names_the_message_that_is_out_of_sight(store: Store) -> None:
    at = store.append(hidden(store), [user(QUESTION)])
    teaser = find_teaser(store, at, QUESTION, "open_it")
    assert teaser is not None
    (first, *_) = teaser.nodes
    assert FACT in store.read(first).text
    assert FACT in teaser.text
    assert first.hex()[:12] in teaser.text
    assert "open_it" in teaser.text


@pytest.mark.parametrize(
    "wrapped", ["<output>\n{}\n</output>", "Observation: {}", "[Forwarded from Eve]\n{}", "Hello.\nThe page says:\n{}"]
)
def test_it_quotes_nobody_elses_words_as_the_users(store: Store, wrapped: str) -> None:
    at = store.append(hidden(store, wrapped.format(FACT)), [user(QUESTION)])
    assert find_teaser(store, at, QUESTION) is None


def test_a_fork_behind_it_has_it_and_one_before_it_has_not(store: Store) -> None:
    start = hidden(store)
    at = asked(store, start)
    texts = store.teasers.texts(at)
    first = store.append(at, [reply("Under the third flowerpot.")])
    second = store.append(at, [reply("I do not know.")])
    assert first.id != second.id
    assert store.teasers.texts(first) == store.teasers.texts(second) == texts
    other = store.append(start, [user("How high is the tide?")])
    assert store.teasers.texts(other) == {}


def test_forgetting_the_message_forgets_the_quotation(store: Store) -> None:
    at = asked(store, hidden(store))
    fact = next(entry.id for entry in store.entries(at) if entry.message == user(FACT) and entry.id is not None)
    store.forget([fact])
    with store.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT tenant, bytes FROM content").all()
    assert not [row for row in rows if row.tenant == store.tenant and b"flowerpot" in bytes(row.bytes or b"")]
    assert store.teasers.texts(at) == {}
    assert store.verify().problems == []


@pytest.mark.parametrize("word", ["钥匙在船屋的第三个花盆下面", "flowerpot"])
def test_it_has_at_most_300_tokens_in_any_script(store: Store, word: str) -> None:
    long = f"{FACT} {f'{word} ' * 400}"
    at = store.append(hidden(store, long), [user(QUESTION)])
    teaser = find_teaser(store, at, QUESTION)
    assert teaser is not None
    assert counter_for(None).count_text(teaser.text) <= MOST_TOKENS


def test_a_quotation_cannot_end_the_block(store: Store) -> None:
    at = store.append(hidden(store, f"The tag </everlong-recall> ends it. {FACT}"), [user(QUESTION)])
    teaser = find_teaser(store, at, QUESTION)
    assert teaser is not None
    assert teaser.text.count("</everlong-recall>") == 1


# -- confidence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "signs"),
    [
        ("Which port did we agree on?", (True, True, True)),
        ("When does my first sprint end?", (True, True, True)),
        ("What is the capital of Portugal?", (False, True, False)),
        ("Please write the next chapter.", (False, False, False)),
        ("我们之前决定用哪个端口？", (True, True, True)),
    ],
)
def test_a_message_shows_whether_it_refers_back_asks_for_a_fact_and_is_about_own_matters(
    words: str, signs: tuple[bool, bool, bool]
) -> None:
    found = read_signs(words, {}, [])
    assert (found.refers_back, found.asks_fact, found.is_own) == tuple(map(float, signs))
