from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given

from everlong.errors import TranscriptError
from everlong.model import HashChain, Message
from everlong.testing.strategies import conversations
from everlong.wire import Transcript, read_transcript, sendable, to_anthropic, to_openai
from tests.wire.anthropic_bodies import bodies

MARKER = {"cache_control": {"type": "ephemeral"}}


def there_and_back(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return to_anthropic(to_openai(list(messages)))[1]


def back_and_there(messages: list[Message]) -> list[Message]:
    system, converted = to_anthropic(messages)
    return to_openai(converted, system)


def call(call_id: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": arguments}, **more}


def tool(call_id: str, content: Any = "done", **more: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def use(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": arguments}


def result(call_id: str, content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


# -- for any conversation ---------------------------------------------------------------------------------------------


@given(body=bodies())
def test_any_anthropic_body_comes_back_from_openai_as_it_was(body: dict[str, Any]) -> None:
    before = copy.deepcopy(body)
    system, messages = to_anthropic(to_openai(body))
    assert (system, messages) == (before.get("system"), before["messages"])
    assert sendable(messages) == messages
    assert body == before


@given(messages=conversations())
def test_any_openai_conversation_comes_back_from_anthropic_as_it_was(messages: list[Message]) -> None:
    before = copy.deepcopy(messages)
    assert back_and_there(messages) == before
    assert messages == before


def assert_same_nodes(anthropic: list[dict[str, Any]], openai: list[Message]) -> None:
    """Every message end of the one is a message end of the other, and they end alike."""
    ids = iter(HashChain().nodes(openai))
    nodes = HashChain().nodes(anthropic)
    assert all(node in ids or node.depth == 0 for node in dict.fromkeys(nodes))
    assert HashChain().nodes(openai)[-1:] == nodes[-1:] or not nodes


@given(body=bodies())
def test_both_forms_of_an_anthropic_body_have_the_same_nodes(body: dict[str, Any]) -> None:
    assert_same_nodes(body["messages"], to_openai(body))


# -- the system prompt ------------------------------------------------------------------------------------------------


def test_instructions_amid_a_conversation_are_reminders_that_come_back_as_instructions() -> None:
    messages: list[Message] = [{"role": "user", "content": "Hi"}, {"role": "developer", "content": "Use tabs."}]
    converted = to_anthropic(messages)[1]
    assert sendable(converted)[1] == user(text("<system-reminder>\nUse tabs.\n</system-reminder>"))
    assert back_and_there(messages) == messages


# -- calls and results ------------------------------------------------------------------------------------------------


def test_a_message_between_a_call_and_its_results_goes_behind_them() -> None:
    messages: list[Message] = [
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
        tool("a"),
        {"role": "user", "content": "Wait!"},
        tool("b"),
    ]
    converted = to_anthropic(messages)[1]
    assert converted == [
        assistant(use("a"), use("b")),
        user(result("a"), result("b")),
        {"role": "user", "content": "Wait!"},
    ]


@pytest.mark.parametrize(
    "arguments", ['{"path": "x', "[1, 2]", '"text"', "null", "NaN", '{"a": 1, "a": 2}', '{"n": 1e999}']
)
def test_arguments_that_are_no_json_object_are_kept_as_text_and_come_back(arguments: str) -> None:
    messages: list[Message] = [{"role": "assistant", "content": None, "tool_calls": [call("a", arguments)]}]
    converted = sendable(to_anthropic(messages)[1])
    assert converted[0]["content"][0]["input"] == {"INVALID_JSON": arguments}
    assert to_openai(converted) == messages


@pytest.mark.parametrize("arguments", ["", " ", '{"a":1}', '{ "b": 1.50,\n"a": "\\u00e9" }', '{"INVALID_JSON": "["}'])
def test_arguments_come_back_as_the_model_wrote_them(arguments: str) -> None:
    messages: list[Message] = [{"role": "assistant", "content": None, "tool_calls": [call("a", arguments)]}]
    assert back_and_there(messages) == messages


@pytest.mark.parametrize(
    "block",
    [
        result("a", is_error=True),
        result("a", is_error=False, **MARKER),
        result("a", ""),
        result("a", []),
        {"type": "tool_result", "tool_use_id": "a"},
        {"type": "tool_result", "tool_use_id": "a", "content": None},
        result("a", [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}, text("x")]),
        {"type": "tool_result", "content": "answers nothing"},
        {"type": "tool_result", "tool_use_id": "a", "content": {"odd": 1}},
    ],
    ids=str,
)
def test_every_kind_of_result_comes_back_as_it_was(block: dict[str, Any]) -> None:
    messages = [assistant(use("a")), user(block)]
    assert there_and_back(*messages) == messages


def test_a_result_that_was_cleared_in_between_keeps_its_id_and_marker_but_not_its_emptiness() -> None:
    messages = to_openai([assistant(use("a")), user({"type": "tool_result", "tool_use_id": "a", **MARKER})])
    messages[1] = {**messages[1], "content": "[cleared]"}
    assert to_anthropic(messages)[1][1] == user(result("a", "[cleared]", **MARKER))


# -- blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "high"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg/>"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
        {"type": "image_url", "image_url": None},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "refusal", "refusal": "I will not."},
        {"type": "text", "text": ""},
        {},
        "bare text",
    ],
    ids=str,
)
def test_every_openai_part_comes_back_as_it_was(part: Any) -> None:
    messages: list[Message] = [{"role": "assistant", "content": [part]}, {"role": "user", "content": [part]}]
    assert back_and_there(messages) == messages


# -- what is odd ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "assistant", "content": "", "tool_calls": [call("a")]},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("a", cache_control=1, extra_content={"x": 1})]},
        {"role": "assistant", "content": [], "tool_calls": [call("a")]},
        {"role": "assistant", "tool_calls": [call("a")]},
        {"role": "assistant", "content": "x", "tool_calls": None, "reasoning_content": "Hm.", "refusal": None},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "ls"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": 1, "type": "custom", "custom": {"input": "x"}}]},
        {"role": "user", "content": "Hi", "name": "Ann", "_node": 7},
        {"role": "user", "content": None},
        {"role": "user", "content": []},
        {"role": "tool", "tool_call_id": "a", "content": None},
        {"role": "tool", "tool_call_id": "a", "content": "x", "name": "read"},
        {"role": "function", "name": "read", "content": "x"},
    ],
    ids=str,
)
def test_every_openai_message_comes_back_as_it_was(message: Message) -> None:
    messages: list[Message] = [{"role": "user", "content": "Hi"}, message]
    assert back_and_there(messages) == messages


