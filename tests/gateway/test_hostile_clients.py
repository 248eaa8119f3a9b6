"""What a hostile client, web page or neighbour on the machine tries, and does not get."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everlong.cli.main import cli
from everlong.config import set_value, user_config_path
from everlong.errors import ConfigError
from everlong.gateway import server
from everlong.gateway.auth import Caller, Guesses, Refused, find_gateway, is_gateway
from everlong.gateway.body import MOST_IN_ONE
from tests.gateway.running import Running
from tests.gateway.served import program, raw, serving
from tests.gateway.test_auth import ADA, ASKED, BOB, KEYS, guard
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import until

SHARED = {"routes": {"*": {"key_variable": "SHARED_KEY"}}}


@pytest.fixture(autouse=True)
def _shared_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARED_KEY", "made-up-shared-key")


def test_connections_without_a_request_keep_nobody_out(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 10)
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted:
        port = int(hosted.address.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        until(lambda: sum(_is_closed(one) for one in idle) >= 20)
        with raw(hosted.address) as client:
            assert client.ask(b"", "/healthz", [], "GET").status == 200
        for one in idle:
            one.close()


def _is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False


# -- headers that are seen here and not upstream -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x-api-key", "Authorization", "content-encoding", "x-everlong-key"])
def test_a_header_that_decides_is_never_one_of_the_connection(name: str, upstream: Upstream, tmp_path: Path) -> None:
    sent = [("Authorization", f"Bearer {ADA}"), ("x-api-key", "anything"), ("Connection", f"keep-alive, {name}")]
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        answer = client.ask(b"", "/v1/files", sent, "GET")
    assert answer.status == 400
    assert upstream.requests == []


def test_a_key_of_the_gateway_never_goes_on_in_any_header(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        for more in (
            [("Authorization", f"Bearer {ADA}")],
            [("x-api-key", ADA)],
            [("api-key", ADA)],
            [("Authorization", "Bearer mine"), ("Authorization", f"Bearer {ADA}")],
            [("x-api-key", BOB)],
            [("X-Custom", ADA)],
            [("Cookie", f"a=b; key={ADA}")],
            [("Cookie", f"a=b; key={BOB}")],
            [("User-Agent", f"tool/{ADA}")],
            [("Referer", f"http://h.example/?key={BOB}")],
            [("x-request-id", ADA)],
        ):
            assert client.ask(ASKED, headers=[("x-everlong-key", ADA), *more]).status == 200
            assert ADA.encode() not in upstream.last.head
            assert BOB.encode() not in upstream.last.head


def test_a_key_of_the_gateway_stands_in_no_address_and_no_log(upstream: Upstream, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--upstream", upstream.url, "--store", str(tmp_path / "s.db"))
    set_value(user_config_path(), "gateway.keys.ada.sha256", hashlib.sha256(ADA.encode()).hexdigest())
    spelled = ADA.replace("-", "%2D")
    mine = [("x-everlong-key", ADA), ("Authorization", "Bearer mine")]
    with program(*arguments) as served:
        for path in (f"/v1/models/{ADA}", f"/v1/chat/completions?key={ADA}", f"/v1/chat/completions?key={spelled}"):
            with raw(served.address) as client:
                assert client.ask(ASKED, path, mine).status == 400
        with raw(served.address) as client:
            asked = json.dumps({"model": ADA, "messages": [{"role": "user", "content": "hi"}]}).encode()
            assert client.ask(asked, headers=[*mine, ("x-request-id", ADA)]).status == 200
        served.process.terminate()
        _, log = served.end()
    assert len(upstream.requests) == 1
    assert log.count('"event":"request"') == 4
    assert ADA not in log
    assert spelled not in log


# -- who is let in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/metrics", "/v1/models", "/v1/files", "/healthz", "/readyz"])
def test_a_page_whose_name_points_here_reads_nothing(path: str, upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path) as hosted:
        for host in (
            "evil.example",
            "evil.example:8642",
            "127.0.0.1.evil.example",
            "[::ffff:1.2.3.4]",
            "localhost.evil",
        ):
            with raw(hosted.address) as client:
                assert client.ask(b"", path, [("Host", host)], "GET").status == 403
        with raw(hosted.address) as client:
            for host in ("localhost", "127.0.0.1:99", "[::1]:8642"):
                assert client.ask(b"", path, [("Host", host)], "GET").status == 200


def test_no_key_has_the_name_of_the_command_lines_conversations() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.keys\.local"):
        guard({"local": KEYS["ada"]})


def test_whoever_guesses_keys_has_few_guesses() -> None:
    now = [100.0]
    guesses = Guesses(lambda: now[0])
    guesses.check("192.0.2.1", Caller("ada"))
    answered = 0
    for _ in range(7_000):
        with suppress(Refused):
            guesses.check("192.0.2.1", None)
            answered += 1
    assert answered == 20
    guesses.check("192.0.2.1", Caller("ada"))  # whoever came in before still does
    guesses.check("192.0.2.9", Caller("bob"))
    with pytest.raises(Refused):
        guesses.check("192.0.2.1", Caller("bob"))  # a right guess looks like a wrong one
    now[0] += 60
    guesses.check("192.0.2.1", Caller("bob"))


def test_guessing_is_slowed_at_the_gateway(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted:
        statuses = []
        for number in range(60):
            with raw(hosted.address) as client:
                statuses.append(client.ask(ASKED, headers=[("x-everlong-key", f"guess-number-{number:04}")]).status)
    assert statuses[:20] == [401] * 20
    assert statuses.count(429) >= 30


def test_many_keys_in_one_request_are_as_many_guesses(upstream: Upstream, tmp_path: Path) -> None:
    many = [("Authorization", f"Bearer guess-number-{number:04}") for number in range(50)]
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted:
        statuses = []
        for tried in ([*many, ("Authorization", f"Bearer {ADA}")], [("x-api-key", "another-wrong-key")]):
            with raw(hosted.address) as client:
                statuses.append(client.ask(ASKED, headers=tried).status)
    assert statuses == [401, 429]


def test_a_picture_on_a_page_of_another_host_asks_for_nothing(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path) as hosted, raw(hosted.address) as client:
        assert client.ask(b"", "/v1/models", [("Sec-Fetch-Site", "cross-site")], "GET").status == 401
        assert upstream.requests == []
        same = [("Sec-Fetch-Site", "cross-site"), ("Origin", "http://localhost:3000")]
        assert client.ask(b"", "/v1/models", same, "GET").status == 200


def test_a_key_that_is_taken_out_lets_nobody_in_any_more(upstream: Upstream, tmp_path: Path) -> None:
    path = user_config_path()
    for name, key in (("ada", ADA), ("bob", BOB)):
        set_value(path, f"gateway.keys.{name}.sha256", hashlib.sha256(key.encode()).hexdigest())
    arguments = ("--port", "0", "--upstream", upstream.url, "--store", str(tmp_path / "s.db"))
    with program(*arguments) as served, raw(served.address) as client:
        assert client.ask(ASKED, headers=[("x-everlong-key", BOB)]).status == 200
        kept = path.read_text(encoding="utf-8")
        path.write_text(kept[: kept.index("bob")].rstrip() + "\n", encoding="utf-8")

        def is_refused() -> bool:
            with raw(served.address) as other:
                return other.ask(ASKED, headers=[("x-everlong-key", BOB)]).status == 401

        until(is_refused)
        assert client.ask(ASKED, headers=[("x-everlong-key", ADA)]).status == 200


def test_settings_are_shown_without_passwords() -> None:
    path = user_config_path()
    set_value(path, "store.url", "postgresql://ada:open-sesame@db.example/everlong?password=other-sesame")
    set_value(path, "gateway.keys.ada.sha256", hashlib.sha256(ADA.encode()).hexdigest())  # a long line
    for options in ([], ["--json"]):
        shown = CliRunner().invoke(cli, ["config", "show", *options]).output
        assert "db.example" in shown
        assert all(len(line) <= 80 for line in shown.splitlines() if line.endswith("# default"))
        assert "sesame" not in shown
    told = CliRunner().invoke(cli, ["config", "set", "store.url", "postgresql://ada:open-sesame@db.example/e"]).output
    assert "sesame" not in told


# -- whose gateway it is -----------------------------------------------------------------------------------------------


@contextmanager
def impostor(real: str | None = None) -> Iterator[str]:
    """A program that says it is a gateway; with a real one, it asks that one for the proof."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            with sock:
                asked = sock.recv(10_000)
                said: dict[str, Any] = {"service": "everlong-gateway", "needs_key": False, "proof": "0" * 64}
                if real is not None:
                    with raw(real) as client:
                        client.send(asked)
                        said = client.answer().json()
                data = json.dumps(said).encode()
                sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data))

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def test_only_the_users_own_gateway_is_believed(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path) as hosted:
        assert is_gateway(hosted.address)
        with impostor() as address:
            assert find_gateway(address) is not None
            assert not is_gateway(address)
        with impostor(hosted.address) as address:
            assert find_gateway(address) is not None
            assert not is_gateway(address), "a proof is for one address"


