"""What `recall` finds for the question that was just asked: what was said about it, and not the question itself."""

from __future__ import annotations

from pathlib import Path

from everlong.agent import ToolContext, Workspace
from everlong.agent.tools.history import recall
from everlong.model import Message
from everlong.store import Store
from tests.agent.conftest import Opened
from tests.testing_server.conftest import Serve

QUESTION = "Because of which neighbour do we darken the pier late in the evening?"
FACT = "The pier lamps go off early because Mrs Halloran's bedroom faces them."


def said(store: Store, root: Path, *messages: Message) -> ToolContext:
    at = store.record(list(messages))
    session = store.sessions.start(at, from_depth=0)
    return ToolContext(Workspace(root), store, session.id)


def talk(number: int) -> list[Message]:
    return [
        {"role": "user", "content": f"Give berth {number} to the next boat."},
        {"role": "assistant", "content": f"Berth {number} is taken now."},
    ]


def entries(found: str) -> list[str]:
    return found.split("\n\n[")[1:]


def test_neither_the_question_nor_what_stands_before_it_is_found_for_it(store: Store, root: Path) -> None:
    asked: Message = {"role": "user", "content": QUESTION}
    context = said(store, root, {"role": "user", "content": FACT}, *talk(1), *talk(2), *talk(3), asked)
    found = entries(recall(QUESTION, context))
    assert FACT in found[0]
    assert not [entry for entry in found if QUESTION in entry or "Berth 3 is taken" in entry]


def test_an_agent_that_closes_leaves_nothing_for_the_next_question_to_index(
    store: Store, opened: Opened, serve: Serve
) -> None:
    agent = opened(serve("Noted."))
    agent.run(FACT)
    assert store.searcher.index.has_pending()
    agent.close()
    assert not store.searcher.index.has_pending()
