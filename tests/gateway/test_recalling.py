"""Models look up what was said before, on all three APIs, and clients hear nothing of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from everlong.agent.tools.hidden_tools import (
    MOST_LOOKUPS,
    NO_ROOM,
    ROUNDS,
    RecallLookup,
    find_lookups,
    hide_lookups,
    look_up_all,
)
from everlong.testing import Answer, Ask, Call, ModelServer
from everlong.tokens import counter_for
from tests.gateway.running import Running, modelled, run_gateway
from tests.gateway.upstream import Exchange, Upstream

MODEL = "custom-model"
SETTINGS = {"gateway": {"routes": {"*": {"recall": True}}}}
WEATHER: Any = {"type": "function", "name": "weather", "description": "", "parameters": {"type": "object"}}
CHAT_WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CLAUDE_WEATHER: Any = {"name": "weather", "input_schema": {"type": "object"}}


def test_a_thousand_calls_at_once_keep_nobody_waiting() -> None:
    asked: list[str] = []

    def answer(name: str, _: Any) -> str:
        asked.append(name)
        return "found"

    calls = [RecallLookup(str(number), "find", {}) for number in range(1_000)]
    found = look_up_all(None, None, calls, 10_000, counter_for(MODEL), answer)
    assert len(asked) == MOST_LOOKUPS
    assert found == {call.id: "found" if number < MOST_LOOKUPS else NO_ROOM for number, call in enumerate(calls)}


_OURS = {f"recall_{number}" for number in range(100)}


def looks_up(ask: Ask) -> Answer:
    """Looks up what it is asked for, thinks before everything, and calls the client's tool where it is told to."""
    found = [text for ident, text in ask.results if ident.startswith("recall")]
    done = max((int(ident.removeprefix("recall_")) + 1 for ident, _ in ask.results if ident in _OURS), default=0)
    if "harbour" not in ask.last_user:
        return Answer("Noted.")
    if done < ask.last_user.count("again") and "everlong_recall" in ask.tools:
        return Answer("", [recall(done)], thinking="Again?")
    if not found:
        both = [Call("weather", {}, "call_w")] if "both" in ask.last_user else []
        silent = "silently" in ask.last_user
        if any(ident == "call_w" for ident, _ in ask.results):
            return Answer("Fine weather.", thinking="It is fine.")
        return Answer("" if silent else "Let me see.", [recall(0), *both], thinking="What was it?")
    return Answer(f"Found: {found[-1][:9]}", thinking="That is it.")


def recall(number: int) -> Call:
    return Call("everlong_recall", {"query": "Which berth is mine?"}, f"recall_{number}")


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(looks_up) as server:
        yield server


@pytest.fixture
def running(model: ModelServer, tmp_path: Path) -> Iterator[Running]:
    with run_gateway(model.url, str(tmp_path / "gateway.db"), SETTINGS) as gateway:
        yield gateway


