from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from everlong.errors import TranscriptError
from everlong.wire import read_transcript
from tests.steps import steps_of

USER = '{"role": "user", "content": "hello"}'


def refusal(data: bytes | str) -> str:
    with pytest.raises(TranscriptError) as caught:
        read_transcript(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ('[{"role": "us', "line 1, column 11", "unterminated string"),
        (f"[{USER},", "line 1, column 39", "expecting value"),
        (f"[{USER}", "line 1, column 38", "expecting ',' delimiter"),
        ('[\n  {"role": "user",', "line 2, column 19", "expecting property name"),
    ],
)
def test_truncated_json_says_where_it_ends_and_what_was_expected(text: str, where: str, what: str) -> None:
    message = refusal(text)
    assert where in message
    assert what in message
    assert "cut off" in message


def test_a_truncated_last_line_is_named_with_how_to_drop_it() -> None:
    message = refusal(f'{USER}\n{USER}\n{{"role": "us')
    assert "line 3" in message
    assert "head -n 2 FILE" in message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_json_cannot_hold_are_refused(number: str) -> None:
    assert f"the number {number}" in refusal(f'[{{"role": "user", "score": {number}}}]')


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, f"{USER}\n" + '{"a":' * 100_000, "[" * 10**5 + "]" * 10**5]
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
        (f'{{"messages": []}}\n{USER}\n', "line 2 is an object with the keys 'role', 'content'"),
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
        (f'[{USER}, {{"content": "x"}}]', "message 1: 'role' must be"),
        (f'{{"messages": [{USER}, {{"role": 5}}]}}', "the request, message 1: 'role' must be"),
        (f'{USER}\n\n{{"content": "x"}}\n', "line 3: 'role' must be"),
        (f'{{"messages": []}}\n{{"messages": [{USER}, 7]}}\n', "line 2, message 1: expected a dict"),
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
        data = "".join(f"{USER}\n" for _ in range(count)).encode()

        def read() -> None:
            transcript = read_transcript(data)
            transcript.render([transcript.conversations[0].messages])

        return steps_of(read)

    assert work(400) < 5 * work(100)
