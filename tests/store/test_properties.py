"""The properties of the conversation tree, on both databases, for conversations of every kind."""

from __future__ import annotations

import copy
import json
import uuid
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import select

from everlong.model import HashChain, Message, blocks_of
from everlong.store import Branch, Store
from everlong.store.database import Database
from everlong.store.opening import open_database
from everlong.store.schema import content, node
from everlong.store.tombstones import PLACEHOLDER
from everlong.store.tree import RecordRequest, find_deepest
from everlong.store.upkeep.garbage import collect_garbage
from everlong.store.upkeep.maintenance import stats
from everlong.testing.strategies import conversations
from tests.examples import on_a_database
from tests.store.engines import ScriptedEngine, Step, engine_of, step_lists, summarizing
from tests.wild import wild_conversations

if TYPE_CHECKING:
    from collections.abc import Callable

_REMINDER = {"type": "text", "text": "<system-reminder>The file was changed.</system-reminder>"}
_THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
_CHANGES = ("list", "marker", "space", "remind", "think", "empty", "keys", "split", "merge", "wire", "prompt", "same")


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or [])


def _listed(message: Message, extra: dict[str, Any] | None = None, *, first: bool = False) -> Message:
    parts = _parts(message)
    added = [extra] if extra else []
    return {**message, "content": [*added, *parts] if first else [*parts, *added]}


def _marked(message: Message) -> Message:
    parts = _parts(message)
    if not parts:
        return {**message, "cache_control": {"type": "ephemeral"}}
    return {**message, "content": [*parts[:-1], {**parts[-1], "cache_control": {"type": "ephemeral"}}]}


def _other_wire(message: Message) -> Message:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": message["content"]}
        return {"role": "user", "content": [{**result, "is_error": False}]}
    if message.get("tool_calls"):
        uses = [
            {"type": "tool_use", "id": c["id"], "name": c["function"]["name"], "input": _arguments(c)}
            for c in message["tool_calls"]
        ]
        kept = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**kept, "content": [*_parts(message), *uses]}
    return message


def _arguments(call: dict[str, Any]) -> Any:
    return json.loads(call["function"]["arguments"])


def _split(message: Message) -> list[Message]:
    said = _parts(message)
    if len(said) < 2 or any(part.get("type") != "text" for part in said):
        return [message]
    return [{"role": message["role"], "content": said[:1]}, {**message, "content": said[1:]}]


def _spaced(message: Message) -> Message:
    content = message.get("content")
    return {**message, "content": content + " \n"} if isinstance(content, str) else message


_ANY: dict[str, Callable[[Message], list[Message]]] = {
    "space": lambda message: [_spaced(message)],
    "keys": lambda message: [dict(reversed(message.items()))],
    "wire": lambda message: [_other_wire(message)],
    "same": lambda message: [message],
}
_SPOKEN: dict[str, Callable[[Message], list[Message]]] = {
    "list": lambda message: [_listed(message)],
    "marker": lambda message: [_marked(message)],
    "empty": lambda message: [message, {"role": message["role"], "content": ""}],
    "split": _split,
}
_OF_ROLE: dict[str, dict[str, Callable[[Message], list[Message]]]] = {
    "user": {**_ANY, **_SPOKEN, "remind": lambda message: [_listed(message, _REMINDER)]},
    "assistant": {**_ANY, **_SPOKEN, "think": lambda message: [_listed(message, _THOUGHT, first=True)]},
    "system": {**_ANY, "prompt": lambda message: [{**message, "content": "Today is another day."}]},
}


def _retell(message: Message, change: str) -> list[Message]:
    """Return one message told again, as one or more."""
    return _OF_ROLE.get(message["role"], _ANY).get(change, _ANY["same"])(message)


def _merge_user_messages(messages: list[Message]) -> list[Message]:
    """Return the messages with neighbouring plain user messages merged."""
    result: list[Message] = []
    for message in messages:
        if result and message["role"] == result[-1]["role"] == "user" and set(message) == set(result[-1]):
            result[-1] = {**result[-1], "content": [*_parts(result[-1]), *_parts(message)]}
        else:
            result.append(message)
    return result


@st.composite
def retellings(draw: st.DrawFn, conversation: list[Message]) -> list[Message]:
    """Generate the same conversation as another client, or the same one later, would send it."""
    told: list[Message] = []
    for message in conversation:
        told += _retell(message, draw(st.sampled_from(_CHANGES)))
    return _merge_user_messages(told) if draw(st.booleans()) else told


