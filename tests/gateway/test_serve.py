"""``everlong serve``: how it starts, what it answers besides conversations, how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from everlong.cli import serve as serve_module
from everlong.gateway.proof import is_gateway
from everlong.gateway.server import HostedGateway
from everlong.testing import ModelServer
from tests.cli.conftest import Run, run
from tests.gateway.served import program, raw, serving
from tests.gateway.upstream import Exchange, Hangup, Upstream
from tests.program import everlong_program
from tests.waiting import PATIENCE

__all__ = ["run"]

ASKED = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'


@pytest.fixture
def hosted(upstream: Upstream, tmp_path: Path) -> Iterator[HostedGateway]:
    with serving(upstream.url, tmp_path) as gateway:
        yield gateway


# -- starting ----------------------------------------------------------------------------------------------------------


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
        (["--port", "0", "--log-file", "/dev/null/log"], "the log file /dev/null/log cannot be written"),
        (["--port", "9", "--upstream", "http://localhost:9/v1"], "is this gateway itself"),
        (["--port", "0", "--store", "/dev/null/store.db"], "/dev/null"),
    ],
)
def test_what_is_in_the_way_is_said_in_a_sentence(run: Run, arguments: list[str], words: str) -> None:
    ran = run("serve", *arguments)
    assert ran.code == 1
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_a_port_in_use_is_named_with_what_to_do(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("serve", "--port", str(port), "--store", str(tmp_path / "s.db"))
    assert ran.code == 1
    assert f"port {port} on 127.0.0.1 is in use" in ran.err
    assert "--port" in ran.err


def test_an_unreadable_configuration_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLONG_HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text("gateway: {port: many}")
    ran = run("serve")
    assert ran.code == 1
    assert "gateway.port" in ran.err
    assert 'is "many", but must be a whole number from 0 to 65,535' in ran.err


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


def test_without_its_package_it_says_how_to_install_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "find_spec", lambda _name: None)
    ran = run("serve")
    assert ran.code == 1
    assert "pip install aiohttp brotli" in ran.err


def test_other_commands_do_not_load_the_web_server() -> None:
    code = """
