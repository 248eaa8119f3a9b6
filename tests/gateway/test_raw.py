"""Bodies are read by places: whatever JSON says, the same is read, and what is not replaced stays byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from everlong.gateway.body import BrokenBody, read_body, read_more

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
