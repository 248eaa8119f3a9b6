"""Bodies are read as JSON reads them, known by their beginnings, and given up where they are never read."""

from __future__ import annotations

import json
import random
from array import array
from typing import Any

import pytest
from bench.gateway.odd_requests import play, upstream_script
from hypothesis import given, strategies as st

from everlong.gateway.body import BrokenBody, read_body, read_more
from everlong.gateway.conversations import (
    BodyPlace,
    ConversationMemory,
    LiveConversation,
    LiveConversations,
    hash_beginnings,
)
from everlong.store import Branch
from tests.examples import few
from tests.gateway.running import Raw, Running
from tests.gateway.upstream import Upstream

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
    for name, (start, end) in read.fields.items():
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


def body_of(*texts: str) -> bytes:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]
    return json.dumps({"model": "m", "padding": "x" * 300, "messages": messages}).encode()


def kept(live: LiveConversations, body: bytes, number: int = 1) -> LiveConversation:
    read = read_body(body, "messages")
    ends = array("Q", [entry.end for entry in read.entries])
    nodes = {count: bytes([count]) * 16 for count in range(1, len(ends) + 1)}
    last = Branch(number, nodes[len(ends)], len(ends))
    conversation = LiveConversation(read.beginning(), 0, ends, array("Q", range(1, len(ends) + 1)), last, None)
    live.keep(
        body,
        conversation,
        {at: BodyPlace(conversation, at, Branch(number, node, at), node) for at, node in nodes.items()},
    )
    return conversation


def found(live: LiveConversations, body: bytes) -> BodyPlace:
    known = live.find(body, hash_beginnings(body, live.lengths(body)))
    assert known is not None
    return known.place


def test_a_grown_body_is_known_at_its_longest_known_beginning() -> None:
    live = LiveConversations()
    conversation = kept(live, body_of("one", "two", "three"))
    place = found(live, body_of("one", "two", "three", "four", "five"))
    assert (place.conversation, place.number, place.branch.depth) == (conversation, 3, 3)
    assert found(live, body_of("one", "two", "three")).number == 3


def test_those_not_used_for_long_go_first_whosever_they_are_and_all_is_counted_rightly() -> None:
    memory = ConversationMemory(most_bytes=100_000)
    tenants = [LiveConversations(memory) for _ in range(3)]
    dice = random.Random(1)
    favourite = body_of("the favourite", "of all")
    kept(tenants[0], favourite)
    for number in range(400):
        kept(tenants[number % 3], body_of(*(f"{number} {place}" for place in range(dice.randint(1, 99)))), number)
        found(tenants[0], favourite)
        assert sum(one.conversation.weight for one in memory.kept.values()) <= 100_000
    assert len(memory.kept) > 10
    forgotten = body_of("0 0")
    assert tenants[0].find(forgotten, hash_beginnings(forgotten, tenants[0].lengths(forgotten))) is None
    for one in list(memory.kept.values()):
        one.live.forget(one.conversation)
    for live in tenants:
        assert (live._places, live._heads, live._nodes) == ({}, {}, {})
    assert (memory.size, len(memory.kept)) == (0, 0)


SAID = b'[{"role":"user","content":"hi"}]'
WHOLE = b'{"model":"m","max_tokens":9,"messages":%b,"input":%b}' % (SAID, SAID)
BODIES = {
    "a name twice": b'{"model":"m",' + WHOLE[1:],
    "a list twice": WHOLE[:-1] + b',"messages":[],"input":[]}',
    "a byte-order mark": b"\xef\xbb\xbf" + WHOLE,
    "no UTF-8": WHOLE.replace(b'"hi"', b'"h\xff"'),
    "half of a character": WHOLE.replace(b'"hi"', b'"h\xed\xa0\x80"'),
    "half of a character in a field": WHOLE.replace(b"9", b'"\xed\xa0\x80"'),
    "no JSON": b"hello",
    "another encoding": b"\x01\x02",
}


@pytest.mark.spec("12.7")
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_a_body_that_cannot_be_read_is_passed_on_with_a_warning(
    path: str, relay: Running, raw: Raw, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    for kind, body in BODIES.items():
        headers = [("content-encoding", "snappy")] if kind == "another encoding" else []
        caplog.clear()
        answer = raw.ask(body, path, headers)
        assert (answer.status, upstream.last.body) == (200, body)
        assert str(answer.header("x-everlong-warning")).startswith("not stored: ")
        assert "not stored" in caplog.text
    assert not list(relay.store().turns.since())


@pytest.mark.parametrize("seed", few([1, 2, 3]))
def test_odd_requests_do_no_harm(seed: int, relay: Running, upstream: Upstream) -> None:
    upstream.script = upstream_script
    outcomes, problems = play(relay, seed, 250)
    assert problems == []
    assert outcomes["200"] > 25  # many of them are odd inside only
    assert relay.store().verify().problems == []
