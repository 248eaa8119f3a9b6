"""Messages are read safely, whatever a client put into them."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest

from everlong import MessageError
from everlong.model import (
    Message,
    ToolCall,
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
