"""``everlong sessions list|show|search|tail|rename|compactions``: reading a store from the command line."""

from __future__ import annotations

import json
import re
import time
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, update

from everlong import Message, Store
from everlong.lossless import LosslessEngine
from everlong.store import Occasion, schema
from tests.cli.conftest import Run, add_session
from tests.context.builders import assistant, long_session, user
from tests.store.engines import ScriptedEngine, summarizing

HOSTILE = "\x1b[2J\x1b]0;owned\x07red\u202eder \x9b31m\ud800 end"


def tool(call_id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def call(name: str, **arguments: str) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]}


HARBOUR = [
    user("Where does the ferry land?"),
    call("read_file", path="docs/harbour.md"),
    {**tool("c1", "The ferry lands at pier nine. " + "Ropes and bollards. " * 1_000), "name": "read_file"},
    assistant("It lands at pier nine."),
]
GARDEN = [user("Which roses bloom in May?"), assistant("The climbing ones, 玫瑰, do.")]


@pytest.fixture
def two(sessions: Run, store_file: Path) -> Run:
    with Store.open(store_file) as store:
        add_session(store, HARBOUR, "Harbour", 1_000.0, model="m-1", system_prompt="Be brief.")
        add_session(store, GARDEN, None, 2_000.0, platform="telegram")
    return sessions


