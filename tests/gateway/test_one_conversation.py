"""What a stateless client says is one conversation: with its last answer, its first words, and nobody else's."""

from __future__ import annotations

import http.client
import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from everlong.model import text_of
from everlong.store import Conversation, Store
from everlong.testing import Answer, Ask, ModelServer
from everlong.testing.server import Fault
from tests.gateway.running import TENANT, Running, run_gateway
from tests.waiting import PATIENCE, until

SYSTEM = {"role": "system", "content": "You are a careful assistant."}


class Client:
    """A client that keeps its history itself and sends all of it."""

    def __init__(self, running: Running, tenant: str, **headers: str) -> None:
        self._running = running
        self._headers = {"content-type": "application/json", "authorization": "Bearer k", TENANT: tenant, **headers}
        self.history: list[dict[str, Any]] = []
        self.system: dict[str, Any] = SYSTEM
        self.tools: list[Any] | None = None

    def say(self, text: str, *, added: Callable[[list[Any]], list[Any]] = lambda said: said) -> str:
        """Say something; what is ``added`` to the request is in no later one."""
        self.history.append({"role": "user", "content": text})
        reply = self.send(added([self.system, *self.history]))
        self.history.append({"role": "assistant", "content": reply})
        return reply

    def send(self, messages: list[Any]) -> str:
        """Send messages as they are; what is answered."""
        body = {"model": "m", "messages": messages, **({"tools": self.tools} if self.tools else {})}
        connection = http.client.HTTPConnection("127.0.0.1", self._running.port, timeout=PATIENCE)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), self._headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        assert (answer.status, answer.headers.get("x-everlong-warning")) == (200, None), data
        return str(json.loads(data)["choices"][0]["message"]["content"])


@pytest.fixture
def tenant() -> str:
    return f"tenant-{uuid.uuid4().hex[:8]}"


NUMBERS = itertools.count(1_000)


def numbered(_: Ask) -> Answer:
    """A model that never says the same thing twice."""
    return Answer(f"This is answer {next(NUMBERS)}.")


@contextmanager
def running_with(answers: Any, url: str, settings: dict[str, Any] | None = None, **more: Any) -> Iterator[Running]:
    with ModelServer(answers, **more) as model, run_gateway(model.url, url, settings) as running:
        yield running


def conversations(store: Store) -> list[Conversation]:
    return store.conversations.newest(limit=None, kinds=("main", "side", "agent"))


def words(store: Store, ident: str) -> list[str]:
    """All words of a conversation in order."""
    return [text_of(line.entry.message) for line in store.conversations.lines(ident)]


@pytest.mark.spec("7.9")
def test_an_answer_that_the_client_cancels_is_kept_as_far_as_it_came(database_url: str, tenant: str) -> None:
    slow = {0: Fault("slow", seconds=0.05)}
    text = "The lighthouse opens at seven and closes when the last boat has come home. " * 2_000
    with running_with(lambda _: text, database_url, faults=slow) as running:
        client = Client(running, tenant)
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "When?"}]}
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), client._headers)
        answer = connection.getresponse()
        told = 0
        while told < 6:  # pieces of some letters each
            told += b'"content"' in answer.readline()
        connection.close()
        answer.close()
        until(lambda: any(turn.status != "open" for turn in list(running.store(tenant).turns.since())))
        store = running.store(tenant)
        (one,) = conversations(store)
        lines = list(store.conversations.lines(one.id))
        assert [line.status for line in lines] == [None, "cancelled"]
        partial = text_of(lines[1].entry.message)
        assert 0 < len(partial) < len(text)
        assert text.startswith(partial)
        assert store.search(f'"{partial.split()[0]}"').hits[0].session == one.id
        client.system = {"role": "user", "content": "When?"}
        assert client.send([client.system]) == text  # a retry
        assert [two.id for two in conversations(running.store(tenant))] == [one.id]
        assert words(store, one.id)[-1] == text


@pytest.mark.spec("7.7")
def test_different_replies_make_different_conversations_and_equal_ones_stay_one(database_url: str, tenant: str) -> None:
    with running_with(numbered, database_url) as running:
        clients = [Client(running, tenant) for _ in range(5)]
        for client in clients:
            client.say("hi")
        for number, client in enumerate(clients):
            client.say(f"I am {number}.")
        store = running.store(tenant)
        found = {tuple(words(store, one.id)) for one in conversations(store)}
        assert found == {tuple(message["content"] for message in client.history) for client in clients}
    with running_with(lambda _: "The same.", database_url) as running:
        other = f"{tenant}-other"
        clients = [Client(running, other) for _ in range(3)]
        for client in clients:
            client.say("hi")
        store = running.store(other)
        (one,) = conversations(store)
        assert one.api_calls == 3
        for number, client in enumerate(clients):
            client.say(f"I am {number}.")
        store = running.store(other)
        told = conversations(store)
        assert {tuple(words(store, one.id)) for one in told} == {
            tuple(message["content"] for message in client.history) for client in clients
        }
        assert [one.api_calls for one in told] == [2, 2, 2]


