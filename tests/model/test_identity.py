"""Ids survive what clients change in passing and move with every real edit."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.model import HashChain, Message, blocks_of

CHAIN = HashChain()

CONVERSATION: list[Message] = [
    {"role": "system", "content": "You are an agent. Today is Monday."},
    {"role": "user", "content": "List the files"},
    {
        "role": "assistant",
        "content": "I will look.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "src", "all": true}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a.py\nb.py"},
    {"role": "assistant", "content": "There are two."},
]


def last_id(messages: list[Message], tenant: str = "local") -> bytes:
    return HashChain(tenant).nodes(messages)[-1].id


def changed(index: int, **fields: Any) -> list[Message]:
    messages = copy.deepcopy(CONVERSATION)
    messages[index].update(fields)
    return messages


BENIGN = {
    "a string became a list of one block": changed(1, content=[{"type": "text", "text": "List the files"}]),
    "a cache marker was added": changed(
        1, content=[{"type": "text", "text": "List the files", "cache_control": {"type": "ephemeral"}}]
    ),
    "trailing white space": changed(1, content="List the files \n"),
    "the system prompt changed": changed(0, content="You are an agent. Today is Tuesday."),
    "a reminder appeared": changed(
        1,
        content=[
            {"type": "text", "text": "<system-reminder>be brief</system-reminder>"},
            {"type": "text", "text": "List the files"},
        ],
    ),
    "thinking appeared": changed(
        4, content=[{"type": "thinking", "thinking": "two"}, {"type": "text", "text": "There are two."}]
    ),
    "an empty text appeared": changed(
        4, content=[{"type": "text", "text": ""}, {"type": "text", "text": "There are two."}]
    ),
    "keys of arguments changed order": changed(
        2,
        tool_calls=[
            {"index": 0, "function": {"arguments": '{"all":true,"path":"src"}', "name": "ls"}, "id": "c1", "type": "f"}
        ],
    ),
}


@pytest.mark.parametrize("messages", BENIGN.values(), ids=BENIGN.keys())
def test_what_clients_change_in_passing_keeps_the_id(messages: list[Message]) -> None:
    assert last_id(messages) == last_id(CONVERSATION)


def test_a_message_split_in_two_keeps_the_id() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    whole: list[Message] = [{"role": "user", "content": parts}]
    split: list[Message] = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    assert last_id(whole) == last_id(split)


def test_the_other_wire_format_keeps_the_id() -> None:
    other = copy.deepcopy(CONVERSATION)
    other[2] = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I will look."},
            {"type": "tool_use", "id": "c1", "name": "ls", "input": {"all": True, "path": "src"}},
        ],
    }
    other[3] = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.py\nb.py", "is_error": False}],
    }
    assert last_id(other) == last_id(CONVERSATION)


def test_words_between_two_reminders_are_part_of_the_id() -> None:
    brief = "<system-reminder>be brief</system-reminder>"
    first, second, reminders = (changed(1, content=f"{brief}\n{words}\n{brief}") for words in ("one", "two", ""))
    assert len({last_id(first), last_id(second), last_id(reminders)}) == 3
    alone = changed(1, content=[{"type": "text", "text": "List the files"}, {"type": "text", "text": brief + brief}])
    assert last_id(alone) == last_id(CONVERSATION)


def test_equal_texts_of_two_tenants_have_unrelated_ids() -> None:
    mine, theirs = CHAIN.nodes(CONVERSATION), HashChain("other").nodes(CONVERSATION)
    assert {node.id for node in mine}.isdisjoint(node.id for node in theirs)


def test_arguments_nested_deeper_than_the_stack_are_told_apart() -> None:
    def nested(leaf: int) -> Any:
        value: Any = leaf
        for _ in range(20_000):
            value = [value]
        return value

    def deep(leaf: int) -> Message:
        return {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": nested(leaf)}]}

    assert blocks_of(deep(1)) != blocks_of(deep(2))
    assert blocks_of(deep(1)) == blocks_of(deep(1))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), json_values), st.randoms())
def test_the_order_of_keys_never_matters(arguments: dict[str, Any], random: Any) -> None:
    items = list(arguments.items())
    random.shuffle(items)

    def message(value: dict[str, Any]) -> Message:
        function = {"name": "f", "arguments": json.dumps(value)}
        return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}

    assert blocks_of(message(arguments)) == blocks_of(message(dict(items)))