@pytest.mark.parametrize(
    "note", [5, {}, {"role": 5}, {"extra": 1, "content": [], "after": "x", "joined": 1}, {"call": []}]
)
def test_private_keys_that_say_nonsense_do_no_harm(note: Any) -> None:
    keys = {"_anthropic": note, "_openai": note}
    openai: list[Message] = [
        {"role": "assistant", "content": "x", "tool_calls": [call("a", **keys)], **keys},
        tool("a", **keys),
        {"role": "user", "content": "y", **keys},
    ]
    anthropic = [assistant({**use("a"), **keys}), {**user({**result("a"), **keys}, {**text("x"), **keys}), **keys}]
    assert len(to_anthropic(openai)[1]) == 3
    assert len(to_openai(anthropic, [{**text("x"), **keys}])) == 4


@pytest.mark.parametrize("value", [{"messages": "x"}, {}, [5], [{"role": ""}], [{"role": "user", "content": 5}], "x"])
def test_what_is_no_conversation_is_refused_in_words(value: Any) -> None:
    with pytest.raises(TranscriptError, match="correct the request"):
        to_openai(value)


# -- files -------------------------------------------------------------------------------------------------------------


TOOL = {"name": "read", "description": "Reads a file.", "input_schema": {"type": "object"}}
ASK = {"role": "user", "content": "Read a.py."}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}}]}
ANSWER = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}]}
TALK = [ASK, CALL, ANSWER]


def unchanged(transcript: Transcript) -> Any:
    return transcript.render([conversation.messages for conversation in transcript.conversations])


def refusal(value: object) -> str:
    with pytest.raises(TranscriptError) as caught:
        read_transcript(json.dumps(value))
    return str(caught.value)


def test_an_anthropic_request_is_read_as_openai_messages_and_written_as_it_was() -> None:
    body = {"model": "claude-x", "system": "Be brief.", "messages": TALK, "tools": [TOOL], "max_tokens": 9}
    transcript = read_transcript(json.dumps(body))
    conversation = transcript.conversations[0]
    assert transcript.kind == "anthropic-request"
    assert transcript.describe() == "an Anthropic Messages request for claude-x with 4 messages"
    assert [message["role"] for message in conversation.messages] == ["system", "user", "assistant", "tool"]
    assert (conversation.tools, conversation.model, conversation.format) == ([TOOL], "claude-x", "anthropic")
    assert json.loads(unchanged(transcript)) == body
    assert list(json.loads(unchanged(transcript))) == list(body)


@pytest.mark.parametrize(
    "body",
    [
        {"system": "Be brief.", "messages": []},
        {"system": [], "messages": [ASK]},
        {"anthropic_version": "bedrock-2023-05-31", "messages": [ASK]},
        {"tools": [TOOL], "messages": [ASK]},
        {"messages": TALK},
        {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
        {"system": None, "messages": TALK},
    ],
    ids=str,
)
def test_each_sign_of_the_anthropic_format_is_enough(body: dict[str, Any]) -> None:
    transcript = read_transcript(json.dumps(body))
    assert transcript.kind == "anthropic-request"
    assert json.loads(unchanged(transcript)) == body


def test_what_compaction_adds_and_edits_is_written_without_private_keys() -> None:
    transcript = read_transcript(json.dumps({"messages": TALK, "system": "Be brief."}))
    system, ask, call, answer = transcript.conversations[0].messages
    edited = [system, ask, {**call, "content": "I read."}, {**answer, "content": "[cleared]"}]
    written = json.loads(transcript.render([edited]))
    assert written["messages"] == [
        ASK,
        {"role": "assistant", "content": [{"type": "text", "text": "I read."}, *CALL["content"]]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "[cleared]"}]},
    ]


def test_jsonl_and_lists_of_bodies_may_have_both_formats_each_in_a_body_of_its_own() -> None:
    rows = [{"id": "a", "system": "Be brief.", "messages": TALK}, {"id": "b", "messages": [ASK], "score": 1}]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    transcript = read_transcript(lines)
    assert transcript.kind == "jsonl-anthropic"
    assert transcript.describe() == "a JSONL file of 2 Anthropic-format conversations with 5 messages"
    assert unchanged(transcript) == lines
    assert read_transcript(json.dumps(rows)).kind == "anthropic-conversations"
    assert json.loads(unchanged(read_transcript(json.dumps(rows)))) == rows


def test_two_formats_in_one_conversation_are_refused_with_both_signs() -> None:
    tool = {"role": "tool", "tool_call_id": "t1", "content": "x"}
    message = refusal({"messages": [*TALK, tool]})
    assert "the request mixes two formats" in message
    assert "a block of the type 'tool_use' is Anthropic's, a message of the role 'tool' is OpenAI's" in message
    assert "'tool_calls' is OpenAI's" in refusal({"system": "x", "messages": [{"role": "a", "tool_calls": [1]}]})
