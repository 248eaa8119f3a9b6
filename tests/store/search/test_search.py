"""Searching a store, on every kind of database, whether what is looked for is indexed or only stored."""

from __future__ import annotations

import base64

import pytest

from everlong.errors import QueryError
from everlong.store import Store
from tests.store.engines import ScriptedEngine, summarizing
from tests.store.search.saying import Said, Sayer, within

pytestmark = pytest.mark.spec("7.6")


def test_any_of_the_words_is_enough_and_more_of_them_come_first(said: Said) -> None:
    said.say("the harbour lights", "a quiet harbour at night", "nothing of that kind")
    assert said.texts("harbour night festival") == ["a quiet harbour at night", "the harbour lights"]


@pytest.mark.parametrize("query", ["src/auth/login.py", "src\\auth\\login.py", "auth/login", "login.py"])
def test_a_path_is_found_whole_and_in_part(said: Said, query: str) -> None:
    said.say("see src/auth/login.py:12", "the author logs in")
    assert said.texts(query)[0] == "see src/auth/login.py:12"


@pytest.mark.parametrize("query", ["库", "数据", "数据库", "数据库锁定", "据库锁", "锁定了吗"])
def test_chinese_is_found_from_one_character_up(said: Said, query: str) -> None:
    said.say("数据库锁定", "天气很好")
    assert said.texts(query) == ["数据库锁定"]


@pytest.mark.parametrize("query", ["x", "q9", "é", "😀", "C++", "%", "_", "'", '"', "a b"])
def test_the_shortest_substring_is_found(said: Said, query: str) -> None:
    text = f"before {query} after"
    said.say(text, "rhythm")
    assert said.texts(query, mode="substring") == [text]


def test_a_pattern_is_found(said: Said) -> None:
    said.say("error 4711 in line 3", "error in line x", "no error")
    assert said.texts(r"error \d{4}", mode="regex") == ["error 4711 in line 3"]
    assert said.texts(r"(?i)ERROR (\d+|in)", mode="regex") == ["error in line x", "error 4711 in line 3"]


def test_a_pattern_that_would_run_for_ever_stops_and_the_others_are_still_found(said: Said) -> None:
    said.say("a" * 5_000 + "b", "aaac")
    page = said.store.search(r"(a|a)+c", mode="regex", seconds=30.0)
    assert [said.text_of(hit.seq) for hit in page.hits] == ["aaac"]


