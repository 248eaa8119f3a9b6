"""Clients that send only their last messages: every turn is stored, by work that does not grow with what was said."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import event, update

from everlong.model import Message, text_of
from everlong.store import Store
from everlong.store.content import blob, encoded
from everlong.store.database import Database
from everlong.store.identity import PlacedRequest, Sender, StatelessRequest
from everlong.store.schema import branch
from everlong.store.turns import FinishedTurn

SYSTEM = {"system": [{"role": "system", "content": "You help."}], "tools": None}
OK: Message = {"role": "assistant", "content": "ok"}


class Steps:
    """Counts the steps of SQLite's machine, in tens: the work that a database does, whatever the clock says."""

    def __init__(self, database: Database) -> None:
        self._count = 0
        event.listen(database.engine, "checkout", self._watch)

    def _watch(self, connection: sqlite3.Connection, *_: Any) -> None:
        connection.set_progress_handler(self._tick, 10)

    def _tick(self) -> int:
        self._count += 1
        return 0

    def of(self, work: Callable[[], object]) -> int:
        """Return the steps of some work."""
        self._count = 0
        work()
        return self._count


class Statements:
    """Counts the statements that SQLite runs."""

    def __init__(self, database: Database) -> None:
        self.count = 0
        event.listen(database.engine, "checkout", self._watch)

    def _watch(self, connection: sqlite3.Connection, *_: Any) -> None:
        connection.set_trace_callback(self._tick)

    def _tick(self, _: str) -> None:
        self.count += 1


def place(store: Store, messages: list[Message], session: str | None = None) -> PlacedRequest:
    preamble = blob(store.tenant, encoded(SYSTEM))
    asked = StatelessRequest(messages, store.chain.trace(messages), Sender("gateway", session=session), preamble)
    return store.identity.place(asked)


def answer(store: Store, at: PlacedRequest, reply: Message) -> None:
    store.turns.add_finished(at.at, FinishedTurn(reply, session=at.session))


def talk(
    store: Store, window: int, turns: int, reply: Callable[[int], Message], session: str | None = None
) -> list[Message]:
    """Have a client say something so many times, with its last messages only; return all that was said."""
    said: list[Message] = []
    for number in range(turns):
        said.append({"role": "user", "content": f"Question {number}: " + f"word {number} " * 20})
        answer(store, place(store, said[-window:], session), reply(number))
        said.append(reply(number))
    return said


def words(store: Store) -> list[list[str]]:
    """Return the words of all conversations."""
    found = store.conversations.newest(limit=None)
    return [[text_of(line.entry.message) for line in store.conversations.lines(one.id)] for one in found]


def numbered(number: int) -> Message:
    return {"role": "assistant", "content": f"Answer number {number} is here."}


@pytest.mark.parametrize("window", [4, 20, 21])
@pytest.mark.parametrize("reply", [lambda _: OK, numbered], ids=["equal replies", "replies of its own"])
def test_a_client_that_sends_only_its_last_messages_has_one_conversation(
    store: Store, window: int, reply: Callable[[int], Message]
) -> None:
    said = talk(store, window, 40, reply)
    assert words(store) == [[text_of(message) for message in said]]
    assert store.verify().problems == []


def test_a_request_costs_statements_by_its_own_length_and_not_by_what_was_said_before(file_store: Store) -> None:
    statements = Statements(file_store.database)

    def cost(window: int, said: list[Message]) -> int:
        before = statements.count
        said.append({"role": "user", "content": f"Question {len(said)}"})
        at = place(file_store, said[-window:], "a name")
        cost = statements.count - before
        answer(file_store, at, OK)
        said.append(OK)
        return cost

    said: list[Message] = []
    costs = [cost(20, said) for _ in range(60)]
    assert max(costs[40:]) <= max(costs[12:20]) + 10
    assert max(costs) < 200
    wide = [cost(40, said) for _ in range(20)]
    assert max(wide) < 2 * max(costs)


def multiply(store: Store, count: int) -> None:
    """Add so many conversations like the second one, each with a root, a session and a turn of its own."""
    number = "SELECT MAX(id) FROM branch"
    with store.database.engine.begin() as connection:
        last = connection.exec_driver_sql(number).scalar_one()
        changed = {
            "branch": ("id = 2", {"id": f"{last} + n", "root": "randomblob(16)", "head": "randomblob(16)"}),
            "node": ("branch = 2", {"id": "randomblob(16)", "branch": f"{last} + n"}),
            "session": ("branch = 2", {"id": "id || n", "conversation": "id || n", "branch": f"{last} + n"}),
            "turn": ("branch = 2", {"branch": f"{last} + n", "session": "session || n"}),
        }
        for table, (which, values) in changed.items():
            columns = [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({table})")]
            columns = [name for name in columns if name != "seq" and not (table == "turn" and name == "id")]
            given = ", ".join(values.get(name, name) for name in columns)
            connection.exec_driver_sql(
                f"WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})"  # noqa: S608 - ours
                f" INSERT INTO {table} ({', '.join(columns)}) SELECT {given} FROM {table}, n WHERE {which}"
            )


def test_a_request_costs_no_more_where_very_many_conversations_begin_alike(file_store: Store) -> None:
    hi: list[Message] = [{"role": "user", "content": "hi"}]
    steps = Steps(file_store.database)

    def costs(name: str) -> list[int]:
        """Return the steps of a first request, of one that goes on, and of one that goes on elsewhere."""
        said = [*hi, OK, {"role": "user", "content": f"I am {name}."}]
        other = [*hi, numbered(1), {"role": "user", "content": f"I am {name}."}]
        first = steps.of(lambda: answer(file_store, place(file_store, hi, name), OK))
        return [first, *(steps.of(partial(place, file_store, messages, name)) for messages in (said, other))]

    for name in ("a", "b", "c"):
        costs(name)
    few = costs("d")
    multiply(file_store, 10_000)
    for before, after in zip(few, costs("e"), strict=True):
        assert after < before + 1_000, (few, before, after)


def test_a_turn_that_has_no_place_in_its_conversation_is_stored_as_one_of_its_own(file_store: Store) -> None:
    """A branch that has lost its end: what is stored there already stands in the way of whatever follows."""
    store = file_store
    first = place(store, [{"role": "user", "content": "hi"}])
    answer(store, first, numbered(1))
    with store.database.engine.begin() as connection:
        connection.execute(update(branch).values(head=first.at.head, head_depth=first.at.depth))
    later: list[Message] = [{"role": "user", "content": "hi"}, OK, {"role": "user", "content": "go on"}]
    answer(store, place(store, later), numbered(2))
    answer(store, place(store, [{"role": "user", "content": "hi"}]), numbered(3))
    assert [*map(text_of, later), text_of(numbered(2))] in words(store)
    assert ["hi", text_of(numbered(3))] in words(store)
