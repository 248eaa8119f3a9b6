"""Whatever an engine does, the view that is derived from it gives exactly its output, and is a partition."""

from __future__ import annotations

import copy
import uuid

from hypothesis import given, settings, strategies as st

from everlong.model import Message, without_thinking
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.views import ViewItem, ViewPiece, derive, problems_of, tagged, untagged
from everlong.testing.strategies import conversations
from tests.examples import examples, on_a_database
from tests.store.engines import Step, engine_of, step_lists

SHARED = on_a_database(40)


def plain(messages: list[Message]) -> list[Message]:
    return [untagged(message) for message in messages]


def unthought(messages: list[Message]) -> list[Message]:
    """Without thinking, which is sent only under the view under which it was thought."""
    return [without_thinking(message) for message in messages]


def pieces_after(pieces: list[ViewPiece], items: list[ViewItem], cover: int) -> list[ViewPiece]:
    """The pieces that a view gives, made from values alone."""
    made: list[ViewPiece] = []
    for number, item in enumerate(items):
        if item.kind == "keep":
            made += [p for p in pieces if p.is_raw and item.from_depth < p.to_depth <= item.to_depth]
        else:
            made.append(ViewPiece(item.kind, item.from_depth, item.to_depth, item.message, f"v{number}"))
    return [*made, *(p for p in pieces if p.is_raw and p.to_depth > cover)]


@st.composite
def raw(draw: st.DrawFn) -> list[ViewPiece]:
    """Raw pieces, with now and then one that follows a message without a depth of its own."""
    pieces: list[ViewPiece] = []
    depth = 0
    for number in range(draw(st.integers(1, 10))):
        beside = draw(st.integers(0, 3)) == 0
        text = draw(st.sampled_from(["yes", "ok", f"message {number}"]))
        start = depth
        depth += 0 if beside else draw(st.integers(1, 3))
        message: Message = {"role": "user", "content": text}
        pieces.append(ViewPiece("keep", start, depth, message, f"t{number}", is_raw=True))
    return pieces


@given(raw(), step_lists(), step_lists())
@settings(max_examples=examples(300), deadline=None)
def test_items_give_the_engines_output_and_partition_the_cover_also_the_second_time(
    pieces: list[ViewPiece], first: list[Step], second: list[Step]
) -> None:
    current = pieces
    for steps in (first, second):
        output = engine_of(steps).compress(tagged(current))
        derived = derive(current, copy.deepcopy(output))
        assert problems_of(derived.items, derived.cover_depth) == []
        current = pieces_after(pieces, derived.items, derived.cover_depth)
        assert [piece.message for piece in current if piece.message is not None] == plain(output)


@SHARED
@given(conversations(5), step_lists(), step_lists(), conversations(2))
def test_the_store_sends_exactly_what_the_engine_returned_and_what_came_after(
    database: Database, talk: list[Message], first: list[Step], second: list[Step], more: list[Message]
) -> None:
    store = Store(database, uuid.uuid4().hex)
    at = store.record(talk)
    for steps in (first, second):
        seen: list[list[Message]] = []
        engine = engine_of(steps)

        def watching(messages: list[Message], change=engine.change, seen=seen) -> list[Message]:  # type: ignore[no-untyped-def]
            output: list[Message] = change(messages)
            seen.append(plain(copy.deepcopy(output)))
            return output

        before = store.context(at)
        engine.change = watching
        done = store.compact(at, engine)
        assert done.messages == store.context(at)
        assert unthought(done.messages) == unthought(seen[0])
        assert done.outcome == ("unchanged" if unthought(seen[0]) == unthought(before) else "compacted")
    compacted = store.context(at)
    rest: list[Message] = [{"role": "user", "content": "go on"}, *more]
    assert store.context(store.append(at, rest)) == [*compacted, *rest]
    while store.undo(at):
        pass
    assert store.context(at) == talk
