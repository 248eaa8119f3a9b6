"""``everlong sessions delete|forget|verify|backup|maintain``: changes that ask first, and upkeep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everlong import Store
from everlong.config.paths import data_home
from everlong.gateway.journal import Journal, JournalEntry
from everlong.store.turns import FinishedTurn
from tests.cli.conftest import Run, add_session
from tests.context.builders import assistant, user
from tests.store.engines import ScriptedEngine, summarizing

CODEWORD = "swordfish-7711"


@pytest.fixture
def filled(sessions: Run, store_file: Path) -> Run:
    with Store.open(store_file) as store:
        first = add_session(
            store, [user("Hello."), assistant("Hi."), user(f"It is {CODEWORD}."), assistant("Ok.")], "Key"
        )
        assert first.branch is not None
        at = store.branch(first.branch)
        store.compact(at, ScriptedEngine(summarizing(1, 3, f"the key is {CODEWORD}")))
        add_session(store, [user("Good day."), assistant("Hi.")], "Other", 5_000.0)
    return sessions


def hits(program: Run, text: str) -> int:
    return len(program("search", "--substring", text, "--json").json["hits"])


@pytest.mark.parametrize("arguments", [["delete", "Key"], ["forget", CODEWORD], ["forget", "--session", "Key"]])
def test_what_cannot_be_undone_is_asked_first(filled: Run, arguments: list[str]) -> None:
    declined = filled(*arguments, stdin=b"n\n")
    assert (declined.code, "nothing was changed" in declined.err) == (1, True)
    unanswered = filled(*arguments, stdin=b"")
    assert (unanswered.code, "--yes" in unanswered.err) == (2, True)
    assert hits(filled, CODEWORD) == 2
    assert filled(*arguments, stdin=b"y\n").code == 0


def test_a_deleted_session_is_gone_and_with_maintenance_its_messages(filled: Run) -> None:
    told = filled("delete", "Key", "--yes", "--json")
    assert len(told.json["sessions"]) == 1
    assert [one["title"] for one in filled("list", "--json").json] == ["Other"]
    assert filled("delete", "Key", "--yes").code == 1
    cleaned = filled("maintain", "--all", "--json").json
    assert (cleaned["messages"], cleaned["branches"]) == (4, 1)
    assert hits(filled, CODEWORD) == 0
    assert hits(filled, "Hi.") == 1
    assert filled("verify").code == 0


def test_a_forgotten_text_is_found_nowhere_also_not_in_summaries_or_the_file(filled: Run, store_file: Path) -> None:
    told = filled("forget", CODEWORD.upper(), "--yes", "--json")
    assert told.json == {"messages": 1, "summaries": 1, "spared": 0}
    assert CODEWORD in told.err
    assert hits(filled, CODEWORD) == 0
    assert CODEWORD not in filled("show", "Key").out
    filled("maintain")
    assert CODEWORD.encode() not in store_file.read_bytes()
    assert filled("verify").code == 0


def test_a_text_that_only_a_whole_output_holds_is_forgotten_too(filled: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        result = store.entries(store.branch(1))[1]
        assert result.id is not None
        store.outputs.keep(result.id, f"long before\nMARLIN-42\n{'x' * 9_000}")
    told = filled("forget", "marlin-42", "--yes", "--json")
    assert told.json["messages"] >= 1
    assert "1 tool result with TEXT only in the full output" in told.err
    filled("maintain")
    assert b"MARLIN" not in store_file.read_bytes()


def test_messages_are_forgotten_by_turn_and_by_session(filled: Run) -> None:
    assert filled("forget", "--message", "Key:3", "--message", "Key:4", "--yes", "--json").json["messages"] == 2
    shown = filled("show", "Key", "--json").json["messages"]
    assert [entry["forgotten"] for entry in shown] == [False, False, True, True]
    ident = next(one["id"] for one in filled("list", "--json").json if one["title"] == "Key")
    filled("forget", "--session", "Key", "--yes")
    assert filled("show", "Key").code == 1, "the title is still there"
    assert all(entry["forgotten"] for entry in filled("show", ident, "--json").json["messages"])
    assert "Hi." in filled("show", "Other").out


@pytest.mark.spec("12.8")
def test_what_was_typed_and_what_a_gateway_left_are_forgotten_too(filled: Run, store_file: Path) -> None:
    typed = data_home() / "chat_history"
    typed.parent.mkdir(parents=True, exist_ok=True)
    typed.write_text(f"\n# 2026-01-01 10:00:00.000000\n+My word is\n+{CODEWORD}!\n\n# 2026-01-01 10:01:00\n+Hello\n")
    asked = {"model": "m", "messages": [{"role": "user", "content": f"The word is {CODEWORD}."}]}
    place_and_reply: list[Any] = [None, [], "m", None, None]
    values: list[Any] = ["local", "openai", json.dumps(asked), *place_and_reply, "open", None, 1.0, None, None, []]
    folder = data_home() / "gateway-spool"
    folder.mkdir()
    (folder / "1-1-abcdef.jsonl").write_text(json.dumps(values) + "\n")
    aside = Journal(folder)
    for tenant, said in (("local", asked), ("ada", {**asked, "messages": [user("Hello")]})):
        entry = JournalEntry(tenant, "openai", FinishedTurn(model="m", began=1.0), json.dumps(said))
        aside.put_aside(0, entry, "made up")
    assert filled("forget", CODEWORD, "--yes", "--json").json["messages"] == 2
    assert CODEWORD not in "".join(path.read_text() for path in folder.iterdir())
    assert ["Hello" in path.read_text() for path in folder.glob("*.broken")] == [True]
    assert not list(folder.glob("*.jsonl"))
    assert CODEWORD not in typed.read_text()
    assert "+Hello\n" in typed.read_text()
    filled("maintain", "--all")
    assert CODEWORD.encode() not in store_file.read_bytes()


@pytest.mark.spec("12.8")
def test_a_system_prompt_that_holds_the_text_goes_also_where_no_message_does(filled: Run, store_file: Path) -> None:
    with Store.open(store_file) as store:
        store.record([{"role": "system", "content": "You guard MARLIN-42."}, user("Hello")], conversation="guarded")
    assert "and 1 system prompt" in filled("forget", "marlin-42", "--yes").err
    filled("maintain")
    assert b"MARLIN" not in store_file.read_bytes()


@pytest.mark.spec("12.8")
def test_a_title_that_holds_the_text_goes_also_where_no_message_does(filled: Run) -> None:
    filled("rename", "Other", "Marlin 42")
    assert filled("forget", "marlin", "--yes").code == 0
    assert "Marlin" not in filled("list").out