import sys
from everlong.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
print(sorted({"aiohttp", "asyncio", "opentelemetry", "sqlalchemy"} & set(sys.modules)), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


# -- ending ------------------------------------------------------------------------------------------------------------


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


def test_a_stream_under_way_is_finished_before_the_gateway_leaves(upstream: Upstream, tmp_path: Path) -> None:
    go_on = held_stream(upstream)
    with program("--port", "0", "--upstream", upstream.url, "--store", str(tmp_path / "s.db")) as served:
        with raw(served.address) as client:
            client.begin(ASKED, "/v1/chat/completions")
            assert client.head().status == 200
            assert b"first" in client.chunk()
            served.tell(signal.SIGTERM)
            served.hear("1 request under way")
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


def test_what_is_not_done_in_time_is_cut_off_and_told(upstream: Upstream, tmp_path: Path) -> None:
    go_on = held_stream(upstream)
    settings = {"EVERLONG_GATEWAY__DRAIN_SECONDS": "0"}
    store = str(tmp_path / "s.db")
    with program("--port", "0", "--upstream", upstream.url, "--store", store, **settings) as served:
        with raw(served.address) as client:
            client.begin(ASKED, "/v1/chat/completions")
            assert client.head().status == 200
            served.tell(signal.SIGTERM)
            code, said = served.end()
        go_on.set()
    assert code == 1
    assert "1 request cut off" in said


def test_it_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    with program("--port", "0", "--until-eof", "--store", str(tmp_path / "s.db")) as served:
        assert is_gateway(served.address)
        served.close_input()
        assert served.end()[0] == 0


def test_a_wrong_call_leaves_with_two() -> None:
    ran = subprocess.run([*everlong_program(), "serve", "--port", "70000"], capture_output=True, text=True, check=False)
    assert ran.returncode == 2


# -- endpoints around conversations ------------------------------------------------------------------------------------


def test_the_list_of_models_is_the_upstreams(model: ModelServer, tmp_path: Path) -> None:
    with serving(model.url, tmp_path) as hosted, raw(hosted.address) as client:
        answer = client.ask(b"", "/v1/models?limit=1000", method="GET")
        assert answer.json()["data"][0]["id"] == "test-model"
        for_claude = client.ask(b"", "/v1/models", [("anthropic-version", "2023-06-01")], "GET")
        assert for_claude.json()["has_more"] is False


def test_an_upstream_without_an_answer_is_told_in_the_words_of_each_api(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unheard:
        gone = f"http://127.0.0.1:{unheard.getsockname()[1]}"
    with serving(gone, tmp_path) as hosted, raw(hosted.address) as client:
        plain = client.ask(b"", "/v1/models", method="GET")
        assert (plain.status, plain.json()["error"]["type"]) == (502, "api_error")
        claude = client.ask(b"", "/v1/models", [("anthropic-version", "2023-06-01")], "GET")
        assert (claude.status, claude.json()["type"]) == (502, "error")


def test_a_silent_upstream_does_not_hold_up_the_list_of_models(
    upstream: Upstream, hosted: HostedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.app._MODELS_SECONDS", 0.05)
    leave = threading.Event()

    def silent(_exchange: Exchange) -> None:
        leave.wait(PATIENCE)

    upstream.script = silent
    with raw(hosted.address) as client:
        assert client.ask(b"", "/v1/models", method="GET").status == 504
    leave.set()


def test_tokens_are_counted_by_the_upstream_where_it_can(model: ModelServer, tmp_path: Path) -> None:
    with serving(model.url, tmp_path) as hosted, anthropic.Anthropic(base_url=hosted.address, api_key="k") as claude:
        there = claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": "one two three"}])
    with anthropic.Anthropic(base_url=model.url, api_key="k") as direct:
        own = direct.messages.count_tokens(model="m", messages=[{"role": "user", "content": "one two three"}])
    assert there.input_tokens == own.input_tokens


def test_tokens_are_counted_here_where_the_upstream_cannot(upstream: Upstream, hosted: HostedGateway) -> None:
    upstream.script = lambda exchange: exchange.answer(b'{"error":"?"}', "404 Not Found")
    with anthropic.Anthropic(base_url=hosted.address, api_key="k", max_retries=0) as claude:
        short = claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hello"}])
        long = claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hello there " * 500}])
    assert 1 <= short.input_tokens < 30
    assert 500 < long.input_tokens < 2_000
    assert len(upstream.requests) == 1, "an upstream that cannot count is asked once"


def test_own_counts_learn_from_what_the_upstream_reports(upstream: Upstream, hosted: HostedGateway) -> None:
    words = b"hello there " * 500
    asked = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"%s"}]}' % words
    said = (
        b'{"type":"message","role":"assistant","content":[{"type":"text","text":"yes"}],"usage":{"input_tokens":1800}}'
    )

    def script(exchange: Exchange) -> None:
        is_count = exchange.received.target.endswith("count_tokens")
        exchange.answer(b"{}" if is_count else said, "404 Not Found" if is_count else "200 OK")

    upstream.script = script
    with raw(hosted.address) as client:
        before = client.ask(asked, "/v1/messages/count_tokens").json()["input_tokens"]
        assert client.ask(asked, "/v1/messages").status == 200
        after = before
        for _ in range(200):  # learned in another thread
            after = client.ask(asked, "/v1/messages/count_tokens").json()["input_tokens"]
            if after != before:
                break
    assert after == 1800


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/v1/files?after=file%2Fone&limit=2"),
        ("POST", "/v1/embeddings"),
        ("DELETE", "/v1/files/file-1"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/messages/batches"),
        ("PUT", "/v1/odd%20path/%E2%82%AC"),
    ],
)
def test_any_other_path_goes_through_untouched(
    method: str, target: str, upstream: Upstream, hosted: HostedGateway
) -> None:
    upstream.script = lambda exchange: exchange.answer(b'{"x":  1}', "203 Odd", [("x-odd", "yes")])
    body = b'{ "any":   "thing" }' if method in {"POST", "PUT"} else b""
    with raw(hosted.address) as client:
        answer = client.ask(body, target, [("Authorization", "Bearer mine"), ("x-other", "1")], method)
    assert (answer.status, answer.body, answer.header("x-odd")) == (203, b'{"x":  1}', "yes")
    received = upstream.last
    assert (received.method, received.target, received.body) == (method, target, body)
    assert (received.header("authorization"), received.header("x-other")) == ("Bearer mine", "1")


def test_a_stream_on_another_path_arrives_piece_by_piece(upstream: Upstream, hosted: HostedGateway) -> None:
    go_on = held_stream(upstream)
    with raw(hosted.address) as client:
        client.begin(b"{}", "/v1/responses")
        assert client.head().status == 200
        assert b"first" in client.chunk()
        go_on.set()
        assert b"[DONE]" in client.wire.chunks()


