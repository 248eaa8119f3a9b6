"""Messages larger than the window: the session goes on with a stub, and the model can read the whole page by page."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from everlong import ContextEngine
from everlong.agent import AgentEvent, CompactionFinished, Notice, tool
from everlong.agent.accounting import account
from everlong.agent.tools import builtin_tools
from everlong.config import Settings
from everlong.context.oversized import is_stub
from everlong.store import Store
from everlong.testing import Answer, Ask, Call
from tests.agent.conftest import APIS, Opened
from tests.examples import length
from tests.testing_server.conftest import Serve

WINDOW = 8_000
MANY = length(50_000, 4_000)
LOG = "".join(f"12:{n % 60:02d} worker {n} took {n * 7 % 991} milliseconds\n" for n in range(MANY))
CHINESE = "码头上的风从西边吹来，浪高两米。" * MANY
HISTORY = [one for one in builtin_tools() if one.name in {"read_turn", "read_output", "recall"}]


class Echo(ContextEngine):
    """An engine that does nothing about anything."""

    name = "echo"

    def __init__(self, context_length: int = 0) -> None:
        self.context_length = context_length

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        del prompt_tokens
        return False

    def compress(
        self, messages: list[dict[str, Any]], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[dict[str, Any]]:
        del current_tokens, focus_topic
        return messages


ENGINES = ("compressor", "echo")


def about(engine: str) -> dict[str, Any]:
    return {"settings": {"context": {"engine": engine}}, "engines": {"echo": Echo}}


def reads(ask: Ask) -> Answer:
    """Calls ``dump`` where it is told to, and reads one page of a message where it is told its id."""
    if ask.results:
        return Answer("Seen.")
    if found := re.search(r"^page (\d+) of (\w+) by (\w+)$", ask.last_user):
        return Answer("", [Call(found[3], {"id": found[2], "page": int(found[1])})])
    if found := re.match(r"dump (\d)", ask.last_user):
        return Answer("", [Call("dump", {"number": number}) for number in range(int(found[1]))])
    return Answer("Fine.")


def whole_by_pages(agent: Any, ident: str, reader: str = "read_turn") -> str:
    """All pages of a message, as the model gets them, without their headings; pages are large to save time."""
    context = replace(agent.tools.context, window=0, output_chars=6 * MANY)
    pages: list[str] = []
    for number in range(1, 100):
        result = agent.tools.toolbox.get(reader).handler({"id": ident, "page": number}, context)
        heading, text = str(result).split("]\n", 1)
        pages.append(text.split("\n[the whole output: ")[0])
        if "goes on" not in heading:
            return "".join(pages)
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("engine", "api", "text"),
    [
        (ENGINES[0], "anthropic", LOG),
        (ENGINES[0], "openai", CHINESE),
        (ENGINES[1], "openai", LOG),
    ],
    ids=["log", "Chinese", "another engine"],
)
def test_a_giant_prompt_becomes_a_stub_and_the_session_goes_on(
    serve: Serve, opened: Opened, store: Store, heard: list[AgentEvent], api: str, engine: str, text: str
) -> None:
    server = serve(reads, window=WINDOW)
    agent = opened(server, api, tools=HISTORY, **about(engine))
    assert agent.run("Hello.").text == "Fine."
    assert agent.run(text).text == "Fine."
    first = [message for message in agent.conversation.messages if is_stub(message)]
    assert [event.text for event in heard if isinstance(event, Notice)] == [
        "1 message did not fit the window; the model sees beginning and end of it, and the store has the whole"
    ]
    for number in range(3):
        assert agent.run(f"Go on, {number}.").text == "Fine."
    assert server.rejections == []
    assert [message for message in agent.conversation.messages if is_stub(message)] == first
    found = re.search(r'read_turn\(id="(\w+)", page=1\)', str(first[0]["content"]))
    assert found is not None
    assert whole_by_pages(agent, found[1]) == text
    assert agent.run(f"page 2 of {found[1]} by read_turn").text == "Seen."
    assert server.rejections == []
    assert store.verify().problems == []


def test_giant_tool_results_of_one_answer_become_stubs_and_their_whole_can_be_read(
    serve: Serve, opened: Opened, store: Store
) -> None:
    @tool
    def dump(number: int) -> str:
        """Give everything.

        Args:
            number: Which.
        """
        return f"{number}\n{LOG}"

    server = serve(reads, window=WINDOW)
    agent = opened(server, "openai", tools=[dump, *HISTORY])
    assert agent.run("dump 4").text == "Seen."
    assert server.rejections == []
    stubs = [str(message["content"]) for message in agent.conversation.messages if is_stub(message)]
    assert len(stubs) >= 3
    number, ident = re.findall(r'dump\((\d)\): [\d,]+ characters; .* read_output\(id="(\w+)", page=1\)', stubs[0])[0]
    assert whole_by_pages(agent, ident, "read_output") == f"{number}\n{LOG}"
    assert agent.run(f"page 3 of {ident} by read_output").text == "Seen."
    assert server.rejections == []
    assert store.verify().problems == []


def test_a_window_that_turns_out_smaller_is_learned_for_good_and_the_message_spilled(
    serve: Serve, opened: Opened
) -> None:
    server = serve(reads, window=WINDOW)
    agent = opened(server, "openai", window=2_000_000, tools=HISTORY)  # the window is wrong
    assert agent.run(LOG).text == "Fine."
    refused = len(server.rejections)
    assert 1 <= refused <= 2  # a shorter answer is tried first
    assert agent.run("And?").text == "Fine."
    assert len(server.rejections) == refused
    agent.close()
    again = opened(server, "openai", window=2_000_000, tools=HISTORY, resume=agent.conversation.session_id)
    assert again.engine.context_length == WINDOW
    new = opened(server, "openai", window=2_000_000, tools=HISTORY)
    assert new.run(LOG).text == "Fine."
    assert len(server.rejections) == refused


def test_an_older_giant_is_spilled_if_the_model_changes_to_a_small_window(serve: Serve, opened: Opened) -> None:
    large = serve(reads, window=2_000_000)
    small = serve(reads, window=WINDOW)
    agent = opened(large, "openai", tools=HISTORY)
    agent.run(LOG)
    assert not any(map(is_stub, agent.conversation.messages))
    session = agent.conversation.session_id
    agent.close()
    again = opened(small, "openai", tools=HISTORY, resume=session)
    assert again.run("And?").text == "Fine."
    assert again.run("And then?").text == "Fine."
    assert small.rejections == []


@pytest.mark.parametrize("api", APIS)
def test_a_prompt_that_fits_is_sent_again_with_less_room_rather_than_compacted_and_is_no_failed_request(
    serve: Serve, opened: Opened, heard: list[AgentEvent], store: Store, api: str
) -> None:
    server = serve("Understood.", window=8_000)
    agent = opened(server, api)
    # The server counts every one of these signs, and we think that they are read by the dozen.
    agent.run("What does the line mean? " + "=" * 4_700)
    refused, taken = server.requests[-2:]
    assert (refused.status, taken.status) == (400, 200)
    assert taken.body["messages"] == refused.body["messages"]
    assert not [event for event in heard if isinstance(event, CompactionFinished)]
    books = account(store, Settings())
    assert (books.total.calls, books.total.unanswered) == (1, 0)
