"""Messages larger than the window in the store: a view with stubs, which forks take over and forgetting takes away."""

from __future__ import annotations

import pytest

from everlong import Message, Store
from everlong.context.oversized import SpillLimits, is_stub
from everlong.model import text_of
from everlong.store import Branch
from everlong.tokens import MessageCounter
from tests.context.builders import assistant, system, user
from tests.store.engines import ScriptedEngine, summarizing

FILE = "".join(f"line {number} of the file\n" for number in range(60_000))
TALK = [system(), user("Hello."), assistant("Hello!"), user(FILE)]
LIMITS = SpillLimits(2_000, MessageCounter(), "read_turn")


@pytest.fixture
def at(store: Store) -> Branch:
    return store.record(TALK)


def spilled(store: Store, at: Branch) -> list[Message]:
    done = store.spill(at, LIMITS)
    assert done.outcome == "compacted"
    return done.messages


def test_the_view_has_a_stub_and_the_store_the_whole(store: Store, at: Branch) -> None:
    sent = spilled(store, at)
    assert sent[:-1] == TALK[:-1]
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
