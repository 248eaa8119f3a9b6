"""Searching a store, on every kind of database, whether what is looked for is indexed or only stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.errors import NotStored, QueryError
from everlong.store import Store
from tests.store.engines import ScriptedEngine, summarizing
from tests.store.search.saying import Said, Sayer, within

pytestmark = pytest.mark.spec("7.6")


def test_any_of_the_words_is_enough_and_more_of_them_come_first(said: Said) -> None:
    said.say("the harbour lights", "a quiet harbour at night", "nothing of that kind")
    assert said.texts("harbour night festival") == ["a quiet harbour at night", "the harbour lights"]


def test_other_forms_of_a_word_are_found(said: Said) -> None:
    said.say("She bought three paintings", "unrelated")
    assert said.texts("buy painting") == ["She bought three paintings"]


def test_what_is_quoted_must_stand_there_as_whole_words(said: Said) -> None:
    said.say("restart the web server", "the server of the web", "restart the web servers")
    assert said.texts('"web server"') == ["restart the web server"]


def test_a_phrase_of_function_words_is_found(said: Said) -> None:
    said.say("to be or not to be", "to have and to hold")
    assert said.texts("or not to be", mode="phrase") == ["to be or not to be"]


def test_a_part_of_an_identifier_is_found(said: Said) -> None:
    said.say("call readFileHandler() first", "handle the file")
    assert said.texts("dFileHa", mode="substring") == ["call readFileHandler() first"]
    assert said.texts("dfilehand") == ["call readFileHandler() first"]


def test_one_line_of_a_long_output_is_found_among_short_texts_of_its_kind(tmp_path: Path) -> None:
    night = [f"02:{minute:02} sealed a page" for minute in range(60)]
    log = "\n".join([*night, "03:00 lock on ledger.db held by process seal", *night])
    kind = [f"lock on {fish}.db held by process pump-{n}" for n, fish in enumerate(["cod", "ling", "hake"] * 4)]
    with Store.open(tmp_path / "apart.db") as store:  # how rare a word is depends on all that a database holds
        sayer = Sayer(store)
        sayer.say(log, *kind)
        for _ in ("while it is only stored", "when it is indexed"):
            assert sayer.texts("Which process held the lock on ledger.db?")[0] == log
            sayer.drain()


def test_what_is_left_out_is_not_found_and_lends_no_weight(said: Said) -> None:
    said.say("The quay is wet.", "Why is the pier dark?", "Boats are blue.", "The pier is dark at night.")
    found = said.texts("Why is the pier dark?", leave_out=lambda one: one.text.startswith("Why"))
    assert found == ["The pier is dark at night.", "Boats are blue."]


@pytest.mark.parametrize("query", ["src/auth/login.py", "src\\auth\\login.py", "auth/login", "login.py"])
def test_a_path_is_found_whole_and_in_part(said: Said, query: str) -> None:
    said.say("see src/auth/login.py:12", "the author logs in")
    assert said.texts(query)[0] == "see src/auth/login.py:12"


@pytest.mark.parametrize("query", ["库", "数据", "数据库", "数据库锁定", "据库锁", "锁定了吗"])
def test_chinese_is_found_from_one_character_up(said: Said, query: str) -> None:
    said.say("数据库锁定", "天气很好")
    assert said.texts(query) == ["数据库锁定"]


@pytest.mark.parametrize(
    ("query", "text"), [("学校", "私は学校へ行く"), ("학교", "나는 학교에 간다"), ("โรง", "ไปโรงเรียน")]
)
def test_other_dense_scripts_are_found_too(said: Said, query: str, text: str) -> None:
    said.say(text, "something else")
    assert said.texts(query) == [text]


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


def test_a_search_that_runs_out_of_time_says_so_and_goes_on_from_there(said: Said) -> None:
    said.say(*(f"row {n}" for n in range(5)))
    page = said.store.search("row", mode="substring", seconds=-1.0)
    assert page.is_partial
    assert page.cursor is not None
    rest = said.store.search("row", mode="substring", cursor=page.cursor)
    assert len(page.hits) + len(rest.hits) == 5
    assert not rest.is_partial


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


def test_a_session_that_is_not_there_is_an_error(said: Said) -> None:
    said.say("lamp")
    with pytest.raises(NotStored, match="no conversation 'nope'"):
        said.store.search("lamp", **within(session="nope"))
    with pytest.raises(QueryError, match="not both"):
        said.store.search("lamp", **within(session="a", path=(1, 2)))


@pytest.mark.parametrize("others", [0, 4])
def test_a_folder_has_what_its_conversations_show(said: Said, others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlong.store.search.index._MOST_STRETCHES", 3)
    for text, folder in (("lamp here", "/here"), ("lamp there", "/there"), ("lamp nowhere", None)):
        said.store.sessions.start(said.say(text), folder=folder, from_depth=0)
    for number in range(others):
        said.store.sessions.start(said.say(f"post {number}"), folder="/here", from_depth=0)
    assert said.texts("lamp", limit=1, **within(folders=("/here",))) == ["lamp here"]
    assert said.texts("amp", mode="substring", **within(folders=("/here", "/none"))) == ["lamp here"]
    assert said.texts("lamp", **within(folders=("/none",))) == []
    with pytest.raises(QueryError, match="not both"):
        said.store.search("lamp", **within(session="a", folders=("/here",)))


def test_by_time_the_newest_comes_first(said: Said) -> None:
    said.say("lamp a", "lamp b b lamp", "lamp c", times=[300.0, 100.0, 200.0])
    assert said.texts("lamp", order="time", limit=2) == ["lamp a", "lamp c", "lamp b b lamp"]
    assert said.texts("amp", mode="substring", order="time", limit=1) == ["lamp a", "lamp c", "lamp b b lamp"]


def test_the_answer_right_after_a_question_is_found_with_it(said: Said) -> None:
    said.say("When is the dentist appointment?", "On Tuesday at nine.", "Thanks", "What about lunch?", "Noon.")
    texts = said.texts("When is my dentist appointment?")
    assert texts[:2] == ["When is the dentist appointment?", "On Tuesday at nine."]


def test_a_keyword_search_shows_only_what_holds_a_keyword(said: Said) -> None:
    said.say("dentist appointment", "On Tuesday at nine.")
    assert said.texts("dentist appointment") == ["dentist appointment"]


def test_a_question_that_names_a_speaker_prefers_what_that_speaker_said(said: Said) -> None:
    said.say("Mia: I painted a sunset", "Tom: Mia, I painted a boat", "Mia: ok", "Tom: sure")
    assert said.texts("What did Mia paint?")[0] == "Mia: I painted a sunset"
    assert said.texts("What did Tom paint?")[0] == "Tom: Mia, I painted a boat"


@pytest.mark.parametrize("text", ["Mia: hi", "[Mia]: hi", "[14 May, 10:05] Mia: hi", "Mia said, hi"])
def test_who_speaks_is_read_from_the_text(said: Said, text: str) -> None:
    said.say(text)
    assert said.store.search("hi").hits[0].speaker == "Mia"


@pytest.mark.parametrize("text", ["Done: fixed the header.", "Root cause: the header.", "THOUGHT: the header."])
def test_a_label_before_a_colon_is_not_taken_for_a_speaker(said: Said, text: str) -> None:
    said.say(text)
    assert said.store.search("header").hits[0].speaker == ""


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


def test_tenants_do_not_see_each_other(said: Said) -> None:
    said.say("a secret lamp")
    stranger = Store(said.store.database, "stranger")
    assert stranger.search("lamp").hits == ()
    assert stranger.search("secret", mode="substring").hits == ()


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_page_of_an_impossible_size_is_refused(said: Said, limit: int) -> None:
    with pytest.raises(QueryError, match="ask for 1 to 1000"):
        said.store.search("lamp", limit=limit)


def test_an_unknown_order_is_refused(said: Said) -> None:
    with pytest.raises(QueryError, match="allowed are relevance, time"):
        said.store.search("lamp", order="size")


def test_words_of_a_person_come_before_and_are_shown_instead_of_those_of_a_client(said: Said) -> None:
    reminder = "<system-reminder>\nThe skill mends gannet traps and counts gannet eggs.\n</system-reminder>\n"
    said.say(f"{reminder}Paint the boat house.", "Painted.")
    said.say(f"{reminder}Which gannet nests on the north cliff?", "The old one.")
    own, wrapped = said.store.searcher.search("gannet").hits
    assert own.snippet.marked() == "Which **gannet** nests on the north cliff?"
    assert "system-reminder" in wrapped.snippet.text  # nothing else of it matches


def test_what_stands_only_in_a_clients_words_is_found_after_all_others(said: Said) -> None:
    for boat in range(12):
        said.say(f"<system-reminder>gannet gannet gannet</system-reminder>\nCaulk boat {boat}.", "Done.")
    said.say("Somebody saw a gannet by the long pier, far behind the boats that were caulked.", "Noted.")
    said.say(*["Later."] * 2)
    found = said.store.searcher.search("gannet", limit=20).hits
    assert len(found) == 13
    assert found[0].snippet.text.startswith("Somebody saw a gannet")
