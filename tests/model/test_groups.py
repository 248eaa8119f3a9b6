"""Calls and results are matched by position and id, as real logs need."""

from __future__ import annotations

from everlong.model import Message, find_groups


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