@pytest.mark.parametrize(
    "target",
    ["/v1/../admin", "/v1/%2e%2e/admin", "/v1/%252e%252e/x", "/..", "/a/./b", "/a\\..\\b", "/a%00b", "/a%0d%0ab"],
)
def test_paths_that_lead_elsewhere_are_refused(target: str, upstream: Upstream, hosted: HostedGateway) -> None:
    with raw(hosted.address) as client:
        answer = client.ask(b"", target, method="GET")
    assert answer.status == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert upstream.requests == []


def test_a_path_is_never_taken_for_a_host(upstream: Upstream, hosted: HostedGateway) -> None:
    for target in ("//elsewhere.example/x", "http://elsewhere.example/v1/files", "/@elsewhere.example"):
        with raw(hosted.address) as client:
            answer = client.ask(b"", target, method="GET")
        assert answer.status in {200, 400}
    assert all(request.target.startswith("/") for request in upstream.requests)


@pytest.mark.parametrize("path", ["/", "/api/hello"])
def test_a_client_that_looks_whether_somebody_is_there_finds_somebody(
    path: str, upstream: Upstream, hosted: HostedGateway
) -> None:
    with raw(hosted.address) as client:
        client.begin(b"", path, method="HEAD")
        assert client.head().status == 200
    assert upstream.requests == []


def test_health_is_told_without_a_key_and_only_by_get(hosted: HostedGateway) -> None:
    with raw(hosted.address) as client:
        assert client.ask(b"", "/healthz", method="GET").json()["status"] == "ok"
        assert client.ask(b"", "/readyz", method="GET").json() == {"status": "ready"}
        answer = client.ask(b"{}", "/healthz")
    assert answer.status == 405
    assert "GET" in answer.json()["error"]["message"]


def test_a_gateway_that_is_about_to_stop_is_not_ready_and_takes_nothing(hosted: HostedGateway) -> None:
    server = hosted._server
    assert server is not None
    server.front.is_draining = True
    with raw(hosted.address) as client:
        assert client.ask(b"", "/readyz", method="GET").status == 503
        answer = client.ask(ASKED)
    assert answer.status == 503
    assert (answer.header("retry-after"), answer.header("connection")) == ("1", "close")


def test_a_clock_that_python_cannot_read_ends_a_connection_rather_than_hang_it(
    hosted: HostedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the year 2262 the request fails, and so does the line in the log that would say so."""

    def too_late() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    with raw(hosted.address) as client, monkeypatch.context() as late:
        late.setattr("time.time", too_late)
        client.begin(ASKED)
        with pytest.raises(Hangup):
            client.head()
    with raw(hosted.address) as client:
        assert client.ask(ASKED).status == 200


def test_a_gateway_whose_database_is_gone_is_not_ready(hosted: HostedGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlong.errors import StoreUnavailable  # noqa: PLC0415 - only here

    def gone() -> None:
        raise StoreUnavailable("the server is down")

    assert hosted._database is not None
    monkeypatch.setattr(hosted._database, "read", gone)
    with raw(hosted.address) as client:
        answer = client.ask(b"", "/readyz", method="GET")
    assert answer.status == 503
    assert answer.json()["problem"] == "the database cannot be reached"


def test_a_head_that_does_not_come_to_an_end_is_given_up(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.server._IDLE_SECONDS", 0.2)
    with serving(upstream.url, tmp_path) as slow, raw(slow.address) as client:
        client.send(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
        assert client.rest() == b""


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"CONNECT /healthz HTTP/1.1\r\nhost: localhost\r\n", 404),
        (b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nexpect: the-unexpected\r\ncontent-length: 0\r\n", 417),
    ],
)
def test_what_the_web_server_refuses_by_itself_has_the_shape_too(
    data: bytes, status: int, hosted: HostedGateway
) -> None:
    with raw(hosted.address) as client:
        client.send(data + b"\r\n")
        answer = client.answer()
    assert answer.status == status
    assert answer.json()["error"]["type"] in {"not_found_error", "invalid_request_error"}


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/9.nine\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET / HTTP/1.1\r\nbroken header\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["version", "tls", "header", "long", "length", "chunk"],
)
def test_what_is_no_request_gets_an_answer_that_can_be_read(data: bytes, hosted: HostedGateway) -> None:
    with raw(hosted.address) as client:
        client.send(data + b"\r\n\r\n")
        answer = client.answer()
    assert answer.status == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
