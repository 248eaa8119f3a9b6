from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.wire import Transcript, read_transcript

USER = {"role": "user", "content": "Grüße, 你好 👋"}
REPLY = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "ls"}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "a\nb"}


def text_of(value: object, **layout: Any) -> str:
    return json.dumps(value, ensure_ascii=False, **layout)


def unchanged(transcript: Transcript) -> str:
    return transcript.render([conversation.messages for conversation in transcript.conversations])


def test_a_json_list_of_messages_is_a_message_list() -> None:
    transcript = read_transcript(text_of([USER, REPLY, RESULT]))
    assert transcript.kind == "messages"
    assert transcript.describe() == "an OpenAI message list of 3 messages"
    assert transcript.conversations[0].messages == [USER, REPLY, RESULT]
    assert transcript.conversations[0].tools == []
    assert transcript.conversations[0].model is None
    assert transcript.conversations[0].id is None


def test_a_request_body_keeps_everything_around_its_messages() -> None:
    tool = {"type": "function", "function": {"name": "ls"}}
    body = {"model": "m-1", "tools": [tool], "messages": [USER, REPLY], "temperature": 0.5, "id": "r7"}
    transcript = read_transcript(text_of(body))
    conversation = transcript.conversations[0]
    assert transcript.kind == "request"
    assert transcript.describe() == "a chat-completions request for m-1 with 2 messages"
    assert (conversation.tools, conversation.model, conversation.id) == ([tool], "m-1", "r7")
    assert transcript.render([[USER]]) == text_of({**body, "messages": [USER]}) + "\n"


def test_one_message_per_line_is_jsonl_of_messages() -> None:
    text = f"{text_of(USER)}\n\n{text_of(REPLY)}\n"
    transcript = read_transcript(text)
    assert transcript.kind == "jsonl-messages"
    assert transcript.describe() == "a JSONL file of 2 messages"
    assert transcript.render([[USER, RESULT]]) == f"{text_of(USER)}\n{text_of(RESULT)}\n"


def test_a_single_message_is_jsonl_of_one_line() -> None:
    transcript = read_transcript(text_of(USER))
    assert transcript.kind == "jsonl-messages"
    assert transcript.describe() == "a JSONL file of 1 message"


def test_one_conversation_per_line_is_jsonl_of_conversations() -> None:
    bodies = [{"id": 7, "messages": [USER]}, {"session_id": "s", "messages": [USER, REPLY], "score": 1.5}]
    transcript = read_transcript("\n".join(map(text_of, bodies)))
    assert transcript.kind == "jsonl-conversations"
    assert transcript.describe() == "a JSONL file of 2 conversations with 3 messages"
    assert [conversation.id for conversation in transcript.conversations] == ["7", "s"]
    assert transcript.render([[], [USER]]).splitlines() == [
        text_of({"id": 7, "messages": []}),
        text_of({"session_id": "s", "messages": [USER], "score": 1.5}),
    ]


def test_a_json_list_of_conversations_stays_one() -> None:
    bodies = [{"messages": [USER]}, {"messages": [REPLY], "n": 2}]
    transcript = read_transcript(text_of(bodies))
    assert transcript.kind == "conversations"
    assert transcript.describe() == "a JSON list of 2 conversations with 2 messages"
    assert unchanged(transcript) == text_of(bodies) + "\n"


def test_an_empty_list_is_a_conversation_without_messages() -> None:
    assert read_transcript("[]").describe() == "an OpenAI message list of 0 messages"
    assert unchanged(read_transcript("[]")) == "[]\n"


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"separators": (",", ":")},
        {"indent": 1},
        {"indent": 2},
        {"indent": 4},
        {"indent": "\t"},
        {"indent": 2, "separators": (",", ":")},
    ],
    ids=str,
)
@pytest.mark.parametrize("first", ["plain", "ends with a comma,", 'has ": " and "," in it', "x" * 100_000])
def test_the_layout_that_came_in_goes_out(layout: dict[str, Any], first: str) -> None:
    text = text_of([{"content": first, "role": "user"}, REPLY], **layout) + "\n"
    assert unchanged(read_transcript(text)) == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_every_unicode_encoding_is_read(encoding: str) -> None:
    transcript = read_transcript(text_of([USER]).encode(encoding))
    assert transcript.conversations[0].messages == [USER]


