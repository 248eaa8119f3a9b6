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


# -- found by longer runs ----------------------------------------------------------------------------------------------


def test_two_that_a_prompt_tells_apart_stay_so_when_they_are_answered_alike(url: str) -> None:
    one, other = "prompted 11 0", "prompted 12 0"
    steps = [
        *(Step(one, "say", (0, "")), Step(one, "answer", (0, 0))),
        *(Step(other, "say", (0, "")), Step(other, "answer", (0, 0))),
        *(Step(one, "say", (1, "")), Step(one, "answer", (0, 0))),
    ]
    assert happen(url, steps) == []


def test_two_that_are_told_apart_stay_so_when_they_go_on_with_the_same_words(url: str) -> None:
    one, other = "prompted 11 0", "named 10 0"
    steps = [
        *(Step(one, "say", (0, "")), Step(other, "say", (0, ""))),
        *(Step(other, "answer", (3, 0)), Step(one, "answer", (3, 1))),
        *(Step(other, "say", (2, "")), Step(one, "say", (2, ""))),
    ]
    assert happen(url, steps) == []


@pytest.mark.parametrize("other", ["prompted 11 0", "named 10 0", "agent 2 0"])
@pytest.mark.parametrize("extra", ["listing", "reminder"])
def test_an_addition_is_taken_off_the_right_conversation(url: str, extra: str, other: str) -> None:
    one = "adding 14 0"
    steps = [
        *(Step(one, "say", (0, extra)), Step(other, "say", (0,))),
        *(Step(one, "answer", (0, 1)), Step(other, "answer", (0, 0)[: 1 if other.startswith("agent") else 2])),
        *(Step(one, "say", (3, "")), Step(one, "answer", (1, 0))),
    ]
    assert happen(url, steps) == []


def test_an_addition_is_taken_off_while_another_waits_for_its_first_answer(url: str) -> None:
    one, other = "adding 16 0", "prompted 11 0"
    steps = [
        *(Step(one, "say", (0, "listing")), Step(other, "say", (0, ""))),
        *(Step(one, "answer", (1, 1)), Step(one, "say", (3, ""))),
    ]
    assert happen(url, steps) == []


def test_two_that_are_told_apart_by_a_later_reply_have_their_own_turns_before_it(url: str) -> None:
    one, other = "two 18 0", "two 17 0"
    steps = [
        *(Step(one, "say", (0, "")), Step(one, "answer", (0, 1))),
        *(Step(other, "say", (0, "")), Step(other, "answer", (0, 1))),
        *(Step(one, "say", (2, "")), Step(one, "answer", (4, 2))),
        *(Step(other, "say", (2, "")), Step(other, "answer", (0, 2))),
    ]
    assert happen(url, steps) == []


def test_what_another_was_answered_is_no_addition(url: str) -> None:
    one, other = "adding 14 0", "prompted 11 0"
    steps = [
        *(Step(other, "say", (0, "")), Step(one, "say", (0, "listing"))),
        *(Step(one, "answer", (0, 1)), Step(other, "answer", (1, 1))),
        *(Step(other, "say", (1, "")), Step(other, "answer", (0, 1)), Step(one, "say", (1, ""))),
    ]
    assert happen(url, steps) == []


def test_a_reply_that_broke_off_and_came_whole_later_leaves_its_request_in_the_conversation(url: str) -> None:
    one, same, other = "wild 8 0", "wild 7 0", "prompted 12 0"
    steps = [
        *(Step(one, "say", (0, "")), Step(one, "fail", ("cancelled", 2))),
        *(Step(same, "say", (0, "")), Step(same, "answer", (2, 1))),
        *(Step(one, "retry"), Step(other, "say", (0, ""))),
    ]
    assert happen(url, steps) == []


def test_a_whole_reply_goes_before_one_of_another_client_that_broke_off_there(url: str) -> None:
    one, other = "prompted 12 0", "wild 7 0"
    steps = [
        *(Step(one, "say", (0, "")), Step(other, "say", (0, "")), Step(other, "fail", ("cancelled", 2))),
        *(Step(one, "answer", (2, 1)), Step(one, "reprompt", (1, 3))),
    ]
    assert happen(url, steps) == []


def test_another_result_of_the_newest_call_is_not_a_cleared_one(url: str) -> None:
    one, other = "two 17 0", "two 18 0"
    steps = [
        *(Step(one, "say", (0, "")), Step(one, "answer", (4, 0))),
        *(Step(other, "say", (0, "")), Step(other, "answer", (4, 0))),
        *(
            Step(one, "look", (0,)),
            Step(other, "look", (1,)),
            Step(one, "answer", (0, 0)),
            Step(other, "answer", (0, 0)),
        ),
    ]
    assert happen(url, steps) == []


