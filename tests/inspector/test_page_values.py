"""The values behind the pages, read from a store without a server."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from everlong.inspector.pages.conversation_list import agents_cost
from everlong.inspector.pages.search import marked_pieces
from everlong.store.schema import session
from everlong.store.search.snippets import Snippet
from tests.context.builders import user
from tests.inspector.making import MODEL, Ferry


def test_a_snippet_with_a_secret_shows_neither_marks_nor_secret() -> None:
    secret = "sk-ant-api03-" + "Zk3" * 30
    assert "".join(piece.text for piece in marked_pieces(Snippet("one two", ((4, 7),)))) == "one two"
    (piece,) = marked_pieces(Snippet(f"key {secret}", ((4, 9),)))
    assert secret not in piece.text


def test_the_cost_of_sub_agents_stands_on_their_parent(ferry: Ferry) -> None:
    agent = ferry.store.sessions.start(title="Scout", model=MODEL)
    works = update(session).where(session.c.id == agent.id).values(kind="agent", works_for=ferry.ident)
    ferry.store.database.write(lambda connection: connection.execute(works))
    at = ferry.store.record([user("Scout")], conversation=agent.id)
    turn = ferry.store.turns.begin(at, model=MODEL, session=agent.id)
    ferry.store.turns.finish(turn.id, usage={"input_tokens": 100_000, "output_tokens": 5}, cost=0.3)
    assert agents_cost(ferry.store, ferry.ident) == pytest.approx(0.3)
