"""A store from before conversations is brought up to date: what was joined is told apart, and nothing is lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select

from everlong.agent.conversation import AgentConversation as Resumed, Said
from everlong.errors import StoreUnavailable
from everlong.model import text_of
from everlong.store import Store
from everlong.store.imports import Importer, ImportOrigin
from everlong.store.maintenance import vacuum
from everlong.store.schema import node, session, turn
from everlong.store.stateless import Sender, StatelessRequest
from everlong.store.transcripts.writer import PART_KIND
from everlong.store.upgrade import HEAD, VERSION_TABLE
from everlong.wire import TranscriptConversation
from tests.examples import length
from tests.store.old_stores import LAST, OldStore, assistant, user
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.soak  # a schema that nobody got; its converter is to go

AT_ONCE = length(4, 2)
"""Processes that open one store."""
FILE = ImportOrigin("/tmp/export.jsonl", 1_000.0, kind="openai")  # noqa: S108 - a name, no file


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind with nothing in it."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    found: str = request.getfixturevalue("schema_url")
    return found


def said(store: Store, ident: str) -> list[str]:
    """The words of the conversation that a session is part of."""
    return [text_of(line.entry.message) for line in store.conversations.lines(ident)]


def sound(store: Store) -> list[str]:
    """The remarks on a store in which nothing is wrong, also after all garbage has gone."""
    assert store.verify().problems == []
    vacuum(store, min_age=-1.0)
    checked = store.verify()
    assert checked.problems == []
    return checked.remarks


# -- the agent ---------------------------------------------------------------------------------------------------------


def test_the_same_prompt_run_twice_is_two_conversations_with_their_own_answers(place: str) -> None:
    with OldStore(place) as old:
        old.agent("one").say("hi", "first answer").end()
        two = old.agent("two").say("hi", "second answer").say("more", "and more")
        two.end()
    with Store.open(place) as store:
        assert said(store, "one") == ["hi", "first answer"]
        assert said(store, "two") == ["hi", "second answer", "more", "and more"]
        assert [one.id for one in store.conversations.newest()] == ["two", "one"]
        found = store.conversations.get("two-1")  # the id that was printed when it "went on elsewhere"
        assert (found.id, found.title, found.parts) == ("two", "hi", ("two", "two-1"))
        assert (found.cost, found.api_calls) == (0.5, 2)
        assert store.sessions.get("two").end_reason == "continued"
        assert sound(store) == []


def test_with_equal_answers_the_words_of_the_second_are_not_shown_in_the_first(place: str) -> None:
    with OldStore(place) as old:
        one = old.agent("one").say("hi", "hello")
        old.agent("two").say("hi", "hello").say("my secret", "is safe")
        one.end()  # only now, so that it was noted to end where the other one does
        old.agent("three").say("hi", "hello")
    with Store.open(place) as store:
        assert said(store, "one") == said(store, "three") == ["hi", "hello"]
        assert said(store, "two") == ["hi", "hello", "my secret", "is safe"]
        (remark,) = sound(store)
        assert remark.startswith("conversations one, three and two said the same and were answered the same")
        # Whoever goes on now goes on alone.
        row = store.sessions.resume("three")
        assert row.branch is not None
        store.append(store.branch(row.branch), [user("mine")])
        assert said(store, "three") == ["hi", "hello", "mine"]
        assert said(store, "two") == ["hi", "hello", "my secret", "is safe"]
        assert said(store, "one") == ["hi", "hello"]


def test_what_went_on_from_anothers_words_is_left_and_remarked_on(place: str) -> None:
    with OldStore(place) as old:
        one = old.agent("one").say("hi", "hello")
        old.agent("two").say("hi", "hello").say("my secret", "is safe")
        one.resume().say("again", "welcome back")
    with Store.open(place) as store:
        assert said(store, "two") == ["hi", "hello", "my secret", "is safe"]
        assert said(store, "one") == ["hi", "hello", "my secret", "is safe", "again", "welcome back"]
        _, remark = sound(store)
        assert remark.startswith("conversation one goes on from what conversation two was answered")


def test_each_project_has_its_own_system_prompt_and_its_own_view_again(place: str) -> None:
    with OldStore(place) as old:
        old.agent("a", "You work on A.").say("hi", "x").end()
        same = old.agent("b", "You work on B.").say("hi", "x").say("b1", "b2")
        old.agent("c", "You work on C.").say("hi", "y")
        assert same.at is not None
        view = {"tenant": "local", "branch": same.at.branch, "cover": same.at.node, "cover_depth": 4, "saw_depth": 4}
        made = old.insert("view", **view, profile="", state="good", ts=old.clock)
        summary = old.content(user("[summary of b]"))
        values = {"view": made, "ord": 0, "kind": "new", "from_depth": 0, "to_depth": 4, "digest": summary}
        old.write(
            "INSERT INTO view_item (view, ord, kind, from_depth, to_depth, digest)"
            " VALUES (:view, :ord, :kind, :from_depth, :to_depth, :digest)",
            **values,
        )
        figures = {"messages_before": 4, "messages_after": 1, "seconds": 0.1}
        noted = {"tenant": "local", "session": "b", "branch": same.at.branch, "view_id": made, "ts": old.clock}
        old.insert("compaction", **noted, reason="manual", engine="e", **figures)
        old.update("branch", same.at.branch, view_id=made)
        d = old.agent("d", "You work on D.").say("hi", "x").say("b1", "b2")
        d.say("d1", "d2")
    with Store.open(place) as store:

        def sent(ident: str) -> list[str]:
            newest = store.sessions.resume(ident)
            assert newest.branch is not None
            return [text_of(message) for message in store.context(store.branch(newest.branch, newest.to_depth))]

        assert sent("a") == ["You work on A.", "hi", "x"]
        assert sent("b") == ["You work on B.", "[summary of b]"]
        assert sent("c") == ["You work on C.", "hi", "y"]
        assert sent("d") == ["You work on D.", "hi", "x", "b1", "b2", "d1", "d2"]
        assert len(sound(store)) == 1


def test_a_fork_that_a_person_made_is_a_conversation_of_its_own_from_the_first_word(place: str) -> None:
    with OldStore(place) as old:
        one = old.agent("one").say("hi", "hello")
        assert one.at is not None
        old.update("session", "one", ended=old.clock, end_reason="branch", to_depth=one.at.depth)
        one.sessions.append(old.session("fork", one.at, prompt=one.prompt))
        one.say("another way", "why not")
    with Store.open(place) as store:
        assert said(store, "one") == ["hi", "hello"]
        assert said(store, "fork") == ["hi", "hello", "another way", "why not"]
        assert store.sessions.get("fork").works_for == "one"
        assert sound(store) == []


def test_what_was_taken_back_stays_so(place: str) -> None:
    with OldStore(place) as old:
        old.agent("one").say("hi", "hello").say("wrong", "indeed")
        old.update("session", "one", to_depth=2)
        old.agent("none").say("never mind", "fine")
        old.update("session", "none", to_depth=0)
    with Store.open(place) as store:
        assert said(store, "one") == ["hi", "hello"]
        assert store.conversations.get("none").messages == 0
        assert sound(store) == []
        assert len(list(store.turns.since())) == 3


# -- the gateway -------------------------------------------------------------------------------------------------------


def test_the_newest_answer_of_a_gateways_conversation_is_a_message_and_its_first_call_counts(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", reply="one", hint="c-1")
        client.ask("hi", "one", "more", reply="two", hint="c-1")
    with Store.open(place) as store:
        assert said(store, "g-0") == ["hi", "one", "more", "two"]
        found = store.conversations.get("g-0")
        assert (found.title, found.client_session, found.api_calls, found.cost) == ("hi", "c-1", 2, 0.5)
        assert found.input_tokens == 10
        assert len(store.search("two").hits) == 1
        assert [one.echo_node is not None for one in store.turns.since()] == [True, True]
        assert sound(store) == []
        assert said(store, "g-0") == ["hi", "one", "more", "two"]


def test_conversations_of_one_turn_are_there_and_equal_openings_are_told_apart_by_their_answers(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", reply="a")
        client.ask("hi", reply="b")
        client.ask("hi", reply="b")
        client.ask("hi", reply="c")
        client.ask("hi", "c", "more", reply="d")
    with Store.open(place) as store:
        all_said = sorted(said(store, one.id) for one in store.conversations.newest())
        assert all_said == [["hi", "a"], ["hi", "b"], ["hi", "c", "more", "d"]]
        assert sorted(one.cost for one in store.conversations.newest()) == [0.25, 0.5, 0.5]
        assert {one.session for one in store.turns.since()} == {one.id for one in store.sessions.newest()}
        assert sound(store) == []
        assert len(store.conversations.newest()) == 3


def test_a_failed_request_belongs_to_the_one_that_repeated_it(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", reply=None, status="failed", cost=0.0)
        client.ask("hi", reply="hello")
    with Store.open(place) as store:
        (found,) = store.conversations.newest()
        assert (found.api_calls, found.cost) == (2, 0.25)
        assert said(store, found.id) == ["hi", "hello"]


def test_a_request_for_a_title_is_listed_aside(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("fix the test", reply="on it")
        client.ask("fix the test", "on it", "and?", reply="done")
        client.ask("write a title for: fix the test", reply="Test fix", tools=None)
    with Store.open(place) as store:
        assert [one.title for one in store.conversations.newest()] == ["fix the test"]
        assert [said(store, one.id)[-1] for one in store.conversations.newest(kinds=("side",))] == ["Test fix"]


def test_a_reply_that_its_client_rewrote_is_there_once(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", reply="<think>let me see</think>hello")
        client.ask("hi", "hello", "more", reply="<think>well</think>yes")
        client.ask("hi", "hello", "more", "yes", "end", reply="bye")
    with Store.open(place) as store:
        (found,) = store.conversations.newest()
        assert said(store, found.id) == ["hi", "hello", "more", "yes", "end", "bye"]
        assert found.api_calls == 3


def test_an_answer_that_was_asked_for_anew_is_a_fork(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", "hello", "more", reply="first")
        client.ask("hi", "hello", "more", reply="second")
        client.ask("hi", "hello", "more", "second", "end", reply="bye")
    with Store.open(place) as store:
        assert said(store, "g-0") == ["hi", "hello", "more", "second", "end", "bye"]
        (fork,) = [one for one in store.conversations.newest() if one.id != "g-0"]
        assert said(store, fork.id) == ["hi", "hello", "more", "first"]
        assert fork.works_for == "g-0"
        assert sum(one.cost for one in store.conversations.newest()) == 0.75


def test_a_conversation_that_was_resumed_under_another_name_is_one(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", "hello", "more", reply="yes", hint="monday")
        client.ask("hi", "hello", "more", "yes", "again", reply="sure", hint="tuesday")
    with Store.open(place) as store:
        (found,) = store.conversations.newest()
        assert found.parts == ("g-0", "g-1")
        assert said(store, "g-1") == ["hi", "hello", "more", "yes", "again", "sure"]


def test_what_was_deleted_and_not_yet_removed_does_not_come_back(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", reply="hello")
        client.ask("hi", "hello", "more", reply="yes")
        old.write("UPDATE turn SET session = NULL")
        old.write("DELETE FROM session")
        gone = old.agent("gone").say("forget me", "I will")
        old.write("UPDATE turn SET session = NULL WHERE session = :id", id=gone.ident)
        old.write("DELETE FROM session")
    with Store.open(place) as store:
        assert store.sessions.newest() == []
        assert sound(store) == []
        with store.database.read() as connection:
            assert connection.execute(select(func.count()).select_from(node)).scalar() == 0


def test_agent_and_gateway_that_said_the_same_are_told_apart(place: str) -> None:
    with OldStore(place) as old:
        old.agent("own").say("hi", "hello")
        client = old.gateway()
        client.ask("hi", reply="servus")
        client.ask("hi", "hello", "more", reply="yes")
    with Store.open(place) as store:
        assert said(store, "own") == ["hi", "hello"]
        assert said(store, "g-0") == ["hi", "hello", "more", "yes"]
        (other,) = [one for one in store.conversations.newest() if one.id not in {"own", "g-0"}]
        assert said(store, other.id) == ["hi", "servus"]
        sound(store)


# -- what holds for all ------------------------------------------------------------------------------------------------


def test_every_id_resolves_as_before_and_an_old_export_adds_nothing(place: str) -> None:
    with OldStore(place) as old:
        first = old.agent("20240101_120000_aaaaaa").say("hi", "x")
        second = old.agent("20240101_120000_bbbbbb").say("hi", "y").say("more", "z")
        second.sessions[1:] = []
        old.gateway().ask("hi", reply="x")
        assert first.at is not None
        assert second.at is not None
        nodes = [first.at.node, second.at.node]
        rows = old.all("SELECT id FROM node")
        sessions = [row[0] for row in old.all("SELECT id FROM session")]
    with Store.open(place) as store:
        assert [store.read(ident).text for ident in nodes] == ["x", "z"]
        assert all(store.read(bytes(row[0])).chars for row in rows)
        assert all(store.conversations.get(ident) for ident in sessions)

        def count() -> list[int]:
            with store.database.read() as connection:
                tables = (node, session, turn)
                return [connection.execute(select(func.count()).select_from(one)).scalar_one() for one in tables]

        before = count()
        messages = [user("hi"), assistant("y"), user("more"), assistant("z")]
        body = {"kind": PART_KIND, "id": second.ident, "messages": messages}
        assert Importer(store).add(TranscriptConversation(messages, body), FILE).outcome == "known"
        assert count() == before


def test_sessions_know_their_conversation_also_where_a_session_was_lost(place: str) -> None:
    with OldStore(place) as old:
        at = old.record([user("hi"), assistant("hello")])
        old.session("a", at, from_depth=0, to_depth=2, ended=1.0, end_reason="compression", title="T", started=1.0)
        old.session("b", at, parent="a", to_depth=2, ended=2.0, end_reason="compression", title="T #2", started=2.0)
        old.session("c", at, parent="b", title="T #3", started=3.0)
        old.session("x", at, parent="lost", title="L #2", started=4.0)
        old.session("y", at, parent="lost", title="L #3", started=5.0)
    with Store.open(place) as store:
        found = {one.id: (one.conversation, one.parent) for one in store.sessions.newest()}
        assert found == {"a": ("a", None), "b": ("a", "a"), "c": ("a", "b"), "x": ("x", None), "y": ("x", "x")}
        assert store.verify().problems == []
        times = {one.id: one.active for one in store.sessions.newest()}
        assert times == {"a": 1.0, "b": 2.0, "c": 3.0, "x": 4.0, "y": 5.0}


def joined(path: Path, count: int = 1) -> None:
    """An old file with conversations that are joined."""
    with OldStore(path) as old:
        for number in range(count):
            old.agent(f"a{number}").say("hi", f"answer {number}").say("more", f"more {number}")
        old.gateway().ask("hello", reply="there")


def version(path: Path) -> str:
    with sqlite3.connect(path) as raw:
        found: str = raw.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0]  # noqa: S608 - a constant
        return found


def test_a_copy_from_before_is_made_for_its_owner_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "store.db.before-0007.bak"
    joined(path)
    copy.write_text("of somebody else")
    Store.open(path).close()
    own = tmp_path / "store.db.before-0007.2.bak"
    assert copy.read_text() == "of somebody else"
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert (version(path), version(own)) == (HEAD, LAST)
    assert str(own) in caplog.text
    Store.open(path).close()
    assert len(list(tmp_path.glob("*.bak"))) == 2
    with Store.open(own) as again:  # which is an old store like any other
        assert said(again, "a0") == ["hi", "answer 0", "more", "more 0"]


def test_an_empty_store_is_not_copied(tmp_path: Path) -> None:
    OldStore(tmp_path / "store.db").__exit__()
    Store.open(tmp_path / "store.db").close()
    assert list(tmp_path.glob("*.bak")) == []


def test_on_a_server_its_own_tools_are_named(schema_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with OldStore(schema_url) as old:
        old.agent("one").say("hi", "hello")
    Store.open(schema_url).close()
    assert "pg_dump" in caplog.text


OPENING = "import sys; from everlong.store import Store; Store.open(sys.argv[1], wait=60).close()"

NO_ROOM = """
import resource, sys
from everlong.errors import StoreUnavailable
from everlong.store import Store
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
try:
    Store.open(sys.argv[1])