SHARED = on_a_database(25)


def fresh(database: Database) -> Store:
    return Store(database, uuid.uuid4().hex)


def bytes_of(messages: list[Message]) -> str:
    return json.dumps(messages)


# -- 1: what clients change in passing ---------------------------------------------------------------------------------


@SHARED
@given(conversations(4), st.data())
def test_a_conversation_told_again_in_another_shape_adds_nothing(
    database: Database, talk: list[Message], data: st.DataObject
) -> None:
    store = fresh(database)
    at = store.record(talk)
    before = stats(store)["messages"]
    told = data.draw(retellings(talk))
    chain = HashChain()
    assert chain.trace(told).ids == chain.trace(talk).ids
    again = store.record(told)
    assert (again.id, again.head) == (at.id, at.head)
    assert stats(store)["messages"] == before
    more: list[Message] = [{"role": "user", "content": "and now something new"}]
    later = store.record([*told, *more])
    # Where nothing was said yet there is nothing to be known by: several conversations may begin with the same silence.
    assert later.id == at.id or at.depth == 0


@given(conversations(4), st.integers(0, 30), st.sampled_from(["x", "completely different"]))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_real_edit_changes_every_id_from_there(talk: list[Message], place: int, words: str) -> None:
    chain = HashChain()
    index = place % len(talk)
    edited = copy.deepcopy(talk)
    edited[index] = {**edited[index], "content": words}
    if blocks_of(edited[index]) == blocks_of(talk[index]):
        return
    before, after = chain.nodes(talk), chain.nodes(edited)
    assert before[:index] == after[:index]
    assert {one.id for one in before[index:]}.isdisjoint(one.id for one in after[index:])


# -- 2: look-up --------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["yes", "no", "go on", "stop"])


@st.composite
def forests(draw: st.DrawFn) -> list[list[Message]]:
    """Several histories that share beginnings: forks, rewinds, and messages split and merged."""
    histories: list[list[Message]] = []
    for _ in range(draw(st.integers(1, 6))):
        again = draw(st.booleans())
        start = draw(st.sampled_from(histories)) if histories and again else []
        cut = draw(st.integers(0, len(start)))
        added: list[Message] = []
        for _ in range(draw(st.integers(0, 5))):
            texts = draw(st.lists(WORDS, min_size=1, max_size=3))
            parts = [{"type": "text", "text": text} for text in texts]
            added.append({"role": draw(st.sampled_from(["user", "assistant"])), "content": parts})
        histories.append([*start[:cut], *added])
    return histories


def deepest_by_scan(store: Store, request: RecordRequest) -> int:
    with store.database.read() as connection:
        known = {
            bytes(ident)
            for ident in connection.execute(select(node.c.id).where(node.c.tenant == store.tenant)).scalars()
        }
    return max((place + 1 for place, ident in enumerate(request.trace.ids) if ident in known), default=0)


@SHARED
@given(forests(), forests(), st.data())
def test_probing_finds_what_a_scan_finds_on_trees_with_forks_and_garbage(
    database: Database, histories: list[list[Message]], asked: list[list[Message]], data: st.DataObject
) -> None:
    store = fresh(database)
    for history in histories:
        at = store.record(history)
        chosen: bool = data.draw(st.booleans())
        if history and chosen:
            store.sessions.start(at)
    collect_garbage(store, data.draw(st.sampled_from([0.0, 1e9])))
    for history in [*histories, *asked]:
        request = RecordRequest(store.chain, store.chain.root(), history, [0.0] * len(history))
        with store.database.read() as connection:
            assert find_deepest(connection, store.database, request).depth == deepest_by_scan(store, request)
    for history in histories:
        again = store.record(history)
        assert store.chain.trace(store.context(again)).ids == store.chain.trace(history).ids
    assert store.verify().problems == []


@SHARED
@given(wild_conversations(), st.data())
def test_recording_step_by_step_equals_recording_at_once(
    database: Database, talk: list[Message], data: st.DataObject
) -> None:
    once, stepwise = fresh(database), fresh(database)
    whole = once.record(talk)
    at: Branch | None = None
    done = 0
    while done < len(talk) or at is None:
        done = min(len(talk), done + data.draw(st.integers(1, 6)))
        at = stepwise.record(talk[:done])
    assert at.depth == whole.depth
    assert once.context(whole) == talk
    assert stepwise.context(at) == talk
    assert stepwise.verify().problems == []


