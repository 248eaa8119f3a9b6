"""The values behind the pages, read from a store without a server."""

from __future__ import annotations

from decimal import Decimal

import pytest
from sqlalchemy import update

from everlong.config import Settings
from everlong.errors import NotStored
from everlong.inspector.pages.compactions import compaction_rows, read_compaction, read_paybacks, summary_lines
from everlong.inspector.pages.conversation_list import read_filters, read_list
from everlong.inspector.pages.cost import Ledgers, read_cost
from everlong.inspector.pages.now import read_now
from everlong.inspector.pages.search import marked_pieces
from everlong.inspector.pages.sources import find_sources
from everlong.inspector.pages.timeline import read_chart, read_timeline
from everlong.inspector.pages.transcript import ShownMark, ShownMessage, page_of_turn, read_transcript
from everlong.inspector.pages.tree import agents_cost, read_tree
from everlong.store import Store
from everlong.store.schema import session
from everlong.store.search.snippets import Snippet
from tests.context.builders import user
from tests.inspector.making import MODEL, SUMMARY, Ferry, make_long

SETTINGS = Settings()


def test_lines_of_a_summary_know_their_section_and_whether_they_are_quoted() -> None:
    lines = list(summary_lines(SUMMARY))
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert [(line.text, line.section) for line in lines if line.is_key] == [
        ("timeout = 4711 seconds", "Critical Context")
    ]
    assert [line.text for line in lines if line.kind == "heading"] == ["Goal", "Progress", "Done", "Critical Context"]


def test_the_parts_of_the_context_add_up_to_all_of_its_messages(ferry: Ferry) -> None:
    page = read_now(ferry.store, SETTINGS, ferry.ident)
    assert page.is_compacted
    assert page.tokens == sum(part.tokens for part in page.parts)
    sent = [part for part in page.parts if part.kind not in {"tools", "system", "memory"}]
    assert sum(part.messages for part in sent) == len(ferry.store.context(ferry.at)) - 1  # without the system message
    assert page.window is not None
    assert page.threshold is not None
    assert page.threshold < page.window


def test_a_conversation_without_a_compaction_is_all_tail(store: Store) -> None:
    page = read_now(store, SETTINGS, make_long(store, 10))
    assert [(part.kind, part.messages) for part in page.parts] == [("tail", 10)]
    assert not page.is_compacted


def test_ranges_of_a_compaction_cover_the_conversation_without_a_gap(ferry: Ferry) -> None:
    for number in (1, 2):
        page = read_compaction(ferry.store, SETTINGS, ferry.ident, number)
        turns = [turn for one in page.ranges for turn in (one.first_turn, one.last_turn)]
        assert turns[0] == 1
        assert all(after == (before or 0) + 1 for before, after in zip(turns[1::2], turns[2::2], strict=False))
        assert turns[-1] == page.row.turn
    assert [row.is_in_force for row in compaction_rows(ferry.store, ferry.ident)] == [False, True]


def test_what_a_compaction_paid_is_counted_from_the_turns_under_it(ferry: Ferry) -> None:
    payback = read_compaction(ferry.store, SETTINGS, ferry.ident, 1).payback
    assert payback is not None
    assert payback.turns == 2
    assert payback.saved is None or payback.saved >= Decimal(0)


def test_a_line_that_nobody_said_has_no_source(ferry: Ferry) -> None:
    page = read_compaction(ferry.store, SETTINGS, ferry.ident, 1)
    line = next(line for line in page.lines if line.is_key)
    (source, *_) = find_sources(ferry.store, ferry.ident, page, line)
    assert (source.is_exact, source.role) == (True, "tool")
    strange = line._replace(text="Zeppelin_77 flies over quux/frob.rs")
    assert find_sources(ferry.store, ferry.ident, page, strange) == []


def test_the_timeline_goes_back_page_by_page(ferry: Ferry) -> None:
    page = read_timeline(ferry.store, SETTINGS, ferry.ident)
    assert page.count == len(page.turns) == 8
    older = read_timeline(ferry.store, SETTINGS, ferry.ident, page.turns[2].id)
    assert [turn.id for turn in older.turns] == [turn.id for turn in page.turns[3:]]
    chart = read_chart(ferry.store, SETTINGS, ferry.ident)
    assert chart["turn"] == [turn.turn for turn in reversed(page.turns)]


def test_a_transcript_has_messages_and_marks_in_order(ferry: Ferry) -> None:
    page = read_transcript(ferry.store, ferry.ident)
    marks = [place for place, line in enumerate(page.lines) if isinstance(line, ShownMark)]
    messages = [line for line in page.lines if isinstance(line, ShownMessage)]
    assert (len(marks), len(messages)) == (2, 16)
    assert [line.number for line in page.lines if isinstance(line, ShownMark)] == [1, 2]
    assert [page_of_turn(turn) for turn in (0, 1, 200, 201, 400)] == [1, 1, 1, 2, 2]


