"""A request and its answer are kept, without secrets, and who cannot keep them says so."""

from __future__ import annotations

import asyncio
import errno
import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event, select

from everlong.errors import StoreUnavailable
from everlong.gateway.auth import Refused
from everlong.gateway.journal import JournalEntry
from everlong.gateway.recorder import ConversationRecorder
from everlong.gateway.telemetry import RequestAccount
from everlong.store import schema
from everlong.store.content import value_of
from everlong.store.database import Database
from everlong.store.turns import Turns
from everlong.testing import ModelServer
from everlong.testing.server import Fault
from tests.gateway.running import Running, run_gateway
from tests.waiting import PATIENCE, until

KEYS = [("anthropic-version", "2023-06-01"), ("x-api-key", "made-up"), ("authorization", "Bearer made-up")]


def words_stored(database: Database) -> str:
    """Everything that a database holds, unpacked."""
    with database.read() as connection:
        rows = [row for table in schema.metadata.sorted_tables for row in connection.execute(select(table))]
    told = [value_of(row.bytes, row.codec) for row in rows if hasattr(row, "codec") and row.bytes is not None]
    return "\n".join(map(str, [*rows, *told]))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_no_secret_is_stored_whatever_part_of_a_request_it_comes_in(
    path: str, model: ModelServer, tmp_path: Path, journal: list[JournalEntry]
) -> None:
    key = "sk-ant-api03-" + "Zx9Qw8" * 12
    tool = {"name": "deploy", "description": f"Deploys with {key}.", "parameters": {"type": "object", "properties": {}}}
    body: dict[str, Any] = {"model": "m", "max_tokens": 50, "tools": [{"type": "function", "function": tool}]}
    body["messages"] = [{"role": "user", "content": f"My key is {key}."}]
    if path == "/v1/messages":
        body |= {"tools": [{"name": "deploy", "description": f"With {key}.", "input_schema": tool["parameters"]}]}
        body |= {"system": f"The key is {key}."}
    if path == "/v1/responses":
        body = {"model": "m", "input": f"My key is {key}.", "instructions": f"The key: {key}"}
        body["tools"] = [{"type": "function", **tool}]
    with run_gateway(model.url, str(tmp_path / "gateway.db"), settings={"store": {"redact": True}}) as running:
        with running.raw() as raw:
            assert raw.ask(json.dumps(body).encode(), path, KEYS).status == 200
        stored = words_stored(running.store().database)
    assert f"My key is {key}." in json.dumps(model.requests[-1].body)
    assert "My key is [redacted:api_key]" in stored
    assert "eploy" in stored
    assert key not in stored
    assert key not in str(journal)


STEPS: dict[str, Any] = {"store_addition": ConversationRecorder, "begin": Turns, "finish": Turns}


