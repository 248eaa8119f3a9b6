"""A check finds whatever was changed behind the store's back."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, delete, select, update

from everlong.model import Message
from everlong.store import Store
from everlong.store.content import blob, encoded
from everlong.store.identity import Sender, StatelessRequest
from everlong.store.schema import alias, annex, branch, content, node, reply_name, session, turn, view, view_item
from everlong.store.turns import FinishedTurn
from tests.store.engines import ScriptedEngine, summarizing

TALK: list[Message] = [
    {"role": "system", "content": "You are an agent."},
    *({"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n}"} for n in range(8)),
    {"role": "developer", "content": "Be brief."},
]


@pytest.fixture
def filled(store: Store) -> Store:
    at = store.record(TALK)
    store.compact(at, ScriptedEngine(summarizing(2, 6)))
    store.record([*TALK[:4], {"role": "user", "content": "a fork"}])
    begun = store.sessions.start(at, system_prompt="You are an agent.")
    part = store.sessions.roll_over(begun.id, at)
    store.sessions.start(title="another one")
    store.turns.add_finished(
        at, FinishedTurn({"role": "assistant", "content": "Done."}, session=part.id, names=("resp_1",))
    )
    question: list[Message] = [{"role": "user", "content": "the same question"}]
    for client in ("one", "two"):  # the second one gets a root of its own
        placed = store.identity.place(StatelessRequest(question, store.chain.trace(question), Sender(session=client)))
    name = {"id": b"by another name.", "node": placed.at.head, "tenant": store.tenant}
    store.database.write(lambda connection: connection.execute(alias.insert().values(name)).rowcount)
    return store


def test_a_sound_store_has_no_problems(filled: Store) -> None:
    told: list[tuple[int, int]] = []
    found = filled.verify(lambda done, total: told.append((done, total)))
    assert found.problems == []
    assert found.remarks == []
    assert (found.messages, found.branches, found.views) == (12, 4, 1)
    assert told[-1] == (12, 12)


Damage = Callable[[Connection, str], object]


def other_words(connection: Connection, tenant: str) -> None:
    changed = blob(tenant, encoded({"role": "user", "content": "message 99"}))
    one = select(node.c.digest).where(node.c.tenant == tenant, node.c.depth == 3).limit(1).scalar_subquery()
    connection.execute(update(content).where(content.c.digest == one).values(bytes=changed.bytes, codec=changed.codec))


def other_content(connection: Connection, tenant: str) -> None:
    first = select(node.c.digest).where(node.c.tenant == tenant, node.c.depth == 1).order_by(node.c.seq).limit(1)
    digests = first.scalar_subquery()
    connection.execute(update(node).where(node.c.tenant == tenant, node.c.depth == 2).values(digest=digests))


def of(table, **values) -> Damage:  # type: ignore[no-untyped-def]
    return lambda connection, tenant: connection.execute(update(table).where(table.c.tenant == tenant).values(**values))


def gone(table, *conditions) -> Damage:  # type: ignore[no-untyped-def]
    return lambda connection, tenant: connection.execute(delete(table).where(table.c.tenant == tenant, *conditions))


def broken_items(connection: Connection, tenant: str) -> None:
    mine = select(view.c.id).where(view.c.tenant == tenant)
    connection.execute(update(view_item).where(view_item.c.view.in_(mine), view_item.c.ord == 1).values(to_depth=3))


def where_set(table, column, **values) -> Damage:  # type: ignore[no-untyped-def]
    """Change those rows that have something in a column."""
    return lambda connection, tenant: connection.execute(
        update(table).where(table.c.tenant == tenant, column.is_not(None)).values(**values)
    )


def twice_continued(connection: Connection, tenant: str) -> None:
    first = connection.execute(
        select(session.c.parent).where(session.c.tenant == tenant, session.c.parent.is_not(None))
    )
    values = {"parent": first.scalar_one(), "conversation": "x"}
    connection.execute(
        update(session).where(session.c.title == "another one", session.c.tenant == tenant).values(values)
    )


def continued_by_itself(connection: Connection, tenant: str) -> None:
    connection.execute(update(session).where(session.c.tenant == tenant).values(parent=session.c.id))


DAMAGES: dict[str, tuple[Damage, str]] = {
    "changed words": (other_words, "does not hash to its name"),
    "swapped content": (other_content, "does not follow from its content and its parent"),
    "lost content": (gone(content), "has no content"),
    "lost bytes": (of(content, bytes=None), "has no bytes"),
    "damaged bytes": (of(content, bytes=b"nonsense", codec=1), "cannot be unpacked"),
    "lost message": (gone(node, node.c.depth == 2), "which is not there"),
    "moved message": (
        lambda connection, tenant: connection.execute(
            update(node).where(node.c.tenant == tenant, node.c.depth == 9).values(depth=10)
        ),
        "should be at 9",
    ),
    "wrong head": (of(branch, head_depth=2), "ends at"),
    "lost branch": (gone(branch), "which does not lead to it"),
    "lost view": (gone(view), "shows is not there"),
    "torn view": (broken_items, "the items end at 3"),
    "blind view": (of(view, saw_depth=1), "in sight"),
    "lost place of a session": (of(session, branch=999_999_999), "the branch of session"),
    "lost prompt": (of(session, system_prompt=bytes(16)), "the system prompt of session"),
    "lost aside": (of(annex, digest=bytes(16)), "beside branch"),
    "lost turn": (of(reply_name, turn=999_999_999), "turn 999999999, whose reply has a name"),
    "lost session of a turn": (of(turn, session="nobody"), "the session of turn"),
    "lost part": (of(session, parent="nobody"), "goes on from is not there"),
    "lost first prompt": (of(session, preamble=bytes(16)), "the first prompt and tools of session"),
    "torn conversation": (where_set(session, session.c.parent, conversation="x"), "a part of another conversation"),
    "two beginnings": (where_set(session, session.c.parent, parent=None), "goes on from no part of it"),
    "no beginning": (of(session, conversation="x"), "goes on from no part of it"),
    "two that go on": (twice_continued, "both go on from session"),
    "circle": (continued_by_itself, "is the first part of its conversation and goes on from session"),
    "lost named message": (of(alias, node=bytes(16)), f"message {bytes(16).hex()}, which has a further name"),
    "wrong mark": (where_set(node, node.c.mark, mark=bytes(16)), "has a mark that does not follow from its words"),
    "other root": (where_set(branch, branch.c.parent, root=bytes(16)), "has another root than branch"),
    "lost preamble": (of(branch, preamble=bytes(16)), "the system messages of branch"),
}


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_found(filled: Store, damage: Damage, sentence: str) -> None:
    filled.database.write(lambda connection: damage(connection, filled.tenant))
    problems = filled.verify().problems
    assert any(sentence in problem for problem in problems), problems


@pytest.mark.parametrize("damage", ["lost bytes", "damaged bytes", "lost content"])
def test_what_is_damaged_hides_nothing_else_from_a_search(filled: Store, damage: str) -> None:
    other = Store(filled.database, uuid.uuid4().hex)
    other.record([{"role": "user", "content": "the pelican of another tenant"}])
    filled.database.write(lambda connection: DAMAGES[damage][0](connection, filled.tenant))
    for _ in ("while it is only stored", "when it is indexed"):
        assert [hit.snippet.text for hit in other.search("pelican").hits] == ["the pelican of another tenant"]
        assert not filled.search("message").hits
        while other.searcher.index_pending():
            pass
