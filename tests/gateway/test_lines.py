"""Conversations in memory: a grown body is known again by its beginning, and by nothing less."""

from __future__ import annotations

import json
import random
from array import array

from everlong.gateway.body import read_body
from everlong.gateway.conversations import BodyPlace, ConversationMemory, LiveConversation, LiveConversations
from everlong.store import Branch


def body_of(*texts: str) -> bytes:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]
    return json.dumps({"model": "m", "padding": "x" * 300, "messages": messages}).encode()


def kept(live: LiveConversations, body: bytes, number: int = 1) -> LiveConversation:
    read = read_body(body, "messages")
    ends = array("Q", [entry.end for entry in read.entries])
    nodes = {count: bytes([count]) * 16 for count in range(1, len(ends) + 1)}
    last = Branch(number, nodes[len(ends)], len(ends))
    conversation = LiveConversation(read.beginning(), 0, ends, array("Q", range(1, len(ends) + 1)), last, None)
    live.keep(
        body,
        conversation,
        {at: BodyPlace(conversation, at, Branch(number, node, at), node) for at, node in nodes.items()},
    )
    return conversation


def found(live: LiveConversations, body: bytes) -> BodyPlace:
    known = live.find(body)
    assert known is not None
    return known.place


def test_a_grown_body_is_known_at_its_longest_known_beginning() -> None:
    live = LiveConversations()
    conversation = kept(live, body_of("one", "two", "three"))
    place = found(live, body_of("one", "two", "three", "four", "five"))
    assert (place.conversation, place.number, place.branch.depth) == (conversation, 3, 3)
    assert found(live, body_of("one", "two", "three")).number == 3


def test_those_not_used_for_long_go_first_whosever_they_are_and_all_is_counted_rightly() -> None:
    memory = ConversationMemory(most_bytes=100_000)
    tenants = [LiveConversations(memory) for _ in range(3)]
    dice = random.Random(1)
    favourite = body_of("the favourite", "of all")
    kept(tenants[0], favourite)
    for number in range(400):
        kept(tenants[number % 3], body_of(*(f"{number} {place}" for place in range(dice.randint(1, 99)))), number)
        found(tenants[0], favourite)
        assert sum(one.conversation.weight for live in tenants for one in live._kept.values()) <= 100_000
    assert sum(len(live) for live in tenants) > 10
    assert tenants[0].find(body_of("0 0")) is None
    for live in tenants:
        for one in list(live._kept.values()):
            live.forget(one.conversation)
        assert (live._places, live._heads, live._nodes) == ({}, {}, {})
    assert (memory._bytes, len(memory._kept)) == (0, 0)