def test_the_id_of_a_summary_opens_it_down_to_the_messages(sessions: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        at = store.branch(add_session(store, long_session(60), "The importer", 1_000.0).branch or 0)
        store.compact(at, LosslessEngine(16_000), force=True)
        nodes = list(store.graph(at).all())
    for node in nodes:
        told = sessions("show", node.id, "--json").json
        assert told["text"] == node.made.text
        assert len(told["under_it"]) == (len(node.made.children) or node.made.messages)
    assert nodes[0].made.text.splitlines()[0] in sessions("show", nodes[0].id).out
    assert "there is no summary s-000000000000" in sessions("show", "s-000000000000").err


def _id(sessions: Run) -> str:
    return "session " + str(next(one for one in sessions("list", "--json").json if one["title"] == "Harbour")["id"])


@pytest.mark.spec("7.6")
def test_a_hit_says_session_turn_role_and_time_and_marks_what_was_found(two: Run) -> None:
    head, words = two("search", "pier").out.splitlines()[:2]
    assert f"{_id(two).split()[1]}:" in head
    assert "Harbour" in head
    assert "**pier**" in words
    hit = two("search", '"pier nine"', "--role", "assistant", "--json").json["hits"][0]
    assert (hit["turn"], hit["role"], hit["at"]) == (4, "assistant", 1_003.0)
    start, stop = hit["marks"][0]
    assert hit["snippet"][start:stop] == "pier nine"


@pytest.fixture
def compacted(sessions: Run, store_file: Path) -> Run:
    with Store.open(store_file) as store:
        first = add_session(store, HARBOUR, "Harbour", time.time())
        assert first.branch is not None
        at = store.branch(first.branch)
        done = store.compact(at, ScriptedEngine(summarizing(1, 3, "the ferry lands at a pier")))
        child = store.sessions.roll_over(first.id, at, compaction_id=store.compactions()[0].id)
        at = store.append(at, [user("And the tide?")])
        turn = store.turns.begin(at, model="anthropic:claude-sonnet-5", session=child.id)
        used = {"input_tokens": 1_000, "output_tokens": 100}
        store.turns.finish(turn.id, assistant("It is ri"), status="cancelled", usage=used, cost=0.0045)
        turn = store.turns.begin(at, model="anthropic:claude-sonnet-5", session=child.id)
        store.turns.finish(turn.id, assistant("It is rising."), usage=used, cost=0.0045)
        for number in range(2):
            agent = store.sessions.start(title=f"Look at pier {number}")
            mine = update(schema.session).where(schema.session.c.id == agent.id)
            statement = mine.values(kind="agent", works_for=first.id)
            store.database.write(partial(Connection.execute, statement=statement))
        assert done is not None
        assert child.title == "Harbour #2"
    return sessions


@pytest.mark.spec("7.4", "9.5")
def test_the_compaction_history_of_a_lineage_is_shown(compacted: Run) -> None:
    line = compacted("compactions", "Harbour #2").out.splitlines()[1]
    assert "scripted" in line
    assert "4 → 3" in line
    (entry,) = compacted("compactions", "Harbour", "--json").json
    wanted = {"at", "reason", "engine", "model", "tokens_before", "tokens_after", "messages_before", "messages_after"}
    assert {*wanted, "seconds", "cost", "fallback", "quality", "session", "child"} <= entry.keys()


def test_an_undone_compaction_is_marked_in_columns_that_fit_80(
    sessions: Run, store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(store_file) as store:
        first = add_session(store, HARBOUR, "Harbour", time.time())
        at = store.branch(first.branch or 0)
        for reason in ("preflight", "manual"):
            engine = ScriptedEngine(summarizing(1, 3, "the ferry lands at a pier"))
            store.compact(at, engine, Occasion(reason, first.id), current_tokens=187_654)
        store.undo(at)
    first_entry, second = sessions("compactions", "Harbour", "--json").json
    assert [(one["number"], one["is_undone"]) for one in (first_entry, second)] == [(1, False), (2, True)]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    heads, *lines = re.sub(r"\x1b\[[0-9;]*m", "", sessions("compactions", "Harbour").out).splitlines()
    assert heads.split()[:4] == ["#", "when", "why", "tokens"]
    assert [line.split()[0] for line in lines] == ["1", "2"]
    assert re.search(r"manual, undone +187,654 → ", lines[1])
    assert max(map(len, (heads, *lines))) <= 80
    listed = re.sub(r"\x1b\[[0-9;]*m", "", sessions("compactions").out).splitlines()
    assert [first.id in line for line in listed] == [False, True, True]


WORDS = ["Where does the ferry land?", "It lands at pier nine.", "And the tide?", "It is ri", "It is rising."]


def ids(sessions: Run) -> list[str]:
    parts: list[str] = sessions("list", "--json").json[0]["parts"]
    return parts


def test_a_conversation_is_one_row_with_its_agents(compacted: Run) -> None:
    heads, line = compacted("list").out.splitlines()
    first = ids(compacted)[0]
    assert " ".join(heads.split()) == "session active messages compactions cost from title"
    assert line.split()[0] == first
    assert line.split()[3:7] == ["7", "1", "$0.0090", "cli"]
    assert line.endswith("Harbour  +2 agents")


def test_any_id_shows_the_whole_conversation_with_its_compactions_and_broken_replies(compacted: Run) -> None:
    shown = {compacted("show", name).out for name in (*ids(compacted), "Harbour", "Harbour #2")}
    (text,) = shown
    places = [text.index(words) for words in WORDS]
    assert places == sorted(places)
    assert text.index(WORDS[1]) < text.index("── compacted ") < text.index(WORDS[2])
    assert "4 → 3 messages · scripted ──" in text
    assert "cancelled after 3 words" in text
    assert "6 assistant" in text


def test_a_request_that_failed_is_told_with_its_reason(sessions: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        first = add_session(store, GARDEN, "Roses")
        assert first.branch is not None
        at = store.append(store.branch(first.branch), [user("And in June?")])
        turn = store.turns.begin(at, model="m-1", session=first.id)
        store.turns.finish(turn.id, status="failed", error="the upstream said 529: overloaded")
    text = sessions("show", "Roses").out
    assert text.index("And in June?") < text.index("request failed: the upstream said 529: overloaded")
    (failure,) = sessions("show", "Roses", "--json").json["failures"]
    assert (failure["turn"], failure["error"]) == (3, "the upstream said 529: overloaded")


def test_hits_name_the_conversation_with_turns_of_its_own(compacted: Run) -> None:
    first, second = ids(compacted)
    for name in (first, second, "Harbour"):
        hits = compacted("search", "--substring", "It is ri", "--session", name, "--json").json["hits"]
        found = {(hit["session"], hit["title"], hit["turn"], hit["status"]) for hit in hits}
        assert found == {(first, "Harbour", 5, "cancelled"), (first, "Harbour", 6, None)}
    assert "(cancelled)" in compacted("search", "--substring", "It is ri").out
    assert compacted("search", "ferry", "--role", "summary", "--json").json["hits"][0]["node"] is None
    with_id = compacted("show", "Harbour", "--json").json["messages"][4]["node"]
    forgotten = compacted("forget", "--message", f"{second}:5", "-y", "--json").json
    assert forgotten["messages"] == 1
    assert compacted("show", "Harbour", "--json").json["messages"][4] | {"message": None} == {
        "turn": 5, "node": with_id, "forgotten": True, "message": None,
        "at": compacted("show", "Harbour", "--json").json["messages"][4]["at"],
    }  # fmt: skip


def test_a_conversation_is_deleted_and_renamed_as_a_whole(compacted: Run) -> None:
    first, second = ids(compacted)
    assert "is now called 'Quay'" in compacted("rename", second, "Quay").err
    assert compacted("delete", "Quay", "-y", "--json").json["sessions"] == [first]
    assert compacted("list", "--json").json == []


def test_nothing_that_a_message_says_reaches_the_terminal_as_a_command(sessions: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        messages = [user(f"{HOSTILE} needle"), call("sh\x1b[31m", text=HOSTILE), tool("c1", HOSTILE)]
        add_session(store, messages, f"T {HOSTILE}", model="m\x1b[0m")
    shown = [
        sessions(*arguments)
        for arguments in (["list"], ["show", sessions("list", "--json").json[0]["id"]], ["search", "needle"])
    ]
    shown.append(sessions("export", "--all", "--format", "markdown"))
    for ran in shown:
        assert ran.code == 0
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\ud800"} & set(ran.out)
        assert "end" in ran.out
