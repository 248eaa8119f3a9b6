"""Teasers in the store: kept beside a message, for one view, and gone with the words that they quote."""

from __future__ import annotations

import pytest

from everlong.errors import NotStored
from everlong.model import Message
from everlong.store import Branch, Store
from everlong.store.maintenance import vacuum
from everlong.store.search.confidence import RecallSigns, best_passage, confidence, read_signs
from everlong.store.teasers import MOST_TOKENS, Teaser, find_candidates, find_teaser
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


def test_without_a_view_everything_is_in_sight(store: Store) -> None:
    at = store.record([user(FACT), reply("Noted."), user(QUESTION)], conversation="harbour")
    assert find_candidates(store, at, QUESTION) is None


def test_a_kept_message_and_one_that_the_summary_quotes_are_in_sight(store: Store) -> None:
    at = store.append(hidden(store, told=f"The user said: {FACT}"), [user(QUESTION)])
    assert find_teaser(store, at, QUESTION) is None
    said = [user("Begin."), reply("Yes."), user(FACT), reply("Noted."), user("How is the wind?"), reply("West.")]
    kept = store.record([*said, user("On."), reply("On.")], conversation="kept")
    store.compact(kept, ScriptedEngine(summarizing(3, 6, "Wind.")))
    kept = store.append(kept, [user(QUESTION)])
    assert find_teaser(store, kept, QUESTION) is None


def test_a_request_that_was_made_before_is_no_answer_to_itself(store: Store) -> None:
    words = "Write the entry of today: wind from the west, a swell of two metres at the outer buoy, entry {}."
    at = store.append(hidden(store, words.format(1)), [user(words.format(2))])
    assert find_teaser(store, at, words.format(2)) is None
    asked_again = store.append(hidden(store, QUESTION), [user(QUESTION)])
    assert find_teaser(store, asked_again, QUESTION) is None


def test_it_stands_at_its_place_whatever_follows(store: Store) -> None:
    at = asked(store, hidden(store))
    (text,) = store.teasers.texts(at).values()
    assert store.teasers.places(at) == {1: text}
    later = store.append(at, [reply("Under the third flowerpot."), user("Thank you.")])
    assert store.teasers.places(later) == {3: text}
    assert store.context(later)[-3] == user(QUESTION)


def test_the_first_of_two_that_are_kept_at_once_holds(store: Store) -> None:
    at = asked(store, hidden(store))
    (text,) = store.teasers.texts(at).values()
    view = find_teaser(store, at, QUESTION)
    assert view is not None
    assert store.teasers.keep(at, Teaser("another", view.view, ())) == text
    assert list(store.teasers.texts(at).values()) == [text]


def test_another_view_leaves_it_out_and_undoing_that_brings_it_back(store: Store) -> None:
    at = asked(store, hidden(store))
    texts = store.teasers.texts(at)
    at = store.append(at, [reply("Under the third flowerpot.")])
    store.compact(at, ScriptedEngine(summarizing(0, 2, "More.")))
    assert store.teasers.texts(at) == {}
    assert store.undo(at)
    assert store.teasers.texts(at) == texts


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


def test_nothing_is_kept_beside_a_message_that_is_not_stored(store: Store) -> None:
    at = hidden(store)
    with pytest.raises(NotStored):
        store.teasers.keep(Branch(at.id, b"\0" * 16, at.depth + 1), Teaser("text", 1, ()))


def test_it_is_never_shown_or_found_and_survives_a_vacuum(store: Store) -> None:
    at = asked(store, hidden(store))
    assert all("everlong-recall" not in str(entry.message) for entry in store.entries(at))
    assert not store.search("everlong-recall", mode="substring").hits
    store.sessions.start(at, from_depth=0)
    vacuum(store)
    assert store.teasers.texts(at)
    assert store.verify().problems == []


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
    at = store.append(hidden(store, f"{FACT} </everlong-recall>"), [user(QUESTION)])
    teaser = find_teaser(store, at, QUESTION)
    assert teaser is not None
    assert teaser.text.count("</everlong-recall>") == 1


# -- confidence --------------------------------------------------------------------------------------------------------


def test_the_best_passage_is_where_the_rare_words_stand_together() -> None:
    rarities = {"key": 3.0, "boathous": 5.0, "lie": 1.0, "spare": 4.0}
    found = best_passage(f"A key to success. Nothing. {FACT} The end.", rarities)
    assert found.coverage == 1.0
    assert FACT in found.text
    assert best_passage("", rarities).coverage == 0.0
    assert best_passage("A key. None. One boathouse.", {}).coverage == 0.0


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


def test_every_sign_raises_the_confidence() -> None:
    least = RecallSigns(0.0, 0.0, 0.0, 0.0)
    assert confidence(least) < 0.01
    for sign in RecallSigns._fields:
        assert confidence(least._replace(**{sign: 1.0})) > confidence(least)
    assert confidence(RecallSigns(1.0, 1.0, 1.0, 1.0)) > 0.8
