"""``everlong serve``: how it starts, what it answers besides conversations, how it ends."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from everlong.cli import serve as serve_module
from everlong.gateway.server import HostedGateway
from everlong.store.database import Database
from everlong.testing import ModelServer
from tests.cli.conftest import Run, run
from tests.gateway.served import program, raw, serving
from tests.gateway.upstream import Exchange, Upstream
from tests.waiting import PATIENCE

__all__ = ["run"]

ASKED = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'


@pytest.fixture
def hosted(upstream: Upstream, tmp_path: Path) -> Iterator[HostedGateway]:
    with serving(upstream.url, tmp_path) as gateway:
        yield gateway


def test_the_program_serves_both_official_clients_and_says_where(model: ModelServer, tmp_path: Path) -> None:
    with program("--port", "0", "--upstream", model.url, "--store", str(tmp_path / "s.db")) as served:
        assert served.first.startswith(f"everlong: listening on {served.address}, going to {model.url}; summaries by ")
        gpt = openai.OpenAI(base_url=f"{served.address}/v1", api_key="k", max_retries=0)
        claude = anthropic.Anthropic(base_url=served.address, api_key="k", max_retries=0)
        said = gpt.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert said.choices[0].message.content == "Understood."
        told = claude.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        assert told.content[0].text == "Understood."  # type: ignore[union-attr]
        gpt.close()
        claude.close()
        served.tell(signal.SIGTERM)
        code, said_last = served.end()
    assert code == 0
    assert '"path":"/v1/messages","status":200' in said_last


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1 without a key"),
        (["--upstream", "over there"], "must be an http:// or https:// address"),
        (["--host", "no.such.host.invalid"], "without a key"),
        (["--port", "9", "--upstream", "http://localhost:9/v1"], "is this gateway itself"),
        (["--port", "0", "--store", "/dev/null/store.db"], "/dev/null"),
    ],
)
def test_what_is_in_the_way_is_said_in_a_sentence(run: Run, arguments: list[str], words: str) -> None:
    ran = run("serve", *arguments)
    assert ran.code == 1
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_an_engine_of_a_plugin_does_not_reach_the_gateway(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLONG_CONTEXT__ENGINE", "diary")
    ran = run("serve", "--host", "192.0.2.1")
    assert "context.engine is 'diary'; plugins do not reach the gateway, which uses 'compressor'" in ran.err


def test_a_projects_file_does_not_say_where_keys_go(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "found"
    (folder / ".everlong").mkdir(parents=True)
    (folder / ".everlong" / "config.yaml").write_text("gateway: {upstream: 'http://elsewhere.example'}")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.chdir(folder)
    assert serve_module.gateway_settings({}).gateway.upstream is None
    assert "are not trusted and are left out" in capsys.readouterr().err
    assert run("trust", "add").code == 0
    assert serve_module.gateway_settings({}).gateway.upstream is None
    assert "sets gateway.upstream, which no folder may" in capsys.readouterr().err


def held_stream(upstream: Upstream) -> threading.Event:
    """Let the upstream begin a stream and go on with it only when it is told to."""
    go_on = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.chunk(b'data: {"first": 1}\n\n')
        go_on.wait(PATIENCE)
        exchange.chunk(b"data: [DONE]\n\n")
        exchange.end()

    upstream.script = script
    return go_on


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_stream_under_way_is_finished_before_the_gateway_leaves(
    upstream: Upstream, tmp_path: Path, name: str
) -> None:
    told = getattr(signal, name, signal.SIGTERM)
    go_on = held_stream(upstream)
    with program("--port", "0", "--upstream", upstream.url, "--store", str(tmp_path / "s.db")) as served:
        with raw(served.address) as client:
            client.begin(ASKED, "/v1/chat/completions")
            assert client.head().status == 200
            assert b"first" in client.chunk()
            served.tell(told)
            served.hear("1 request under way")
            if told != signal.SIGTERM:  # a terminal says it more than once
                served.tell(told)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(served.address.rpartition(":")[2])))
            go_on.set()
            assert b"[DONE]" in client.wire.chunks()
        assert served.end()[0] == 0


def test_a_second_signal_ends_it_at_once(upstream: Upstream, tmp_path: Path) -> None:
    go_on = held_stream(upstream)
    with program("--port", "0", "--upstream", upstream.url, "--store", str(tmp_path / "s.db")) as served:
        with raw(served.address) as client:
            client.begin(ASKED, "/v1/chat/completions")
            assert client.head().status == 200
            served.tell(signal.SIGINT)
            assert served.process.stderr is not None
            assert "under way" in served.process.stderr.readline()
            served.tell(signal.SIGINT)
            assert served.end()[0] == 130
        go_on.set()


def test_an_upstream_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        upstream = f"http://127.0.0.1:{taken.getsockname()[1]}"
    given = ["--port", "0", "--upstream", upstream, "--store", str(tmp_path / "gateway.db")]
    with program(*given, EVERLONG_HOME=str(tmp_path / "home")) as served:
        served.hear(f"the upstream {upstream} could not be reached")
        served.tell(signal.SIGTERM)
        assert served.end()[0] == 0


def test_any_other_path_goes_through_untouched(upstream: Upstream, hosted: HostedGateway) -> None:
    upstream.script = lambda exchange: exchange.answer(b'{"x":  1}', "203 Odd", [("x-odd", "yes")])
    with raw(hosted.address) as client:
        for method, target in (
            ("GET", "/v1/files?after=file%2Fone&limit=2"),
            ("POST", "/v1/embeddings"),
            ("DELETE", "/v1/files/file-1"),
            ("POST", "/v1/responses"),
            ("PUT", "/v1/odd%20path/%E2%82%AC"),
        ):
            body = b'{ "any":   "thing" }' if method in {"POST", "PUT"} else b""
            answer = client.ask(body, target, [("Authorization", "Bearer mine"), ("x-other", "1")], method)
            assert (answer.status, answer.body, answer.header("x-odd")) == (203, b'{"x":  1}', "yes")
            received = upstream.last
            assert (received.method, received.target, received.body) == (method, target, body)
            assert (received.header("authorization"), received.header("x-other")) == ("Bearer mine", "1")


AWAY = [
    "/v1/../admin",
    "/v1/%2e%2e/admin",
    "/v1/%252e%252e/x",
    "/..",
    "/a/./b",
    "/a\\..\\b",
    "/a%00b",
    "/a%0d%0ab",
]


def test_paths_that_lead_elsewhere_are_refused(upstream: Upstream, hosted: HostedGateway) -> None:
    for target in AWAY:
        with raw(hosted.address) as client:
            answer = client.ask(b"", target, method="GET")
        assert (target, answer.status) == (target, 400)
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert upstream.requests == []


def test_health_is_told_without_a_key_and_only_by_get(hosted: HostedGateway) -> None:
    with raw(hosted.address) as client:
        assert client.ask(b"", "/healthz", method="GET").json()["status"] == "ok"
        assert client.ask(b"", "/readyz", method="GET").json() == {"status": "ready"}
        answer = client.ask(b"{}", "/healthz")
    assert answer.status == 405
    assert "GET" in answer.json()["error"]["message"]


def test_a_gateway_whose_database_is_gone_says_so_and_stays_ready(
    hosted: HostedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everlong.errors import StoreUnavailable  # noqa: PLC0415 - only here

    def gone(_: Database) -> None:
        raise StoreUnavailable("the server is down")

    monkeypatch.setattr(Database, "read", gone)
    with raw(hosted.address) as client:
        answer = client.ask(b"", "/readyz", method="GET")
    assert (answer.status, answer.json()["problem"]) == (200, "the database cannot be reached")


NO_REQUESTS = [
    b"GET / HTTP/9.nine\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"GET / HTTP/1.1\r\nbroken header\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"a" * 200_000 + b"\r\n\r\n",
    b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
    b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
]


def test_what_is_no_request_gets_an_answer_that_can_be_read(hosted: HostedGateway) -> None:
    for data in NO_REQUESTS:
        with raw(hosted.address) as client:
            client.send(data + b"\r\n\r\n")
            answer = client.answer()
        assert (data[:60], answer.status) == (data[:60], 400)
        assert answer.json()["error"]["type"] == "invalid_request_error"
