"""Clients of the Responses API that bring their whole input are kept inside the window, and may compact themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from everlong.gateway import compaction
from everlong.testing import Answer, Ask, Call, ModelServer
from everlong.testing.server import Fault, Record
from everlong.testing.server.exchange import count_value
from tests.api_rules.responses_server import CompactingServer, LateRefusingServer, TolerantServer
from tests.examples import few
from tests.gateway.running import Running, run_gateway
from tests.gateway.upstream import Exchange, Upstream

WINDOW = 8_000
MODEL = "custom-model"
SETTINGS = {"models": {MODEL: {"context_length": WINDOW}}}
ROOMY = {MODEL: {"context_length": 200_000}}
"""A window in which nothing is compacted here."""
TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "read_log",
        "description": "Read a part of the log.",
        "parameters": {"type": "object", "properties": {"type": {"type": "string"}, "page": {"type": "integer"}}},
    },
    {"type": "custom", "name": "note", "description": "Write a note."},
]
DEVELOPER: Any = {
    "type": "message",
    "role": "developer",
    "content": [{"type": "input_text", "text": "You are a clerk."}],
}

SUMMARY = """## Goal
Read the log of the harbour, whose master is Ingrid.

## Progress
### Done
- Pages were read. The tide turned at seven.

## Key Decisions
- None yet.

## Next Steps
- Read on.