@pytest.mark.spec("7.7")
@pytest.mark.parametrize("difference", ["session", "system", "tools"])
def test_clients_that_differ_before_the_first_repeated_reply_are_told_apart_at_once(
    database_url: str, tenant: str, difference: str
) -> None:
    with running_with(lambda _: "The same.", database_url) as running:
        named = {"x-everlong-session": "two"} if difference == "session" else {}
        one, two = Client(running, tenant), Client(running, tenant, **named)
        if difference == "system":
            two.system = {"role": "system", "content": "You are a poet."}
        if difference == "tools":
            look = {"name": "look", "parameters": {"type": "object", "properties": {}}}
            two.tools = [{"type": "function", "function": look}]
        for client in (one, two, one, two):
            client.say("hi")
        store = running.store(tenant)
        told = conversations(store)
        assert [(conversation.api_calls, conversation.messages) for conversation in told] == [(2, 4), (2, 4)]


REMINDER = "\n\nSYSTEM: Always answer in complete sentences and never mention this note."
LISTING = [
    {"role": "user", "content": "These files are in the project:\n\na.py\nb.py"},
    {"role": "assistant", "content": "I see them."},
]


def with_suffix(said: list[Any]) -> list[Any]:
    return [*said[:-1], {**said[-1], "content": said[-1]["content"] + REMINDER}]


def with_prefix(said: list[Any]) -> list[Any]:
    return [*said[:-1], {**said[-1], "content": "[mode: careful, no network]\n" + said[-1]["content"]}]


def with_block(said: list[Any]) -> list[Any]:
    note = {"type": "text", "text": "The folder has unsaved changes in two files."}
    return [*said[:-1], {"role": "user", "content": [note, {"type": "text", "text": said[-1]["content"]}]}]


def with_listing(said: list[Any]) -> list[Any]:
    return [*said[:-1], *LISTING, said[-1]]


def with_changing_listing(said: list[Any]) -> list[Any]:
    return [
        *said[:-1],
        {"role": "user", "content": f"There are {len(said)} files."},
        LISTING[1],
        *with_suffix(said)[-1:],
    ]


def with_trailing_message(said: list[Any]) -> list[Any]:
    return [*said, {"role": "user", "content": "Remember the rules of the house, whatever was said before."}]


@pytest.mark.spec("7.8")
def test_what_a_client_adds_to_its_newest_message_and_takes_off_later_does_not_fork(
    database_url: str, tenant: str
) -> None:
    ways = [with_suffix, with_prefix, with_block, with_listing, with_changing_listing, with_trailing_message]
    histories: dict[str, list[Any]] = {way.__name__: [] for way in ways}
    for numbers in (range(4), range(4, 8)):  # and after a restart
        with running_with(numbered, database_url) as running:
            for added in ways:
                client = Client(running, f"{tenant}-{added.__name__}")
                client.history = histories[added.__name__]
                for number in numbers:
                    client.say(f"Question number {number}, please.", added=added)
            for name, history in histories.items():
                store = running.store(f"{tenant}-{name}")
                (one,) = conversations(store)
                assert one.api_calls == numbers.stop
                said = "\n".join(words(store, one.id))
                places = [said.index(message["content"]) for message in history]
                assert places == sorted(places)
                assert all(said.count(message["content"]) == 1 for message in history)
                assert store.verify().problems == []


@pytest.mark.spec("7.8")
def test_an_edited_question_is_a_conversation_of_its_own(database_url: str, tenant: str) -> None:
    with running_with(numbered, database_url) as running:
        client = Client(running, tenant)
        client.say("What is the colour of the harbour at night, and why?")
        client.say("And by day?")
        other = Client(running, tenant)
        other.history = [{"role": "user", "content": "What is the colour of the harbour at night?"}]
        other.history.append({"role": "assistant", "content": "Somebody else's answer."})
        other.say("And by day?")
        store = running.store(tenant)
        assert {tuple(words(store, one.id)) for one in conversations(store)} == {
            tuple(message["content"] for message in each.history) for each in (client, other)
        }


@pytest.mark.spec("7.10")
def test_a_title_is_what_a_person_typed_and_may_be_the_same_twice(database_url: str, tenant: str) -> None:
    wrapped = [
        {"type": "text", "text": "<system-reminder>\nMind the gap.\n</system-reminder>"},
        {"type": "text", "text": "Mend the harbour wall"},
    ]
    with running_with(numbered, database_url) as running:
        for name in ("one", "two"):
            Client(running, tenant, **{"x-everlong-session": name}).send([SYSTEM, {"role": "user", "content": wrapped}])
        told = conversations(running.store(tenant))
        assert [one.title for one in told] == ["Mend the harbour wall"] * 2


@pytest.mark.spec("7.10")
def test_sub_agents_and_side_requests_stand_beside_the_conversation_that_they_work_for(
    database_url: str, tenant: str
) -> None:
    with running_with(numbered, database_url) as running:
        session = {"x-claude-code-session-id": "s"}
        Client(running, tenant, **session).say("Build the boat.")
        Client(running, tenant, **session, **{"x-claude-code-agent-id": "a"}).say("Find wood.")
        title = Client(running, tenant, **session)
        title.system = {"role": "system", "content": "Write a title of at most five words for this conversation."}
        title.say("Build the boat.")
        told = {one.kind: one for one in conversations(running.store(tenant))}
        assert told.keys() == {"main", "agent", "side"}
        assert told["agent"].works_for == told["main"].id
        assert [one.id for one in running.store(tenant).conversations.newest(limit=None)] == [told["main"].id]
