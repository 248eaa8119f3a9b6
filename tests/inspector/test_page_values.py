"""The values behind the pages, read from a store without a server."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from everlong.config import Settings
from everlong.inspector.pages.compactions import compaction_rows, read_compaction
from everlong.inspector.pages.cost import Ledgers, read_cost
from everlong.inspector.pages.now import read_now
from everlong.inspector.pages.search import marked_pieces
from everlong.inspector.pages.tree import agents_cost
from everlong.store.schema import session
from everlong.store.search.snippets import Snippet
from tests.context.builders import user
from tests.inspector.making import MODEL, Ferry

SETTINGS = Settings()


def test_the_parts_of_the_context_add_up_to_all_of_its_messages(ferry: Ferry) -> None:
    page = read_now(ferry.store, SETTINGS, ferry.ident)
    assert page.is_compacted
    assert page.tokens == sum(part.tokens for part in page.parts)
    sent = [part for part in page.parts if part.kind not in {"tools", "system", "memory"}]
    assert sum(part.messages for part in sent) == len(ferry.store.context(ferry.at)) - 1  # without the system message
    assert page.window is not None
    assert page.threshold is not None
    assert page.threshold < page.window


def test_ranges_of_a_compaction_cover_the_conversation_without_a_gap(ferry: Ferry) -> None:
    for number in (1, 2):
        page = read_compaction(ferry.store, SETTINGS, ferry.ident, number)
        turns = [turn for one in page.ranges for turn in (one.first_turn, one.last_turn)]
        assert turns[0] == 1
        assert all(after == (before or 0) + 1 for before, after in zip(turns[1::2], turns[2::2], strict=False))
        assert turns[-1] == page.row.turn
    assert [row.is_in_force for row in compaction_rows(ferry.store, ferry.ident)] == [False, True]


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
    rows = {row.name: row for row in read_cost(ferry.store, SETTINGS, Ledgers(), {"by": "session", "age": "all"}).rows}
    assert rows[ferry.ident].agents == rows[agent.id].cost
    assert rows[agent.id].agents == 0
    assert agents_cost(ferry.store, ferry.ident) == pytest.approx(0.3)
