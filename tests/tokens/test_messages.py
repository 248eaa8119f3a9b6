from __future__ import annotations

from typing import Any

import pytest

from everlong.tokens import MessageCounter
from everlong.tokens.messages import MESSAGE_OVERHEAD, REPLY_PRIMING


class Tally:
    """Counts characters, and how often it was asked."""

    name = "tally"
    exact = True

    def __init__(self) -> None:
        self.asked = 0

    def count_text(self, text: str) -> int:
        self.asked += 1
        return len(text)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_request_is_its_messages_its_tools_and_the_start_of_the_reply() -> None:
    counter = MessageCounter(Tally())
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    messages = [user("one"), user("three")]
    assert counter.total(messages) == 8 + 2 * MESSAGE_OVERHEAD + REPLY_PRIMING
    assert counter.total(messages, tools) - counter.total(messages) == counter.count_tools(tools) > 50


def test_text_parts_count_as_their_text_and_pictures_do_not_count_as_text() -> None:
    counter = MessageCounter(Tally())
    assert counter.count(user([{"type": "text", "text": "hello"}, "more"])) == 9 + MESSAGE_OVERHEAD
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 500_000, "detail": "low"}}
    assert counter.count(user([picture])) == 85 + MESSAGE_OVERHEAD


def test_reasoning_counts_once_however_many_fields_repeat_it() -> None:
    counter = MessageCounter(Tally())
    plain = counter.count({"role": "assistant", "content": "done"})
    blocks = [{"type": "thinking", "thinking": "so and so", "signature": "x" * 400}]
    message = {"role": "assistant", "content": "done", "reasoning_content": "so and so", "thinking_blocks": blocks}
    assert counter.count(message) == plain + len("so and so")
    assert counter.count({"role": "assistant", "content": [*blocks, {"type": "text", "text": "done"}]}) == plain + 9


@pytest.mark.parametrize(
    "message",
    [
        user(7),
        user([[["deep"]]]),
        user([None, 3, "text", {"type": 5}, {"type": "image_url", "image_url": 9}]),
        user({"type": "text", "text": "alone"}),
        user("\ud800"),
        {},
        {"role": "assistant", "tool_calls": "broken"},
        {"role": "assistant", "tool_calls": [None, 5, "x", {}, {"function": None}, {"function": "x"}]},
        {"role": "assistant", "tool_calls": [{"id": None, "function": {"name": None, "arguments": {(1, 2): "x"}}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": ["x"], "arguments": [1]}}]},
        {"role": "user", "name": ["x"], "content": object},
        "not a message",
        None,
    ],
)
def test_a_malformed_message_is_counted_as_far_as_it_goes(message: Any) -> None:
    assert MessageCounter().count(message) >= MESSAGE_OVERHEAD


def test_circles_and_deep_nesting_do_not_raise() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    call = {"id": "c", "function": {"name": "f", "arguments": circle}}
    assert MessageCounter().count({"role": "assistant", "tool_calls": [call], "content": deep}) > 0
