"""One conversation is one conversation: agents and stateless clients in one store, each as if it were alone there."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence

import pytest

from everlong.model import Message
from everlong.store import Store
from everlong.store.content import Blob, blob, encoded
from everlong.store.identity import PlacedRequest, Sender, StatelessRequest
from everlong.store.turns import FinishedTurn
from tests.examples import length
from tests.store.shared_store import Step, World

STEPS = length(60, 30)


def happen(url: str, steps: Sequence[Step]) -> list[str]:
    """Let these things happen, and return what is wrong after any of them."""
    world = World(lambda tenant: Store.open(url, tenant), uuid.uuid4().hex)
    problems: list[str] = []
    try:
        for step in steps:
            world.do(step)
            problems += world.problems()
    finally:
        world.close()
    return problems


@pytest.mark.parametrize("seed", range(length(4, 1)))
def test_each_conversation_is_the_same_as_alone_in_a_store(url: str, seed: int) -> None:
    world = World(lambda tenant: Store.open(url, tenant), uuid.uuid4().hex)
    try:
        problems = world.go_on(random.Random(seed), STEPS)
        assert problems == [], "\n".join([*problems, *map(repr, world.steps)])
    finally:
        world.close()


FOUND = {
    "two that a prompt tells apart stay so when they are answered alike": """
        prompted 11 0: say 0 -; answer 0 0
        prompted 12 0: say 0 -; answer 0 0
        prompted 11 0: say 1 -; answer 0 0
    """,
    "two that are told apart stay so when they go on with the same words": """
        prompted 11 0: say 0 -
        named 10 0: say 0 -; answer 3 0
        prompted 11 0: answer 3 1
        named 10 0: say 2 -
        prompted 11 0: say 2 -
    """,
    "an addition is taken off while another waits for its first answer": """
        adding 16 0: say 0 listing
        prompted 11 0: say 0 -
        adding 16 0: answer 1 1; say 3 -
    """,
    "two that are told apart by a later reply have their own turns before it": """
        two 18 0: say 0 -; answer 0 1
        two 17 0: say 0 -; answer 0 1
        two 18 0: say 2 -; answer 4 2
        two 17 0: say 2 -; answer 0 2
    """,
    "what another was answered is no addition": """
        prompted 11 0: say 0 -
        adding 14 0: say 0 listing; answer 0 1
        prompted 11 0: answer 1 1; say 1 -; answer 0 1
        adding 14 0: say 1 -
    """,
    "a reply that broke off and came whole later leaves its request in the conversation": """
        wild 8 0: say 0 -; fail cancelled 2
        wild 7 0: say 0 -; answer 2 1
        wild 8 0: retry
        prompted 12 0: say 0 -
    """,
    "a whole reply goes before one of another client that broke off there": """
        prompted 12 0: say 0 -
        wild 7 0: say 0 -; fail cancelled 2
        prompted 12 0: answer 2 1; reprompt 1 3
    """,
    "another result of the newest call is not a cleared one": """
        two 17 0: say 0 -; answer 4 0
        two 18 0: say 0 -; answer 4 0
        two 17 0: look 0
        two 18 0: look 1
        two 17 0: answer 0 0
        two 18 0: answer 0 0
    """,
    "an agent that takes everything back and says it again stays in its conversation": """
        agent 0 0: say 0; answer 2; rewind; say 0; answer 4
    """,
    "an agent that says once more what it took back before a restart stays in its conversation": """
        agent 1 0: say 0; answer 0; compact 3 1; rewind; say 3
        all: restart
        agent 1 0: rewind; say 0; answer 3
    """,
    "a request that is sent again after a compaction of its first words stays in its conversation": """
        prompted 11 0: say 0 -; compact 0 2
        all: restart
        prompted 11 0: retry; answer 1 0
        two 17 0: say 0 -; answer 2 0
    """,
    "a request that is sent again after its addition became known stays in its conversation": """
        adding 14 0: say 2 reminder
        adding 16 0: say 3 reminder
        adding 14 0: answer 0 1
        adding 16 0: answer 0 1; say 2 -
        adding 14 0: say 1 reminder; fail cancelled 1; retry
    """,
    "a request with a message that moves along may be sent again": """
        adding 14 0: say 0 listing
        adding 16 0: say 1 listing
        adding 14 0: answer 1 2; say 0 -
        adding 16 0: answer 1 0; say 3 listing
        adding 14 0: answer 3 0; say 0 listing
        all: restart
        adding 14 0: retry
    """,
    "a client that adds is known with another prompt too": """
        adding 14 0: say 0 reminder
        two 18 0: say 0 -; answer 0 1
        adding 14 0: answer 0 2; say 3 reminder; answer 1 0; reprompt 6 3
    """,
    "forks of two that a prompt tells apart stay apart when they are answered alike": """
        prompted 11 0: say 0 -; answer 0 0; say 1 -; answer 0 0
        prompted 12 0: say 0 -; answer 0 0; say 1 -; answer 0 0
        prompted 11 0: rewind 0 2; answer 3 0
        prompted 12 0: rewind 0 2; answer 3 0
    """,
    "an agent that goes back to what it said first stays in its conversation": """
        agent 2 0: say 0; answer 3; rewind; say 1; answer 0; rewind; say 0; answer 4
    """,
}
"""What longer runs have found: on each line an actor and its steps, each with its values; - is an empty text."""


def read_steps(script: str) -> list[Step]:
    """Return the steps of a script."""
    steps: list[Step] = []
    for line in script.split("\n"):
        actor, _, told = line.strip().partition(": ")
        for verb, *values in map(str.split, filter(None, told.split("; "))):
            given = (int(one) if one.isdigit() else one.strip("-") for one in values)
            steps.append(Step("" if actor == "all" else actor, verb, tuple(given)))
    return steps


@pytest.mark.parametrize("name", FOUND)
def test_what_long_runs_have_found_stays_right(url: str, name: str) -> None:
    assert happen(url, read_steps(FOUND[name])) == []


PROMPT = "You are one of many. " * 1_000
MANY = length(64, 12)


def preamble_of(store: Store, prompt: str) -> Blob:
    return blob(store.tenant, encoded({"system": [{"role": "system", "content": prompt}], "tools": None}))


def placed(store: Store, messages: list[Message], prompt: str = PROMPT) -> PlacedRequest:
    trace = store.chain.trace(messages)
    return store.identity.place(StatelessRequest(messages, trace, Sender("gateway"), preamble_of(store, prompt)))


def answered(store: Store, at: PlacedRequest, words: str) -> str:
    reply: Message = {"role": "assistant", "content": words}
    turn = store.turns.add_finished(at.at, FinishedTurn(reply, session=at.session, cost=0.5))
    found = store.turns.get(turn).session
    assert found is not None
    return found


def words_of(store: Store, ident: str) -> list[str]:
    return [str(line.entry.message["content"]) for line in store.conversations.lines(ident)]


def said(*words: str) -> list[Message]:
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(words)]


def test_clients_that_begin_alike_and_get_different_replies_are_as_many_conversations(store: Store) -> None:
    asked = [placed(store, said("hi")) for _ in range(MANY)]
    first = [answered(store, at, f"Reply {number}.") for number, at in enumerate(asked)]
    assert len({store.sessions.get(ident).conversation for ident in first}) == MANY
    assert [words_of(store, ident) for ident in first] == [["hi", f"Reply {number}."] for number in range(MANY)]
    again = []
    for number in range(MANY):
        at = placed(store, said("hi", f"Reply {number}.", "go on"))
        again.append(answered(store, at, "Yes."))
    assert again == first
    for number, ident in enumerate(again):
        assert words_of(store, ident) == ["hi", f"Reply {number}.", "go on", "Yes."]
        found = store.conversations.get(ident)
        assert (found.title, found.api_calls, found.cost) == ("hi", 2, 1.0)
    assert store.conversations.count() == MANY
    assert store.verify().problems == []