@pytest.fixture
def gpt(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="made-up", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(running: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=running.url, api_key="made-up", max_retries=0) as client:
        yield client


@pytest.fixture
def client(gpt: openai.OpenAI) -> Client:
    return Client(gpt)


class Client:
    """Sends its whole input to the Responses API, as Codex does."""

    def __init__(self, gpt: openai.OpenAI) -> None:
        self.gpt = gpt
        self.items: list[Any] = []
        self.events: list[Any] = []

    def ask(self, words: str, *, is_streamed: bool, **more: Any) -> Any:
        self.items.append({"type": "message", "role": "user", "content": words})
        return self.send(is_streamed=is_streamed, **more)

    def send(self, *, is_streamed: bool, **more: Any) -> Any:
        about: dict[str, Any] = {
            "model": MODEL,
            "store": False,
            "tools": [WEATHER],
            "include": ["reasoning.encrypted_content"],
            **more,
        }
        said: Any = self.gpt.responses.create(input=self.items, stream=is_streamed, **about)
        if is_streamed:
            self.events = list(said)
            assert self.events[-1].type == "response.completed"
            said = self.events[-1].response
        self.items += [item.to_dict() for item in said.output]
        return said


def checked_events(events: list[Any]) -> list[dict[str, Any]]:
    """The items of a stream, whose numbers and indexes must be those of one answer."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert sum(event.type in {"response.created", "response.completed"} for event in events) == 2
    items = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    begun = [event.output_index for event in events if event.type == "response.output_item.added"]
    ended = [event.output_index for event in events if event.type == "response.output_item.done"]
    assert begun == ended == list(range(len(items)))
    idents = {number: item["id"] for number, item in enumerate(items)}
    inside = [event for event in events if hasattr(event, "item_id")]
    assert all(idents[event.output_index] == event.item_id for event in inside)
    last = events[-1].response
    assert [item.to_dict() for item in last.output] == items
    assert last.id == events[0].response.id
    return items


@pytest.mark.parametrize(
    ("words", "is_streamed"),
    [
        ("of the harbour", False),
        ("of the harbour", True),
        ("of the harbour, silently", True),
        ("of the harbour, again and again", True),
    ],
)
def test_a_client_of_responses_hears_nothing_of_a_lookup(
    words: str, is_streamed: bool, client: Client, running: Running, model: ModelServer
) -> None:
    client.ask("Berth 4 is mine.", is_streamed=is_streamed)
    said = client.ask(f"What {words} is mine?", is_streamed=is_streamed)
    assert said.output_text.endswith("Found: Found for")
    kinds = [item["type"] for item in client.items]
    assert "function_call" not in kinds
    if is_streamed:
        items = checked_events(client.events)
        shown = ["reasoning", "message"] * (2 if words == "of the harbour" else 1)
        assert [item["type"] for item in items] == shown
    client.ask("Thank you.", is_streamed=is_streamed)
    assert model.rejections == []
    store = running.store()
    assert len(store.sessions.newest()) == 1
    assert [turn.status for turn in store.turns.since()] == ["done"] * 3
    assert store.verify().problems == []
    texts = str([entry.message for entry in store.sessions.entries(store.sessions.newest()[0].id)])
    assert "everlong_recall" not in texts
    assert "Found: Found for" in texts


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_clients_own_calls_come_first(is_streamed: bool, client: Client, model: ModelServer) -> None:
    said = client.ask("What both of the harbour is mine?", is_streamed=is_streamed)
    calls = [item for item in said.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["weather"]
    assert [item.type for item in said.output] == ["reasoning", "message", "function_call"]
    if is_streamed:
        checked_events(client.events)
    client.items.append({"type": "function_call_output", "call_id": "call_w", "output": "dry"})
    assert client.send(is_streamed=is_streamed).output_text == "Fine weather."
    assert model.rejections == []


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_model_that_never_stops_looking_up_answers_with_what_it_has(
    is_streamed: bool, client: Client, model: ModelServer
) -> None:
    said = client.ask(f"What of the harbour {'again ' * 50}?", is_streamed=is_streamed)
    assert said.output_text.startswith("Found: ")
    assert len(model.requests) == ROUNDS
    assert [tool["name"] for tool in model.requests[-1].body["tools"]] == ["weather"]
    assert model.rejections == []


@pytest.mark.parametrize("is_streamed", [False, True])
def test_every_request_of_a_turn_is_billed_as_its_own(
    is_streamed: bool, claude: anthropic.Anthropic, running: Running, model: ModelServer
) -> None:
    said: Any = claude.messages.create(
        model=MODEL,
        max_tokens=99,
        messages=[{"role": "user", "content": "What of the harbour is mine?"}],
        tools=[CLAUDE_WEATHER],
        stream=is_streamed,
    )
    if is_streamed:
        list(said)
    (turn,) = running.store().turns.since()
    assert len(model.requests) == 2
    sums = {name: sum(record.usage[name] for record in model.requests) for name in ("input_tokens", "output_tokens")}
    assert turn.usage is not None
    assert {name: turn.usage[name] for name in sums} == sums


def test_what_is_looked_up_is_cut_to_the_room_in_the_window(tmp_path: Path) -> None:
    window = 4_000
    settings = {**SETTINGS, "models": {MODEL: {"context_length": window}}, "compression": {"enabled": False}}
    said: list[Any] = []
    for number in range(5):
        said += [{"role": "user", "content": f"Berth {number} is mine. {'Tide and crane. ' * 120}"}]
        said += [{"role": "assistant", "content": "Noted."}]
    said += [{"role": "user", "content": "What of the harbour is mine?"}]
    with (
        modelled(looks_up, tmp_path, settings, window=window) as (server, running),
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="made-up", max_retries=0) as gpt,
    ):
        gpt.chat.completions.create(model=MODEL, messages=said, tools=[CHAT_WEATHER])
        assert server.rejections == []
        assert server.requests[-1].prompt_tokens <= window
        assert "[cut: there is no room for the rest]" in str(server.requests[-1].body)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_lookup_that_finds_no_room_compacts_the_conversation_first(is_streamed: bool, tmp_path: Path) -> None:
    settings = {
        "gateway": {**SETTINGS["gateway"], "summaries": "built-in"},
        "models": {MODEL: {"context_length": 8_000}},
    }
    said: list[Any] = []
    for number in range(15):
        said += [{"role": "user", "content": f"Berth {number} is mine. {'Tide and crane. ' * 88}"}]
        said += [{"role": "assistant", "content": "Noted."}]
    said += [{"role": "user", "content": "What of the harbour is mine again, again?"}]
    with (
        modelled(looks_up, tmp_path, settings, window=8_000) as (server, running),
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="made-up", max_retries=0) as gpt,
    ):
        answer: Any = gpt.chat.completions.create(
            model=MODEL, messages=said, tools=[CHAT_WEATHER], stream=is_streamed, max_tokens=500
        )
        if is_streamed:
            list(answer)
        first, *later = server.requests
        (compaction,) = running.store().compactions()
    results = [str(message["content"]) for message in later[-1].body["messages"] if message["role"] == "tool"]
    assert server.rejections == []
    assert later[0].prompt_tokens < first.prompt_tokens
    assert len(results) == 2
    assert "[cut: there is no room for the rest]" not in "".join(results)
    assert compaction.reason == "preflight"


# -- what upstreams do -------------------------------------------------------------------------------------------------


def answer_of(*items: dict[str, Any]) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "model": MODEL, "output": list(items)}


ASKED = '{"query": "x", "page": 9223372036854775807}'
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "everlong_recall", "arguments": ASKED}
WORDS = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Four."}]}


def streamed(answer: dict[str, Any]) -> bytes:
    """An answer as a stream, with as few events as there may be, and no items in the last one."""
    events = [
        {"type": "response.output_item.done", "output_index": at, "item": item}
        for at, item in enumerate(answer["output"])
    ]
    last = {"type": "response.completed", "response": {**answer, "output": []}}
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in [*events, last])


def test_an_answer_that_is_made_up_beside_a_lookup_is_no_error_of_ours(upstream: Upstream, tmp_path: Path) -> None:
    made_up = {"name": ["a"], "type": "function_call", "call_id": "2"}
    whole = {"id": "r", "status": "completed", "output": [{**CALL}, made_up]}
    upstream.script = lambda exchange: exchange.answer(json.dumps(whole).encode())
    body = {"model": MODEL, "store": False, "tools": [WEATHER], "input": [{"role": "user", "content": "Hi."}]}
    with run_gateway(upstream.url, str(tmp_path / "gateway.db"), SETTINGS) as running, running.raw() as raw:
        assert raw.ask(json.dumps(body).encode(), "/v1/responses").status == 200


def scripted(*answers: dict[str, Any] | None, is_streamed: bool) -> Any:
    """An upstream that gives these answers in turn, packed; refuses where there is none."""
    left = list(answers)

    def script(exchange: Exchange) -> None:
        answer = left.pop(0)
        if answer is None:
            exchange.answer(b'{"error": {"message": "too much"}}', "400 Bad Request")
        elif is_streamed:
            exchange.stream(gzip.compress(streamed(answer)), headers=[("content-encoding", "gzip")])
        else:
            exchange.answer(gzip.compress(json.dumps(answer).encode()), headers=[("content-encoding", "gzip")])

    return script


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("answers", [[CALL, WORDS], [CALL, None, WORDS], [CALL, None, None, WORDS]])
def test_packed_answers_and_refused_lookups_come_to_an_answer(
    answers: list[Any], is_streamed: bool, upstream: Upstream, tmp_path: Path
) -> None:
    given = [None if item is None else answer_of(item) for item in answers]
    upstream.script = scripted(*given, is_streamed=is_streamed)
    body = {
        "model": MODEL,
        "store": False,
        "stream": is_streamed,
        "tools": [WEATHER],
        "input": [{"role": "user", "content": "Hi."}],
    }
    with run_gateway(upstream.url, str(tmp_path / "gateway.db"), SETTINGS) as running, running.raw() as raw:
        answer = raw.ask(json.dumps(body).encode(), "/v1/responses", [("accept-encoding", "gzip")])
        said = answer.body if answer.header("content-encoding") is None else gzip.decompress(answer.body)
    assert answer.status == 200
    assert b"Four." in said
    assert b"everlong" not in said
    results = [json.loads(one.body)["input"][-1] for one in upstream.requests[1:]]
    assert [one["type"] for one in results] == ["function_call_output"] * len(results)
    assert ["no room to look something up" in one["output"] for one in results] == [False, False, True][: len(results)]


@pytest.mark.parametrize("second", ["hangs up", "refuses", "in one piece"])
def test_a_stream_ends_amid_the_answer_where_the_upstream_gives_none_after_a_lookup(
    second: str, upstream: Upstream, tmp_path: Path
) -> None:
    """Neither does another answer follow in the middle of it, nor does it seem complete."""

    def script(exchange: Exchange) -> None:
        if len(upstream.requests) == 1:
            exchange.stream(streamed(answer_of(WORDS, CALL)))
        elif second == "hangs up":
            exchange.cut()
        else:
            exchange.answer(b"{}", "429 Too Many Requests" if second == "refuses" else "200 OK")

    upstream.script = script
    asked = [{"role": "user", "content": "Hi."}]
    body = {"model": MODEL, "store": False, "stream": True, "tools": [WEATHER], "input": asked}
    with run_gateway(upstream.url, str(tmp_path / "gateway.db"), SETTINGS) as running:
        with running.raw() as raw:
            raw.begin(json.dumps(body).encode(), "/v1/responses")
            assert raw.head().status == 200
            said = raw.rest()
        (turn,) = running.store().turns.since()
    assert b"Four." in said
    assert b"HTTP/1.1" not in said
    assert b"response.completed" not in said
    assert turn.status == "failed"


@pytest.mark.parametrize(
    ("api", "answer"),
    [
        (
            "anthropic",
            {
                "content": [
                    "odd",
                    {"type": "tool_use", "id": "c1", "name": "everlong_recall", "input": '{"query": "fog"}'},
                ]
            },
        ),
        (
            "openai",
            {
                "choices": [
                    {
                        "message": {
                            "tool_calls": [
                                "odd",
                                {"id": "c1", "function": {"name": "everlong_recall", "arguments": {"query": "fog"}}},
                            ]
                        }
                    }
                ]
            },
        ),
        (
            "openai-responses",
            {"output": ["odd", {"call_id": "c1", "name": "everlong_recall", "arguments": {"query": "fog"}}]},
        ),
    ],
)
def test_calls_in_an_odd_form_are_read_and_hidden(api: str, answer: dict[str, Any]) -> None:
    found, _ = find_lookups(api, answer)
    assert found == [RecallLookup("c1", "everlong_recall", {"query": "fog"})]
    assert "everlong_recall" not in str(hide_lookups(api, answer))
