"""What is forgotten is gone everywhere and stays gone; the tree stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from everlong.errors import NotStored
from everlong.model import Message
from everlong.store import Store
from everlong.store.forgotten import PLACEHOLDER
from everlong.store.maintenance import vacuum
from everlong.store.schema import content, view
from tests.store.engines import ScriptedEngine, summarizing

SECRET = "The harbour's vault opens with pelican-4711"  # noqa: S105 - made up
TALK: list[Message] = [
    {"role": "user", "content": "Where is the key?"},
    {"role": "assistant", "content": SECRET},
    {"role": "user", "content": "yes"},
    {"role": "assistant", "content": "Noted, I will use it."},
]


def stored_text(store: Store) -> str:
    with store.database.read() as connection:
        rows = connection.execute(select(content).where(content.c.tenant == store.tenant)).all()
        return "\n".join(str(store.reader.values(connection, [bytes(row.digest)])) for row in rows)


def test_forgotten_words_are_gone_and_the_chain_still_verifies(store: Store) -> None:
    at = store.record(TALK)
    (_, secret, *_) = store.entries(at)
    assert secret.id is not None
    assert store.forget([secret.id]).messages == 1
    assert store.context(at) == [TALK[0], {"role": "assistant", "content": PLACEHOLDER}, *TALK[2:]]
    assert "pelican" not in stored_text(store)
    assert store.verify().problems == []


def test_sent_again_they_are_not_stored_again_in_whatever_shape(store: Store) -> None:
    at = store.record(TALK)
    secret = store.entries(at)[1].id
    assert secret is not None
    store.forget([secret])
    assert store.record(TALK) == at
    shapes: list[Message] = [
        {"role": "assistant", "content": SECRET + " \n"},
        {"role": "assistant", "content": [{"type": "text", "text": SECRET, "cache_control": {"type": "x"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "So:"}, {"type": "text", "text": SECRET}]},
    ]
    for number, shape in enumerate(shapes):
        other = store.record([{"role": "user", "content": f"again {number}"}, shape, TALK[3]])
        assert store.record([{"role": "user", "content": f"again {number}"}, shape, TALK[3]]) == other
        assert store.context(other)[1] == {"role": "assistant", "content": PLACEHOLDER}
    assert "pelican" not in stored_text(store)
    assert store.verify().problems == []


def test_copies_on_other_branches_are_forgotten_too(store: Store) -> None:
    first = store.record(TALK)
    marked: Message = {"role": "assistant", "content": [{"type": "text", "text": SECRET}]}
    second = store.record([{"role": "user", "content": "Tell me."}, marked])
    secret = store.entries(first)[1].id
    assert secret is not None
    assert store.forget([secret]).messages == 2
    assert store.context(second)[1] == {"role": "assistant", "content": PLACEHOLDER}
    assert "pelican" not in stored_text(store)


def test_views_made_with_it_in_sight_become_void_with_their_summaries(store: Store) -> None:
    at = store.record(TALK[:1])
    store.compact(at, ScriptedEngine(lambda messages: [{"role": "user", "content": "kept"}, *messages]))
    early = store.context(at)
    at = store.record(TALK)
    engine = ScriptedEngine(summarizing(0, 3, f"all about it: {SECRET}"))
    store.compact(at, engine)
    assert "pelican" in stored_text(store)
    secret = store.entries(at)[1].id
    assert secret is not None
    assert store.forget([secret]).views == 1
    assert "pelican" not in stored_text(store)
    assert store.context(at)[:2] == early
    with store.database.read() as connection:
        states = connection.execute(select(view.c.state).where(view.c.tenant == store.tenant).order_by(view.c.id))
        assert list(states.scalars()) == ["good", "void"]
    assert store.verify().problems == []


def test_a_forgotten_call_keeps_its_shape_so_that_its_result_still_belongs_to_it(store: Store) -> None:
    call: Message = {
        "role": "assistant",
        "content": "pelican-4711",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "open", "arguments": '{"code": 4711}'}}],
    }
    result: Message = {"role": "tool", "tool_call_id": "c1", "content": "opened with pelican-4711"}
    at = store.record([TALK[0], call, result])
    idents = [entry.id for entry in store.entries(at)[1:]]
    store.forget([ident for ident in idents if ident is not None])
    said = store.context(at)
    assert said[1]["tool_calls"][0]["id"] == said[2]["tool_call_id"] == "c1"
    assert "4711" not in str(said)
    assert store.verify().problems == []


def test_forgetting_a_session_spares_words_that_others_use(store: Store) -> None:
    at = store.record(TALK)
    made = store.sessions.start(at, from_depth=0)
    other = store.record([{"role": "user", "content": "Shall I?"}, *TALK[2:3]])
    assert store.forget_session(made.id).messages == 4
    assert [message["content"] for message in store.context(at)] == [PLACEHOLDER] * 4
    assert store.context(other)[1] == TALK[2]
    assert "pelican" not in stored_text(store)
    assert store.verify().problems == []


def test_forgetting_a_session_spares_messages_that_the_session_of_a_fork_shows(store: Store) -> None:
    at = store.record(TALK)
    made = store.sessions.start(at, from_depth=0)
    fork = store.record([*TALK[:2], {"role": "user", "content": "no"}])
    store.sessions.start(fork, from_depth=0)
    assert store.forget_session(made.id) == (2, 0, 2)
    assert store.context(fork) == [*TALK[:2], {"role": "user", "content": "no"}]
    assert [message["content"] for message in store.context(at)[2:]] == [PLACEHOLDER] * 2
    assert len(store.search("pelican").hits) == 1
    assert store.verify().problems == []


def test_a_fork_that_begins_after_what_is_forgotten_spares_none_of_it(store: Store) -> None:
    at = store.record(TALK)
    made = store.sessions.start(at, from_depth=0)
    fork = store.record([*TALK[:2], {"role": "user", "content": "no"}])
    store.sessions.start(fork, from_depth=2)
    assert store.forget_session(made.id) == (4, 0, 0)
    assert [message["content"] for message in store.context(fork)] == [PLACEHOLDER, PLACEHOLDER, "no"]
    assert "pelican" not in stored_text(store)


def test_forgetting_a_session_spares_the_replies_that_others_got(store: Store) -> None:
    reply: Message = {"role": "assistant", "content": "Gladly, at once."}
    turns = []
    for asked in ("one?", "two?"):
        at = store.record([{"role": "user", "content": asked}])
        made = store.sessions.start(at, from_depth=0)
        turn = store.turns.begin(at, session=made.id)
        store.turns.finish(turn.id, reply)
        turns.append((made.id, turn.id))
    store.forget_session(turns[0][0])
    assert store.turns.reply(turns[0][1]) is None
    assert store.turns.reply(turns[1][1]) == reply
    assert store.verify().problems == []


def test_forgetting_what_is_not_there_is_an_error_and_changes_nothing(store: Store) -> None:
    at = store.record(TALK)
    known = store.entries(at)[1].id
    assert known is not None
    with pytest.raises(NotStored, match="00000000"):
        store.forget([known, bytes(16)])
    assert store.context(at) == TALK


def test_no_trace_of_the_words_is_left_in_the_file_after_a_vacuum(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.open(path) as store:
        at = store.record(TALK)
        store.search("pelican")
        secret = store.entries(at)[1].id
        assert secret is not None
        assert b"pelican" in path.read_bytes() + path.with_name("store.db-wal").read_bytes()
        store.forget([secret])
        assert store.search("pelican").hits == ()
        vacuum(store)
    left = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"pelican" not in left
