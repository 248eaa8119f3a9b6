"""Bodies are read by places: whatever JSON says, the same is read, and what is not replaced stays byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.gateway.body import BrokenBody, read_body, read_more, splice

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.text().filter(lambda name: name != "messages"), VALUES, max_size=3)


def written(before: dict[str, Any], messages: list[Any], after: dict[str, Any], **style: Any) -> bytes:
    return json.dumps({**before, "messages": messages, **after}, **style).encode("utf-8", "surrogatepass")


@given(FIELDS, st.lists(VALUES, max_size=4), FIELDS, st.booleans(), st.sampled_from([None, 1]))
def test_a_body_is_read_as_json_reads_it(
    before: dict[str, Any], messages: list[Any], after: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    after = {name: value for name, value in after.items() if name not in before}
    body = written(before, messages, after, ensure_ascii=ascii_only, indent=indent)
    meant = json.loads(body)
    read = read_body(body, "messages")
    assert [entry.value for entry in read.entries] == meant["messages"]
    assert {name: read.field(name) for name in meant if name != "messages"} == {**before, **after}
    for span in read.entries:
        assert json.loads(body[span.start : span.end]) == span.value
    for name, (start, end) in {**read.before, **read.after}.items():
        assert json.loads(body[start:end]) == read.field(name)
    assert body[read.start - 1 : read.start] == b"["
    assert body[read.end : read.end + 1] == b"]"


@given(FIELDS, st.lists(VALUES, min_size=1, max_size=5), st.lists(VALUES, max_size=3), FIELDS)
def test_what_has_grown_is_read_only_where_it_grew(
    before: dict[str, Any], messages: list[Any], more: list[Any], after: dict[str, Any]
) -> None:
    after = {name: value for name, value in after.items() if name not in before}
    known = read_body(written(before, messages, after), "messages")
    grown = written(before, [*messages, *more], after)
    for number, entry in enumerate(known.entries, 1):
        read = read_more(grown, known.beginning(), entry.end)
        assert [one.value for one in read.entries] == [*messages, *more][number:]
        assert {name: read.field(name) for name in (*before, *after)} == {**before, **after}
        assert read.end == read_body(grown, "messages").end


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"messages": {}}',
        b'{"messages": [1,]}',
        b'{"messages": [1 2]}',
        b'{"messages": []',
        b'{"messages": []} x',
        b'{"a": 1, "messages": [], "a": 2}',
        b'{"messages": [], "messages": []}',
        b'{"messages": ["\xff"]}',
        b'{"messages": [' + b"[" * 100_000,
        b"{messages: []}",
    ],
)
def test_what_is_no_conversation_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(BrokenBody):
        read_body(body, "messages")


@given(st.binary(max_size=60), st.data())
def test_only_what_is_replaced_changes(body: bytes, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), min_size=4, max_size=4)))
    first, second = data.draw(st.binary(max_size=4)), data.draw(st.binary(max_size=4))
    changed = splice(body, [(places[0], places[1], first), (places[2], places[3], second)])
    assert changed == body[: places[0]] + first + body[places[1] : places[2]] + second + body[places[3] :]


# -- long bodies, which are read in steps ------------------------------------------------------------------------------

PAD = 'pad, [not] {a} \\\\ \\" structure ' * 40_000
SMALL = [
    '{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":[1,2,{"x":null}]}],"z":1}',
    ' { "model" : "m" , "messages" : [ 1 , true , "x\\"]" , [ ] , { } , -1.5e3 ] , "a" : 12345678901234567890123 } ',
    '{"messages":[]}',
    '{"messages":[12345678901234567890123,{"n":[12345678901234567890123]}]}',
    '{"mess\\u0061ges":[{"a":"\\ud83d\\ude00"}],"b":"\\ud800"}',
]
WRONG = [
    '{"messages":[1,]}',
    '{"messages":[1 2]}',
    '{"messages":[}',
    '{"messages":[{]}',
    '{"messages":[nul]}',
    '{"messages":[1]',
    '{"messages":[1]} x',
    '{"messages":[1],"a":1,"a":2}',
    '{"messages":[1],"messages":[]}',
    '{"messages":["x]}',
    '{"messages":[,1]}',
    '{"messages":1}',
    "[1]",
]


def padded(body: str) -> bytes:
    return body.replace("{", f'{{"pad":"{PAD}",', 1).encode()


@pytest.mark.parametrize("body", SMALL)
def test_a_long_body_is_read_like_a_short_one(body: str) -> None:
    short, long = read_body(body.encode(), "messages"), read_body(padded(body), "messages")
    assert [span.value for span in long.entries] == [span.value for span in short.entries]
    moved = len(padded(body)) - len(body.encode())
    assert [(span.start - moved, span.end - moved) for span in long.entries] == [
        (span.start, span.end) for span in short.entries
    ]
    assert {name: long.field(name) for name in (*long.before, *long.after) if name != "pad"} == {
        name: short.field(name) for name in (*short.before, *short.after)
    }
    assert long.field("pad") == json.loads(f'"{PAD}"')


@pytest.mark.parametrize("body", WRONG)
def test_what_is_wrong_with_a_short_body_is_wrong_with_a_long_one(body: str) -> None:
    for data in (body.encode(), padded(body) if body.startswith("{") else b" " * 2_000_000 + body.encode()):
        with pytest.raises(BrokenBody):
            read_body(data, "messages")
