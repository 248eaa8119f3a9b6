"""The Responses API passes untouched, and what is said by it is one conversation, however it is sent."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from everlong.errors import StoreUnavailable
from everlong.gateway.journal import Journal, JournalEntry
from everlong.gateway.recorder import ResponseRecorder
from everlong.store import Store
from everlong.store.turns import Turn, Turns
from tests.gateway.running import TENANT, Raw, Running, run_gateway
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE, until


def text(words: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def response(number: int, output: list[Any]) -> dict[str, Any]:
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3, "total_tokens": 13}
    usage["output_tokens_details"] = {"reasoning_tokens": 1}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": output,
        "usage": usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def script(exchange: Exchange, output: list[Any] | None = None) -> None:
    """Answers number so many; streams where that is asked for."""
    asked = json.loads(exchange.received.body)
    number = len(json.dumps(asked.get("input", "")))
    told = response(number, output or [text(f"Reply {number}.")])
    if not asked.get("stream"):
        exchange.answer(json.dumps(told).encode())
        return
    events = [
        {"type": "response.created", "sequence_number": 0, "response": {**told, "status": "in_progress", "output": []}},
        {"type": "response.output_text.delta", "sequence_number": 1, "delta": "Rep", "item_id": "msg_1"},
        {"type": "response.completed", "sequence_number": 2, "response": told},
    ]
    exchange.stream(*(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events))


@pytest.fixture
def gpt(relay: Running, upstream: Upstream) -> Iterator[openai.OpenAI]:
    upstream.script = script
    with openai.OpenAI(base_url=f"{relay.url}/v1", api_key="k", max_retries=0) as client:
        yield client


def turns_of(running: Running, tenant: str = "local") -> dict[str, Turn]:
    """All turns by what was asked last."""
    store = running.store(tenant)
    found = {str(last_words(store, turn)): turn for turn in store.turns.since()}
    assert len(found) == len(list(store.turns.since()))
    return found


def last_words(store: Store, turn: Turn) -> Any:
    return store.entries(store.branch(turn.branch, turn.depth))[-1].message.get("content")


def told(running: Running, asked: str, tenant: str = "local") -> list[tuple[str, Any]]:
    """What a request said, from the beginning of its conversation."""
    turn, store = turns_of(running, tenant)[asked], running.store(tenant)
    entries = store.entries(store.branch(turn.branch, turn.depth))
    return [(entry.message["role"], entry.message.get("content")) for entry in entries if entry.id]


def words(running: Running, asked: str, tenant: str = "local") -> list[Any]:
    return [said for _, said in told(running, asked, tenant)]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_response_to_a_list_is_gone_on_from_by_its_id(gpt: openai.OpenAI, relay: Running, is_streamed: bool) -> None:
    listed: Any = [{"type": "message", "role": "user", "content": "Hello?"}]
    said: Any = gpt.responses.create(model="m", input=listed, stream=is_streamed)
    name = list(said)[-1].response.id if is_streamed else said.id
    store = relay.store()
    gpt.responses.create(model="m", input="And then?", previous_response_id=name)
    reply = store.turns.reply(1)
    assert reply is not None
    assert words(relay, "And then?") == ["Hello?", reply["content"], "And then?"]
    assert len(relay.store().conversations.newest()) == 1


def ask(raw: Raw, tenant: str = "local", **fields: Any) -> str:
    body = json.dumps({"model": "m", **fields}).encode()
    return str(raw.ask(body, "/v1/responses", [(TENANT, tenant)]).json()["id"])


def test_a_response_is_known_after_a_restart_and_only_to_its_tenant(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = script
    path = str(tmp_path / "store.db")
    with run_gateway(upstream.url, path) as running, running.raw() as raw:
        first = ask(raw, "ada", input="Hello?")
    with run_gateway(upstream.url, path) as running, running.raw() as raw:
        ask(raw, "ada", input="Go on.", previous_response_id=first)
        ask(raw, "ben", input="Go on, please.", previous_response_id=first)
        ask(raw, "ada", input="Go on!", previous_response_id="resp_%")
        assert words(running, "Go on.", "ada") == ["Hello?", "Reply 8.", "Go on."]
        assert words(running, "Go on, please.", "ben") == ["Go on, please."]
        assert words(running, "Go on!", "ada") == ["Go on!"]


def test_several_replicas_go_on_with_each_others_responses(upstream: Upstream, postgres_url: str) -> None:
    upstream.script = script
    tenant = uuid.uuid4().hex
    with run_gateway(upstream.url, postgres_url) as one, run_gateway(upstream.url, postgres_url) as other:
        asked = [f"Question {'?' * number}" for number in range(6)]
        last, said = None, []
        for number, question in enumerate(asked):
            running = (one, other)[number % 2]
            with running.raw() as raw:
                last = ask(raw, tenant, input=question, previous_response_id=last, conversation="conv_1")
            running.store()  # it is in the database, where the other one sees it
            said += [question, f"Reply {len(json.dumps(question))}."]
        assert words(one, asked[-1], tenant) == said[:-1]
        assert len({turn.branch for turn in turns_of(one, tenant).values()}) == 1
        assert one.store(tenant).verify().problems == []


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a request waits until what it follows is stored."""
    monkeypatch.setattr("everlong.gateway.turn_queue._CATCH_UP_SECONDS", PATIENCE)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are stored before their answers are there, and what waits in the journal soon."""
    monkeypatch.setattr("everlong.gateway.upkeep._REPLAY_SECONDS", 0.05)
    monkeypatch.setattr("everlong.gateway.turn_queue._PATIENCE", 0.0)


STEPS = {"place_request": ResponseRecorder, "add_finished": Turns}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("follows", ["previous_response_id", "conversation"])
@pytest.mark.parametrize("failing", STEPS)
def test_a_database_that_goes_away_at_any_step_loses_nothing_and_what_follows_finds_its_place(
    failing: str, follows: str, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, is_away, failures = getattr(STEPS[failing], failing), threading.Event(), []

    def away(of: Any, *given: Any, **named: Any) -> Any:
        if not is_away.is_set():
            return real(of, *given, **named)
        failures.append(failing)
        raise StoreUnavailable("the server is away")

    def slowly(exchange: Exchange) -> None:
        if failing != "add_finished":  # then it is begun before
            time.sleep(0.05)
        script(exchange)

    upstream.script = slowly
    if failing == "add_finished":
        monkeypatch.setattr("everlong.gateway.turn_queue._PATIENCE", PATIENCE)
    monkeypatch.setattr(STEPS[failing], failing, away)
    monkeypatch.setattr("everlong.gateway.turn_queue._CATCH_UP_SECONDS", 1.0)  # nobody waits for a server that is away
    asked = ["One?", "And two?", "And then three?", "Four in the end?"]
    with run_gateway(upstream.url, str(tmp_path / "store.db")) as running, running.raw() as raw:
        last = None
        for number, question in enumerate(asked):
            if number == 1:
                running.store()
                is_away.set()
            named = {"conversation": "conv_1"} if follows == "conversation" else {"previous_response_id": last}
            last = ask(raw, input=question, **named)
            if number == 2:
                until(lambda: failures)  # a later request may have come to its end before it could be begun
                is_away.clear()
                monkeypatch.setattr("everlong.gateway.turn_queue._CATCH_UP_SECONDS", PATIENCE)
        until(lambda: not running.gateway.journal.waiting)
        said = [part for one in asked for part in (one, f"Reply {len(json.dumps(one))}.")]
        assert words(running, asked[-1]) == said[:-1]
        assert [turn.status for turn in turns_of(running).values()] == ["done"] * 4
        assert running.store().verify().problems == []
        assert not any(running.gateway.journal._folder.glob("*.broken"))
    assert failures


def test_what_a_killed_gateway_left_in_its_journal_is_stored_once(upstream: Upstream, tmp_path: Path) -> None:
    """The whole journal is read again, also what had reached the database."""
    upstream.script = script
    entries: list[JournalEntry] = []
    put = Journal.put
    asked = ["One?", "And two?", "And then three?", "Fails."]

    def noted(journal: Journal, entry: JournalEntry) -> int:
        entries.append(JournalEntry.from_line(entry.to_line()))
        return put(journal, entry)

    def some_fail(exchange: Exchange) -> None:
        if b"Fails" in exchange.received.body:
            exchange.answer(b"{}", "500 Internal Server Error")
        else:
            script(exchange)

    upstream.script = some_fail
    with pytest.MonkeyPatch.context() as patched, run_gateway(upstream.url, str(tmp_path / "one.db")) as running:
        patched.setattr(Journal, "put", noted)
        with running.raw() as raw:
            for question in [*asked[:2], asked[3], asked[2]]:
                body = json.dumps({"model": "m", "input": question, "conversation": "conv_1"}).encode()
                raw.ask(body, "/v1/responses")
        before = {asked: replace(turn, ended=None) for asked, turn in turns_of(running).items()}
        for entry in entries:
            assert ResponseRecorder(running.store()).replay([entry]) == [None]
        after = {asked: replace(turn, ended=None) for asked, turn in turns_of(running).items()}
        assert after == before
        with Store.open(tmp_path / "other.db") as other:
            for entry in [*entries, *entries]:
                assert ResponseRecorder(other).replay([entry]) == [None]
            found = {str(last_words(other, turn)): turn for turn in other.turns.since()}
            assert len(list(other.turns.since())) == len(entries) == len(found) == 4
            last = found[asked[2]]
            said = [entry.message["content"] for entry in other.entries(other.branch(last.branch, last.depth))]
            assert said == ["One?", "Reply 6.", "And two?", "Reply 10.", "And then three?"]
            assert other.verify().problems == []
