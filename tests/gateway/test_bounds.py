"""An answer is read up to a bound and passed on whole; bodies under way take only so much memory."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from everlong.gateway import app, bounds, server, stream
from everlong.gateway.bounds import BodyMemory, HeldMemory, TooLarge, Unpacking, Unreadable, plain
from everlong.gateway.formats import OPENAI
from everlong.gateway.stream import TOO_LARGE, StreamTap
from everlong.model import text_of
from everlong.providers.base import weigh
from everlong.store.turns import Turn
from everlong.wire.event_stream import MOST_ANSWER, MOST_EVENT
from tests.gateway.running import Answer, Running, run_gateway
from tests.gateway.served import raw, serving
from tests.gateway.test_auth import ADA, BOB, KEYS
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE, until

CHAT = "/v1/chat/completions"
SAID = [{"role": "user", "content": "go"}]
TOOLS: dict[str, list[dict[str, Any]]] = {
    CHAT: [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
    "/v1/messages": [{"name": "weather", "input_schema": {"type": "object"}}],
    "/v1/responses": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
}
END = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7}}\n\ndata: [DONE]\n\n'
)


def request(content: str = "go", **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **more}).encode()


def word(text: bytes) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text


def whole(content: bytes = b"", more: bytes = b"") -> bytes:
    return b'{"choices":[{"message":{"role":"assistant","content":"%s"%s}}],"usage":{"prompt_tokens":7}}' % (
        content,
        more,
    )


def ask(running: Running, body: bytes = b"") -> Answer:
    with running.raw() as client:
        client.wire.socket.settimeout(PATIENCE)
        return client.ask(body or request(), CHAT)


def last_turn(running: Running) -> tuple[Turn, str]:
    """The newest turn, and the text that is stored of its reply."""
    store = running.store()
    turn = list(store.turns.since())[-1]
    reply = store.turns.reply(turn.id)
    return turn, "" if reply is None else text_of(reply)


# -- answers -----------------------------------------------------------------------------------------------------------

UNREAD = {
    "more than 8 MB": whole(b"a" * (MOST_ANSWER + 1)),
    "braces": whole(more=b',"x":[%s{}]' % (b"{}," * 200_000)),
    "very many calls": whole(more=b',"tool_calls":[%s{}]' % (b'{"id":"c","function":{}},' * 12_000)),
}


@pytest.mark.spec("12.6")
@pytest.mark.parametrize("name", UNREAD)
def test_an_answer_that_is_too_large_passes_whole_and_its_turn_is_marked(
    name: str, relay: Running, upstream: Upstream
) -> None:
    upstream.script = lambda exchange: exchange.answer(UNREAD[name])
    assert ask(relay).body == UNREAD[name]
    turn, _ = last_turn(relay)
    assert (turn.status, turn.error) == ("failed", TOO_LARGE)


@pytest.mark.parametrize(("pack", "is_streamed"), [(gzip.compress, True), (zstandard.compress, False)])
def test_a_packed_answer_is_unpacked_up_to_the_bound(
    pack: Callable[[bytes], bytes], is_streamed: bool, relay: Running, upstream: Upstream
) -> None:
    encoding = "gzip" if pack is gzip.compress else "zstd"
    packed = pack(word(b"a" * 20_000_000) + END if is_streamed else whole(b"a" * 20_000_000))
    headers = [("content-encoding", encoding)]
    if is_streamed:
        upstream.script = lambda exchange: exchange.stream(packed, headers=headers)
    else:
        upstream.script = lambda exchange: exchange.answer(packed, headers=headers)
    assert ask(relay).body == packed
    assert last_turn(relay)[0].error == TOO_LARGE


def test_an_event_that_is_too_large_passes_and_the_others_are_read(relay: Running, upstream: Upstream) -> None:
    events = [word(b"before "), word(b"x" * (MOST_EVENT + 1)), word(b"after"), END]
    upstream.script = lambda exchange: exchange.stream(*events)
    assert ask(relay, request(stream=True)).body == b"".join(events)
    turn, text = last_turn(relay)
    assert (turn.status, turn.error, text) == ("done", TOO_LARGE, "before after")
    assert turn.usage is not None
    assert turn.usage["prompt_tokens"] == 7


def test_a_stream_with_very_many_events_is_read_up_to_the_bound(
    relay: Running, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_EVENTS", 1_000)
    upstream.script = lambda exchange: exchange.stream(word(b"w") * 3_000, END)
    assert ask(relay, request(stream=True)).body == word(b"w") * 3_000 + END
    turn, text = last_turn(relay)
    assert (turn.status, turn.error, text) == ("failed", TOO_LARGE, "w" * 1_001)


def test_what_a_stream_adds_up_to_is_bounded_and_not_its_bytes() -> None:
    frame = b'"id":"chatcmpl-%s","object":"chat.completion.chunk","system_fingerprint":"fp_44709d6fcb"' % (b"x" * 200)
    event = b'data: {%s,"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n' % frame
    calls = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"id":"c","function":{"arguments":"{}"}}]}}]}\n\n'

    async def read(chunk: bytes, times: int) -> StreamTap:
        tap = StreamTap(OPENAI)
        for _ in range(times):
            await tap.take(chunk)
        return tap

    long = asyncio.run(read(event * 100, 300))  # of nine megabytes, most are frames
    assert long.is_read
    said = asyncio.run(long.partial())
    assert said is not None
    assert text_of(said) == "word " * 30_000
    many = asyncio.run(read(calls * 100, 100))
    assert not many.is_read
    assert 0 < weigh(asyncio.run(many.partial())) < 2 * MOST_ANSWER


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_an_answer_that_is_too_large_passes_where_tools_are_hidden(
    is_streamed: bool, upstream: Upstream, tmp_path: Path
) -> None:
    held = b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":"stop"}]}\n\n' % (b"x" * 900_000)
    answer = held * 10 + word(b"after") + END if is_streamed else UNREAD["more than 8 MB"]
    if is_streamed:
        upstream.script = lambda exchange: exchange.stream(answer)
    else:
        upstream.script = lambda exchange: exchange.answer(answer)
    settings = {"gateway": {"routes": {"*": {"recall": True}}}}
    with run_gateway(upstream.url, str(tmp_path / "recall.db"), settings) as running:
        assert ask(running, request(stream=is_streamed, tools=TOOLS[CHAT])).body == answer
        assert b"everlong_recall" in upstream.last.body
        assert last_turn(running)[0].error == TOO_LARGE


ODD_ANSWERS = [
    b'{"choices":[{"message":{"tool_calls":[5]}}]}',
    b'{"choices":[{"message":{"tool_calls":{"a":1}}}]}',
    b'{"choices":[5]}',
    b'{"content":[5]}',
    b'{"content":[{"type":"tool_use"},{"type":"tool_use","name":"everlong_recall","input":5}]}',
    b'{"output":[5,{"type":"message"}]}',
    b'{"output":[{"call_id":"c","type":"function_call","name":"everlong_recall","arguments":5}]}',
    b"[" * 50_000,
]
ODD_EVENTS = [
    b'{"type":"content_block_start","index":0,"content_block":5}',
    b'{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"x"}}',
    b'{"type":"response.output_item.done","output_index":"x","item":5}',
    b'{"type":"response.completed"}',
]


@pytest.mark.parametrize("recalls", [False, True], ids=["", "with hidden tools"])
def test_answers_that_are_made_up_pass_as_they_are(recalls: bool, upstream: Upstream, tmp_path: Path) -> None:
    settings = {"gateway": {"routes": {"*": {"recall": recalls}}}}
    with run_gateway(upstream.url, str(tmp_path / "recall.db"), settings) as running, running.raw() as client:
        for path, tools in TOOLS.items():
            sent = {"model": "m", "messages": SAID, "input": SAID, "tools": tools, "store": False, "max_tokens": 9}
            for odd in ODD_ANSWERS:
                upstream.script = lambda exchange, odd=odd: exchange.answer(odd)  # type: ignore[misc]
                answer = client.ask(json.dumps(sent).encode(), path)
                assert (odd, answer.status) == (odd, 200)
            for odd in (*ODD_ANSWERS, *ODD_EVENTS):
                event = b"data: " + odd + b"\n\n" + END
                upstream.script = lambda exchange, event=event: exchange.stream(event)  # type: ignore[misc]
                assert client.ask(json.dumps({**sent, "stream": True}).encode(), path).body == event


# -- encodings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bytes_are_unpacked_in_small_steps(encoding: str) -> None:
    size = 30_000_000
    packed = gzip.compress(b"a" * size) if encoding == "gzip" else zstandard.compress(b"a" * size)
    assert max(map(len, Unpacking(encoding).take(packed))) < 5_000_000
    assert len(plain(packed, encoding, size)) == size
    with pytest.raises(TooLarge):
        plain(packed, encoding, size - 1)
    for broken in (packed[:-5], packed + b"and more", packed + packed):
        with pytest.raises(Unreadable):
            plain(broken, encoding, 3 * size)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_a_tenant_may_take_three_quarters_of_what_others_leave() -> None:
    memory, large = BodyMemory(), 2_000_000
    most = memory.room("ada", large)
    ada = HeldMemory(memory, "ada")
    assert ada.take(most)
    assert not ada.take(1)
    assert 0 < memory.room("bob", large) < most // 3
    ada.release()
    assert memory.room("bob", large) == memory.room("ada", large) == most


@pytest.mark.spec("12.6")
def test_bodies_beyond_the_memory_are_refused_until_others_are_done(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LEAST_MEMORY", 2_000_000)
    monkeypatch.setattr(server, "MOST_BODY_BYTES", 1_000_000)
    waits, go_on = threading.Event(), threading.Event()

    def script(exchange: Exchange) -> None:
        if b"the first" in exchange.received.body[:100]:
            waits.set()
            go_on.wait(PATIENCE)
        exchange.answer(whole(b"ok"))

    upstream.script = script
    first, second = request("the first " + "a" * 900_000), request("b" * 900_000)
    ada, bob = [("x-everlong-key", ADA)], [("x-everlong-key", BOB)]
    statuses: list[int] = []
    settings = {"keys": KEYS}
    with serving(upstream.url, tmp_path, settings, compression={"enabled": False}) as hosted:

        def hold() -> None:
            with raw(hosted.address) as client:
                client.wire.socket.settimeout(PATIENCE)
                statuses.append(client.ask(first, CHAT, ada).status)

        holding = threading.Thread(target=hold)
        holding.start()
        waits.wait(PATIENCE)
        with raw(hosted.address) as client:
            refused = client.ask(second, CHAT, ada)
            assert (refused.status, refused.header("retry-after")) == (503, "2")
        with raw(hosted.address) as client:
            packed = client.ask(gzip.compress(second), CHAT, [*ada, ("content-encoding", "gzip")])
            assert (packed.status, packed.header("retry-after")) == (503, "2")
        with raw(hosted.address) as client:
            assert client.ask(request("small"), CHAT, ada).status == 200
            assert client.ask(request("c" * 300_000), CHAT, bob).status == 200
        go_on.set()
        holding.join()

        def passes() -> bool:
            with raw(hosted.address) as client:
                return client.ask(second, CHAT, ada).status == 200

        until(passes)  # the memory is given back a moment after the last byte
    assert statuses == [200]


def test_an_answer_for_which_no_memory_is_left_passes_unread(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LEAST_MEMORY", 400_000)
    monkeypatch.setattr(app, "MOST_BODY_BYTES", 200_000)
    upstream.script = lambda exchange: exchange.answer(whole(b"a" * 1_000_000))
    with run_gateway(upstream.url, str(tmp_path / "small.db")) as running:
        assert ask(running).body == whole(b"a" * 1_000_000)
        assert last_turn(running)[0].error == TOO_LARGE