@pytest.mark.skipif(os.name != "posix", reason="who may read a file is told in another way there")
def test_a_secret_that_others_can_read_proves_nothing(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path) as hosted:
        (found,) = Path(os.environ["EVERLONG_HOME"]).glob("gateway-secret")
        assert found.stat().st_mode & 0o077 == 0
        found.chmod(0o644)
        assert not is_gateway(hosted.address)


# -- other tenants' responses ------------------------------------------------------------------------------------------


USER = {"role": "user", "content": "what was it?"}


def responding(exchange: Exchange) -> None:
    ident = f"resp_{len(exchange.received.body)}"
    answer = {"id": ident, "status": "completed", "output": [], "usage": {"input_tokens": 1, "output_tokens": 1}}
    exchange.answer(json.dumps(answer).encode())


@pytest.mark.spec("12.4")
@pytest.mark.parametrize("way", [[], [("x-everlong", "off")]])
def test_a_response_of_another_key_is_not_gone_on_from(
    way: list[tuple[str, str]], upstream: Upstream, tmp_path: Path
) -> None:
    upstream.script = responding
    with serving(upstream.url, tmp_path, {"keys": KEYS, **SHARED}) as hosted, raw(hosted.address) as client:
        first = client.ask(b'{"model":"m","input":"a secret"}', "/v1/responses", [("x-everlong-key", ADA)])
        ident = first.json()["id"]
        for sent in (
            {"model": "m", "input": "what was it?", "previous_response_id": ident},
            {"model": "m", "input": "what was it?", "conversation": ident},
            {"model": "m", "input": "what was it?", "conversation": {"id": ident}},
            {"model": "m", "input": [{"type": "item_reference", "id": "msg_1"}]},
            {"model": "m", "input": [USER, {"id": "msg_1"}]},
            {"model": "m", "input": [USER, {"type": None, "id": "msg_1"}]},
            {"model": "m", "input": {"type": "item_reference", "id": "msg_1"}},
            {"model": "m", "input": [USER], "previous_response_id": ident},
        ):
            told = json.dumps(sent)
            names = ("previous_response_id", "item_reference", "conversation", "id", "type")
            for spelled in (told, *(told.replace(f'"{name}', f'"\\u{ord(name[0]):04x}{name[1:]}') for name in names)):
                answer = client.ask(spelled.encode(), "/v1/responses", [("x-everlong-key", BOB), *way])
                assert answer.status == 404, spelled
        for item in ('{"id":"msg_1","id":"msg_1"}', '{"id":"msg_1","role":null}', '{"type":"", "id":"msg_1"}'):
            told = f'{{"model":"m","input":[{json.dumps(USER)},{item}]}}'
            answer = client.ask(told.encode(), "/v1/responses", [("x-everlong-key", BOB), *way])
            assert answer.status in {400, 404}, item
        twice = b'{"model":"m","input":"x","previous_response_id":"%s","previous_response_id":null}' % ident.encode()
        assert client.ask(twice, "/v1/responses", [("x-everlong-key", BOB), *way]).status == 400
        wide = json.dumps({"model": "m", "input": "x", "previous_response_id": ident}).encode("utf-16")
        assert client.ask(wide, "/v1/responses", [("x-everlong-key", BOB), *way]).status == 400
        assert len(upstream.requests) == 1
        own = {"model": "m", "input": "what was it?", "previous_response_id": ident}
        assert client.ask(json.dumps(own).encode(), "/v1/responses", [("x-everlong-key", ADA), *way]).status == 200