# -- 5: the same bytes -------------------------------------------------------------------------------------------------


@SHARED
@given(conversations(4), step_lists(), st.data())
def test_the_same_request_gives_the_same_bytes_after_a_restart_and_on_another_replica(
    url: str, database: Database, talk: list[Message], steps: list[Step], data: st.DataObject
) -> None:
    store = fresh(database)
    go_on: Message = {"role": "user", "content": "go on"}
    at = store.record([*talk, go_on])
    store.compact(at, engine_of(steps))
    sent = bytes_of(store.context(at))
    prompt = [message for message in talk[:1] if message["role"] == "system"]
    told = [*prompt, *data.draw(retellings(talk[len(prompt) :])), go_on]
    replica = open_database(url)
    try:
        other = Store(replica, store.tenant)
        assert bytes_of(other.context(other.record(told))) == sent
    finally:
        replica.close()


# -- 7: tenants and forgetting -----------------------------------------------------------------------------------------


@SHARED
@given(conversations(3), st.integers(0, 20), step_lists(), st.data())
def test_what_was_forgotten_stays_away_however_it_is_sent_again(
    database: Database, talk: list[Message], place: int, steps: list[Step], data: st.DataObject
) -> None:
    store = fresh(database)
    talk = [*talk, {"role": "user", "content": "the vault's word is pelican"}]
    at = store.record(talk)
    store.compact(at, engine_of(steps))
    entries = [entry for entry in store.entries(at) if entry.id is not None]
    chosen = [entries[-1], entries[place % len(entries)]]
    store.forget([entry.id for entry in chosen if entry.id is not None])
    assert store.record(talk).head == at.head
    assert store.record(data.draw(retellings(talk))).head == at.head
    elsewhere = store.record([{"role": "user", "content": "Another beginning"}, *talk])
    assert "pelican" not in bytes_of(store.context(elsewhere)) + bytes_of(store.context(at))
    assert PLACEHOLDER in bytes_of(store.context(elsewhere))
    with database.read() as connection:
        rows = connection.execute(select(content).where(content.c.tenant == store.tenant)).all()
        held = store.reader.values(connection, [bytes(row.digest) for row in rows])
    assert "pelican" not in str(list(held.values()))
    assert store.verify().problems == []


# -- 8: forks and views ------------------------------------------------------------------------------------------------


@SHARED
@given(conversations(4), st.integers(0, 8), st.integers(0, 8))
def test_undo_on_one_fork_leaves_the_others_as_they_were(
    database: Database, talk: list[Message], first: int, last: int
) -> None:
    store = fresh(database)
    at = store.record(talk)
    low, high = sorted((first % len(talk), last % len(talk)))
    store.compact(at, ScriptedEngine(summarizing(low, high, "first")))
    one = store.append(at, [{"role": "user", "content": "this way"}])
    two = store.append(at, [{"role": "user", "content": "that way"}])
    store.compact(two, ScriptedEngine(summarizing(0, 1, "second")))
    before_one, before_two = store.context(one), store.context(two)
    store.undo(one)
    assert store.context(two) == before_two
    assert store.context(one) == [*talk, {"role": "user", "content": "this way"}]
    store.compact(one, ScriptedEngine(summarizing(0, 1, "third")))
    assert store.context(two) == before_two
    store.undo(two)
    assert store.context(two)[:-1] == before_one[:-1]
    assert store.verify().problems == []


@SHARED
@given(conversations(3), conversations(2), conversations(2))
def test_what_comes_after_the_cover_never_changes_a_view_that_can_be_used_again(
    database: Database, talk: list[Message], this: list[Message], that: list[Message]
) -> None:
    store = fresh(database)
    go_on: Message = {"role": "user", "content": "go on"}
    at = store.record([*talk, go_on])
    store.compact(at, ScriptedEngine(summarizing(0, len(talk), "so far")))
    compacted = store.context(at)
    ends = [
        store.append(at, [{"role": "assistant", "content": name}, *rest]) for name, rest in (("a", this), ("b", that))
    ]
    for end in ends:
        assert store.context(end)[: len(compacted)] == compacted
