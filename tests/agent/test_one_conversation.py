"""An agent's conversation is its own: nothing that others say in the same store gets into it, whatever they say."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everlong.agent import Agent, AgentEvent, AgentOptions, approve_everything, open_agent
from everlong.agent.events import Notice
from everlong.model import text_of
from everlong.store import Store
from everlong.testing import Ask, ModelServer
from tests.agent.conftest import MODELS, connected, settings_for
from tests.examples import few
from tests.testing_server.conftest import Serve, serve

__all__ = ["serve"]

API = "openai"
WINDOW = 6_000


@pytest.fixture(params=few(["sqlite", "postgresql"]))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        with Store.open(tmp_path / "store.db") as opened:
            yield opened
    else:
        with Store.open(request.getfixturevalue("postgres_url"), uuid.uuid4().hex) as opened:
            yield opened


class House:
    """Projects that share one store, each a folder with instructions of its own."""

    def __init__(self, store: Store, folder: Path, server: ModelServer) -> None:
        self.store = store
        self.heard: list[AgentEvent] = []
        self._folder = folder
        self._server = server
        self._open: list[Agent] = []

    def project(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        (folder / "AGENTS.md").write_text(f"These are the rules of project {name}.")
        return folder

    def agent(self, name: str, **options: Any) -> Agent:
        settings = settings_for(self._server.window, MODELS[API])
        given = AgentOptions(root=self.project(name), approver=approve_everything, trusts_root=True, **options)
        connection = connected(self._server, API, settings)
        agent = open_agent(settings, connection, given, store=self.store, listen=self.heard.append)
        self._open.append(agent)
        return agent

    def close(self) -> None:
        for agent in self._open:
            agent.close()

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.heard if isinstance(event, Notice)]

    def words(self, session: str) -> list[str]:
        """What a conversation says, from its first word on."""
        parts = self.store.conversations.parts(session)
        at = self.store.branch(parts[-1].branch or 0)
        return [text_of(entry.message) for entry in self.store.entries(at) if entry.id is not None]


@pytest.fixture
def house(store: Store, tmp_path: Path, serve: Serve) -> Iterator[House]:
    numbers = iter(range(1_000))
    made = House(store, tmp_path, serve(lambda _: f"Answer {next(numbers)}. " + "Words. " * 40, window=WINDOW))
    yield made
    made.close()


@pytest.fixture
def echoing(store: Store, tmp_path: Path, serve: Serve) -> Iterator[House]:
    """A model that always answers the same question in the same words."""

    def answer(ask: Ask) -> str:
        return f"You said {ask.last_user}"

    made = House(store, tmp_path, serve(answer, window=WINDOW))
    yield made
    made.close()


def systems(house: House, since: int = 0) -> list[str]:
    return [str(record.body["messages"][0]["content"]) for record in house._server.requests[since:]]


@pytest.mark.spec("7.7")
def test_a_project_never_sees_the_instructions_of_another_that_began_with_the_same_word(house: House) -> None:
    house.agent("a").run("hi")
    before = len(house._server.requests)
    agent = house.agent("b")
    for word in ("hi", *("go on " * 60 for _ in range(12))):
        agent.run(word)
    assert agent.compactor.count > 0
    told = systems(house, before)
    assert not any("project a" in text for text in told)
    assert sum("project b" in text for text in told) >= 13  # the others ask for summaries
    resumed = house.agent("b", resume=agent.conversation.session_id)
    resumed.run("and now?")
    assert "project b" in systems(house)[-1]
    assert "project a" not in systems(house)[-1]


@pytest.mark.spec("7.7")
def test_a_conversation_that_goes_on_in_another_folder_is_sent_with_the_instructions_of_that_one(house: House) -> None:
    agent = house.agent("a")
    agent.run("hi")
    moved = house.agent("b", resume=agent.conversation.session_id)
    moved.run("and here?")
    assert "project b" in systems(house)[-1]
    assert "project a" not in systems(house)[-1]
    assert any("from here on it works in" in notice for notice in house.notices)
    again = house.agent("b", resume=agent.conversation.session_id)
    again.run("and again?")
    assert "project b" in systems(house)[-1]


@pytest.mark.spec("7.7")
def test_equal_answers_do_not_join_conversations(echoing: House) -> None:
    first, second = echoing.agent("a"), echoing.agent("a")
    first.run("hi")
    second.run("hi")
    second.run("something private")
    ident = first.conversation.session_id
    assert echoing.words(ident) == ["hi", "You said hi"]
    resumed = echoing.agent("a", resume=ident)
    resumed.run("what did I say?")
    sent = [text_of(message) for message in echoing._server.requests[-1].body["messages"][1:]]
    assert sent == ["hi", "You said hi", "what did I say?"]


def test_two_programs_that_go_on_with_one_conversation_have_two_from_there(house: House) -> None:
    agent = house.agent("a")
    agent.run("hi")
    other = house.agent("a", resume=agent.conversation.session_id)
    agent.run("here")
    other.run("there")
    mine, its = agent.conversation.session_id, other.conversation.session_id
    assert mine != its
    assert any("continued elsewhere" in notice for notice in house.notices)
    assert [words[2] for words in (house.words(mine), house.words(its))] == ["here", "there"]
    assert house.words(its)[0] == "hi"
    assert house.store.sessions.get(its).title == "hi"
