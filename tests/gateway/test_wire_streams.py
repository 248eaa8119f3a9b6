"""Streams pass piece by piece as they come, end as they end, and break off where they break off."""

from __future__ import annotations

import gzip
import json
import threading
from typing import Any

import pytest

from tests.gateway.running import Raw, Running
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE

ASKED = (
    b'{"model":"m","max_tokens":9,"stream":true,"stream_options":{"include_usage":true},'
    b'"messages":[{"role":"user","content":"hi"}]}'
)


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def chunk(**delta: Any) -> bytes:
    finish = delta.pop("finish", None)
    choice = {"index": delta.pop("index", 0), "delta": delta, "finish_reason": finish}
    return (
        b"data: " + json.dumps({"id": "c1", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


START = event(
    "message_start", message={"id": "msg_1", "role": "assistant", "content": [], "usage": {"input_tokens": 3}}
)
TEXT = [
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hel"}),
    event("ping"),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "lo."}),
    event("content_block_stop", index=0),
]
END = [
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
    event("message_stop"),
]
CLAUDE = [START, *TEXT, *END]
GPT = [
    chunk(role="assistant", content=""),
    b": keep-alive comment\n\n",
    chunk(content="Hel"),
    chunk(content="lo."),
    chunk(finish="stop"),
    b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n',
    b"data: [DONE]\n\n",
]
STREAMS = {"/v1/messages": CLAUDE, "/v1/chat/completions": GPT}
HELLO = {"role": "assistant", "content": "Hello."}


def framed(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


def reply_in(running: Running, turn: int = 1) -> Any:
    return running.store().turns.reply(turn)


def status_in(running: Running, turn: int = 1) -> str:
    return running.store().turns.get(turn).status


@pytest.mark.parametrize("path", STREAMS)
def test_each_piece_arrives_before_the_next_one_is_sent(
    path: str, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    step = threading.Semaphore(0)

    def script(exchange: Exchange) -> None:
        exchange.begin(headers=[("x-own", "1")])
        for piece in STREAMS[path]:
            assert step.acquire(timeout=PATIENCE)
            exchange.chunk(piece)
        assert step.acquire(timeout=PATIENCE)
        exchange.end()

    upstream.script = script
    raw.begin(ASKED, path)
    head = raw.head()  # before there is anything to say
    assert (head.status, head.header("x-own")) == (200, "1")
    assert head.header("content-type") == "text/event-stream; charset=utf-8"
    for piece in STREAMS[path]:
        step.release()
        assert raw.chunk() == piece
    assert reply_in(relay) == HELLO  # stored before the last piece was passed on
    step.release()
    assert raw.chunk() == b""


@pytest.mark.parametrize("path", STREAMS)
def test_a_reply_is_read_however_its_stream_is_cut_into_pieces_and_with_all_line_ends_of_the_standard(
    path: str, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    cuts = [(b"\n", size) for size in (1, 2, 7, 50, 100_000)] + [(b"\r\n", 100), (b"\r", 100)]
    for turn, (line_end, size) in enumerate(cuts, 1):
        whole = b"".join(STREAMS[path]).replace(b"\n", line_end)
        pieces = [whole[place : place + size] for place in range(0, len(whole), size)]
        upstream.script = lambda exchange, pieces=pieces: exchange.stream(*pieces)  # type: ignore[misc]
        assert raw.ask(ASKED, path).body == whole
        assert (reply_in(relay, turn), status_in(relay, turn)) == (HELLO, "done")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/messages", "then comes event: message_stop and the end"),
        ("/v1/messages", '\ndata: {"type":"message_stop"}\n\n'),
        ("/v1/chat/completions", "a stream ends with data: [DONE]\n\nalways"),
    ],
)
def test_words_that_look_like_the_end_are_not_taken_for_it(
    path: str, words: str, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    said = (
        [
            START,
            TEXT[0],
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": words}),
            *TEXT[1:],
            *END,
        ]
        if path == "/v1/messages"
        else [chunk(content=words), *GPT[2:]]
    )
    upstream.script = lambda exchange: exchange.stream(*said)
    assert raw.ask(ASKED, path).body == b"".join(said)
    assert reply_in(relay)["content"] == words + "Hello."


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_that_breaks_off_breaks_off_for_the_client(
    path: str, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    pieces = STREAMS[path][:3]

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.chunk(b"".join(pieces))
        exchange.cut()

    upstream.script = script
    raw.begin(ASKED, path)
    raw.head()
    assert raw.rest() == framed(b"".join(pieces))  # everything up to the break, and no end
    turn = relay.store().turns.get(1)
    assert (turn.status, turn.error) == ("failed", "the stream broke off")


def test_an_error_inside_of_a_stream_arrives_even_if_the_connection_ends_with_it(raw: Raw, upstream: Upstream) -> None:
    said = START + event("error", error={"type": "api_error", "message": "Internal server error"})

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.chunk(said)
        exchange.cut()

    upstream.script = script
    raw.begin(ASKED)
    raw.head()
    assert raw.chunk() == said


def test_a_compressed_stream_passes_as_it_comes_and_is_read(raw: Raw, relay: Running, upstream: Upstream) -> None:
    packed = gzip.compress(b"".join(CLAUDE))
    pieces = [packed[place : place + 40] for place in range(0, len(packed), 40)]
    upstream.script = lambda exchange: exchange.stream(*pieces, headers=[("content-encoding", "gzip")])
    answer = raw.ask(ASKED, headers=[("accept-encoding", "gzip")])
    assert (answer.body, answer.header("content-encoding")) == (packed, "gzip")
    assert reply_in(relay) == HELLO


def test_thinking_signatures_and_parallel_calls_are_stored_as_they_came(
    raw: Raw, relay: Running, upstream: Upstream
) -> None:
    def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
        return [
            event("content_block_start", index=index, content_block=start),
            *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
            event("content_block_stop", index=index),
        ]

    thought = {"type": "thinking", "thinking": "", "signature": ""}
    said = [
        START,
        *block(
            0, thought, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "c2ln"}
        ),
        *block(1, {"type": "redacted_thinking", "data": "b3BhcXVl"}),
        *block(
            2,
            {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"at": '},
            {"type": "input_json_delta", "partial_json": '"a"}'},
        ),
        *block(
            3,
            {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"at": "b"}'},
        ),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 9}),
        event("message_stop"),
    ]
    upstream.script = lambda exchange: exchange.stream(*said)
    assert raw.ask(ASKED).body == b"".join(said)
    reply = reply_in(relay)
    assert [call["id"] for call in reply["tool_calls"]] == ["t1", "t2"]
    assert json.loads(reply["tool_calls"][0]["function"]["arguments"]) == {"at": "a"}
    assert reply["content"][:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
    ]


@pytest.mark.parametrize("begins", [False, True], ids=["before the first byte", "amid the stream"])
def test_a_client_that_hangs_up_cancels_the_request_upstream(
    begins: bool, raw: Raw, relay: Running, upstream: Upstream
) -> None:
    asked, hung_up = threading.Event(), threading.Event()

    def script(exchange: Exchange) -> None:
        if begins:
            exchange.begin()
            exchange.chunk(START)
        asked.set()
        if exchange.sees_hangup():
            hung_up.set()

    upstream.script = script
    raw.begin(ASKED)
    assert asked.wait(PATIENCE)
    if begins:
        raw.head()
        raw.chunk()
    raw.close()
    assert hung_up.wait(PATIENCE)
    with relay.raw() as other:  # the gateway writes in order, so what became of the first is stored by then
        upstream.script = lambda exchange: exchange.stream(*CLAUDE)
        other.ask(ASKED)
        other.ask(ASKED)
    turn = relay.store().turns.get(1)
    assert (turn.status, turn.error) == ("cancelled", "the client hung up")


@pytest.mark.parametrize("path", STREAMS)
def test_a_client_that_hangs_up_at_the_last_event_has_its_reply(
    path: str, raw: Raw, relay: Running, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    hung_up = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.chunk(b"".join(STREAMS[path]))
        if exchange.sees_hangup():
            hung_up.set()

    upstream.script = script
    raw.begin(ASKED, path)
    raw.head()
    assert raw.chunk() == b"".join(STREAMS[path])
    raw.close()
    assert hung_up.wait(PATIENCE)
    assert (reply_in(relay), status_in(relay)) == (HELLO, "done")
    assert not caplog.records
