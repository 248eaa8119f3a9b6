"""A real model in a small window: a conversation that outlives it, and a prompt cache that stays warm."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

from everlong.agent import AgentEvent, Answered, CompactionFinished, Notice
from everlong.agent.events import CompactionReason
from everlong.model import text_of
from everlong.store import Store
from tests.examples import length
from tests.local_model.conftest import WINDOW, Opened, entry

TURNS = int(os.environ.get("EVERLONG_LOCAL_TURNS", str(length(60, 9))))
IS_LONG = TURNS >= 60
"""True in the long run: there both APIs go through everything, and the model itself, which is slow, summarizes."""


@pytest.mark.spec("4.1", "5.7", "7.1")
@pytest.mark.parametrize(
    ("api", "summarizer"),
    [("openai", "main"), ("anthropic", "extractive")] if IS_LONG else [("openai", "extractive")],
)
def test_a_conversation_outlives_the_window_of_a_real_model(
    opened: Opened, store: Store, heard: list[AgentEvent], api: str, summarizer: str
) -> None:
    agent = opened(api, summarizer=summarizer)
    info = agent.connection.info
    assert (info.context_length, info.context_source) == (WINDOW, "server")

    finished = [agent.run(entry(number)) for number in range(1, TURNS + 1)]

    assert {one.stop for one in finished} <= {"end", "length"}
    assert "overflow" not in reasons(heard)
    done = compactions(heard)
    assert done, "the conversation was never compacted"
    assert all(one.tokens_after < one.tokens_before for one in done)
    # So small a model writes no summary that is used as it is; what matters is that it was asked and did no harm.
    assert all(("tiny" in f"{one.summarizer} {one.fallback}") == (summarizer == "main") for one in done)
    assert [event for event in heard if isinstance(event, Notice)] == []

    cold = cold_requests(heard)
    assert cold == [], f"requests between compactions that did not read the prompt before them from the cache: {cold}"

    assert said(store, finished[-1].session_id) == [
        line for number, one in enumerate(finished, 1) for line in (entry(number), one.text)
    ]
    assert store.verify().problems == []


@pytest.mark.parametrize("api", ["openai", "anthropic"] if IS_LONG else ["anthropic"])
def test_a_window_that_is_smaller_than_was_said_is_learned_from_the_first_refusal(
    opened: Opened, store: Store, heard: list[AgentEvent], api: str
) -> None:
    talk = [{"role": "system", "content": "You keep the log of a small harbour."}]
    for number in range(1, 120):
        talk += [{"role": "user", "content": entry(number)}, {"role": "assistant", "content": "Unload her first."}]
    session = store.sessions.start(store.record(talk), system_prompt="You keep the log of a small harbour.")

    agent = opened(api, window=16 * WINDOW, resume=session.id, summarizer="extractive")
    finished = agent.run("Which ship came last?")

    assert finished.stop in {"end", "length"}
    assert [turn.status for turn in store.turns.of_session(session.id)] == ["failed"]
    assert reasons(heard) == ["overflow"]
    assert agent.engine.context_length == WINDOW
    assert agent.connection.info.context_source == "learned"
    told = [event.text for event in heard if isinstance(event, Notice)]
    assert len(told) == 1
    assert "has a window of 4,096 tokens, less than was thought" in told[0]
    assert said(store, finished.session_id)[-2:] == ["Which ship came last?", finished.text]


def compactions(heard: list[AgentEvent]) -> list[CompactionFinished]:
    return [event for event in heard if isinstance(event, CompactionFinished) and event.outcome == "compacted"]


def reasons(heard: list[AgentEvent]) -> list[CompactionReason]:
    return [event.reason for event in heard if isinstance(event, CompactionFinished)]


def cold_requests(heard: list[AgentEvent]) -> list[tuple[int, int]]:
    """Of the requests that follow another with no compaction between: the prompt before, and what was read of it.

    By the server's own figures. A model's slot keeps all that it has read, so nothing less than everything is warm.
    """
    events = [event for event in heard if isinstance(event, Answered | CompactionFinished)]
    usages = [event.usage if isinstance(event, Answered) else None for event in events]
    pairs = [(one, two) for one, two in pairwise(usages) if one is not None and two is not None]
    assert pairs
    read = [(one.prompt_tokens, two.cache_read_tokens) for one, two in pairs]
    return [(before, again) for before, again in read if again < before]


def said(store: Store, session_id: str) -> list[str]:
    """All that was said in a conversation, from its first session on, as the store has it."""
    return [
        text_of(stored.message)
        for session in store.conversations.parts(session_id)
        for stored in store.sessions.entries(session.id)
        if stored.message["role"] in {"user", "assistant"}
    ]