def test_arguments_and_results_of_tools_are_found_and_filtered_by_tool(store: Store, sayer: Sayer) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "zebra.txt"}'}}
    other = {"id": "c2", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls zebra"}'}}
    store.record(
        [
            {"role": "user", "content": "open the zebra file"},
            {"role": "assistant", "content": None, "tool_calls": [call, other]},
            {"role": "tool", "tool_call_id": "c1", "content": "stripes of a zebra"},
            {"role": "tool", "tool_call_id": "c2", "content": "zebra listing"},
        ]
    )
    sayer.drain()
    assert len(sayer.texts("zebra")) == 4
    assert "stripes of a zebra" in sayer.texts("zebra", **within(tool="read_file"))
    assert "zebra listing" not in sayer.texts("zebra", **within(tool="read_file"))
    assert sayer.texts("zebra", **within(tool="browser")) == []


def test_filters_by_role_and_time_hold(said: Said) -> None:
    said.say("lamp one", "lamp two", "lamp three", times=[100.0, 200.0, 300.0])
    assert said.texts("lamp", **within(role="assistant")) == ["lamp two"]
    assert set(said.texts("lamp", **within(since=200.0))) == {"lamp two", "lamp three"}
    assert said.texts("lamp", **within(since=100.0, before=200.0)) == ["lamp one"]


def test_a_conversation_can_be_searched_alone_by_the_id_of_any_part(store: Store, said: Said) -> None:
    first = said.say("first lamp", "ok")
    session = store.sessions.attach(store.sessions.start().id, first)
    child = store.sessions.roll_over(session.id, first)
    later = store.append(first, [{"role": "user", "content": "second lamp"}])
    store.sessions.attach(child.id, later)
    said.say("a lamp elsewhere")
    for part in (session, child):
        assert set(said.texts("lamp", **within(session=part.id))) == {"first lamp", "second lamp"}
    (hit,) = store.search('"second lamp"', **within(session=child.id)).hits
    assert (hit.session, hit.turn, hit.role) == (session.id, 3, "user")


@pytest.mark.parametrize("others", [0, 4])
def test_a_folder_has_what_its_conversations_show(said: Said, others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlong.store.search.scope._MOST_STRETCHES", 3)
    for text, folder in (("lamp here", "/here"), ("lamp there", "/there"), ("lamp nowhere", None)):
        said.store.sessions.start(said.say(text), folder=folder, from_depth=0)
    for number in range(others):
        said.store.sessions.start(said.say(f"post {number}"), folder="/here", from_depth=0)
    assert said.texts("lamp", limit=1, **within(folders=("/here",))) == ["lamp here"]
    assert said.texts("amp", mode="substring", **within(folders=("/here", "/none"))) == ["lamp here"]
    assert said.texts("lamp", **within(folders=("/none",))) == []
    with pytest.raises(QueryError, match="not both"):
        said.store.search("lamp", **within(session="a", folders=("/here",)))


def test_a_hit_says_where_and_when_and_marks_the_words(said: Said) -> None:
    said.say("x " * 300 + "the Zürich lamp shop\nis open " + "y " * 300, times=[42.0])
    hit = said.store.search("zurich lamp").hits[0]
    assert (hit.at, hit.role, hit.turn, hit.session) == (42.0, "user", 1, None)
    assert "the **Zürich** **lamp** shop is open" in hit.snippet.marked()
    assert hit.snippet.text.startswith("…")
    assert hit.snippet.text.endswith("…")
    assert len(hit.snippet.text) < 260
    assert hit.to_dict()["node"] == (hit.node or b"").hex()


def test_summaries_are_found_and_can_be_asked_for_alone(store: Store, said: Said) -> None:
    branch = said.say("lamp one", "lamp two", "lamp three", "lamp four")
    store.compact(branch, ScriptedEngine(summarizing(0, 3, "three talks of a lamp")))
    if said.is_indexed:
        said.drain()
    assert said.texts("talks") == ["[CONTEXT SUMMARY]: three talks of a lamp"]
    assert said.texts("lamp", **within(role="summary")) == ["[CONTEXT SUMMARY]: three talks of a lamp"]
    assert said.texts("alks of", mode="substring", order="time") == ["[CONTEXT SUMMARY]: three talks of a lamp"]
    (hit,) = store.search("talks").hits
    assert (hit.role, hit.node, hit.is_match) == ("summary", None, True)
    assert len(said.texts("lamp")) == 5


@pytest.mark.parametrize("state", [b"none", b"[7]", b'["1 OR 1", 0]', b"[7, 0, 1.5]", b'[7, 0, "now", 1]'])
def test_a_text_that_is_no_cursor_is_refused(said: Said, state: bytes) -> None:
    with pytest.raises(QueryError, match="is no cursor"):
        said.store.search("lamp", cursor=base64.urlsafe_b64encode(state).decode())


def test_tenants_do_not_see_each_other(said: Said) -> None:
    said.say("a secret lamp")
    stranger = Store(said.store.database, "stranger")
    assert stranger.search("lamp").hits == ()
    assert stranger.search("secret", mode="substring").hits == ()


def test_words_of_a_person_come_before_and_are_shown_instead_of_those_of_a_client(said: Said) -> None:
    reminder = "<system-reminder>\nThe skill mends gannet traps and counts gannet eggs.\n</system-reminder>\n"
    said.say(f"{reminder}Paint the boat house.", "Painted.")
    said.say(f"{reminder}Which gannet nests on the north cliff?", "The old one.")
    own, wrapped = said.store.searcher.search("gannet").hits
    assert own.snippet.marked() == "Which **gannet** nests on the north cliff?"
    assert "system-reminder" in wrapped.snippet.text  # nothing else of it matches


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
