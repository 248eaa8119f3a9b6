from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.wire import Transcript, read_transcript

USER = {"role": "user", "content": "Grüße, 你好 👋"}
REPLY = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "ls"}}]}


def text_of(value: object, **layout: Any) -> str:
    return json.dumps(value, ensure_ascii=False, **layout)


def unchanged(transcript: Transcript) -> str:
    return transcript.render([conversation.messages for conversation in transcript.conversations])


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


def test_half_a_surrogate_pair_survives_and_the_rest_stays_readable() -> None:
    text = '[{"role": "user", "content": "cut \\ud83d here, 你好"}]\n'
    written = unchanged(read_transcript(text))
    assert written == text
    written.encode("utf-8")


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
