"""Messages are read safely, whatever a client put into them."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import MessageError
from everlong.model import (
    ToolCall,
    calls_of,
    checked_messages,
    without_thinking,
)


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