def test_windows_line_ends_come_back() -> None:
    lines = f"{text_of(USER)}\r\n{text_of(REPLY)}\r\n"
    assert unchanged(read_transcript(lines.encode())) == lines
    pretty = text_of([USER], indent=2).replace("\n", "\r\n") + "\r\n"
    assert unchanged(read_transcript(pretty)) == pretty


def test_half_a_surrogate_pair_survives_and_the_rest_stays_readable() -> None:
    text = '[{"role": "user", "content": "cut \\ud83d here, 你好"}]\n'
    written = unchanged(read_transcript(text))
    assert written == text
    written.encode("utf-8")


def test_unicode_line_separators_do_not_split_jsonl() -> None:
    message = {"role": "user", "content": "a\u2028b\x85c"}
    transcript = read_transcript(f"{text_of(message)}\n{text_of(USER)}\n")
    assert transcript.conversations[0].messages == [message, USER]


def test_rendering_needs_messages_for_each_conversation() -> None:
    with pytest.raises(ValueError, match="expected messages for 1 conversations, got 2"):
        read_transcript("[]").render([[], []])


TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates too
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=4
)
EXTRA = st.dictionaries(st.text("abcde", min_size=1, max_size=2), JSON, max_size=2)
MESSAGES = st.builds(
    lambda role, content, extra: {**extra, "role": role, "content": content},
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.none() | TEXTS,
    EXTRA,
)
LISTS = st.lists(MESSAGES, max_size=4)
BODIES = st.builds(lambda extra, messages: {**extra, "messages": messages}, EXTRA, LISTS)
INDENTS = st.sampled_from([None, 1, 2, 4, "\t"])


@given(messages=LISTS, indent=INDENTS)
def test_any_message_list_comes_back_as_it_was(messages: list[dict[str, Any]], indent: int | str | None) -> None:
    text = json.dumps(messages, indent=indent)
    transcript = read_transcript(text)
    assert transcript.kind == "messages"
    assert json.loads(unchanged(transcript)) == json.loads(text)
    assert unchanged(read_transcript(unchanged(transcript).encode())) == unchanged(transcript)


@given(body=BODIES, indent=INDENTS)
def test_any_request_comes_back_as_it_was(body: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(body, indent=indent)
    transcript = read_transcript(text)
    assert transcript.kind == "request"
    assert json.loads(unchanged(transcript)) == json.loads(text)
    assert list(json.loads(unchanged(transcript))) == list(body)


@given(bodies=st.lists(BODIES, min_size=2, max_size=4))
def test_any_jsonl_of_conversations_comes_back_as_it_was(bodies: list[dict[str, Any]]) -> None:
    text = "".join(f"{json.dumps(body)}\n" for body in bodies)
    transcript = read_transcript(text)
    assert transcript.kind == "jsonl-conversations"
    assert [json.loads(line) for line in unchanged(transcript).split("\n")[:-1]] == [
        json.loads(line) for line in text.split("\n")[:-1]
    ]


@given(messages=st.lists(MESSAGES, min_size=2, max_size=4))
def test_any_jsonl_of_messages_comes_back_as_it_was(messages: list[dict[str, Any]]) -> None:
    text = "".join(f"{json.dumps(message)}\n" for message in messages)
    transcript = read_transcript(text)
    assert transcript.kind == "jsonl-messages"
    assert [json.loads(line) for line in unchanged(transcript).split("\n")[:-1]] == [
        json.loads(line) for line in text.split("\n")[:-1]
    ]