except StoreUnavailable as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be limited there")
def test_where_there_is_no_room_for_the_copy_the_store_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    joined(path, 150)
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    assert len(before) > 150_000
    done = subprocess.run([sys.executable, "-c", NO_ROOM, str(path)], capture_output=True, text=True, check=False)
    assert "The store was left as it is. Make room for about 1 MB" in done.stdout, done
    assert path.read_bytes() == before
    assert list(tmp_path.glob("*before*")) == []
    Store.open(path).close()
    assert version(path) == HEAD


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL there")
def test_a_process_that_is_killed_on_the_way_leaves_the_old_store_and_the_next_one_does_it(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "store.db.before-0007.bak"
    joined(path, 150)
    for delay in (0.0, 0.05, 0.2):
        running = subprocess.Popen([sys.executable, "-c", OPENING, str(path)], stderr=subprocess.DEVNULL)
        if not copy.exists():
            until(copy.exists)  # it is made; what follows is the separation
        time.sleep(delay)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        assert version(path) in {LAST, HEAD}
    with Store.open(path) as store:
        assert said(store, "a0") == ["hi", "answer 0", "more", "more 0"]
        assert said(store, "a149") == ["hi", "answer 149", "more", "more 149"]
        assert len(store.conversations.newest()) == 151
        assert sound(store) == []
    assert list(tmp_path.glob("*.bak")) == [copy]  # those of the others had the same content


def test_several_processes_that_open_it_at_once_do_it_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    joined(path, 20)
    running = [
        subprocess.Popen([sys.executable, "-c", OPENING, str(path)], stderr=subprocess.DEVNULL) for _ in range(AT_ONCE)
    ]
    assert [process.wait(PATIENCE) for process in running] == [0] * AT_ONCE
    with Store.open(path) as store:
        assert len(store.conversations.newest()) == 21
        assert sound(store) == []
    assert len(list(tmp_path.glob("*.bak"))) == 1


def test_several_processes_that_open_a_server_at_once_do_it_once(schema_url: str) -> None:
    with OldStore(schema_url) as old:
        for number in range(5):
            old.agent(f"a{number}").say("hi", f"answer {number}")
    running = [
        subprocess.Popen([sys.executable, "-c", OPENING, schema_url], stderr=subprocess.DEVNULL) for _ in range(AT_ONCE)
    ]
    assert [process.wait(PATIENCE) for process in running] == [0] * AT_ONCE
    with Store.open(schema_url) as store:
        assert len(store.conversations.newest()) == 5
        assert sound(store) == []


def test_words_that_were_forgotten_stay_so(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", reply="pelican-4711")
        client.ask("hi", "pelican-4711", "more", reply="yes")
        digest = old.content(assistant("pelican-4711"))
        stub = b'{"message":{"role":"assistant","content":"[This message was forgotten]"},"blocks":["a%s"]}'
        proof = old.chain.trace([assistant("pelican-4711")]).blocks[0].hex().encode()
        old.write(
            "UPDATE content SET bytes = NULL, codec = 0, state = 'forgotten', stub = :stub WHERE digest = :digest",
            stub=stub % proof,
            digest=digest,
        )
    with Store.open(place) as store:
        assert said(store, "g-0") == ["hi", "[This message was forgotten]", "more", "yes"]
        assert sound(store) == []


def test_an_error_of_the_copy_is_told_in_our_words(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    joined(path)
    (tmp_path / ".store.db.before-0007.bak.partial").mkdir()
    with pytest.raises(StoreUnavailable, match="could not be written"):
        Store.open(path)
    assert version(path) == LAST


def test_the_command_says_what_cannot_be_told_apart_and_that_all_is_well(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with OldStore(path) as old:
        old.agent("one").say("hi", "hello")
        old.agent("two").say("hi", "hello")
    start = "from everlong.cli.start import main; main()"
    command = [sys.executable, "-c", start, "sessions", "--store", str(path), "verify"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "note: conversations one and two said the same" in done.stderr
    assert "all is well" in done.stderr


# -- going on with it --------------------------------------------------------------------------------------------------


def test_clients_of_the_gateway_go_on_where_they_were(place: str) -> None:
    with OldStore(place) as old:
        client = old.gateway()
        client.ask("hi", reply="one")
        client.ask("hi", "one", "more", reply="two")
        client.ask("hi", reply="other")
        client.ask("lonely", reply="so am I")
    with Store.open(place) as store:
        before = {tuple(said(store, one.id)): one.id for one in store.conversations.newest()}
        for words in (("hi", "one", "more", "two"), ("hi", "other"), ("lonely", "so am I")):
            messages = [user(text) if number % 2 == 0 else assistant(text) for number, text in enumerate(words)]
            messages.append(user("and now?"))
            placed = store.stateless.place(
                StatelessRequest(messages, store.chain.trace(messages), Sender(platform="gateway"))
            )
            assert store.sessions.get(placed.session).conversation == before[words]
            assert said(store, before[words]) == [*words, "and now?"]
        assert len(store.conversations.newest()) == 3
        assert sound(store) == []


def test_the_agent_goes_on_where_it_was_with_its_own_words_and_prompt(place: str) -> None:
    with OldStore(place) as old:
        one = old.agent("one", "You work on A.").say("hi", "hello")
        old.agent("two", "You work on B.").say("hi", "hello").say("my secret", "is safe")
        one.end()
    with Store.open(place) as store:
        again = Resumed.resume(store, "one", warn=pytest.fail)
        assert [text_of(message) for message in again.messages] == ["You work on A.", "hi", "hello"]
        again.add(Said(user("on with it")))
        other = Resumed.resume(store, "two", warn=pytest.fail)
        other.add(Said(user("and with B")))
        assert said(store, "one") == ["hi", "hello", "on with it"]
        assert said(store, "two") == ["hi", "hello", "my secret", "is safe", "and with B"]
        assert store.conversations.get("one").id == "one"
        assert len(sound(store)) == 1
