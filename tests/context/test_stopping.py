"""A compaction that reads thousands of messages can be given up at any of them."""

from __future__ import annotations

import pytest

from everlong.context import ContextCompressor
from everlong.model import Message


class Stopped(BaseException):
    """What a host raises."""


def test_a_compaction_is_given_up_where_the_host_says_so_and_can_be_made_later() -> None:
    messages: list[Message] = [{"role": "system", "content": "You keep the harbour's book."}]
    for ship in range(200):
        messages += [
            {"role": "user", "content": f"Ship {ship} came in; note it in ship-{ship}.log. " + "It carries tea. " * 20},
            {"role": "assistant", "content": f"Noted in ship-{ship}.log. " + "All papers are in order. " * 20},
        ]
    engine = ContextCompressor(16_000)
    reads = iter(range(50))

    def check() -> None:
        if next(reads, None) is None:
            raise Stopped

    engine.stop_check = check
    with pytest.raises(Stopped):
        engine.compress(messages, force=True)
    engine.stop_check = lambda: None
    assert len(engine.compress(messages, force=True)) < len(messages)
