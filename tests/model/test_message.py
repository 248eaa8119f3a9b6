"""Messages are read safely, whatever a client put into them."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

from everlong import MessageError
from everlong.model import (
    HashChain,
    Message,
    ToolCall,
    blocks_of,
    calls_of,
    checked_messages,
    find_groups,
    without_thinking,
)
from everlong.model.long_texts import LONG, read_in_steps, write_in_steps


def test_thinking_is_taken_away_but_not_before_a_call_unless_all_of_it_must_go() -> None:
    hm, text = {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes."}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": [hm, text]}
    called = {**said, "tool_calls": [call]}
    thought = {"role": "assistant", "content": [hm]}
    plain = {"role": "assistant", "content": [text]}
    assert without_thinking(said) == plain
    assert [without_thinking(one) for one in (called, thought, plain)] == [called, thought, plain]
    assert without_thinking(called, entirely=True) == {**plain, "tool_calls": [call]}
    assert without_thinking(thought, entirely=True)["content"] is None


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}, ToolCall("a", "f", '{"x": 1}')),
        ({"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}, ToolCall("a", "f", '{"x": 1}')),
        ({"id": None, "function": {"name": "f"}}, ToolCall("", "f", "")),
        ({"id": "a", "custom": {"name": "f", "input": "free text"}}, ToolCall("a", "f", "free text")),
        ({"id": "a"}, ToolCall("a", "", "")),
    ],
)
def test_calls_are_read_as_far_as_they_go(entry: dict[str, Any], expected: ToolCall) -> None:
    assert calls_of({"role": "assistant", "tool_calls": [entry, "nonsense"]}) == [expected]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("hello", "expected a list of messages, got str"),
        ({"role": "user"}, "expected a list of messages, got dict"),
        (None, "expected a list of messages, got NoneType"),
        ([1], "message 0: expected a dict"),
        ([{"role": "user"}, {"content": "x"}], "message 1: 'role' must be a non-empty string, got None"),
        ([{"role": "user", "content": 5}], "message 0: 'content' must be a string, a list of parts or null, got int"),
    ],
)
def test_what_is_no_message_list_is_refused_with_the_place_and_the_reason(value: Any, words: str) -> None:
    with pytest.raises(MessageError, match=words.replace("(", r"\(")):
        checked_messages(value)


def call(*ids: str) -> Message:
    calls = [{"id": i, "type": "function", "function": {"name": "run", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str | None) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


USER: Message = {"role": "user", "content": "go on"}


def matched(messages: list[Message]) -> list[tuple[int, list[int], list[str]]]:
    found = find_groups(messages).groups
    return [(g.start, [a.at for a in g.answers], [c.id for c in g.missing]) for g in found]


def test_parallel_results_in_any_order_belong_to_their_one_assistant_message() -> None:
    assert matched([call("a", "b", "c"), result("c"), result("a"), result("b")]) == [(0, [1, 2, 3], [])]


def test_a_reused_id_belongs_to_the_nearest_call_that_still_waits() -> None:
    assert matched([call("x"), result("x"), call("x"), result("x")]) == [(0, [1], []), (2, [3], [])]


def test_an_interrupted_call_does_not_swallow_the_result_of_a_later_call_with_its_id() -> None:
    assert matched([call("x"), USER, call("x"), result("x")]) == [(0, [], ["x"]), (2, [3], [])]


def test_interleaved_results_of_two_assistant_messages_find_their_own() -> None:
    assert matched([call("a"), call("b"), result("a"), result("b")]) == [(0, [2], []), (1, [3], [])]


def test_a_user_message_between_call_and_result_does_not_part_them() -> None:
    assert matched([call("a"), USER, result("a")]) == [(0, [2], [])]


def test_a_result_without_an_id_answers_the_first_waiting_call_of_the_last_group() -> None:
    found = find_groups([call("a", "b"), result("b"), result(None)])
    assert [(answer.at, answer.call_id) for answer in found.groups[0].answers] == [(1, "b"), (2, "a")]


PIECES = ["a", "é", "中", "😀", "\n", '"', "\\", "\\\\", "/", "\x7f", "\\u00e9", "x" * 40]
ESCAPED = [r"\u4e2d", r"\ud83d\ude00", r"\n", r"\"", r"\\", r"\/", r"\u00e9", "a", "中", "😀", r"\\\"", r"\\\\"]


def mixed(pieces: list[str], seed: int) -> str:
    rng = random.Random(seed)
    found: list[str] = []
    size = 0
    while size <= LONG:
        piece = rng.choice(pieces)
        run = rng.choice([1, 2, 3, 50_000])
        found.append(piece * run)
        size += len(piece) * run
    return "".join(found)


def plainly(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_in_steps_means_the_same(seed: int) -> None:
    data = f'{{"a":[1,"{mixed(ESCAPED, seed)}",{{"{mixed(ESCAPED, seed + 9)}":"b"}}],"c":"d"}}'.encode()
    assert read_in_steps(data, orjson.loads) == json.loads(data)
    assert read_in_steps(b'"a",%b,"b"' % data, orjson.loads, 4, 4 + len(data)) == json.loads(data)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dumps", [orjson.dumps, plainly])
def test_what_is_written_in_steps_is_the_same_bytes(dumps: Any, seed: int) -> None:
    value = {"a": [1, mixed(PIECES, seed), {"b": mixed(PIECES, seed + 9)}, None], "c": "d"}
    assert write_in_steps(value, dumps) == dumps(value)


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
