from __future__ import annotations

import json
from typing import Any

import pytest

from everlong.errors import TranscriptError
from everlong.wire import Transcript, read_transcript

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
