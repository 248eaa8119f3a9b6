"""The strategies that ship with the package give what they promise."""

from __future__ import annotations

from hypothesis import given

from everlong.model import Message, checked_messages
from everlong.testing.strategies import conversations
from tests.context.engines import many_examples
from tests.context.protocol import problems
from tests.wild import wild_conversations


@many_examples
@given(conversations())
def test_well_formed_conversations_break_no_rule(messages: list[Message]) -> None:
    assert problems(messages) == []


@many_examples
@given(wild_conversations())
def test_wild_conversations_are_still_lists_of_messages(messages: list[Message]) -> None:
    assert checked_messages(messages) == messages
