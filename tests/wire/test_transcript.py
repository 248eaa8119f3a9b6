from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.errors import TranscriptError
from everlong.wire import Transcript, read_transcript
from tests.steps import steps_of

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


ASKED = '{"role": "user", "content": "hello"}'


def refusal(data: bytes | str) -> str:
    with pytest.raises(TranscriptError) as caught:
        read_transcript(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ('[{"role": "us', "line 1, column 11", "unterminated string"),
        (f"[{ASKED},", "line 1, column 39", "expecting value"),
        (f"[{ASKED}", "line 1, column 38", "expecting ',' delimiter"),
        ('[\n  {"role": "user",', "line 2, column 19", "expecting property name"),
    ],
)
def test_truncated_json_says_where_it_ends_and_what_was_expected(text: str, where: str, what: str) -> None:
    message = refusal(text)
    assert where in message
    assert what in message
    assert "cut off" in message


def test_a_truncated_last_line_is_named_with_how_to_drop_it() -> None:
    message = refusal(f'{ASKED}\n{ASKED}\n{{"role": "us')
    assert "line 3" in message
    assert "head -n 2 FILE" in message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_json_cannot_hold_are_refused(number: str) -> None:
    assert f"the number {number}" in refusal(f'[{{"role": "user", "score": {number}}}]')


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, f"{ASKED}\n" + '{"a":' * 100_000, "[" * 10**5 + "]" * 10**5]
)
def test_a_hundred_thousand_brackets_are_refused_in_words(text: str) -> None:
    assert "nested too deeply" in refusal(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('["a", "b"]', "a list whose first entry is text"),
        ('"hello"', "found text"),
        ('{"choices": [], "usage": {}}', "an object with the keys 'choices', 'usage'"),
        (json.dumps(dict.fromkeys("abcdefgh", 1)), "and 2 more"),
        ('{"messages": "hello"}', "no list of 'messages'"),
        ('[{"messages": []}, 5]', "conversation 1 is a number"),
        (f'{{"messages": []}}\n{ASKED}\n', "line 2 is an object with the keys 'role', 'content'"),
        ('{"type": "summary", "summary": "x", "leafUuid": "u"}', "an object with the keys 'type', 'summary'"),
    ],
)
def test_what_is_no_conversation_is_described_beside_what_is_accepted(text: str, found: str) -> None:
    message = refusal(text)
    assert found in message
    assert "Accepted are conversations in the OpenAI or the Anthropic format" in message


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f'[{ASKED}, {{"content": "x"}}]', "message 1: 'role' must be"),
        (f'{{"messages": [{ASKED}, {{"role": 5}}]}}', "the request, message 1: 'role' must be"),
        (f'{ASKED}\n\n{{"content": "x"}}\n', "line 3: 'role' must be"),
        (f'{{"messages": []}}\n{{"messages": [{ASKED}, 7]}}\n', "line 2, message 1: expected a dict"),
        ('[{"role": "user", "content": 5}]', "message 0: 'content' must be"),
    ],
)
def test_a_message_that_is_none_is_named_by_its_place(text: str, where: str) -> None:
    assert refusal(text).startswith(where)


@given(data=st.binary() | st.text('[]{}":,rolemsagc \n\0\\u', max_size=80).map(str.encode))
def test_whatever_the_bytes_they_are_read_or_refused_in_words(data: bytes) -> None:
    with suppress(TranscriptError):
        read_transcript(data)


def test_the_work_to_read_grows_with_the_file_and_not_faster() -> None:
    def work(count: int) -> int:
        data = "".join(f"{ASKED}\n" for _ in range(count)).encode()

        def read() -> None:
            transcript = read_transcript(data)
            transcript.render([transcript.conversations[0].messages])

        return steps_of(read)

    assert work(400) < 5 * work(100)