def test_an_agent_that_takes_everything_back_and_says_it_again_stays_in_its_conversation(url: str) -> None:
    steps = [
        *(Step("agent 0 0", "say", (0,)), Step("agent 0 0", "answer", (2,)), Step("agent 0 0", "rewind")),
        *(Step("agent 0 0", "say", (0,)), Step("agent 0 0", "answer", (4,))),
    ]
    assert happen(url, steps) == []


def test_an_agent_that_says_once_more_what_it_took_back_before_a_restart_stays_in_its_conversation(url: str) -> None:
    steps = [
        *(Step("agent 1 0", "say", (0,)), Step("agent 1 0", "answer", (0,)), Step("agent 1 0", "compact", (3, 1))),
        *(Step("agent 1 0", "rewind"), Step("agent 1 0", "say", (3,)), Step("", "restart")),
        *(Step("agent 1 0", "rewind"), Step("agent 1 0", "say", (0,)), Step("agent 1 0", "answer", (3,))),
    ]
    assert happen(url, steps) == []


def test_a_request_that_is_sent_again_after_a_compaction_of_its_first_words_stays_in_its_conversation(url: str) -> None:
    one, other = "prompted 11 0", "two 17 0"
    steps = [
        *(Step(one, "say", (0, "")), Step(one, "compact", (0, 2)), Step("", "restart"), Step(one, "retry")),
        *(Step(one, "answer", (1, 0)), Step(other, "say", (0, "")), Step(other, "answer", (2, 0))),
    ]
    assert happen(url, steps) == []


def test_a_request_that_is_sent_again_after_its_addition_became_known_stays_in_its_conversation(url: str) -> None:
    one, other = "adding 14 0", "adding 16 0"
    steps = [
        *(Step(one, "say", (2, "reminder")), Step(other, "say", (3, "reminder"))),
        *(Step(one, "answer", (0, 1)), Step(other, "answer", (0, 1)), Step(other, "say", (2, ""))),
        *(Step(one, "say", (1, "reminder")), Step(one, "fail", ("cancelled", 1)), Step(one, "retry")),
    ]
    assert happen(url, steps) == []


def test_a_request_with_a_message_that_moves_along_may_be_sent_again(url: str) -> None:
    one, other = "adding 14 0", "adding 16 0"
    steps = [
        *(Step(one, "say", (0, "listing")), Step(other, "say", (1, "listing")), Step(one, "answer", (1, 2))),
        *(Step(one, "say", (0, "")), Step(other, "answer", (1, 0)), Step(other, "say", (3, "listing"))),
        *(Step(one, "answer", (3, 0)), Step(one, "say", (0, "listing")), Step("", "restart"), Step(one, "retry")),
    ]
    assert happen(url, steps) == []


def test_a_client_that_adds_is_known_with_another_prompt_too(url: str) -> None:
    one, other = "adding 14 0", "two 18 0"
    steps = [
        *(Step(one, "say", (0, "reminder")), Step(other, "say", (0, "")), Step(other, "answer", (0, 1))),
        *(Step(one, "answer", (0, 2)), Step(one, "say", (3, "reminder")), Step(one, "answer", (1, 0))),
        *(Step(one, "reprompt", (6, 3)),),
    ]
    assert happen(url, steps) == []


def test_forks_of_two_that_a_prompt_tells_apart_stay_apart_when_they_are_answered_alike(url: str) -> None:
    one, other = "prompted 11 0", "prompted 12 0"
    both = [Step("", "say", (0, "")), Step("", "answer", (0, 0)), Step("", "say", (1, "")), Step("", "answer", (0, 0))]
    again = [Step("", "rewind", (0, 2)), Step("", "answer", (3, 0))]
    steps = [step._replace(actor=name) for part in (both, again) for name in (one, other) for step in part]
    assert happen(url, steps) == []


def test_an_agent_that_goes_back_to_what_it_said_first_stays_in_its_conversation(url: str) -> None:
    steps = [
        *(Step("agent 2 0", "say", (0,)), Step("agent 2 0", "answer", (3,)), Step("agent 2 0", "rewind")),
        *(Step("agent 2 0", "say", (1,)), Step("agent 2 0", "answer", (0,)), Step("agent 2 0", "rewind")),
        *(Step("agent 2 0", "say", (0,)), Step("agent 2 0", "answer", (4,))),
    ]
    assert happen(url, steps) == []


# -- many that begin alike ---------------------------------------------------------------------------------------------

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


def test_clients_with_prompts_of_their_own_that_are_answered_alike_are_as_many_conversations(store: Store) -> None:
    first = [answered(store, placed(store, said("hi"), f"I am {number}."), "Hello.") for number in range(MANY)]
    again = []
    for number in range(MANY):
        at = placed(store, said("hi", "Hello.", "go on"), f"I am {number}.")
        again.append(answered(store, at, "Yes."))
    assert again == first
    assert all(words_of(store, ident) == ["hi", "Hello.", "go on", "Yes."] for ident in again)
    assert store.conversations.count() == MANY