@pytest.mark.parametrize("failing", STEPS)
def test_a_database_that_goes_away_while_a_request_is_stored_loses_nothing_of_it(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.upkeep._REPLAY_SECONDS", 0.05)
    monkeypatch.setattr("everlong.gateway.turn_queue._PATIENCE", 0.0)
    real, is_away = getattr(STEPS[failing], failing), threading.Event()
    with (
        ModelServer(faults=lambda _: Fault("slow", seconds=0.1)) as model,
        run_gateway(model.url, str(tmp_path / "gateway.db")) as running,
    ):

        def away(of: Any, *given: Any, **named: Any) -> Any:
            if not is_away.is_set():
                return real(of, *given, **named)
            until(lambda: failing == "finish" or running.gateway.journal._number >= 4)  # the answer is there
            is_away.clear()
            raise StoreUnavailable("the server is away")

        monkeypatch.setattr(STEPS[failing], failing, away)
        client = running.openai()
        said: list[Any] = [{"role": "user", "content": "hello " * 60}]
        for words in ("and then?", "and in the end?"):
            answer = client.chat.completions.create(model="m", messages=said).choices[0].message.content
            said += [{"role": "assistant", "content": answer}, {"role": "user", "content": words}]
        is_away.set()
        last = client.chat.completions.create(model="m", messages=said).choices[0].message.content
        until(lambda: not running.gateway.journal.waiting)
        store = running.store()
        turns = list(store.turns.since())
        is_put_aside = any(running.gateway.journal._folder.glob("*.broken"))
        told = [entry.message["content"] for entry in store.entries(store.branch(turns[-1].branch))]
    assert not is_away.is_set()
    assert [turn.status for turn in turns] == ["done"] * 3
    assert len({turn.session for turn in turns}) == 1
    assert told == [*(one["content"] for one in said), last]
    assert not is_put_aside


def _problem(relay: Running) -> str:
    return asyncio.run_coroutine_threadsafe(relay.gateway.keeping_problem(), relay.loop).result(PATIENCE)


def test_who_has_turned_a_request_away_is_not_ready_until_the_journal_has_room(
    relay: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = relay.gateway
    monkeypatch.setattr(gateway.journal, "can_write", lambda: False)
    assert _problem(relay) == "", "the database takes what is small"
    with pytest.raises(Refused):
        gateway._backlog.warn_unkept(OSError(errno.ENOSPC, "no room"), RequestAccount("one"))
    assert "had room" in _problem(relay)
    monkeypatch.setattr(gateway.journal, "can_write", lambda: True)
    assert _problem(relay) == ""
    monkeypatch.setattr(gateway.journal, "can_write", lambda: False)
    assert _problem(relay) == ""


def test_a_gateway_that_stores_nothing_though_turns_wait_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.gateway._STALLED_SECONDS", 0.0)
    with ModelServer(lambda _: "Yes.") as model, run_gateway(model.url, str(tmp_path / "store.db")) as running:
        locking = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        body = {"model": "m", "messages": [{"role": "user", "content": "Are you there?"}]}
        key = {"authorization": "Bearer made-up"}
        answer = httpx.post(f"{running.url}/v1/chat/completions", json=body, headers=key, timeout=PATIENCE)
        assert answer.status_code == 200
        told = httpx.get(f"{running.url}/readyz")
        assert (told.status_code, told.json()["status"]) == (503, "not ready")
        assert "nothing was stored" in told.json()["problem"]
        assert _oldest(running) > 0
        locking.execute("ROLLBACK")
        locking.close()
        until(lambda: httpx.get(f"{running.url}/readyz").status_code == 200)
        assert _oldest(running) == 0


def _oldest(running: Running) -> float:
    lines = httpx.get(f"{running.url}/metrics").text.splitlines()
    (line,) = (line for line in lines if line.startswith("everlong_journal_oldest_seconds"))
    return float(line.split()[-1])


def test_a_database_that_hangs_takes_one_thread_however_many_ask_whether_the_gateway_is_ready(
    model: ModelServer, tmp_path: Path
) -> None:
    looks, released = [], threading.Event()

    def hold(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement == "SELECT 1":
            looks.append(statement)
            released.wait(PATIENCE)

    with run_gateway(model.url, str(tmp_path / "gateway.db")) as running, ThreadPoolExecutor(8) as pool:
        event.listen(running.database.engine, "before_cursor_execute", hold)
        asked = [pool.submit(httpx.get, f"{running.url}/readyz", timeout=PATIENCE) for _ in range(8)]
        until(lambda: running.gateway.metrics.in_flight == 8)
        released.set()
        assert {one.result().status_code for one in asked} == {200}
        assert len(looks) == 1


def test_a_database_that_hangs_keeps_no_request_waiting_and_has_it_once_it_goes_on(
    model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.requests._HUNG_SECONDS", 0.1)
    real, released, held = ConversationRecorder.look_up, threading.Event(), list[bytes]()

    def hang(of: ConversationRecorder, body: bytes, *given: Any) -> Any:
        held.append(body)
        released.wait(PATIENCE)
        return real(of, body, *given)

    monkeypatch.setattr(ConversationRecorder, "look_up", hang)
    window = {"models": {"m": {"context_length": 8_000}}}
    with run_gateway(model.url, str(tmp_path / "gateway.db"), window) as running:
        asked: Any = [{"role": "user", "content": "hello " * 2_000}]
        answer = running.openai().with_options(timeout=PATIENCE / 2).chat.completions.create(model="m", messages=asked)
        released.set()
        (turn,) = running.store().turns.since()
        assert (turn.status, len(held)) == ("done", 1)
        assert running.store().turns.reply(turn.id) == {
            "role": "assistant",
            "content": answer.choices[0].message.content,
        }
