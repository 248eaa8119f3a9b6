"""Turns: what was asked under which view, what was answered, what it cost, and what a crash leaves behind."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.errors import NotStored, StoreError
from everlong.model import Message
from everlong.store import Branch, Store
from everlong.store.database import Database
from everlong.store.opening import open_database
from everlong.store.turns import FinishedTurn
from everlong.testing.strategies import conversations, messages
from tests.examples import on_a_database
from tests.store.engines import ScriptedEngine, summarizing
from tests.waiting import PATIENCE

SHARED = on_a_database(25)
ASK: Message = {"role": "user", "content": "List the files"}
CALL: Message = {
    "role": "assistant",
    "content": "I will look.",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
}
ANSWER: Message = {"role": "assistant", "content": "There are two files in the folder."}
NEXT: Message = {"role": "user", "content": "Thanks"}


def test_what_a_turn_used_adds_to_its_session_once(store: Store) -> None:
    at = store.record([ASK])
    made = store.sessions.start(at, from_depth=0)
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "cache_read_tokens": 60}
    begun = store.turns.begin(at, session=made.id)
    for _ in range(2):  # an answer that was lost on its way makes a caller try again
        store.turns.finish(begun.id, ANSWER, usage=usage, cost=0.25)
    found = store.sessions.get(made.id)
    assert (found.input_tokens, found.output_tokens, found.cache_read_tokens) == (40, 20, 60)
    assert (found.api_calls, found.cost) == (1, 0.25)
    assert [one.id for one in store.turns.of_session(made.id)] == [begun.id]
    store.sessions.delete(made.id)
    assert store.turns.get(begun.id).session is None


@pytest.mark.spec("7.9")
def test_a_reply_is_a_message_of_the_conversation_at_once_and_only_once(store: Store) -> None:
    at = store.record([ASK])
    begun = store.turns.begin(at)
    reply: Message = {"role": "assistant", "content": "The lighthouse keeper knows."}
    done = store.turns.finish(begun.id, reply)
    assert [entry.message for entry in store.entries(store.branch(at.id))] == [ASK, reply]
    assert [(hit.role, hit.node) for hit in store.search("lighthouse").hits] == [("assistant", done.echo_node)]
    store.turns.begin(store.record([ASK, reply, NEXT]))
    assert [hit.role for hit in store.search("lighthouse").hits] == ["assistant"]


def test_a_turn_ends_once_and_in_a_known_way(store: Store) -> None:
    begun = store.turns.begin(store.record([ASK]))
    unknown: Any = "lost"
    with pytest.raises(StoreError, match=r"'lost'; allowed are done, failed, cancelled"):
        store.turns.finish(begun.id, status=unknown)
    store.turns.finish(begun.id, ANSWER)
    with pytest.raises(StoreError, match=rf"turn {begun.id} has ended already \(done\)"):
        store.turns.finish(begun.id, CALL)
    with pytest.raises(StoreError, match="has ended already"):
        store.turns.finish(begun.id, status="cancelled")
    with pytest.raises(NotStored, match="no turn 987654321"):
        store.turns.finish(987654321)
    with pytest.raises(NotStored, match="no branch 987654321"):
        store.turns.begin(Branch(987654321, b"", 0))


THINKING: Message = {"role": "assistant", "content": "I will look at the files in the folder."}


@pytest.mark.parametrize(
    ("reply", "echo"),
    [
        (CALL, CALL),
        (
            CALL,
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Shortened"}, {"type": "tool_use", "id": "c1", "name": "ls"}],
            },
        ),
        (THINKING, {"role": "assistant", "content": "i  will look at the files in the folder.\n"}),
        (THINKING, {"role": "assistant", "content": "I will look at the files"}),
    ],
    ids=["identity", "call id", "text", "cut"],
)
@pytest.mark.spec("7.9")
def test_a_reply_that_comes_back_in_another_shape_is_the_same_message(
    store: Store, reply: Message, echo: Message
) -> None:
    at = store.record([ASK])
    begun = store.turns.begin(at)
    store.turns.finish(begun.id, reply)
    later = store.record([ASK, echo, {"role": "user", "content": "go on"}])
    second = store.turns.begin(later)
    answered = store.turns.get(begun.id)
    assert later.id == at.id
    assert [entry.message for entry in store.entries(later)][:2] == [ASK, reply]  # in the model's own words
    assert answered.echo_node == store.entries(later)[1].id
    assert list(store.turns.since()) == [answered, second]
    assert store.record([ASK, echo, {"role": "user", "content": "go on"}]) == later
    assert store.verify().problems == []


@pytest.mark.parametrize(
    "other",
    [
        {"role": "assistant", "content": "Something else altogether."},
        {"role": "assistant", "content": [{"type": "text", "text": "I will look."}]},
    ],
    ids=["other words", "without its call"],
)
def test_another_reply_at_the_same_place_is_a_fork(store: Store, other: Message) -> None:
    at = store.record([ASK])
    begun = store.turns.begin(at)
    store.turns.finish(begun.id, CALL)
    fork = store.record([ASK, other, NEXT])
    assert fork.id != at.id
    assert store.context(fork) == [ASK, other, NEXT]
    assert [entry.message for entry in store.entries(store.branch(at.id))] == [ASK, CALL]


CRASH = """
import os, sys
from everlong.store import Store
store = Store.open(sys.argv[1])
at = store.record([{"role": "user", "content": "List the files"}])
answered = store.turns.begin(at)
store.turns.finish(answered.id, {"role": "assistant", "content": "There are two files in the folder."})
store.turns.begin(at, model="m-2")
os.kill(os.getpid(), 9)
"""


@pytest.mark.spec("7.1")
def test_a_crash_leaves_the_reply_that_was_there_and_an_unfinished_turn(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CRASH, str(tmp_path / "store.db")], check=False, timeout=PATIENCE)
    with Store.open(tmp_path / "store.db") as store:
        answered, left = store.turns.since()
        assert (left.model, left.status) == ("m-2", "open")
        assert store.turns.reply(answered.id) == ANSWER
        assert store.verify().problems == []


@SHARED
@given(conversations(4), messages("assistant"), st.integers(0, 8), st.integers(0, 8))
@pytest.mark.spec("7.1")
def test_whatever_an_engine_is_given_to_compact_is_in_the_database_already(
    url: str, database: Database, talk: list[Message], reply: Message, first: int, last: int
) -> None:
    store = Store(database, uuid.uuid4().hex)
    asked = store.record([*talk, ASK])
    turn = store.turns.begin(asked)
    store.turns.finish(turn.id, reply)
    at = store.record([*talk, ASK, reply, NEXT])
    seen: list[bool] = []

    def looking(given_messages: list[Message]) -> list[Message]:
        elsewhere = open_database(url)  # another process would see the same
        try:
            replica = Store(elsewhere, store.tenant)
            stored = [entry.message for entry in replica.entries(replica.branch(at.id))]
            seen.append([*stored] == [*(m for m in [*talk, ASK, reply, NEXT] if m["role"] != "system")])
            seen.append(replica.turns.reply(turn.id) == reply)
        finally:
            elsewhere.close()
        low, high = sorted((first % len(given_messages), last % len(given_messages)))
        return summarizing(low, high)(given_messages)

    store.compact(at, ScriptedEngine(looking))
    assert seen == [True, True]
    again = [entry.message for entry in store.entries(at)]
    assert [*again] == [m for m in [*talk, ASK, reply, NEXT] if m["role"] != "system"]


def test_a_reply_is_found_by_its_names_and_only_by_its_tenant(store: Store) -> None:
    at = store.record([ASK])
    first = store.turns.finish(store.turns.begin(at, began=10.0).id, ANSWER, names=["resp_1", "conv_1"])
    second = store.turns.add_finished(at, FinishedTurn(CALL, began=20.0, names=("resp_2", "conv_1")))
    store.turns.add_finished(at, FinishedTurn(CALL, began=30.0))
    assert store.turns.named("resp_1") == first
    found = store.turns.named("resp_2")
    assert found is not None
    assert (found.id, store.turns.named("conv_1")) == (second, found)
    assert store.turns.named("conv_1", before=20.0) == first
    assert store.turns.named("conv_1", before=10.0) is None
    assert store.turns.named("resp_%") is None
    assert Store(store.database, uuid.uuid4().hex).turns.named("resp_1") is None


def test_what_is_read_between_two_writes_of_a_batch_spoils_neither(store: Store) -> None:
    with store.batch():
        at = store.record([ASK])
        first = store.turns.finish(store.turns.begin(at).id, ANSWER, names=["resp_1"])
        assert store.turns.named("resp_1") == first
        assert (list(store.receipts.since()), store.outputs.holding("files")) == ([], [])
        store.turns.add_finished(at, FinishedTurn(CALL, began=20.0))
    assert [store.turns.reply(turn.id) for turn in store.turns.since()] == [ANSWER, CALL]


@pytest.mark.parametrize("name", ["", "nul\0", "lone \ud800", "x" * 201])
def test_what_no_database_can_hold_is_no_name(store: Store, name: str) -> None:
    store.turns.add_finished(store.record([ASK]), FinishedTurn(ANSWER, names=(name,)))
    assert store.turns.named(name) is None


def test_a_name_is_stored_together_with_the_end_of_its_turn(store: Store) -> None:
    at = store.record([ASK])
    begun = store.turns.begin(at, session=store.sessions.start(at, from_depth=0).id)
    with pytest.raises(ValueError, match="NaN"):  # figures that cannot be added up, after the name was written
        store.turns.finish(begun.id, ANSWER, usage={"input_tokens": float("nan")}, names=["resp_1"])
    assert (store.turns.named("resp_1"), store.turns.get(begun.id).status) == (None, "open")
    done = store.turns.finish(begun.id, ANSWER, names=["resp_1"])
    assert store.turns.named("resp_1") == done
