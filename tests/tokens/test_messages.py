from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.tokens import MessageCounter
from everlong.tokens.messages import MESSAGE_OVERHEAD, REPLY_PRIMING

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "function", "name", "arguments", "id", "image_url", "source", "data", "x"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
fields = ["content", "tool_calls", "tool_call_id", "name", "reasoning_content", "thinking_blocks", "function_call"]
junk_message = st.dictionaries(st.sampled_from(["role", *fields]), junk, max_size=6)


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


def test_sealed_thinking_counts_by_its_length_and_not_as_text() -> None:
    sealed = {"type": "redacted_thinking", "data": "A" * 6_000}
    assert MessageCounter().count({"role": "assistant", "content": [sealed]}) == 1_000 + MESSAGE_OVERHEAD


def test_a_text_is_counted_only_once() -> None:
    tally = Tally()
    counter = MessageCounter(tally)
    messages = [user(f"message {index}") for index in range(50)]
    first = counter.counts(messages)
    assert counter.counts([dict(message) for message in messages]) == first
    assert tally.asked == 50


def test_the_cache_forgets_the_oldest_and_never_grows_beyond_its_bound() -> None:
    tally = Tally()
    counter = MessageCounter(tally, capacity=10)
    for index in range(100):
        counter.count_text(f"text {index}")
    assert len(counter._cache) <= 10
    counter.count_text("text 99")
    assert tally.asked == 100
    assert counter.count_text("text 0") == len("text 0")


@pytest.mark.parametrize(
    "message",
    [
        user(7),
        user(None),
        user([[["deep"]]]),
        user([None, 3, "text", {"type": 5}, {"type": "image_url", "image_url": 9}]),
        user({"type": "text", "text": "alone"}),
        user("\ud800"),
        {},
        {"role": "assistant", "tool_calls": "broken"},
        {"role": "assistant", "tool_calls": {"id": "x"}},
        {"role": "assistant", "tool_calls": [None, 5, "x", {}, {"function": None}, {"function": "x"}]},
        {"role": "assistant", "tool_calls": [{"id": None, "function": {"name": None, "arguments": {(1, 2): "x"}}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": ["x"], "arguments": [1]}}]},
        {"role": "tool", "tool_call_id": 5, "content": {"a": b"bytes"}},
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


@given(st.lists(junk_message, max_size=4))
def test_any_message_has_a_count_and_the_cache_does_not_change_it(messages: list[dict[str, Any]]) -> None:
    counter = MessageCounter()
    first = counter.counts(messages)
    assert counter.counts(messages) == first == [MessageCounter().count(message) for message in messages]
    assert all(count >= MESSAGE_OVERHEAD for count in first)
    assert counter.total(messages) == sum(first) + REPLY_PRIMING