def test_a_response_of_another_key_is_not_read(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script = responding
    keys = {name: {**key, "other_paths": True} for name, key in KEYS.items()}
    with serving(upstream.url, tmp_path, {"keys": keys, **SHARED}) as hosted, raw(hosted.address) as client:
        ident = client.ask(b'{"model":"m","input":"a secret"}', "/v1/responses", [("x-everlong-key", ADA)]).json()["id"]
        for path in ("/v1/responses/", "/v1/conversations/", "//v1/responses/", "/v1//Responses//", "/v1/responses;/"):
            assert client.ask(b"", path + ident, [("x-everlong-key", BOB)], "GET").status == 404, path
        assert client.ask(b"", f"/v1/responses/{ident}", [("x-everlong-key", ADA)], "GET").status == 200
        own = json.dumps({"model": "m", "input": "what was it?", "previous_response_id": ident}).encode()
        for path in ("//v1/responses", "/v1/responses/", "/V1/Responses", "/v1/responses;x", "/v1/responses%2f"):
            assert client.ask(own, path, [("x-everlong-key", BOB)]).status == 404, path
            assert client.ask(gzip.compress(own), path, [("x-everlong-key", BOB)]).status == 400, path
            assert client.ask(own, path, [("x-everlong-key", ADA)]).status == 200, path


# -- structure ---------------------------------------------------------------------------------------------------------


def said(content: bytes, name: bytes = b"messages") -> bytes:
    return b'{"model":"m","max_tokens":9,"%s":[{"role":"user","content":%s}]}' % (name, content)


@cache
def bombs() -> dict[str, tuple[bytes, list[tuple[str, str]], int]]:
    """Return requests that take long to read, each with its headers and the status that refuses it."""
    return {
        "two million keys": (said(b"[{%s}]" % b",".join(b'"k%d":1' % n for n in range(2_000_000))), [], 413),
        "a packed body of lists": (
            gzip.compress(said(b"[%s[]]" % (b"[]," * 1_400_000))),
            [("content-encoding", "gzip")],
            413,
        ),
        "eight million lists": (said(b"[%s[]]" % (b"[]," * 8_000_000)), [], 413),
        "much that is packed small": (gzip.compress(b" " * 100_000_000), [("content-encoding", "gzip")], 413),
        "one message of very many values": (said(b"[%s0]" % (b"0," * (MOST_IN_ONE + 10))), [], 413),
        "very many fields": (
            b'{"model":"m",%s,"messages":[]}' % b",".join(b'"k%d":1' % n for n in range(600)),
            [],
            413,
        ),
        "deep lists": (said(b"[" * 3_000 + b"]" * 3_000), [], 400),
        "deep objects that never end": (said(b'{"a":' * 3_000), [], 400),
        "very many new messages": (
            b'{"model":"m","messages":[%s]}' % b",".join(b'{"role":"user","content":"x"}' for _ in range(6_000)),
            [],
            413,
        ),
    }


@pytest.mark.spec("12.6")
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_a_structure_that_takes_long_to_read_is_refused(path: str, relay: Running, upstream: Upstream) -> None:
    for name, (sent, more, status) in bombs().items():  # `bench.gateway.fuzz` measures how long others wait meanwhile
        body = sent.replace(b'"messages"', b'"input"', 1) if path == "/v1/responses" and not more else sent
        with relay.raw() as client:
            answer = client.ask(body, path, more)
        assert (name, answer.status) == (name, status)
    assert upstream.requests == []


def test_an_honest_long_conversation_passes(relay: Running, upstream: Upstream) -> None:
    turns = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f'word, [{n}] "and" more'} for n in range(2_001)
    ]
    tools = [
        {"name": f"t{n}", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
        for n in range(200)
    ]
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": turns, "tools": tools}).encode()
    with relay.raw() as client:
        assert client.ask(body).status == 200
        more = json.dumps(
            {"model": "m", "max_tokens": 9, "messages": [*turns, turns[1], turns[0]], "tools": tools}
        ).encode()
        assert client.ask(more).status == 200
        assert client.ask(gzip.compress(more), headers=[("content-encoding", "gzip")]).status == 200
    assert len(upstream.requests) == 3
