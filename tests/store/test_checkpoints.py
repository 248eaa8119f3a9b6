"""A list that has grown is hashed only where it grew, and an edit anywhere is never overlooked."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from everlong.model import HashChain, Message, identity
from everlong.store import Store
from everlong.store.core import Checkpoints
from everlong.store.database import Database
from tests.examples import examples
from tests.wild import wild_conversations


def talk(length: int, name: str = "one") -> list[Message]:
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{name} {n}"} for n in range(length)]


def copy_message_for_plugin(message: Message) -> Message:
    return message


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many messages were hashed since it was last asked."""
    count = 0
    whole = identity.blocks_of

    def counting(message: Message) -> Any:
        nonlocal count
        count += 1
        return whole(message)

    monkeypatch.setattr(identity, "blocks_of", counting)

    def asked() -> int:
        nonlocal count
        seen, count = count, 0
        return seen

    return asked


def test_only_what_grew_is_hashed(store: Store, hashed: Callable[[], int]) -> None:
    said = talk(500)
    store.record(said)
    assert hashed() == 500
    store.record(said)
    assert hashed() == 0
    at = store.record([{"role": "system", "content": "It is Tuesday."}, *copy.deepcopy(said), *talk(3, "two")])
    assert hashed() == 3
    assert at.depth == 503
    assert store.verify().problems == []


def test_a_store_that_redacts_cleans_only_what_grew(database: Database) -> None:
    cleaned: list[Message] = []

    def redact(message: Message) -> Message:
        cleaned.append(message)
        return {**message, "content": str(message["content"]).replace("pelican", "[redacted]")}

    store = Store(database, uuid.uuid4().hex, redact=redact)
    said = [*talk(100), {"role": "user", "content": "it is pelican"}]
    store.record(said)
    cleaned.clear()
    at = store.record([*said, {"role": "assistant", "content": "pelican, then"}])
    assert len(cleaned) <= 3
    assert [m["content"] for m in store.context(at)[-2:]] == ["it is [redacted]", "[redacted], then"]
    assert store.verify().problems == []


ODD: list[Any] = [None, float("nan"), 1, 1.0, True, "1", [], {}, 0.0, -0.0, 2**70, "\ud800"]
Edit = tuple[str, int, Any]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["grow", "same", "cut", "reword", "argument", "drop", "swap", "mark", "other"]),
        st.integers(0, 30),
        st.sampled_from(ODD),
    ),
    max_size=8,
)


def edited(said: list[Message], edit: Edit) -> list[Message]:
    """Changes some of the messages in place, as careless callers do."""
    kind, place, value = edit
    at = place % len(said) if said else 0
    if kind == "grow" or not said:
        return [*said, {"role": "user", "content": f"more {place}"}, {"role": "user", "content": ""}][: len(said) + 1]
    if kind == "cut":
        return said[:at]
    if kind == "drop":
        return [*said[:at], *said[at + 1 :]]
    if kind == "swap":
        said[0], said[at] = said[at], said[0]
    elif kind == "reword":
        said[at]["content"] = f"reworded {place}"
    elif kind == "argument":
        call = {"type": "tool_use", "id": "c", "name": "f", "input": {"x": value}}
        said[at] = {"role": "assistant", "content": [call]}
    elif kind == "mark":
        said[at]["cache_control"] = {"type": "ephemeral"}
    elif kind == "other":
        return [{"role": "user", "content": f"another beginning {place}"}, *said]
    return said


@given(wild_conversations(), EDITS, st.integers(0, 60))
@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_hashing_what_grew_equals_hashing_everything_whatever_was_edited(
    said: list[Message], edits: list[Edit], most: int
) -> None:
    chain = HashChain()
    kept = Checkpoints(chain, most_bytes=most * 1_000, least=1)
    for edit in [("same", 0, None), *edits]:
        said = edited(said, edit)
        assert kept.traced(said, copy_message_for_plugin) == chain.trace(said)