def test_a_snippet_with_a_secret_shows_neither_marks_nor_secret() -> None:
    secret = "sk-ant-api03-" + "Zk3" * 30
    assert "".join(piece.text for piece in marked_pieces(Snippet("one two", ((4, 7),)))) == "one two"
    (piece,) = marked_pieces(Snippet(f"key {secret}", ((4, 9),)))
    assert secret not in piece.text


def test_a_tree_of_one_has_no_children(ferry: Ferry) -> None:
    page = read_tree(ferry.store, ferry.ident)
    assert (page.root.row.id, page.root.children, page.is_cut) == (ferry.ident, (), False)


@pytest.mark.usefixtures("ferry")
def test_filters_that_cannot_be_read_are_none(store: Store) -> None:
    filters, age = read_filters({"cost": "many", "age": "never", "compacted": "maybe", "client": "  "})
    assert (filters.is_empty, age) == (True, "")
    assert len(read_list(store, {"after": "nonsense"}).rows) == 1


@pytest.mark.usefixtures("ferry")
def test_books_are_read_again_only_for_a_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledgers = Ledgers()
    first = ledgers.books(store, SETTINGS, "model", "all")
    assert ledgers.books(store, SETTINGS, "model", "all") is first
    monkeypatch.setattr("everlong.inspector.pages.cost._PATIENCE", 0.0)
    assert read_cost(store, SETTINGS, Ledgers(), {"by": "model", "age": "all"}).total.calls == 8


def test_what_is_not_there_is_not_stored(ferry: Ferry) -> None:
    with pytest.raises(NotStored):
        read_compaction(ferry.store, SETTINGS, ferry.ident, 3)
    with pytest.raises(NotStored):
        read_now(ferry.store, SETTINGS, "nobody")


def test_savings_by_cache_are_told_apart_by_what_the_provider_needs(ferry: Ferry) -> None:
    page = read_cost(ferry.store, SETTINGS, Ledgers(), {"age": "all"})
    assert page.caching_saved is not None
    assert page.markers_saved == page.caching_saved > 0, "Claude keeps only what a marker names"
    assert page.automatic_saved == 0
    one = ferry.store.sessions.start(title="Another", model="openai:gpt-5.1")
    at = ferry.store.record([user("Hello")], conversation=one.id)
    turn = ferry.store.turns.begin(at, model="openai:gpt-5.1", session=one.id)
    ferry.store.turns.finish(turn.id, usage={"input_tokens": 10, "cache_read_tokens": 90_000, "output_tokens": 1})
    page = read_cost(ferry.store, SETTINGS, Ledgers(), {"age": "all"})
    assert page.automatic_saved > 0
    assert page.automatic_saved + page.markers_saved == page.caching_saved


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


def test_each_compaction_tells_whether_it_paid(ferry: Ferry) -> None:
    paybacks = read_paybacks(ferry.store, SETTINGS, ferry.ident)
    assert sorted(paybacks) == [1, 2]
    assert [one.turns for one in paybacks.values()] == [2, 1]


def test_a_live_transcript_reads_only_what_is_new(ferry: Ferry) -> None:
    whole = read_transcript(ferry.store, ferry.ident)
    new = read_transcript(ferry.store, ferry.ident, whole.page, whole.last_turn - 1)
    assert [one.turn for one in new.lines if isinstance(one, ShownMessage)] == [whole.last_turn]
    none = read_transcript(ferry.store, ferry.ident, whole.page, whole.last_turn)
    assert (none.lines, none.last_turn) == ((), whole.last_turn)


def test_every_filter_of_the_list_chooses(ferry: Ferry) -> None:
    make_long(ferry.store, 4)
    for query in (
        {"client": "claude-code"},
        {"folder": "/home/ada/ferry"},
        {"cost": "0.05"},
        {"compacted": "yes"},
    ):
        assert [row.id for row in read_list(ferry.store, query).rows] == [ferry.ident], query
    assert ferry.ident not in [row.id for row in read_list(ferry.store, {"compacted": "no"}).rows]
    assert len(read_list(ferry.store, {"model": MODEL}).rows) == 2
    assert read_list(ferry.store, {"model": "another"}).rows == ()
    long_ago = update(session).where(session.c.conversation == ferry.ident).values(active=1e9)
    ferry.store.database.write(lambda connection: connection.execute(long_ago))
    assert [row.title for row in read_list(ferry.store, {"age": "1d"}).rows] == ["A long one"]
