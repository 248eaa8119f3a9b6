"""Each rule of the message protocol: where it allows a cut, what it finds, how it mends."""

from __future__ import annotations

from itertools import product

from hypothesis import given

from everlong import Message
from everlong.context.invariants import (
    ReasoningBlocks,
    RoleOrder,
    ToolPairing,
    allows_cut,
    check_all,
    is_plain,
)
from everlong.context.literals import (
    ACKNOWLEDGEMENT,
    COMPACTION_NOTE,
    MISSING_RESULT,
    SUMMARY_PREFIX,
    is_summary,
)
from everlong.testing.strategies import conversations
from tests.context.builders import assistant, step, system, user
from tests.wild import wild_conversations

SUMMARY = user(f"{SUMMARY_PREFIX}\n\n## Goal\n- Build")
NOTED = system(f"You are a careful agent.\n{COMPACTION_NOTE}")
THINKING: Message = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]}


def problems(messages: list[Message]) -> list[tuple[str, int]]:
    return [(violation.invariant, violation.at) for violation in check_all(messages)]


def test_a_cut_may_not_fall_before_a_result() -> None:
    messages = [user("go"), *step(1, "ok"), assistant("done")]
    assert [allows_cut(messages, index) for index in range(5)] == [True, True, False, True, True]


def test_a_cut_may_not_part_thinking_from_its_step() -> None:
    messages = [user("go"), THINKING, *step(1, "ok")]
    assert allows_cut(messages, 2) is False
    assert allows_cut(messages, 1) is True


def test_orphans_and_unanswered_calls_are_found_where_they_stand() -> None:
    orphan: Message = {"role": "tool", "tool_call_id": "x", "content": "?"}
    assert problems([user("go"), orphan, step(1, "")[0], user("stop")]) == [("tool_pairing", 1), ("tool_pairing", 2)]


def test_results_are_moved_to_their_call_and_missing_ones_are_stubbed() -> None:
    call, result = step(1, "ok")
    messages = [call, user("hurry"), result, step(2, "")[0], user("stop")]
    assert ToolPairing().repair(messages) == [
        call,
        result,
        user("hurry"),
        step(2, "")[0],
        {"role": "tool", "tool_call_id": "call_2", "content": MISSING_RESULT},
        user("stop"),
    ]


def test_a_summary_beside_its_own_role_is_parted_from_it() -> None:
    messages = [NOTED, user("go"), SUMMARY, user("next")]
    assert problems(messages) == [("role_order", 2), ("role_order", 3)]
    ack = assistant(ACKNOWLEDGEMENT)
    assert RoleOrder().repair(messages) == [NOTED, user("go"), ack, SUMMARY, ack, user("next")]


def test_role_order_is_mended_in_every_short_list() -> None:
    pieces = (user("go"), assistant("done"), assistant(ACKNOWLEDGEMENT), SUMMARY, assistant(SUMMARY["content"]))
    for length in range(5):
        for start in ([], [NOTED]):
            for chosen in product(pieces, repeat=length):
                messages = RoleOrder().repair([*start, *chosen])
                assert RoleOrder().check(messages) == []
                assert RoleOrder().repair(messages) is messages


def test_thinking_on_a_message_that_no_model_wrote_is_removed() -> None:
    message: Message = {"role": "user", "content": [THINKING["content"][0], {"type": "text", "text": "go"}]}
    assert problems([message]) == [("reasoning_blocks", 0)]
    assert ReasoningBlocks().repair([message]) == [{"role": "user", "content": [{"type": "text", "text": "go"}]}]


@given(conversations() | wild_conversations())
def test_a_list_that_looks_plain_breaks_no_rule_and_holds_no_summary(messages: list[Message]) -> None:
    if is_plain(messages):
        assert check_all(messages) == []
        assert not any(map(is_summary, messages))
