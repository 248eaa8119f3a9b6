"""The official clients of OpenAI and Anthropic, wrapped: the same interface, and a conversation that never ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from everlong import ContextCompressor, LosslessEngine, Message, Store, wrap_client
from everlong.gateway.formats import path_of_folder
from everlong.testing import Answer, Ask, Call, ModelServer
from tests.examples import length
from tests.integrations import desk
from tests.integrations.desk import FACT, FIRST, QUESTION, clerk, errand, figures, looking

WINDOW = length(8_000, 4_000)
ROWS = length(40, 130)
"""The length of a page. In a short run pages are long, because the clients take their time for each message."""
SHORT = length(24, 5)
"""Turns that fill the window, for tests of one thing only."""
PROMPT = "You are a clerk."
TOOL = {
    "name": "look_up",
    "description": "Read a page of the ledger.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}


def page(number: int) -> str:
    return desk.page(number, ROWS)


def server_of(script: Any = clerk, **options: Any) -> ModelServer:
    given: dict[str, Any] = {"window": WINDOW, "dialect": "openai", **options}
    return ModelServer(script, **given)


class Chat:
    """A small loop over chat completions, as people write it."""

    turns = length(200, 7)

    def __init__(self, client: Any, *, stream: bool = False) -> None:
        self.client, self.stream = client, stream
        self.messages: list[Any] = [{"role": "system", "content": PROMPT}]
        self.tools: Any = [{"type": "function", "function": TOOL}]

    def say(self, text: str) -> str:
        self.messages.append({"role": "user", "content": text})
        while True:
            said = self._streamed() if self.stream else self._whole()
            self.messages.append(said)
            calls = said.tool_calls if hasattr(said, "tool_calls") else said.get("tool_calls")
            if not calls:
                return str(said.content if hasattr(said, "content") else said["content"])
            for call in calls:
                body = call if isinstance(call, dict) else call.model_dump()
                number = json.loads(body["function"]["arguments"])["number"]
                self.messages.append({"role": "tool", "tool_call_id": body["id"], "content": page(number)})

    def _whole(self) -> Any:
        made = self.client.chat.completions.create(model="gpt-4o", messages=self.messages, tools=self.tools)
        return made.choices[0].message

    def _streamed(self) -> Message:
        text = ""
        calls: dict[int, dict[str, str]] = {}
        options = {"include_usage": True}
        for chunk in self.client.chat.completions.create(
            model="gpt-4o", messages=self.messages, tools=self.tools, stream=True, stream_options=options
        ):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or ():
                    call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                    call["id"] += part.id or ""
                    call["name"] += part.function.name or ""
                    call["arguments"] += part.function.arguments or ""
        message: Message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in calls.values()
            ]
        return message


class Claude:
    """A small loop over messages."""

    turns = length(200, 7)

    def __init__(self, client: Any, *, stream: bool = False) -> None:
        self.client, self.stream = client, stream
        self.messages: list[Any] = []
        self.request: Any = {
            "model": "claude-sonnet-4-6",
            "max_tokens": 1_000,
            "system": PROMPT,
            "tools": [{"name": "look_up", "description": TOOL["description"], "input_schema": TOOL["parameters"]}],
        }

    def say(self, text: str) -> str:
        self.messages.append({"role": "user", "content": text})
        while True:
            said = self._answer()
            self.messages.append({"role": "assistant", "content": said.content})
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in said.content if block.type == "text")
            results = [{"type": "tool_result", "tool_use_id": c.id, "content": page(c.input["number"])} for c in calls]
            self.messages.append({"role": "user", "content": results})

    def _answer(self) -> Any:
        if not self.stream:
            return self.client.messages.create(**self.request, messages=self.messages)
        with self.client.messages.stream(**self.request, messages=self.messages) as stream:
            return stream.get_final_message()


class Items:
    """A small loop over responses, which keeps the items itself."""

    turns = length(60, 7)
    """Fewer, because the client compares each item of each request with all kinds of items, which takes it minutes."""

    def __init__(self, client: Any, *, stream: bool = False) -> None:
        self.client, self.stream = client, stream
        self.items: list[Any] = []
        self.tools: Any = [{"type": "function", "strict": False, **TOOL}]

    def say(self, text: str) -> str:
        self.items.append({"role": "user", "content": text})
        while True:
            said = self._answer()
            self.items += [item.model_dump(exclude_none=True) for item in said.output]
            calls = [item for item in said.output if item.type == "function_call"]
            if not calls:
                return str(said.output_text)
            for call in calls:
                output = page(json.loads(call.arguments)["number"])
                self.items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})

    def _answer(self) -> Any:
        request: Any = {"model": "gpt-4o", "instructions": PROMPT, "input": self.items, "tools": self.tools}
        if not self.stream:
            return self.client.responses.create(**request, store=False)
        with self.client.responses.stream(**request, store=False) as stream:
            return stream.get_final_response()


OPEN: list[openai.OpenAI | anthropic.Anthropic] = []
"""The clients of a test, which are closed after it."""


@pytest.fixture(autouse=True)
def _closed_clients() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def openai_client(server: ModelServer) -> openai.OpenAI:
    made = openai.OpenAI(base_url=server.openai_url, api_key="any", max_retries=0)
    OPEN.append(made)
    return made


def anthropic_client(server: ModelServer) -> anthropic.Anthropic:
    made = anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0)
    OPEN.append(made)
    return made


LOOPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "chat": (Chat, openai_client),
    "messages": (Claude, anthropic_client),
    "responses": (Items, openai_client),
}


@pytest.fixture(params=[(name, stream) for name in LOOPS for stream in (False, True)], ids=str)
def loop(request: pytest.FixtureRequest) -> Callable[..., Any]:
    name, stream = request.param
    make, connect = LOOPS[name]

    def made(server: ModelServer, **options: Any) -> Any:
        client = wrap_client(connect(server), **{"window": WINDOW} | options)
        return make(client, stream=stream)

    return made


def test_many_turns_go_through_a_window_that_holds_a_few_of_them(
    loop: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[ContextCompressor] = []

    def make() -> ContextCompressor:
        made.append(ContextCompressor(WINDOW))
        return made[-1]

    with server_of() as server:
        talk = loop(server, make_engine=make)
        talk.say(FIRST)
        for number in range(talk.turns):
            assert talk.say(errand(number)) == f"The total: {number * 1000 + 17}."
        assert talk.say(QUESTION) == f"The code is {FACT}."
        assert server.rejections == []
        assert {record.status for record in server.requests} == {200}
        assert max(record.prompt_tokens for record in server.requests) < WINDOW
        assert [engine.compression_count >= 3 for engine in made] == [True], "the window was filled several times"
        with capsys.disabled():
            print(figures(f"{type(talk).__name__}{', streamed' * talk.stream}", talk.turns, server))  # noqa: T201 - wanted


def test_the_model_looks_things_up_and_the_caller_never_sees_it(loop: Callable[..., Any], tmp_path: Path) -> None:
    with server_of(looking("everlong_recall")) as server, Store.open(tmp_path / "talk.db") as store:
        talk = loop(server, store=store, recall=True)
        talk.say(FIRST)
        for number in range(SHORT):
            assert talk.say(errand(number)) == f"The total: {number * 1000 + 17}."
        assert talk.say(QUESTION) == f"Looked up: {FACT}."
        seen = str(getattr(talk, "messages", None) or talk.items)
        assert "everlong_recall" not in seen
        assert server.rejections == []
        assert store.search("Looked up").hits, "the last answer is stored at once"


def test_the_tools_of_an_engine_are_offered_and_answered(loop: Callable[..., Any], tmp_path: Path) -> None:
    with server_of(looking("lcm_grep")) as server, Store.open(tmp_path / "talk.db") as store:
        talk = loop(server, make_engine=lambda: LosslessEngine(WINDOW), store=store)
        talk.say(FIRST)
        for number in range(SHORT):
            talk.say(errand(number))
        assert talk.say(QUESTION) == f"Looked up: {FACT}."
        assert server.rejections == []
        assert len(store.compactions()) >= 1


def test_an_asynchronous_client_is_kept_inside_too() -> None:
    async def talk(server: ModelServer) -> list[Any]:
        client: Any = wrap_client(openai.AsyncOpenAI(base_url=server.openai_url, api_key="any"), window=WINDOW)
        claude: Any = wrap_client(anthropic.AsyncAnthropic(base_url=server.url, api_key="any"), window=WINDOW)
        messages: list[Any] = []
        for number in range(2 * SHORT):
            messages.append({"role": "user", "content": f"{number}: {page(number)}"})
            if number % 3 == 0:
                made = await client.chat.completions.create(model="gpt-4o", messages=messages)
                text = made.choices[0].message.content
            elif number % 3 == 1:
                async with claude.messages.stream(model="claude-x", max_tokens=99, messages=messages) as stream:
                    text = (await stream.get_final_message()).content[0].text
            else:
                stream = await client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
            messages.append({"role": "assistant", "content": text})
        await client.close()
        await claude.close()
        return messages

    with server_of("It is noted.") as server:
        messages = asyncio.run(talk(server))
        assert {message["content"] for message in messages[1::2]} == {"It is noted."}
        assert server.rejections == []
        assert {record.status for record in server.requests} == {200}


def test_a_mixed_answer_keeps_the_callers_call_and_drops_ours(tmp_path: Path) -> None:
    def mixed(_: Ask) -> Answer:
        return Answer("Both.", [Call("everlong_recall", {"query": "x"}), Call("look_up", {"number": 1})])

    with server_of(mixed) as server, Store.open(tmp_path / "talk.db") as store:
        client = wrap_client(openai_client(server), window=WINDOW, store=store, recall=True)
        tools: Any = [{"type": "function", "function": TOOL}]
        made = client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "Look."}], tools=tools
        )
        assert [call.function.name for call in made.choices[0].message.tool_calls or ()] == ["look_up"]  # type: ignore[union-attr]
        claude = wrap_client(anthropic_client(server), window=WINDOW, store=store, recall=True)
        own: Any = [{"name": "look_up", "input_schema": TOOL["parameters"]}]
        message = claude.messages.create(
            model="claude-sonnet-4-6", max_tokens=99, messages=[{"role": "user", "content": "Look."}], tools=own
        )
        assert [block.name for block in message.content if block.type == "tool_use"] == ["look_up"]
        assert message.stop_reason == "tool_use"


def test_what_fits_goes_out_as_it_came_and_other_requests_are_left_alone() -> None:
    with server_of("Good.") as server:
        client = wrap_client(openai_client(server), window=WINDOW)
        messages: Any = [{"role": "user", "content": "Hello."}]
        client.chat.completions.create(model="gpt-4o", messages=messages, temperature=0.5, user="somebody")
        body = server.requests[-1].body
        assert body == {"model": "gpt-4o", "messages": messages, "temperature": 0.5, "user": "somebody"}
        assert [model.id for model in client.models.list()]
        raw = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=messages)
        assert raw.parse().choices[0].message.content == "Good."
        copy = client.with_options(timeout=9)
        assert copy.chat.completions.create(model="gpt-4o", messages=messages).choices
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="gpt-4o", messages=[{"role": "nobody"}])  # type: ignore[typeddict-item]


def test_under_everlong_wrap_the_gateway_alone_shortens(tmp_path: Path) -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content)["messages"])
        said = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Good."}}
        made = {"id": "1", "object": "chat.completion", "created": 0, "model": "gpt-4o", "choices": [said]}
        return httpx.Response(200, json=made)

    for path, is_whole in ((path_of_folder(tmp_path), True), ("", False)):
        http: Any = httpx.Client(transport=httpx.MockTransport(answer))
        own = openai.OpenAI(api_key="any", base_url=f"http://127.0.0.1:8642{path}/v1", http_client=http)
        messages: Any = [
            {"role": role, "content": f"{role} {number}: " + "a page of the ledger " * 200}
            for number in range(20)
            for role in ("user", "assistant")
        ][:-1]
        wrap_client(own, window=WINDOW).chat.completions.create(model="gpt-4o", messages=messages)
        assert (sent[-1] == messages) is is_whole


def test_markers_of_the_caller_never_become_too_many() -> None:
    with server_of() as server:
        claude = Claude(wrap_client(anthropic_client(server), window=WINDOW))
        claude.request["system"] = [{"type": "text", "text": PROMPT, "cache_control": {"type": "ephemeral"}}]
        for number in range(SHORT):
            for message in claude.messages:
                for block in message["content"] if isinstance(message["content"], list) else ():
                    if isinstance(block, dict):
                        block.pop("cache_control", None)
            if claude.messages and isinstance(claude.messages[-2]["content"], list):
                claude.messages[-2]["content"][-1]["cache_control"] = {"type": "ephemeral"}
            claude.say(errand(number))
        assert server.rejections == []
