"""Clients send messages larger than the window, on all three APIs: nothing is refused, and all can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.history import read_turn
from everlong.agent.tools.workspace import Workspace
from everlong.testing import ModelServer
from everlong.testing.server import Answer, Ask, Call
from tests.examples import few, length
from tests.gateway.running import Running, modelled

WINDOW = 8_000
MODEL = "claude-sonnet-5"
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}
LINES = length(50_000, 5_000)
"""A file of so many lines is sixty windows long, or six in a short run; other texts are as long."""
LOG = "".join(f"12:{n % 60:02d} worker {n} took {n * 7 % 991} milliseconds\n" for n in range(LINES))
CHINESE = "码头上的风从西边吹来，浪高两米。" * LINES
BINARY = "\x00\x01\x02ELF\x7f" * (6 * LINES)
KEYS = [("authorization", "Bearer mine"), ("x-api-key", "mine"), ("anthropic-version", "2023-06-01")]
READER = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS: dict[str, Any] = {
    "openai": {"type": "function", "function": {"name": "read_file", "parameters": READER}},
    "anthropic": {"name": "read_file", "input_schema": READER},
    "responses": {"type": "function", "name": "read_file", "parameters": READER},
}


def answers(ask: Ask) -> Answer:
    """Reads a page of a message where it is told to."""
    if any(ident == "page_1" for ident, _ in ask.results):
        return Answer("Read.")
    if found := re.search(r"page (\d+) of (\w+)", ask.last_user):
        return Answer("", [Call("everlong_read_turn", {"id": found[2], "page": int(found[1])}, "page_1")])
    return Answer("Fine.")


class Client:
    """A client that appends to its history and sends all of it."""

    def __init__(self, running: Running, api: str) -> None:
        self.running, self.api = running, api
        self.history: list[dict[str, Any]] = []

    def say(self, words: str) -> str:
        self.history.append({"role": "user", "content": words})
        return self.send()

    def bring(self, *results: str) -> str:
        """Send the results of calls that the model is said to have made."""
        self.history.append({"role": "user", "content": "Read the logs."})
        calls = [(f"call_{len(self.history)}_{number}", text) for number, text in enumerate(results)]
        given = json.dumps({"path": "x.log"})
        if self.api == "responses":
            told = {"name": "read_file", "arguments": given}
            self.history += [{"type": "function_call", "call_id": ident, **told} for ident, _ in calls]
            outputs = [{"type": "function_call_output", "call_id": ident, "output": text} for ident, text in calls]
            self.history += outputs
        elif self.api == "anthropic":
            used = [
                {"type": "tool_use", "id": ident, "name": "read_file", "input": {"path": "x.log"}} for ident, _ in calls
            ]
            blocks = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in calls]
            self.history += [{"role": "assistant", "content": used}, {"role": "user", "content": blocks}]
        else:
            function = {"name": "read_file", "arguments": given}
            made = [{"id": ident, "type": "function", "function": function} for ident, _ in calls]
            self.history.append({"role": "assistant", "content": None, "tool_calls": made})
            self.history += [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in calls]
        return self.send()

    def send(self) -> str:
        listed = "input" if self.api == "responses" else "messages"
        body: dict[str, Any] = {"model": MODEL, listed: self.history, "tools": [TOOLS[self.api]]}
        body |= {"store": False} if self.api == "responses" else {"max_tokens": 200}
        with self.running.raw() as raw:
            answer = raw.ask(json.dumps(body).encode(), PATHS[self.api], KEYS)
        assert answer.status == 200, answer.body[:300]
        assert answer.header("x-everlong-warning") is None, answer.header("x-everlong-warning")
        data = answer.json()
        if self.api == "anthropic":
            text = "".join(block["text"] for block in data["content"])
        elif self.api == "openai":
            text = data["choices"][0]["message"]["content"]
        else:
            text = "".join(part["text"] for item in data["output"] for part in item["content"])
        self.history.append({"role": "assistant", "content": text})
        return str(text)


@contextmanager
def gateway(
    tmp_path: Path, window: int = WINDOW, script: Callable[[Ask], Answer] = answers
) -> Iterator[tuple[Running, ModelServer]]:
    """A gateway whose models may look things up."""
    given: dict[str, Any] = {
        "models": {MODEL: {"context_length": window}},
        "gateway": {"routes": {"*": {"recall": True}}},
    }
    with modelled(script, tmp_path, given, window=WINDOW) as (model, running):
        yield running, model


def stubs_in(model: ModelServer, at: int = -1) -> list[str]:
    """The headings of the stubs that a request was sent with."""
    text = Ask(model.requests[at].api, 0, model.requests[at].body, {}, 0).text
    return [
        line for line in text.splitlines() if re.match(r"\[(Tool output|Message of the).*The whole is message", line)
    ]


def page_in(model: ModelServer) -> str:
    """The page that the model has just read, without its heading."""
    record = model.requests[-1]
    results = dict(Ask(record.api, 0, record.body, {}, 0).results)
    return results["page_1"].split("]\n", 1)[1]


def whole(running: Running, ident: str) -> str:
    """All pages of a message as the hidden tool gives them, without headings; pages are large to save time."""
    context = ToolContext(Workspace(Path.cwd(), ()), running.store(), "", output_chars=300_000)
    pages: list[str] = []
    for number in range(1, 100):
        heading, text = read_turn(ident, context, number).split("]\n", 1)
        pages.append(text)
        if "goes on" not in heading:
            return "".join(pages)
    raise AssertionError("it does not end")


def ident_in(stub: str) -> str:
    found = re.search(r'everlong_read_turn\(id="(\w+)", page=1\) gives it page by page', stub)
    assert found is not None, stub
    return found[1]


@pytest.mark.parametrize("api", PATHS)
def test_giant_results_of_one_turn_become_stubs_and_the_conversation_goes_on(api: str, tmp_path: Path) -> None:
    with gateway(tmp_path) as (running, model):
        client = Client(running, api)
        client.say("Hello.")
        client.bring(LOG, "a small one", LOG[::-1])
        first = stubs_in(model)
        assert len(first) == 2
        heading = f'[Tool output of read_file("x.log"): {len(LOG):,} characters, {LINES:,} lines; shown:'
        assert first[0].startswith(heading)
        before = model.requests[-1].body["input" if api == "responses" else "messages"]
        for number in range(3):
            assert client.say(f"Go on, {number}.") == "Fine."
            assert stubs_in(model) == first
        after = model.requests[-1].body["input" if api == "responses" else "messages"]
        plain = [json.dumps(entry).replace(', "cache_control": {"type": "ephemeral"}', "") for entry in before]
        assert [json.dumps(entry).replace(', "cache_control": {"type": "ephemeral"}', "") for entry in after][
            : len(plain)
        ] == plain
        assert whole(running, ident_in(first[0])) == LOG
        assert whole(running, ident_in(first[1])) == LOG[::-1]
        assert client.say(f"page 2 of {ident_in(first[0])}") == "Read."
        assert page_in(model) == LOG[2_000:4_000]  # pages are small in a small window, and none is cut
        assert model.rejections == []
        assert running.store().verify().problems == []


FILE = f"Explain this file.\n{LOG}"


@pytest.mark.parametrize(
    ("api", "text"),
    few([("openai", CHINESE), ("anthropic", FILE), ("responses", FILE), ("openai", FILE), ("anthropic", BINARY)], 3),
    ids=few(["Chinese", "anthropic", "responses", "openai", "binary"], 3),
)
def test_a_giant_message_of_the_user_becomes_a_stub(api: str, text: str, tmp_path: Path) -> None:
    with gateway(tmp_path) as (running, model):
        client = Client(running, api)
        assert client.say(text) == "Fine."  # the very first message
        (stub,) = stubs_in(model)
        assert client.say("Go on.") == "Fine."
        assert stubs_in(model) == [stub]
        assert whole(running, ident_in(stub)) == text
        assert client.say(f"page 3 of {ident_in(stub)}") == "Read."
        assert page_in(model) == text[4_000:6_000]
        assert model.rejections == []


@pytest.mark.soak
def test_a_text_that_is_too_large_for_any_engine_is_spilled_too(tmp_path: Path) -> None:
    text = LOG * (150_000 // LINES)  # 6 MB
    with gateway(tmp_path) as (running, model):
        client = Client(running, "openai")
        assert client.bring(text) == "Fine."
        for number in range(30):
            assert client.say(f"Go on, {number}: " + "the pilot boat reports wind from the west " * 40) == "Fine."
        assert model.rejections == []
        reasons = [one.reason for one in running.store().compactions()]
        assert reasons[0] == "oversized"
        assert len(reasons) > 1  # the rest of the conversation is compacted as ever


def test_a_refusal_teaches_the_window_and_the_request_is_sent_again_with_a_stub(tmp_path: Path) -> None:
    with gateway(tmp_path, window=2_000_000) as (running, model):
        client = Client(running, "openai")
        assert client.bring(LOG) == "Fine."
        assert len(model.rejections) == 1
        assert client.say("Go on.") == "Fine."
        assert len(model.rejections) == 1
