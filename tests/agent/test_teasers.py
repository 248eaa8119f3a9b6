"""Teasers in the agent: earlier words that the model no longer sees come beside the question that is about them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everlong.agent import Agent, Notice
from everlong.errors import StoreError
from everlong.store import Store
from everlong.store.teasers import MOST_TOKENS, Teasers
from everlong.testing import Ask, ModelServer
from everlong.tokens import counter_for
from tests.agent.conftest import APIS, Opened
from tests.testing_server.conftest import Serve

WINDOW = 8_000
FACT = "The spare key of the boathouse lies under the third flowerpot."
FILLER = "The pilot boat reports wind from the west and a swell of two metres at the outer buoy. "
QUESTION = "Where did I say the spare key of the boathouse lies?"
BEGINNING = "<everlong-recall>"


def talker(ask: Ask) -> str:
    """Answers at length, and writes a summary that leaves the key out where one is asked for."""
    if "## Goal" in ask.last_user:
        return "## Goal\nKeep the harbour log.\n\n## Progress\n### Done\n- Wind and swell were noted."
    return f"Noted, entry {ask.number}. {FILLER * 10}"


def talk(agent: Agent, turns: int = 12, start: int = 0) -> None:
    for number in range(start, start + turns):
        assert agent.run(f"Entry {number}: {FILLER * 18}").stop == "end"


def messages(server: ModelServer, number: int = -1) -> list[dict[str, Any]]:
    """Return the messages of a request that was no request for a summary."""
    asked = [one.body["messages"] for one in server.requests if "## Goal" not in json.dumps(one.body["messages"][-1:])]
    return list(asked[number])


def blocks(message: dict[str, Any]) -> list[str]:
    """Return the texts of a message, one for each of its parts."""
    content = message["content"]
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


def teasers(server: ModelServer, number: int = -1) -> list[str]:
    return [text for message in messages(server, number) for text in blocks(message) if BEGINNING in text]


def forgetful(serve: Serve, opened: Opened, api: str = "anthropic", **more: Any) -> tuple[ModelServer, Agent]:
    """Return an agent that was told the fact first and has compacted it away."""
    server = serve(talker, window=WINDOW)
    agent = opened(server, api, settings={"compression": {"protect_last_n": 4, "protect_first_n": 0}, **more})
    agent.run("Good morning, let us begin the log of the harbour.")
    agent.run(f"{FACT} Remember it, and now let us go on with the wind.")
    talk(agent)
    assert agent.compactor.count >= 1
    assert not teasers(server)
    return server, agent


@pytest.mark.spec("6.4")
@pytest.mark.parametrize("api", APIS)
def test_a_question_about_words_out_of_sight_carries_them_in_a_block_at_its_end(
    serve: Serve, opened: Opened, api: str
) -> None:
    server, agent = forgetful(serve, opened, api)
    agent.run(QUESTION)
    newest = messages(server)[-1]
    assert newest["role"] == "user"
    said, told = blocks(newest)
    assert said == QUESTION
    assert told.startswith(BEGINNING)
    assert told.endswith("</everlong-recall>")
    assert "spare key of the boathouse lies under the third flowerpot" in told
    assert counter_for(None).count_text(told) <= MOST_TOKENS
    assert len([line for line in told.splitlines() if line.startswith("- ")]) <= 2
    assert teasers(server) == [told]


def stripped(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without cache markers, which move."""
    kept = json.loads(json.dumps(said))
    for message in kept:
        message.pop("cache_control", None)
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        for part in message["content"]:
            part.pop("cache_control", None)
    return list(kept)


def test_the_store_shows_finds_and_exports_the_users_words_alone(serve: Serve, opened: Opened, store: Store) -> None:
    server, agent = forgetful(serve, opened)
    agent.run(QUESTION)
    assert teasers(server)
    ident = agent.conversation.session_id
    shown = [line.entry.message for line in store.conversations.lines(ident)]
    assert {"role": "user", "content": QUESTION} in shown
    assert BEGINNING not in json.dumps(shown)
    assert BEGINNING not in json.dumps(agent.conversation.messages)
    assert not store.search("everlong-recall", mode="substring").hits
    assert store.verify().problems == []


def test_a_resumed_conversation_sends_the_same_bytes(serve: Serve, opened: Opened) -> None:
    server, agent = forgetful(serve, opened)
    agent.run(QUESTION)
    (told,) = teasers(server)
    before = stripped(messages(server))
    agent.close()
    again = opened(server, resume=agent.conversation.session_id)
    again.run("Thank you.")
    assert stripped(messages(server))[: len(before)] == before
    assert teasers(server) == [told]


def test_forgotten_words_are_gone_from_teasers(serve: Serve, opened: Opened, store: Store) -> None:
    server, agent = forgetful(serve, opened)
    agent.run(QUESTION)
    assert teasers(server)
    branch = agent.conversation.branch
    assert branch is not None
    assert store.teasers.texts(branch)
    fact = next(entry for entry in store.entries(branch) if FACT in str(entry.message["content"]) and entry.id)
    assert fact.id is not None
    store.forget([fact.id])
    assert not store.teasers.texts(branch)
    with store.database.read() as connection:
        left = connection.exec_driver_sql("SELECT count(*) FROM annex WHERE kind = 'teaser'").scalar_one()
    assert left == 0
    assert store.verify().problems == []


def test_a_store_that_fails_costs_no_turn(
    serve: Serve, opened: Opened, monkeypatch: pytest.MonkeyPatch, heard: list[Any]
) -> None:
    def fail(*_: Any) -> None:
        raise StoreError("the disk is full")

    server, agent = forgetful(serve, opened)
    monkeypatch.setattr(Teasers, "keep", fail)
    assert agent.run(QUESTION).stop == "end"
    assert not teasers(server)
    assert not [event for event in heard if isinstance(event, Notice) and "disk" in event.text]