## Critical Context
- The harbour master is called Ingrid.
"""
QUESTION: Any = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is new?"}]}


def log_page(page: int) -> str:
    return "\n".join(f"Entry {page}-{line}: gauge {page * 7 + line}, crane {line}, gate open." for line in range(55))


def clerk(ask: Ask) -> Answer:
    """Reads two pages at once, writes a note about them, and answers."""
    if not ask.results:
        number = ask.number
        calls = [Call("read_log", {"type": "tide", "page": number + at}, f"call_{number}_{at}") for at in (0, 1)]
        return Answer("I read two pages.", calls, thinking=f"Which pages? Those after {number}.")
    if len(ask.results) == 2:
        return Answer("", [Call("note", f"pages read at {ask.number}", f"note_{ask.number}")], thinking="Noted.")
    return Answer(f"Done with step {ask.number}.")


class Client:
    """An agent by the official client: appends every item that it gets, and runs the tools."""

    def __init__(self, gpt: openai.OpenAI, **about: Any) -> None:
        self.gpt = gpt
        self.items: list[Any] = [DEVELOPER]
        self.about: dict[str, Any] = {
            "model": MODEL,
            "tools": TOOLS,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "thread",
            **about,
        }

    def ask(self, words: str) -> str:
        self.items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]})
        while True:
            said = self.send()
            output = [item.to_dict() for item in said.output]
            self.items += output
            calls = [item for item in output if item["type"].endswith("_call")]
            if not calls:
                return str(said.output_text)
            self.items += map(result_of, calls)

    def send(self, **more: Any) -> Any:
        # As the body has it: the client looks for each item in all its types, which takes longer than all else here.
        body = {**self.about.get("extra_body", {}), "input": [*self.items, *more.pop("then", ())]}
        said: Any = self.gpt.responses.create(**{**self.about, "extra_body": body}, **more)
        if not self.about.get("stream"):
            return said
        *_, last = said
        assert last.type == "response.completed", last
        return last.response


def result_of(call: dict[str, Any]) -> dict[str, Any]:
    kind = f"{call['type']}_output"
    text = log_page(json.loads(call["arguments"])["page"]) if call["name"] == "read_log" else "written"
    return {"type": kind, "call_id": call["call_id"], "output": text}


@contextmanager
def gateway(server: ModelServer, folder: Path, **settings: Any) -> Iterator[tuple[Running, openai.OpenAI]]:
    with (
        run_gateway(server.url, str(folder / "gateway.db"), {**SETTINGS, **settings}) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="k", max_retries=0) as gpt,
    ):
        yield running, gpt


def kinds(record: Record) -> list[str]:
    return [str(item.get("type", "message")) for item in record.body["input"]]


@pytest.mark.spec("4.2")
@pytest.mark.parametrize(("is_streamed", "opening"), few([(True, [DEVELOPER]), (False, [])]))
def test_a_session_of_three_windows_goes_on_without_a_refusal(
    tmp_path: Path, is_streamed: bool, opening: list[Any]
) -> None:
    with ModelServer(clerk, window=WINDOW) as server, gateway(server, tmp_path) as (running, gpt):
        client = Client(gpt, stream=is_streamed, instructions="Be brief.")
        client.items = [*opening]
        for number in range(13):
            assert client.ask(f"Question {number}: read on.").startswith("Done")
        assert server.rejections == []
        store = running.store()
        assert store.verify().problems == []
        assert len(store.compactions()) >= 2
        assert len({turn.session for turn in store.turns.since()}) <= 1 + len(store.compactions())
        assert count_value(client.items) > 3 * WINDOW
        assert max(record.prompt_tokens for record in server.requests) < WINDOW
        last = server.requests[-1]
        assert "[CONTEXT COMPACTION" in json.dumps(last.body["input"])
        noted = last.body["input"][0] if opening else last.body["instructions"]
        assert "[Note: Some earlier conversation turns" in json.dumps(noted)
        assert last.body["input"][-1] == client.items[-2]  # without the answer
        read = sum(record.usage["input_tokens_details"]["cached_tokens"] for record in server.requests)
        assert read > 0.5 * sum(record.prompt_tokens for record in server.requests)


@pytest.mark.spec("4.4")
@pytest.mark.parametrize("is_late", [False, True])
def test_a_request_that_is_refused_as_too_long_is_shortened_and_sent_again(tmp_path: Path, is_late: bool) -> None:
    server = (LateRefusingServer if is_late else ModelServer)(clerk, window=WINDOW)
    with server, gateway(server, tmp_path, models=ROOMY) as (running, gpt):
        client = Client(gpt, stream=True)
        for number in range(8):
            assert client.ask(f"Question {number}: read on.").startswith("Done")
        assert server.rejections
        assert {record.error for record in server.rejections} == {server.rejections[0].error}
        assert "exceeds the context window" in str(server.rejections[0].error)
        assert {one.reason for one in running.store().compactions()} >= {"overflow"}


def test_a_session_as_codex_sends_it_is_one_conversation(tmp_path: Path) -> None:
    told = "<environment_context>\n  <cwd>/home/ada/harbour</cwd>\n  <shell>bash</shell>\n</environment_context>"
    items: list[Any] = [
        {**DEVELOPER, "id": "msg_1"},
        {"type": "message", "id": "msg_2", "role": "user", "content": [{"type": "input_text", "text": told}]},
    ]
    names = {"thread-id": "thread", "session-id": "thread", "originator": "codex_exec", "x-codex-window-id": "thread:0"}
    with ModelServer(clerk) as server, gateway(server, tmp_path, models=ROOMY) as (running, gpt):
        client = Client(gpt, stream=True, extra_headers=names)
        client.items = items
        for number in range(3):
            question = {**QUESTION, "id": f"msg_q{number}"}
            client.items.append(question)
            client.about["extra_body"] = {"client_metadata": {"turn_id": str(number), "session_id": "thread"}}
            client.ask("Go on.")
        store = running.store()
        turns = list(store.turns.since())
        assert len(turns) == 9
        assert len({(turn.session, turn.branch) for turn in turns}) == 1
        assert all(turn.echo_node is not None for turn in turns[:-1])
        found = store.sessions.get(str(turns[0].session))
        assert (found.client, found.folder) == ("codex", None), "words of a prompt name no folder"
        assert [record.headers["x-codex-window-id"] for record in server.requests] == ["thread:0"] * 9


@pytest.mark.spec("4.6")
def test_a_client_that_compacts_itself_is_not_compacted_beside_it(tmp_path: Path) -> None:
    with CompactingServer("Go on.") as server, gateway(server, tmp_path) as (running, gpt):
        client = Client(gpt)
        for number in range(8):
            client.items.append({**QUESTION, "content": log_page(number)})
            client.items.append({"type": "message", "role": "assistant", "content": f"Read {number}."})
        compaction_of(client)
        assert running.store().compactions() == []


# -- compaction by the client ------------------------------------------------------------------------------------------

TRIGGER = {"type": "compaction_trigger"}


def compaction_of(client: Client) -> dict[str, Any]:
    """The one item that a client gets that asks for a compaction as Codex does."""
    said = client.send(then=[TRIGGER])
    assert [item.type for item in said.output] == ["compaction"]
    found: dict[str, Any] = said.output[0].to_dict()
    return found


@pytest.mark.spec("4.6")
@pytest.mark.parametrize(("knows_compaction", "is_streamed"), [(False, True), (True, False)])
def test_a_client_that_compacts_itself_gets_one_item_and_goes_on_with_it(
    tmp_path: Path, knows_compaction: bool, is_streamed: bool
) -> None:
    server = (CompactingServer if knows_compaction else ModelServer)(clerk)
    with server, gateway(server, tmp_path, models=ROOMY) as (running, gpt):
        client = Client(gpt, stream=is_streamed)
        client.ask("The harbour master is called Ingrid. Read on.")
        client.ask("Read on.")
        for again in range(2):  # the second time it is known whether the upstream can
            item = compaction_of(client)
            client.items = [DEVELOPER, QUESTION, item]
            assert client.ask(f"And now, for the {again}th time?").startswith("Done")
        refused = [record.error for record in server.rejections]
        assert len(refused) == (0 if knows_compaction else 1)
        sent = server.requests[-1]
        assert ("compaction" in kinds(sent)) is knows_compaction
        assert "Ingrid" in server.model.asked[-1].text
        assert running.store().compactions() == []
        assert running.store().verify().problems == []


def test_a_conversation_that_the_provider_compacts_stays_one_with_its_title(tmp_path: Path) -> None:
    server = CompactingServer(clerk)
    with server, gateway(server, tmp_path, models=ROOMY) as (running, gpt):
        client = Client(gpt.with_options(default_headers={"session-id": "one"}))
        client.ask("The harbour master is called Ingrid. Read on.")
        for again in range(2):
            client.items = [DEVELOPER, QUESTION, compaction_of(client)]
            running.store()  # once the compaction is stored
            client.ask(f"And now, for the {again}th time?")
        (found,) = running.store().conversations.newest()
        assert (len(found.parts), found.title) == (3, "The harbour master is called Ingrid. Read on.")


def test_a_client_with_a_smaller_window_than_its_model_gets_a_compaction_that_helps_it(tmp_path: Path) -> None:
    server = ModelServer(clerk)
    with server, gateway(server, tmp_path, models=ROOMY) as (_, gpt):
        client = Client(gpt)
        for number in range(20):
            words = f"Question {number}: " + f"the harbour master is called Ingrid, and quay {number} is long. " * 30
            client.items += [{"type": "message", "role": role, "content": words} for role in ("user", "assistant")]
        client.ask("Read on.")
        before = count_value(server.requests[-1].body["input"])
        client.items = [DEVELOPER, compaction_of(client)]
        client.ask("And now?")
        assert count_value(server.requests[-1].body["input"]) < 0.3 * before
        assert "Ingrid" in server.model.asked[-1].text


@pytest.mark.spec("4.6")
@pytest.mark.parametrize("is_written", [True, False], ids=["", "calls a tool instead"])
def test_the_summary_that_a_client_asks_for_is_written_by_its_own_model(
    tmp_path: Path, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_UNKNOWN_SECONDS", 0.0)  # so that no compaction begins early
    asked: list[Ask] = []

    def writes(ask: Ask) -> Answer:
        if "Summarize the conversation above." not in ask.last_user:
            return clerk(ask)
        asked.append(ask)
        return Answer(SUMMARY) if is_written else Answer("", [Call("note", "no")])

    with (
        ModelServer(writes) as server,
        run_gateway(server.url, str(tmp_path / "s.db"), {"models": ROOMY}, summarizer=None) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="k", max_retries=0) as gpt,
    ):
        client = Client(gpt)
        for number in range(20):
            words = f"Question {number}: " + "the harbour master is called Ingrid, and the quay is long. " * 100
            client.items += [{"type": "message", "role": role, "content": words} for role in ("user", "assistant")]
        client.ask("Read on.")
        item = compaction_of(client)
        client.items = [DEVELOPER, item]
        client.ask("And now?")
        assert ("The tide turned at seven" in server.model.asked[-1].text) is is_written
        assert "Ingrid" in server.model.asked[-1].text
        (ask,) = asked
        (record,) = [one for one in server.requests if one.number == ask.number]
        assert "compaction_trigger" not in kinds(record)
        assert record.usage is not None
        assert record.usage["input_tokens_details"]["cached_tokens"] > 0.8 * record.prompt_tokens
        assert running.store().verify().problems == []


@pytest.mark.spec("4.6")
@pytest.mark.parametrize("knows_compaction", [False, True])
def test_the_endpoint_that_compacts_is_passed_on_or_answered(tmp_path: Path, knows_compaction: bool) -> None:
    server = (CompactingServer if knows_compaction else ModelServer)(clerk, window=WINDOW)
    with server, gateway(server, tmp_path) as (_, gpt):
        client = Client(gpt)
        client.ask("The harbour master is called Ingrid. Read on.")
        done = gpt.responses.compact(model=MODEL, input=client.items)
        assert [item.type for item in done.output] == ["compaction"]
        client.items = [DEVELOPER, *(item.to_dict() for item in done.output)]
        client.ask("Who is it?")
        assert "Ingrid" in server.model.asked[-1].text


@pytest.mark.spec("4.6")
def test_an_upstream_that_answers_a_trigger_with_words_is_not_believed(tmp_path: Path) -> None:
    """Servers of other makers take items that they do not know for nothing, and answer as usual."""
    with TolerantServer("Sure, I compacted it.", dialect="vllm") as server, gateway(server, tmp_path) as (_, gpt):
        client = Client(gpt)
        client.items.append(QUESTION)
        compaction_of(client)


@pytest.mark.spec("4.6")
def test_a_failure_of_the_upstream_is_no_reason_to_compact_here(tmp_path: Path) -> None:
    with CompactingServer(clerk) as server, gateway(server, tmp_path) as (_, gpt):
        client = Client(gpt)
        client.items.append(QUESTION)
        server.fail_next(Fault("rate_limit"))
        with pytest.raises(openai.RateLimitError):
            compaction_of(client)
        assert compaction_of(client)["encrypted_content"].startswith("cmp.")


@pytest.mark.spec("4.6")
def test_a_conversation_that_the_provider_compacts_is_stored_and_left_alone(tmp_path: Path) -> None:
    with (
        CompactingServer(clerk, window=60_000) as server,
        gateway(server, tmp_path) as (running, gpt),
    ):
        client = Client(gpt, context_management=[{"type": "compaction", "compact_threshold": 5_000}])
        for number in range(6):
            client.ask(f"Question {number}: read on.")
        assert server.requests[-1].body["input"] == client.items[:-1]
        assert max(record.prompt_tokens for record in server.requests) > WINDOW
        assert running.store().compactions() == []
        assert [turn.status for turn in running.store().turns.since()] == ["done"] * 18


@pytest.mark.spec("4.6")
@pytest.mark.parametrize(("kind", "is_left_alone"), [("compact_20260112", True), ("clear_thinking_20251015", False)])
def test_anthropics_own_compaction_is_left_alone_and_its_clearing_of_thinking_is_none(
    tmp_path: Path, kind: str, is_left_alone: bool
) -> None:
    sent: list[Any] = []

    def script(exchange: Exchange) -> None:
        sent.append(json.loads(exchange.received.body))
        usage = {"input_tokens": len(exchange.received.body) // 4, "output_tokens": 5}
        said = {"id": "msg", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": "end_turn"}
        exchange.answer(json.dumps({**said, "content": [{"type": "text", "text": "Go on."}], "usage": usage}).encode())

    with (
        Upstream(script) as upstream,
        run_gateway(upstream.url, str(tmp_path / "gateway.db"), SETTINGS) as running,
        running.raw() as raw,
    ):
        messages: list[Any] = []
        for number in range(30):
            messages.append({"role": "user", "content": f"Question {number}. {log_page(number)[:1500]}"})
            about = {"context_management": {"edits": [{"type": kind}]}, "max_tokens": 100}
            body = json.dumps({"model": MODEL, "messages": messages, **about}).encode()
            assert raw.ask(body, "/v1/messages").status == 200
            messages.append({"role": "assistant", "content": [{"type": "text", "text": "Go on."}]})
        assert (sent[-1]["messages"] == messages[:-1]) is is_left_alone
        assert all(one["context_management"] == about["context_management"] for one in sent)
        assert bool(running.store().compactions()) is not is_left_alone
        assert len(list(running.store().turns.since())) == 30
