"""What a client sends arrives at the upstream: bytes, headers, path and query, whatever they are."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from everlong.gateway.formats import path_of_folder
from tests.gateway.running import Raw, Running
from tests.gateway.upstream import Upstream

BODIES = {
    "spaces": b'{ "model" : "m" ,\n\t"messages" : [ {"role":"user" , "content" : "hi" } ]\r\n}  \n',
    "unicode escapes": b'{"model":"m","messages":[{"role":"user","content":"\\u00fcber \\u65e5 \\/ \xc3\xbc"}]}',
    "big numbers": b'{"model":"m","seed":123456789012345678901234567890,"messages":[{"role":"user","content":"hi"}]}',
    "duplicate keys": b'{"model":"m","model":"n","messages":[{"role":"user","content":"hi"}]}',
    "lone surrogate": b'{"model":"m","messages":[{"role":"user","content":"half \\ud83d of it"}]}',
    "unknown fields": b'{"model":"m","odd":{"deep":[null,true]},"messages":[{"role":"user","content":"hi","x":1}]}',
    "messages are no list": b'{"model":"m","messages":"hi"}',
    "entries are no messages": b'{"model":"m","messages":[1,null,"x",[],{}]}',
    "nothing": b"",
    "deeply nested": b'{"model":"m","messages":[{"role":"user","content":' + b"[" * 100 + b"]" * 100 + b"}]}",
    "not a number": b'{"model":"m","x":NaN,"messages":[{"role":"user","content":"hi"}]}',
}


def test_a_body_arrives_byte_for_byte(raw: Raw, upstream: Upstream) -> None:
    upstream.script = lambda exchange: exchange.answer(b'{"error":"of the upstream"}', "400 Bad Request")
    for path in ("/v1/messages", "/v1/chat/completions"):
        for body in BODIES.values():
            answer = raw.ask(body, path)
            assert upstream.last.body == body
            assert (body, answer.status, answer.body) == (body, 400, b'{"error":"of the upstream"}')


def test_a_body_of_twenty_megabytes_arrives_byte_for_byte(raw: Raw, upstream: Upstream) -> None:
    turns = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "word " * 40_000} for n in range(101)]
    body = json.dumps({"model": "m", "messages": turns}).encode()
    assert len(body) > 20_000_000
    assert raw.ask(body).status == 200
    assert upstream.last.body == body


def test_headers_that_nobody_knows_go_on(raw: Raw, upstream: Upstream) -> None:
    sent = [
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "interleaved-thinking-2025-05-14,context-1m-2025-08-07"),
        ("x-api-key", "key-of-the-client"),
        ("authorization", "Bearer other-key"),
        ("user-agent", "made-up/1.0 (test)"),
        ("accept", "application/json"),
        ("x-stainless-retry-count", "0"),
        ("x-frobnicate", "yes; q=0.5, no"),
        ("x-empty", ""),
        ("x-claude-code-session-id", "a-session"),
        ("openai-organization", "org-1"),
        ("cookie", "a=b; c=d"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ]
    raw.ask(BODIES["spaces"], headers=sent)
    for name, value in sent:
        assert upstream.last.all(name) == [value], name


def test_a_header_given_twice_arrives_twice(raw: Raw, upstream: Upstream) -> None:
    raw.ask(b"{}", headers=[("x-many", "one"), ("x-other", "o"), ("X-Many", "two")])
    assert upstream.last.all("x-many") == ["one", "two"]


def test_headers_of_the_connection_stay_behind(raw: Raw, upstream: Upstream) -> None:
    hop = [("connection", "keep-alive, x-mine"), ("x-mine", "1"), ("keep-alive", "timeout=5"), ("te", "trailers")]
    raw.ask(b"{}", headers=[*hop, ("proxy-authorization", "Basic eA=="), ("x-yours", "2")])
    names = {name.lower() for name, _ in upstream.last.headers}
    assert names.isdisjoint({"x-mine", "keep-alive", "te", "proxy-authorization"})
    assert "x-yours" in names


TARGETS = [
    "/v1/messages?beta=true&x=%2F%20+a%C3%BC&empty=&flag",
    "/v1/messages?q=a/../b",
    "/v1/chat/completions?api-version=2024-10-21",
    "/v1/responses",
    "/v1/embeddings?x=%2F",
    "/v1/files/a%20b",
    "/api/x",
]


def test_path_and_query_go_on_as_they_are_written(raw: Raw, upstream: Upstream) -> None:
    for target in TARGETS:
        raw.ask(BODIES["spaces"], target)
        assert upstream.last.target == target


def test_the_folder_in_a_path_stays_behind(raw: Raw, upstream: Upstream) -> None:
    prefix = path_of_folder(Path("/srv/my shop"))
    for before in (prefix, f"http://example.invalid{prefix}"):
        for target in TARGETS:
            assert raw.ask(BODIES["spaces"], f"{before}{target}").status == 200
            assert upstream.last.target == target
            assert "folder" not in upstream.last.head.decode().lower()
    head = [("host", "localhost"), ("content-length", "0")]
    for path in (prefix, f"{prefix}/", f"{prefix}/api/hello"):
        raw.begin(b"", path, head, "HEAD")
        assert raw.answer(has_body=False).status == 200, "clients look whether somebody is there"


def test_a_folder_in_a_path_is_no_way_around_a_check(raw: Raw) -> None:
    prefix = path_of_folder(Path("/srv/shop"))
    assert raw.ask(b"{}", f"{prefix}/v1/../../admin").status == 400
    for path in ("/metrics", "/healthz", "/inspector"):
        assert b"everlong" not in raw.ask(b"", f"{prefix}{path}", method="GET").body


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_compressed_body_goes_on_as_it_came_and_is_read_all_the_same(
    encoding: str, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    packed = {
        "gzip": gzip.compress(BODIES["spaces"]),
        "deflate": zlib.compress(BODIES["spaces"]),
        "zstd": zstandard.compress(BODIES["spaces"]),
    }[encoding]
    assert raw.ask(packed, headers=[("content-encoding", encoding)]).status == 200
    assert upstream.last.body == packed
    assert upstream.last.header("content-encoding") == encoding
    assert relay.store().context(relay.store().branch(1))[0]["content"] == "hi"


@pytest.mark.parametrize("encoding", ["gzip", "br", "nonsense"])
def test_what_cannot_be_unpacked_goes_on_as_it_came(encoding: str, raw: Raw, upstream: Upstream) -> None:
    packed = b"\x1f\x8b this is not what it says"
    assert raw.ask(packed, headers=[("content-encoding", encoding)]).status == 200
    assert (upstream.last.body, upstream.last.header("content-encoding")) == (packed, encoding)


def test_a_small_body_that_unpacks_to_more_than_it_may_is_refused(raw: Raw, upstream: Upstream) -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(bomb.compress(b" " * 10_000_000) for _ in range(10)) + bomb.flush()
    assert raw.ask(packed, headers=[("content-encoding", "gzip")]).status == 413
    assert upstream.requests == []


def test_a_client_that_waits_to_be_told_to_continue_is_told(raw: Raw, upstream: Upstream) -> None:
    body = BODIES["spaces"]
    raw.begin(b"", headers=[("expect", "100-continue"), ("content-length", str(len(body)))])
    assert raw.answer(has_body=False).status == 100
    raw.send(body)
    assert raw.answer().status == 200
    assert upstream.last.body == body
    assert upstream.last.header("expect") is None


def test_only_encodings_that_can_be_read_are_asked_for(raw: Raw, upstream: Upstream) -> None:
    for accepted, sent in {
        "gzip, deflate;q=0.5": "gzip, deflate;q=0.5",
        "gzip, compress, br, zstd": "gzip, zstd",
        "compress": "identity",
        "identity": "identity",
    }.items():
        raw.ask(b"{}", headers=[("accept-encoding", accepted)])
        assert upstream.last.header("accept-encoding") == sent


def test_what_could_not_be_written_again_as_it_was_gets_no_markers(raw: Raw, upstream: Upstream) -> None:
    for name in ("big numbers", "lone surrogate", "duplicate keys"):
        body = BODIES[name].replace(b'"m"', b'"claude-sonnet-5"')
        raw.ask(body)
        assert upstream.last.body == body


def test_half_a_character_keeps_no_markers_out(raw: Raw, upstream: Upstream) -> None:
    message = {"role": "user", "content": "\ud83d" + "word " * 4_000}
    raw.ask(json.dumps({"model": "claude-sonnet-5", "max_tokens": 10, "messages": [message]}).encode())
    assert b"cache_control" in upstream.last.body


def test_markers_of_ours_are_all_that_is_added(raw: Raw, upstream: Upstream) -> None:
    sent = {
        "model": "claude-sonnet-5",
        "max_tokens": 10,
        "made_up": {"deep": [None, 1.5, "é"]},
        "system": "You are a test. " * 800,
        "messages": [{"role": "user", "content": "hi", "made_up": 1}],
    }
    raw.ask(json.dumps(sent).encode())

    def without_markers(value: Any) -> Any:
        if isinstance(value, list):
            if len(value) == 1 and isinstance(value[0], dict) and value[0].get("type") == "text":
                return value[0]["text"]
            return [without_markers(one) for one in value]
        if isinstance(value, dict):
            return {key: without_markers(one) for key, one in value.items() if key != "cache_control"}
        return value

    assert b"cache_control" in upstream.last.body
    assert without_markers(json.loads(upstream.last.body)) == sent


def test_a_client_that_leaves_amid_its_body_leaves_nothing_behind(
    raw: Raw, relay: Running, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    raw.begin(BODIES["spaces"][:10], headers=[("content-length", "500")])
    raw.close()
    with relay.raw() as other:
        other.ask(BODIES["spaces"])
    assert len(upstream.requests) == 1
    assert len(list(relay.store().turns.since())) == 1
    assert not caplog.records
