"""The compacted list: note, summary, roles, repaired pairs."""

from __future__ import annotations

import copy

import pytest

from everlong import ContextCompressor, Message
from everlong.context.invariants import check_all
from everlong.context.literals import ACKNOWLEDGEMENT
from everlong.model import text_of
from tests.context.builders import assistant, long_session, output, step, summaries, summary_text, system, tokens, user

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
