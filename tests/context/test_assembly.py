"""The compacted list: note, summary, roles, repaired pairs."""

from __future__ import annotations

import copy
from itertools import product

import pytest
from hypothesis import given

from everlong import ContextCompressor, Message
from everlong.context.invariants import ReasoningBlocks, RoleOrder, ToolPairing, allows_cut, check_all, is_plain
from everlong.context.literals import ACKNOWLEDGEMENT, COMPACTION_NOTE, MISSING_RESULT, SUMMARY_PREFIX, is_summary
from everlong.model import text_of
from everlong.testing.strategies import conversations
from tests.context.builders import assistant, long_session, output, step, summaries, summary_text, system, tokens, user
from tests.wild import wild_conversations

NOTE = (
    "[Note: Some earlier conversation turns have been compacted into a handoff summary to preserve context space. The "
    "current session state may still reflect earlier work, so build on that summary and state rather than re-doing "
    "work.]"
)
PREFIX = (
    "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below. This is a handoff from "
    "a previous context window — treat it as background reference, NOT as active instructions. Do NOT answer questions "
    "or fulfill requests mentioned in this summary; they were already addressed. Respond ONLY to the latest user "
    "message that appears AFTER this summary. The current session state (files, config, etc.) may reflect work "
    "described here — avoid repeating it:\n\n"
)


def fastapi_session() -> list[Message]:
    """45 messages and about 95,000 tokens; tool calls cross both boundaries."""
    messages = [system("You are a helpful assistant."), user("Help me set up a FastAPI project")]
    for number in range(19):
        name = f"app/module_{number}.py"
        source = f"# {name}\n" + output(3_400, f"def handler_{number}():")
        messages += step(number, source, tool="read_file", path=name)
    messages += [
        user("Fix the failing tests"),
        *step(40, "8 passed, 2 failed\n" + output(1_000)),
        *step(41, "import pytest\n" + output(600), tool="read_file", path="tests/test_api.py")[:1],
        {"role": "tool", "tool_call_id": "call_41", "content": "import pytest\n" + output(600)},
    ]
    messages[-1:] = [messages[-1]]
    return [
        *messages[:43],
        assistant("I see the issue with the test fixtures."),
        user("Great, also add error handling"),
    ]


@pytest.mark.spec("5.4", "5.2")
def test_the_example_of_45_messages_in_a_128k_window() -> None:
    session = fastapi_session()
    engine = ContextCompressor(128_000)
    assert len(session) == 45
    assert 85_000 < tokens(engine, session) < 105_000
    before = copy.deepcopy(session)
    result = engine.compress(session)

    assert result[0]["content"] == [
        {"type": "text", "text": "You are a helpful assistant."},
        {"type": "text", "text": NOTE},
    ]
    assert result[1] is session[1]
    assert result[2] is session[2]  # the first answer has a call, so the head goes on past its result
    assert result[3]["tool_call_id"] == "call_0"
    assert text_of(result[4]).startswith(PREFIX + "## Goal\n")
    assert result[4]["role"] == "user"
    tail = result[5:]
    assert [any(message is kept for kept in session) for message in tail] == [True] * len(tail)
    assert tail == session[-len(tail) :]
    assert tail[0]["role"] == "assistant"
    assert tail[-1] == user("Great, also add error handling")
    assert check_all(result, session) == []
    assert tokens(engine, result) <= engine.threshold_tokens == 64_000
    assert session == before


@pytest.mark.spec("5.4")
def test_a_system_prompt_of_several_blocks_gets_the_note_as_one_more() -> None:
    blocks = [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "B"}]
    session = [{"role": "system", "content": blocks}, *long_session(60)[1:]]
    result = ContextCompressor(8_000).compress(session)
    assert result[0]["content"] == [*blocks, {"type": "text", "text": NOTE}]


@pytest.mark.spec("5.4")
@pytest.mark.parametrize("prefix", ["[CONTEXT COMPACTION] Earlier turns were compacted...\n", "[CONTEXT SUMMARY]: "])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_summaries_of_older_versions_are_recognised_and_replaced(prefix: str, role: str) -> None:
    old: Message = {"role": role, "content": f"{prefix}\n## Goal\n- Ship the berth planner 4.2 by 2026-12-01"}
    prompt = system("You help.\n\n[Note: Some earlier conversation turns may be summarized to preserve context space.]")
    head = [prompt, user("Build the project."), *([assistant("I start.")] if role == "user" else [])]
    engine = ContextCompressor(8_000)
    result = engine.compress([*head, old, *long_session(60)[3:]])
    assert len(summaries(result)) == 1
    assert engine.last_report is not None
    assert engine.last_report.summarizer_input is not None
    assert engine.last_report.summarizer_input.previous_summary
    assert "Ship the berth planner 4.2 by 2026-12-01" in summary_text(result)


@pytest.mark.spec("5.4")
def test_an_unanswered_call_at_the_very_end_stays_pending() -> None:
    session = [system(), user("Go."), step(1, "")[0]]
    assert ContextCompressor(8_000).compress(session) == session


@pytest.mark.spec("4.3")
def test_nothing_but_note_summary_and_acknowledgement_is_ever_put_into_a_conversation() -> None:
    session = [*long_session(60), user("Go on."), *long_session(60)[3:]]
    result = ContextCompressor(8_000).compress(session)
    added = [m for m in result if not any(m is old for old in session)]
    texts = [text_of(message) for message in added]
    assert [t for t in texts if not t.startswith(PREFIX) and not t.endswith(NOTE) and t != ACKNOWLEDGEMENT] == []


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
