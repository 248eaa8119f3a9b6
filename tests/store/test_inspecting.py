"""The size of a long stretch of a conversation, told from its newest messages."""

from __future__ import annotations

import pytest

from everlong.store import Store
from everlong.store.paths import segments_to
from everlong.store.turns import size_along
from everlong.tokens import MessageCounter, counter_for
from tests.context.builders import user


@pytest.mark.parametrize("length", [4, 2_001])
def test_the_newest_messages_stand_for_the_size_of_a_long_stretch(store: Store, length: int) -> None:
    at = store.record([user("one two three")] * length, conversation="sizes")
    counter = MessageCounter(counter_for("gpt-4o"))
    with store.database.read() as connection:
        size = size_along(store, connection, segments_to(connection, at.id, at.depth), 0, at.depth, counter)
    assert size[:2] == (length, length * counter.count(user("one two three")))
