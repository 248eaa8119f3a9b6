"""Thinking is sent under the view under which it was thought; a view that a fallback made is known as such."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from everlong import ContextCompressor
from everlong.context.oversized import SpillLimits, is_stub
from everlong.model import Message, text_of
from everlong.store import Branch, Store
from everlong.store.schema import view
from everlong.tokens import MessageCounter
from tests.context.builders import assistant, system, user, user as ask
from tests.store.engines import ScriptedEngine, summarizing

THOUGHT = {"type": "thinking", "thinking": "Two, I think.", "signature": "c2ln"}


def said(text: str) -> Message:
    return {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": text}]}


def plain(text: str) -> Message:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


CALL: Message = {**said("I will look."), "tool_calls": [{"id": "c1", "function": {"name": "ls", "arguments": "{}"}}]}
RESULT: Message = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
TALK = [ask("one"), said("first"), ask("two"), said("second"), ask("three"), CALL, RESULT]
SUMMARY: Message = {"role": "user", "content": "[CONTEXT SUMMARY]: so far"}


def test_thinking_from_before_the_view_is_not_sent_except_where_it_leads_to_a_call(store: Store) -> None:
    at = store.record(TALK)
    assert store.context(at) == TALK
    store.compact(at, ScriptedEngine(summarizing(0, 2)))
    assert store.context(at) == [SUMMARY, ask("two"), plain("second"), ask("three"), CALL, RESULT]
    later = store.append(at, [said("third"), ask("four")])
    assert store.context(later)[-2:] == [said("third"), ask("four")]
    store.undo(later)
    assert store.context(later) == [*TALK, said("third"), ask("four")]
    assert [entry.message for entry in store.entries(at)] == TALK  # nothing is lost


def test_where_a_turn_is_known_it_says_under_which_view_a_thought_was_thought(store: Store) -> None:
    at = store.record(TALK)
    turn = store.turns.begin(at)
    store.turns.finish(turn.id, said("third"))
    store.compact(at, ScriptedEngine(summarizing(0, 2)))  # between the answer and the request that repeats it
    later = store.record([*TALK, said("third"), ask("four")])
    under = store.turns.begin(later)
    assert store.context(later)[-2:] == [plain("third"), ask("four")]
    store.turns.finish(under.id, said("fourth"))
    last = store.record([*TALK, said("third"), ask("four"), said("fourth"), ask("five")])
    store.turns.begin(last)
    assert store.context(last)[-4:] == [plain("third"), ask("four"), said("fourth"), ask("five")]
    store.undo(last)
    assert store.context(last)[-4:] == [said("third"), ask("four"), plain("fourth"), ask("five")]


class Failing:
    """A summarizer that is always away."""

    name = "away"

    def summarize(self, request: object) -> str:
        del request
        raise ConnectionError("no route")


@pytest.mark.parametrize(("summarizer", "state"), [(None, "good"), (Failing(), "degraded")])
def test_a_view_that_a_fallback_made_is_degraded_and_in_force(
    store: Store, summarizer: Failing | None, state: str
) -> None:
    talk = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n} about src/mod_{n}.py " * 30}
        for n in range(40)
    ]
    at = store.record(talk)
    engine = ContextCompressor(16_000, summarizer=summarizer, settings={"protect_last_n": 2, "threshold": 0.3})
    done = store.compact(at, engine)
    assert done.outcome == "compacted"
    assert done.is_degraded == (state == "degraded")
    with store.database.read() as connection:
        assert connection.execute(select(view.c.state).where(view.c.id == done.view_id)).scalar() == state
    assert len(store.context(at)) < len(talk)
    assert store.verify().problems == []


FILE = "".join(f"line {number} of the file\n" for number in range(60_000))
LARGE_TALK = [system(), user("Hello."), assistant("Hello!"), user(FILE)]
LIMITS = SpillLimits(2_000, MessageCounter(), "read_turn")


@pytest.fixture
def at(store: Store) -> Branch:
    return store.record(LARGE_TALK)


def spilled(store: Store, at: Branch) -> list[Message]:
    done = store.spill(at, LIMITS)
    assert done.outcome == "compacted"
    return done.messages


def test_the_view_has_a_stub_and_the_store_the_whole(store: Store, at: Branch) -> None:
    sent = spilled(store, at)
    assert sent[:-1] == LARGE_TALK[:-1]
    assert is_stub(sent[-1])
    assert store.read(at.head, 1, 10_000_000).text == FILE
    assert store.context(at) == sent
    assert store.verify().problems == []
    (entry,) = store.compactions()
    assert (entry.reason, entry.engine, entry.child) == ("oversized", "spill", None)


def test_the_stub_stands_while_the_conversation_grows_and_until_it_is_summarized(store: Store, at: Branch) -> None:
    sent = spilled(store, at)
    later = store.append(at, [assistant("I see."), user("Go on.")])
    assert store.context(later) == [*sent, assistant("I see."), user("Go on.")]
    store.compact(later, ScriptedEngine(summarizing(1, 4)))
    assert [is_stub(message) for message in store.context(later)] == [False] * 4
    assert store.undo(later)
    assert store.context(later)[: len(sent)] == sent


def test_forgetting_takes_the_words_of_the_stub_too(store: Store, at: Branch) -> None:
    spilled(store, at)
    store.forget([at.head])
    assert "of the file" not in " ".join(map(text_of, store.context(at)))
    assert store.verify().problems == []
