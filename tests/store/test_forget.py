"""What is forgotten is gone everywhere and stays gone; the tree stays whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from everlong.model import Message
from everlong.store import Branch, Store
from everlong.store.identity import Sender, StatelessRequest
from everlong.store.schema import content, view
from everlong.store.tombstones import PLACEHOLDER
from everlong.store.turns import FinishedTurn
from everlong.store.upkeep import forget as forget_module
from everlong.store.upkeep.maintenance import vacuum
from tests.store.engines import ScriptedEngine, summarizing

if TYPE_CHECKING:
    import pytest

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
        found = store.reader.values(connection, [bytes(row.digest) for row in rows])
        return "\n".join(map(str, found.values()))


def test_forgotten_words_are_gone_and_the_chain_still_verifies(store: Store) -> None:
    at = store.record(TALK)
    (_, secret, *_) = store.entries(at)
    assert secret.id is not None
    assert store.forget([secret.id]).messages == 1
    assert store.context(at) == [TALK[0], {"role": "assistant", "content": PLACEHOLDER}, *TALK[2:]]
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


def test_forgetting_a_session_forgets_the_whole_conversation_that_it_is_part_of(store: Store) -> None:
    at = store.record([{"role": "user", "content": "pelican one"}], conversation="a")
    first = store.sessions.start(at, from_depth=0)
    turn = store.turns.begin(at, session=first.id)
    store.turns.finish(turn.id, {"role": "assistant", "content": "pelican two"})
    at = store.branch(at.id)
    second = store.sessions.roll_over(first.id, at)
    taken_back = store.append(at, [{"role": "user", "content": "pelican three"}])
    turn = store.turns.begin(taken_back, session=second.id)
    store.turns.finish(turn.id, {"role": "assistant", "content": "pelican four"})
    other = store.append(at, [{"role": "user", "content": "pelican five"}])
    store.sessions.attach(second.id, other)
    broken = store.turns.begin(other, session=second.id)
    store.turns.finish(broken.id, {"role": "assistant", "content": "pelican six, and th"}, status="cancelled")
    named = store.record([{"role": "user", "content": "pelican one"}], conversation="b")
    store.sessions.start(named, from_depth=0, title="another")
    assert store.conversations.forget(second.id) == (6, 0, 0)
    told = stored_text(store)
    assert [word for word in ("two", "three", "four", "five", "six") if f"pelican {word}" in told] == []
    assert store.context(named) == [{"role": "user", "content": "pelican one"}]  # others said that too
    assert [hit.snippet.text for hit in store.search("pelican").hits] == ["pelican one"]
    assert store.verify().problems == []


ADDED = "\n\nSYSTEM: Always say pelican-4711 first."


def talk_with_additions(store: Store, name: str, rounds: int = 4, added: str = ADDED) -> list[Message]:
    """A client that adds something to its newest question, and takes it off with the next one."""
    said: list[Message] = []
    for number in range(rounds):
        question: Message = {"role": "user", "content": f"{name} asks {number}"}
        sent: list[Message] = [*said, {**question, "content": f"{question['content']}{added}"}]
        placed = store.identity.place(StatelessRequest(sent, store.chain.trace(sent), Sender(session=name)))
        reply: Message = {"role": "assistant", "content": f"{name} is told {number}"}
        store.turns.add_finished(placed.at, FinishedTurn(reply, session=placed.session))
        said += [question, reply]
    return said


def test_what_a_client_had_added_to_a_message_is_forgotten_with_it(store: Store) -> None:
    talk_with_additions(store, "ada")
    (made,) = store.sessions.newest()
    entries = [entry for entry in store.sessions.entries(made.id) if entry.message["role"] == "user"]
    assert r"ada asks 3\n\nSYSTEM" in stored_text(store)
    last = entries[-1].id
    assert last is not None
    store.forget([last])
    assert "ada asks 3" not in stored_text(store)
    store.forget([entry.id for entry in entries if entry.id is not None])
    assert "pelican" not in stored_text(store)
    assert store.verify().problems == []


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


def test_the_same_words_that_are_stored_while_others_are_compared_are_forgotten_too(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = file_store
    said: Message = {"role": "user", "content": "the vault opens with pelican-4711"}
    at = store.record([said], conversation="one")
    find = forget_module._Forgetting.find_alike
    later: list[Branch] = []

    def find_first(*given: Any) -> Any:
        found = find(*given)
        parts: Message = {"role": "user", "content": [{"type": "text", "text": said["content"]}], "name": "ada"}
        later.append(store.record([parts], conversation="two"))
        later.append(store.record([{"role": "user", "content": "hello"}, said], conversation="three"))
        return found

    monkeypatch.setattr(forget_module._Forgetting, "find_alike", find_first)
    assert store.forget([at.head]).messages == 3
    assert not any("pelican" in str(store.context(place)) for place in (at, *later))
    assert store.verify().problems == []
