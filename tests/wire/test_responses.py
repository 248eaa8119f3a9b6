"""Items of the Responses API become messages and the same items again."""

from __future__ import annotations

from typing import Any

import pytest

from everlong.errors import TranscriptError
from everlong.wire import from_items, to_items

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"}
QUESTION = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": "a"}'}
OTHER_CALL = {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": "{}", "namespace": "crew"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "nothing"}
REEF = [{"type": "input_text", "text": "a reef"}]
OTHER_OUTPUT = {"type": "function_call_output", "call_id": "call_2", "output": REEF}


def messages_of(items: list[Any]) -> list[Any]:
    return [message for said in from_items(items) for message in said]


def test_a_step_of_a_model_is_one_message_at_the_end_of_its_items() -> None:
    said = from_items([QUESTION, THOUGHT, SAID, CALL, OTHER_CALL, OUTPUT, OTHER_OUTPUT])
    assert [[message["role"] for message in messages] for messages in said] == [
        ["user"],
        [],
        [],
        [],
        ["assistant"],
        ["tool"],
        ["tool"],
    ]
    step = said[4][0]
    assert step["content"] == [THOUGHT, {"type": "text", "text": "I look."}]
    assert [call["id"] for call in step["tool_calls"]] == ["call_1", "call_2"]


@pytest.mark.parametrize(
    "items",
    [
        [QUESTION, THOUGHT, SAID, CALL, OUTPUT],
        [QUESTION, THOUGHT, CALL, THOUGHT, OTHER_CALL, OUTPUT, OTHER_OUTPUT],
        [QUESTION, CALL, SAID, OUTPUT],
        [QUESTION, {**SAID, "phase": "commentary"}, {**SAID, "phase": "final_answer"}],
        [{"type": "message", "role": "developer", "content": "Be brief."}, QUESTION],
        [QUESTION, {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}],
        [
            {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
        ],
        [
            {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "call_id": "c", "output": "a.txt"},
        ],
        [
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": ""}]},
        ],
        [{**QUESTION, "content": [{"type": "input_image", "image_url": "data:image/png;base64,aa", "detail": "high"}]}],
        [{"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}],
    ],
)
def test_items_come_back_as_they_were(items: list[Any]) -> None:
    assert to_items(messages_of(items)) == items


def test_reasoning_goes_back_only_where_it_is_encrypted() -> None:
    plain = {"type": "reasoning", "id": "rs_1", "summary": []}
    foreign: Any = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
    assert to_items([*messages_of([plain, SAID]), foreign]) == [SAID]


def test_a_result_that_was_made_up_for_a_call_has_the_kind_of_its_call() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"}
    result = {"role": "tool", "tool_call_id": "c", "content": "[No result]"}
    made = to_items([*messages_of([call]), result])
    assert made[-1] == {"type": "custom_tool_call_output", "call_id": "c", "output": "[No result]"}


def test_messages_of_another_api_become_items() -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "nothing"},
        {"role": "assistant", "content": "There is nothing."},
    ]
    assert to_items(messages) == [
        QUESTION,
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "nothing"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There is nothing."}]},
    ]


@pytest.mark.parametrize("item", ["text", {"type": "message", "content": "x"}])
def test_what_is_no_item_is_said_so(item: Any) -> None:
    with pytest.raises(TranscriptError):
        from_items([item])
