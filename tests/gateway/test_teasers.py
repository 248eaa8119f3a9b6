"""Teasers in the gateway: a question about hidden words carries them, on all three APIs, and clients hear nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from everlong.gateway.body import read_body
from everlong.store.teasers import MOST_TOKENS
from everlong.testing import Answer, Ask, Call, ModelServer
from everlong.tokens import counter_for
from tests.gateway.running import Running, run_gateway

WINDOW = 8_000
APIS = ("openai", "anthropic", "responses")
MODEL = {"openai": "custom-model", "anthropic": "claude-sonnet-5", "responses": "custom-model"}
PATH = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}
FACT = "The spare key of the boathouse lies under the third flowerpot."
QUESTION = "Where did I say the spare key of the boathouse lies?"
FILLER = "The pilot boat reports wind from the west and a swell of two metres at the outer buoy. "
BEGINNING = "<everlong-recall>"


def settings(recall: Any = "push") -> dict[str, Any]:
    return {
        "gateway": {"routes": {"*": {"recall": recall}}, "summaries": "built-in"},
        "models": {name: {"context_length": WINDOW} for name in MODEL.values()},
        "compression": {"protect_last_n": 4, "protect_first_n": 0},
    }


class Talk:
    """A client that sends its whole history with each request, in the bytes of one API."""

    def __init__(self, api: str, *, blocks: bool = False) -> None:
        self.api = api
        self.blocks = blocks
        self.entries: list[Any] = []

    def body(self) -> dict[str, Any]:
        named = {"model": MODEL[self.api]}
        if self.api == "responses":
            return {**named, "store": False, "input": self.entries}
        return {**named, "max_tokens": 300, "messages": self.entries}

    def say(self, running: Running, words: str) -> str:
        kind = "input_text" if self.api == "responses" else "text"
        content: Any = [{"type": kind, "text": words}] if self.blocks else words
        self.entries.append({"role": "user", "content": content})
        return self.send(running)

    def send(self, running: Running) -> str:
        headers = [("authorization", "Bearer made-up"), ("anthropic-version", "2023-06-01")]
        with running.raw() as raw:
            answer = raw.ask(json.dumps(self.body()).encode(), PATH[self.api], headers)
        assert answer.status == 200, answer.body
        said = json.loads(answer.body)
        if self.api == "responses":
            self.entries += said["output"]
        elif self.api == "anthropic":
            self.entries.append({"role": "assistant", "content": said["content"]})
        else:
            self.entries.append({"role": "assistant", "content": said["choices"][0]["message"]["content"]})
        return json.dumps(said, ensure_ascii=False)


def talker(ask: Ask) -> Answer | str:
    return f"Noted, entry {len(ask.turns)}. {FILLER * 4}"


@contextmanager
def served(tmp_path: Path, server: ModelServer, recall: Any = "push") -> Iterator[Running]:
    with run_gateway(server.url, str(tmp_path / "gateway.db"), settings(recall)) as running:
        relay = running.gateway.relay
        send = relay.send

        async def watched(method: str, url: str, headers: Any, body: bytes | None) -> Any:
            SENT.setdefault(server.url, []).append(body or b"")
            return await send(method, url, headers, body)

        relay.send = watched  # type: ignore[method-assign]
        yield running


SENT: dict[str, list[bytes]] = {}
"""The bodies that gateways sent, by the model server that got them."""


def forget_by_talking(talk: Talk, running: Running) -> None:
    """Tell the fact, then talk until a compaction has hidden it."""
    talk.say(running, "Good morning, let us begin the log of the harbour.")
    talk.say(running, f"{FILLER * 8}{FACT} {FILLER * 8}")  # a summary quotes the beginning of it
    talk_until_compacted(talk, running)


def talk_until_compacted(talk: Talk, running: Running) -> None:
    done = len(running.store().compactions())
    for number in range(40):
        talk.say(running, f"Entry {len(talk.entries)}: {FILLER * 24}")
        if len(running.store().compactions()) > done and number > 2:
            talk.say(running, "Go on, please.")
            return
    raise AssertionError("nothing was compacted")


def entries(server: ModelServer, number: int = -1) -> list[Any]:
    body = server.requests[number].body
    return list(body.get("input") or body.get("messages") or [])


def texts(entry: Any) -> list[str]:
    content = entry.get("content")
    return [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content or ()]


def teasers(server: ModelServer, number: int = -1) -> list[str]:
    return [text for entry in entries(server, number) for text in texts(entry) if BEGINNING in text]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(talker, window=WINDOW) as opened:
        yield opened


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_question_about_hidden_words_carries_them_and_keeps_its_bytes_through_a_restart(
    api: str, blocks: bool, tmp_path: Path, server: ModelServer
) -> None:
    talk = Talk(api, blocks=blocks)
    with served(tmp_path, server) as running:
        forget_by_talking(talk, running)
        assert not any(teasers(server, number) for number in range(len(server.requests)))
        first = len(server.requests)
        answer = talk.say(running, QUESTION)
        assert BEGINNING not in answer
        newest = entries(server)[-1]
        said, told = texts(newest)
        assert (newest["role"], said) == ("user", QUESTION)
        assert FACT.removeprefix("The ").removesuffix(".") in told
        assert "everlong_read_turn" in told
        assert counter_for(None).count_text(told) <= MOST_TOKENS
        talk.say(running, "Thank you.")
        assert teasers(server) == [told]
    with served(tmp_path, server) as running:
        talk.say(running, "And now the tide.")
        assert teasers(server) == [told]
        assert_prefixes_hold(server, first)
        store = running.store()
        (conversation,) = store.conversations.newest()
        shown = [line.entry.message for line in store.conversations.lines(conversation.id)]
        assert BEGINNING not in json.dumps(shown)
        assert any(QUESTION in json.dumps(message) for message in shown)
        assert not store.search("everlong-recall", mode="substring").hits
        assert store.verify().problems == []
    assert server.rejections == []


def assert_prefixes_hold(server: ModelServer, first: int) -> None:
    """Each request begins with all bytes of the one before, as far as its newest message with its teaser."""
    sent = SENT[server.url][first:]
    assert len(sent) > 1
    for before, after in pairwise(sent):
        if b"cache_control" in before:  # of the gateway's own markers, which move, texts become lists
            known = unmarked(before)
            assert unmarked(after)[: len(known)] == known
        else:
            end = read_body(before, "input" if b'"input"' in before else "messages").end
            assert after.startswith(before[:end])


def unmarked(body: bytes) -> list[bytes]:
    """Return the messages of a body without cache markers, each as a list of blocks."""
    found: list[bytes] = []
    for message in json.loads(body)["messages"]:
        said = message["content"]
        blocks = [{"type": "text", "text": said}] if isinstance(said, str) else said
        kept = [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]
        found.append(json.dumps({**message, "content": kept}).encode())
    return found


@pytest.mark.parametrize("api", APIS)
def test_the_model_opens_what_it_was_told_of(api: str, tmp_path: Path) -> None:
    def reads(ask: Ask) -> Answer | str:
        if ask.results:
            return f"It says: {ask.results[-1][1]}"
        told = [line for line in ask.last_user.splitlines() if line.startswith("- ")]
        return Answer("", [Call("everlong_read_turn", {"id": told[0].split()[1]})]) if told else talker(ask)

    talk = Talk(api)
    with ModelServer(reads, window=WINDOW) as server, served(tmp_path, server) as running:
        forget_by_talking(talk, running)
        assert FACT in talk.say(running, QUESTION)
        assert server.rejections == []
