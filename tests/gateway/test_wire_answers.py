"""What an upstream answers arrives at the client: status, headers and bytes, errors above all."""

from __future__ import annotations

import gzip
import json
import threading

import pytest

from tests.gateway.running import Raw, Running
from tests.gateway.upstream import Exchange, Hangup, Upstream
from tests.waiting import PATIENCE

ASKED = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
PATHS = ["/v1/messages", "/v1/chat/completions"]
SAID = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
    indent=3,
).encode()

ERRORS = [
    ("400 Bad Request", b'{"type":"error","error":{"type":"invalid_request_error","message":"no"},"request_id":"r"}'),
    ("413 Request Entity Too Large", b"<html><h1>413 Request Entity Too Large</h1></html>"),
    ("429 Too Many Requests", b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'),
    ("500 Internal Server Error", b"\xff\xfe not even text"),
    ("502 Bad Gateway", b""),
    ("529 Site is overloaded", b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
]


@pytest.mark.parametrize("path", PATHS)
def test_an_error_arrives_byte_for_byte(path: str, raw: Raw, upstream: Upstream) -> None:
    left = [*ERRORS]
    upstream.script = lambda exchange: exchange.answer(left[0][1], left[0][0], [("content-type", "text/odd; x=1")])
    while left:
        answer = raw.ask(ASKED, path)
        assert (f"{answer.status} {answer.reason}", answer.body) == left.pop(0)
        assert answer.header("content-type") == "text/odd; x=1"


def test_headers_of_an_answer_arrive(raw: Raw, upstream: Upstream) -> None:
    told = [
        ("request-id", "req_011CSHoEeqs5C35K2UUqR7Fy"),
        ("retry-after", "17"),
        ("retry-after-ms", "17000"),
        ("x-should-retry", "false"),
        ("anthropic-ratelimit-requests-remaining", "49"),
        ("anthropic-ratelimit-tokens-reset", "2026-01-01T00:00:00Z"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("anthropic-organization-id", "org"),
        ("openai-processing-ms", "12"),
        ("cf-ray", "abc-FRA"),
        ("x-frobnicated", "yes"),
        ("server", "made-up"),
        ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
    ]
    upstream.script = lambda exchange: exchange.answer(b"{}", "429 Too Many Requests", told)
    answer = raw.ask(ASKED)
    for name, value in told:
        assert answer.all(name) == [value], name


def test_a_compressed_answer_arrives_as_it_came_and_is_stored(raw: Raw, relay: Running, upstream: Upstream) -> None:
    packed = gzip.compress(SAID)
    upstream.script = lambda exchange: exchange.answer(packed, headers=[("content-encoding", "gzip")])
    answer = raw.ask(ASKED, headers=[("accept-encoding", "gzip")])
    assert (answer.body, answer.header("content-encoding")) == (packed, "gzip")
    assert relay.store().turns.reply(1) == {"role": "assistant", "content": "Hello."}


@pytest.mark.parametrize("path", PATHS)
def test_an_upstream_that_hangs_up_at_once_is_an_error_in_the_shape_of_the_api(
    path: str, raw: Raw, upstream: Upstream
) -> None:
    upstream.script = lambda exchange: exchange.cut()
    answer = raw.ask(ASKED, path)
    told = answer.json()
    assert answer.status == 502
    assert told["error"]["type"] == "api_error"
    assert "127.0.0.1" in told["error"]["message"]
    assert (told.get("type") == "error") == (path == "/v1/messages")


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "500 Oh No"])
@pytest.mark.parametrize("framing", ["content-length: 1000", "transfer-encoding: chunked"])
def test_a_whole_answer_that_breaks_off_breaks_off_for_the_client(
    status: str, framing: str, relay: Running, upstream: Upstream
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{framing}\r\n\r\n".encode())
        exchange.chunk(SAID[:40]) if "chunked" in framing else exchange.send(SAID[:40])
        exchange.cut()

    upstream.script = script
    for path in [*PATHS, "/v1/responses", "/v1/other"]:
        with relay.raw() as raw:
            raw.begin(ASKED, path)
            head = raw.head()
            assert f"{head.status} {head.reason}" == status
            with pytest.raises(Hangup):
                raw.rest_of(head)
    assert all(turn.status == "failed" for turn in relay.store().turns.since())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("200 OK", "application/json"),
        ("200 OK", "application/x-ndjson"),
        ("429 Too Many Requests", "text/event-stream"),
        ("400 Bad Request", "text/event-stream"),
    ],
)
def test_what_comes_bit_by_bit_is_not_held_back(status: str, kind: str, raw: Raw, upstream: Upstream) -> None:
    goes_on = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.begin(status, headers=[("content-type", kind)])
        exchange.chunk(b"\n")
        assert goes_on.wait(PATIENCE)
        exchange.chunk(SAID)
        exchange.end()

    upstream.script = script
    raw.begin(ASKED)
    assert raw.head().header("content-type") == kind
    assert raw.chunk() == b"\n"
    goes_on.set()
    assert (raw.chunk(), raw.chunk()) == (SAID, b"")


def test_requests_that_are_sent_ahead_are_answered_in_their_order(raw: Raw, upstream: Upstream) -> None:
    upstream.script = lambda exchange: exchange.answer(exchange.received.body)
    bodies = [b'{"n":%d}' % number for number in range(6)]
    for body in bodies:
        raw.begin(body)
    assert [raw.answer().body for _ in bodies] == bodies
