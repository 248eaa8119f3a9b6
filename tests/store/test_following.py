"""A turn that goes on from where a conversation stood is stored in one step, as several steps would store it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

from everlong.model import Message
from everlong.store import Branch, Store
from everlong.store.database import Database
from everlong.store.turns import FinishedTurn, NewMessages
from tests.context.builders import assistant as answered, user as asked
from tests.examples import length
from tests.store.engines import ScriptedEngine, summarizing

Step = Callable[[Store, Branch, list[Message], FinishedTurn], Branch]
REMINDER: Message = {"role": "user", "content": "<system-reminder>The disk is nearly full.</system-reminder>"}


def in_steps(store: Store, at: Branch, messages: list[Message], past: FinishedTurn) -> Branch:
    end = store.append(at, messages)
    store.turns.add_finished(end, past)
    return end


def new(store: Store, at: Branch, messages: list[Message]) -> NewMessages:
    return NewMessages(messages, store.chain.trace(messages, at.node))


def at_once(store: Store, at: Branch, messages: list[Message], past: FinishedTurn) -> Branch:
    done = store.turns.add_following(at, new(store, at, messages), past, view=None)
    if done is None:  # it has gone on differently, or is told again
        return in_steps(store, at, messages, past)
    return done[0]


def told(store: Store, at: Branch) -> tuple[list[Any], list[Any]]:
    """All that is stored of a conversation, without numbers and times."""
    entries = [(entry.depth, entry.message) for entry in store.entries(at)]
    turns = []
    for turn in store.turns.since():
        echo = None if turn.echo_node is None else store.read(turn.echo_node).text
        reply = store.turns.reply(turn.id)
        turns.append((turn.depth, turn.status, turn.error, turn.usage, turn.cost, reply, echo))
    return entries, turns


def play(store: Store, seed: int, step: Step) -> tuple[list[Any], list[Any], Any]:
    """A conversation with retries, failures, reminders, replies that come back otherwise, and one that never does."""
    dice = random.Random(seed)
    at = store.record([asked("Begin")])
    session = store.sessions.start(at, from_depth=0)
    reply: Message | None = None
    for number in range(12):
        said: list[Message] = []
        if reply is not None and dice.random() < 0.9:
            said.append({**reply, "name": "model"} if dice.random() < 0.3 else reply)
            said += [REMINDER] if dice.random() < 0.3 else []
            said.append(asked(f"and {number}?"))
        fails = dice.random() < 0.2
        reply = None if fails else answered(f"reply {number}")
        at = step(
            store,
            at,
            said,
            FinishedTurn(
                reply,
                model="m-1",
                session=session.id,
                usage={"prompt_tokens": 10 + number},
                cost=0.5,
                status="failed" if fails else "done",
                error="status 500" if fails else None,
            ),
        )
        if reply is None:
            reply = answered("(no answer)")
    found = store.sessions.get(session.id)
    return *told(store, at), (found.input_tokens, found.api_calls, found.cost)


def test_it_is_stored_as_it_would_be_in_several_steps(database: Database) -> None:
    for seed in range(1, length(16, 7)):
        stepwise, followed = (Store(database, uuid.uuid4().hex) for _ in range(2))
        assert play(followed, seed, at_once) == play(stepwise, seed, in_steps)
        assert followed.verify().problems == []


def test_a_conversation_that_is_told_again_in_the_same_words_is_left_to_the_steps(store: Store) -> None:
    begin = store.record([asked("Begin")])
    said = [answered("Yes"), asked("and 1?")]
    first = at_once(store, begin, said, FinishedTurn(answered("one")))
    longer = at_once(store, first, [answered("one"), asked("and 2?")], FinishedTurn(answered("two")))
    again = new(store, begin, said)
    assert store.turns.add_following(begin, again, FinishedTurn(answered("another")), view=None) is None
    assert [entry.message for entry in store.entries(longer)][1:3] == said


def test_a_message_of_another_shape_is_stored_as_it_is_at_the_beginning(store: Store) -> None:
    odd: list[Message] = [{"role": "user", "content": 5}]
    at = store.record([asked("Begin")])
    done = store.turns.add_following(at, new(store, at, odd), FinishedTurn(answered("five")), view=None)
    assert done is not None
    assert [entry.message for entry in store.entries(done[0])][1:] == odd


def test_a_conversation_that_was_compacted_meanwhile_is_left_to_the_steps(store: Store) -> None:
    messages = [asked("Begin"), *(one for number in range(10) for one in (answered(f"a{number}"), asked(f"u{number}")))]
    at = store.record(messages)
    done = store.compact(at, ScriptedEngine(summarizing(2, 15)))
    assert done.view_id is not None
    said, past = [answered("Yes"), asked("and 1?")], FinishedTurn(answered("one"))
    assert store.turns.add_following(at, new(store, at, said), past, view=None) is None
    followed = store.turns.add_following(at, new(store, at, said), past, view=done.view_id)
    assert followed is not None
    assert store.turns.get(followed[1]).view_id == done.view_id
