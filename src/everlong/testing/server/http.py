"""The HTTP server: it has a request checked, asks the script, and writes the answer or the fault.

Standard library only, one thread per connection, on loopback. The other modules of this package know the rules, the
shapes of answers and the cache.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, Self

from everlong.testing.server import anthropic_api, openai_api
from everlong.testing.server.exchange import (
    DIALECTS,
    Api,
    CacheCharge,
    Dialect,
    Fault,
    FaultPlan,
    Record,
    Refusal,
    check_window,
    count_prompt,
    fault_refusal,
    overflow,
)
from everlong.testing.server.script import Ask, Script, ScriptedModel

__all__ = [
    "ModelServer",
    "ServerReply",
    "check_key",
    "check_prompt",
    "count_reply",
    "damage",
    "error_reply",
    "event_bytes",
    "identity",
    "models_reply",
    "parse_body",
    "reply_to",
]

_APIS: dict[str, Api] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai",
    "/v1/responses": "responses",
}
_LARGEST = 32 * 1024 * 1024


class ModelServer:
    """A model API on loopback: ``with ModelServer(script) as server:``, then point a client at its address.

    Args:
        script: the answers: a function of the `Ask`, a list, or one text for all.
        port: the port on loopback; 0 takes a free one.
        window: the most tokens of a prompt together with the limit of its answer.
        dialect: the server that the OpenAI-format endpoint imitates.
        faults: the fault that each request meets.
        api_key: the key that clients must send; None accepts any.
        counts_max_tokens: refuse a prompt that fits but leaves no room for its ``max_tokens``; the newest Claude
            models answer it.
        alternate_roles: refuse two Anthropic messages of one role in a row, as some hosts of the API do.
        models: the names that ``/v1/models`` lists.
        remember: the number of newest requests whose bodies are kept; all by default.
    """

    def __init__(  # noqa: PLR0913 - each is one thing a test may want to turn
        self,
        script: Script = "Understood.",
        *,
        port: int = 0,
        window: int = 200_000,
        dialect: Dialect = "openai",
        faults: FaultPlan | None = None,
        api_key: str | None = None,
        counts_max_tokens: bool = True,
        alternate_roles: bool = False,
        models: tuple[str, ...] = ("test-model",),
        remember: int | None = None,
    ) -> None:
        if dialect not in DIALECTS:
            raise ValueError(f"dialect is one of {', '.join(DIALECTS)}; got {dialect!r}")
        self._port = port
        self.window = window
        self.dialect: Dialect = dialect
        self.api_key = api_key
        self.counts_max_tokens = counts_max_tokens
        self.alternate_roles = alternate_roles
        self.models = list(models)
        self.model = script if isinstance(script, ScriptedModel) else ScriptedModel(script, remember)
        self._remember = remember
        self.requests: list[Record] = []
        """Every request for a completion, in the order of arrival."""
        self.problems: list[str] = []
        """Errors inside of the script; raised again when the server is closed."""
        self.closing = threading.Event()
        self._faults = faults
        self._next_faults: list[Fault] = []
        self._lock = threading.Lock()
        self._http: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address, as the Anthropic client wants it."""
        if self._http is None:
            raise RuntimeError("the server is not running; use it in a with statement")
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The address, as the OpenAI client wants it."""
        return f"{self.url}/v1"

    def fail_next(self, *faults: Fault) -> None:
        """Let the next requests meet these faults, one each, whatever the plan says."""
        with self._lock:
            self._next_faults += faults

    def check_body(self, api: Api, body: Any, headers: Mapping[str, str], *, counting: bool = False) -> None:
        """Refuse a body that has no prompt, by a `Refusal`; override it to refuse more."""
        del headers, counting
        prompt = body.get("input" if api == "responses" else "messages") if isinstance(body, dict) else None
        if isinstance(prompt, str) and prompt and api == "responses":
            return
        if not isinstance(prompt, list) or not prompt or not all(isinstance(entry, dict) for entry in prompt):
            raise Refusal("The request has no messages")
        roles = [entry.get("role") for entry in prompt]
        if api == "anthropic" and self.alternate_roles and any(one == other for one, other in pairwise(roles)):
            raise Refusal("messages: roles must alternate between user and assistant")

    def count_tokens(self, api: Api, body: Mapping[str, Any]) -> int:
        """Return the tokens of a prompt; override it to count otherwise."""
        del api
        return count_prompt(body)

    def charge(self, api: Api, body: Mapping[str, Any], tokens: int) -> CacheCharge:
        """Return the bill of a prompt: nothing is cached; override it for a provider's cache."""
        del api, body
        return CacheCharge(tokens)

    def reply_elsewhere(self, path: str, raw: bytes, headers: Mapping[str, str]) -> ServerReply | None:
        """Return the reply to a request that is no plain completion; None for one that is."""
        del path, raw, headers
        return None

    def record_request(self, make: Callable[[int], Record]) -> tuple[Record, Fault | None]:
        """Record a request, and return the record and the fault that it meets."""
        with self._lock:
            number = len(self.requests)
            record = make(number)
            self.requests.append(record)
            if self._remember is not None and number >= self._remember:
                self.requests[number - self._remember].body = {}
            if self._next_faults:
                return record, self._next_faults.pop(0)
        plan = self._faults
        return record, None if plan is None else plan(number) if callable(plan) else plan.get(number)

    @property
    def rejections(self) -> list[Record]:
        """The requests that the server itself refused."""
        return [record for record in self.requests if record.rejected]

    def __enter__(self) -> Self:
        self._http = _HTTPServer(("127.0.0.1", self._port), _Handler)
        self._http.daemon_threads = True
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.closing.set()
        assert self._http is not None  # noqa: S101 - set by __enter__
        assert self._thread is not None  # noqa: S101 - as above
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        if kind is None and self.problems:
            raise AssertionError("the script or the server failed: " + "; ".join(self.problems))


class _HTTPServer(ThreadingHTTPServer):
    owner: ModelServer
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """Record what broke; a client that hangs up is no problem of the server."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            self.owner.problems.append(f"{type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HTTPServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing: tests look at the records."""

    @property
    def _path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    @property
    def _headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def do_HEAD(self) -> None:
        """Answer that the server is there."""
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """List the models."""
        self._send(models_reply(self.server.owner, self._path, self._headers))

    def do_POST(self) -> None:
        """Answer a request."""
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        if len(raw) < length:  # the client hung up
            self.close_connection = True
            return
        owner = self.server.owner
        if self._path == "/v1/messages/count_tokens":
            self._send(count_reply(owner, raw, self._headers))
            return
        self._send(
            owner.reply_elsewhere(self._path, raw, self._headers)
            or reply_to(owner, self._path, raw, self._headers, too_large=length > _LARGEST)
        )

    def _send(self, reply: ServerReply) -> None:
        if reply.silent_seconds:
            self.server.owner.closing.wait(reply.silent_seconds)
            self.close_connection = True
            return
        if reply.pieces is None:
            self._send_whole(reply)
        else:
            self._send_stream(reply)

    def _begin(self, reply: ServerReply, headers: Mapping[str, str]) -> None:
        self.send_response(reply.status)
        for name, value in {**headers, **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_whole(self, reply: ServerReply) -> None:
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body, ensure_ascii=False).encode()
        self._wait(reply.slow_seconds)
        self._begin(reply, {"content-type": "application/json", "content-length": str(len(data))})
        if reply.cut:
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)

    def _send_stream(self, reply: ServerReply) -> None:
        assert reply.pieces is not None  # noqa: S101 - asked before
        self._begin(reply, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        pieces = reply.pieces[: max(1, len(reply.pieces) // 2)] if reply.cut else reply.pieces
        for piece in pieces:
            self._wait(reply.slow_seconds)
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if reply.cut:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _wait(self, seconds: float) -> None:
        if seconds:
            self.server.owner.closing.wait(seconds)


# -- replies -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ServerReply:
    """A reply: a whole body or the pieces of a stream, and how it is damaged on its way."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] | None = None
    cut: bool = False
    slow_seconds: float = 0.0
    silent_seconds: float = 0.0


def reply_to(
    server: ModelServer, path: str, raw: bytes, headers: Mapping[str, str], *, too_large: bool = False
) -> ServerReply:
    """Return the reply to a request for a completion."""
    api = _APIS.get(path)
    if api is None:
        return error_reply("openai", Refusal(f"Invalid URL (POST {path})", status=404), 0)
    body, problem = parse_body(raw)
    record, fault = server.record_request(
        lambda number: Record(number, api, path, dict(headers), body if isinstance(body, dict) else {})
    )
    try:
        check_key(server, api, headers)
        _check_size(problem, too_large)
        check_prompt(server, api, body, record)
        return _answer(server, api, record, fault)
    except Refusal as refusal:
        record.status = refusal.status
        record.error = refusal.message
        return error_reply(api, refusal, record.number)


def parse_body(raw: bytes) -> tuple[Any, str | None]:
    """Return a body, or what is wrong with it."""
    try:
        return json.loads(raw), None
    except (ValueError, RecursionError) as error:
        return None, f"The request body is not valid JSON: {error}"


def _check_size(problem: str | None, too_large: bool = False) -> None:
    if too_large:
        raise Refusal("Request exceeds the maximum size", status=413, kind="request_too_large")
    if problem is not None:
        raise Refusal(problem)


def check_key(server: ModelServer, api: Api, headers: Mapping[str, str]) -> None:
    """Refuse a request without the key that the server wants."""
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    key = headers.get("x-api-key") or bearer if api == "anthropic" else bearer
    if api == "anthropic":
        if not key:
            raise Refusal("x-api-key header is required", status=401, kind="authentication_error")
        if server.api_key not in {None, key}:
            raise Refusal("invalid x-api-key", status=401, kind="authentication_error")
        if "anthropic-version" not in headers:
            raise Refusal("anthropic-version: header is required")
    elif not key and server.dialect == "openai":
        raise Refusal("You didn't provide an API key.", status=401)
    elif server.api_key not in {None, key}:
        raise Refusal("Incorrect API key provided.", status=401, code="invalid_api_key")


def check_prompt(server: ModelServer, api: Api, body: Any, record: Record) -> None:
    """Check a body and its size."""
    server.check_body(api, body, record.headers)
    names = {"anthropic": ("max_tokens",), "responses": ("max_output_tokens",)}
    limits = [body.get(name) for name in names.get(api, ("max_completion_tokens", "max_tokens"))]
    most = next(filter(None, limits), None)
    record.prompt_tokens = server.count_tokens(api, body)
    check_window(api, server.dialect, record.prompt_tokens, most if server.counts_max_tokens else None, server.window)


def _answer(server: ModelServer, api: Api, record: Record, fault: Fault | None) -> ServerReply:
    body = record.body
    if fault is not None:
        record.fault = fault.kind
        record.error = fault.kind if fault.kind != "slow" else None
        if fault.kind == "silent":
            return ServerReply(silent_seconds=fault.seconds)
        if fault.kind == "overflow":
            raise overflow(api, server.dialect, server.window + 1, None, server.window)
        refusal = fault_refusal(fault, api)
        if refusal is not None:
            raise refusal
    ask = Ask(api, record.number, body, record.headers, record.prompt_tokens)
    try:
        answer = server.model(ask)
    except Exception as error:
        server.problems.append(f"{type(error).__name__}: {error}")
        raise Refusal(f"the script failed: {error}", status=500, kind="api_error") from error
    # A cache is written when the response begins, so a request that failed leaves nothing in it.
    charge = server.charge(api, body, record.prompt_tokens)
    if api == "anthropic":
        whole = anthropic_api.message(answer, body, charge, record.number)
        frames = [event_bytes(name, data) for name, data in anthropic_api.events(whole)]
    elif api == "responses":
        whole = openai_api.response(answer, body, charge, record.number)
        frames = [event_bytes(event["type"], event) for event in openai_api.response_events(whole)]
    else:
        whole = openai_api.completion(answer, body, charge, record.number, server.dialect)
        frames = [_data(chunk) for chunk in openai_api.chunks(whole, body)] + [b"data: [DONE]\n\n"]
    record.status = 200
    record.usage = whole["usage"]
    reply = ServerReply(200, whole, identity(api, record.number), frames if body.get("stream") else None)
    return reply if fault is None else damage(reply, fault, api, record.number)


def damage(reply: ServerReply, fault: Fault, api: Api, number: int) -> ServerReply:
    """Return a reply with a fault on its way."""
    reply.cut = fault.kind == "cut"
    if fault.kind == "slow":
        reply.slow_seconds = fault.seconds
    if fault.kind == "garbage":
        if reply.pieces is None:
            reply.body = b'<html>{"id": "msg", "content": [{'
        else:
            reply.pieces[1:] = [b'event: content_block_delta\ndata: {"type": "content_bl\n\n', b"data: }{\n\n"]
    if fault.kind == "stream_error":
        refusal = Refusal("Overloaded", status=529, kind="overloaded_error")
        if reply.pieces is None:
            return error_reply(api, refusal, number)
        half = reply.pieces[: max(1, len(reply.pieces) // 2)]
        if api == "anthropic":
            reply.pieces = [*half, event_bytes("error", anthropic_api.error_body(refusal, _request_id(number)))]
        elif api == "responses":
            told = {"type": "error", "code": "server_error", "message": refusal.message, "param": None}
            reply.pieces = [*half, event_bytes("error", {**told, "sequence_number": len(half)})]
        else:
            reply.pieces = [*half, _data(openai_api.error_body(refusal))]
    return reply


def error_reply(api: Api, refusal: Refusal, number: int) -> ServerReply:
    """Return a refusal as an API sends it."""
    body = (
        anthropic_api.error_body(refusal, _request_id(number)) if api == "anthropic" else openai_api.error_body(refusal)
    )
    return ServerReply(refusal.status, body, {**identity(api, number), **refusal.headers})


def _request_id(number: int) -> str:
    return f"req_{number:020d}"


def identity(api: Api, number: int) -> dict[str, str]:
    """Return the header that names a request."""
    return {"request-id" if api == "anthropic" else "x-request-id": _request_id(number)}


def event_bytes(name: str, data: Any) -> bytes:
    """Return an event of a stream."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _data(data: Any) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def count_reply(server: ModelServer, raw: bytes, headers: Mapping[str, str]) -> ServerReply:
    """Return the reply to a request for a token count."""
    try:
        check_key(server, "anthropic", headers)
        body, problem = parse_body(raw)
        _check_size(problem)
        server.check_body("anthropic", body, headers, counting=True)
        return ServerReply(200, {"input_tokens": server.count_tokens("anthropic", body)})
    except Refusal as refusal:
        return error_reply("anthropic", refusal, 0)


def models_reply(server: ModelServer, path: str, headers: Mapping[str, str]) -> ServerReply:
    """Return the reply to a request for the models, or for one of them."""
    api: Api = "anthropic" if "anthropic-version" in headers else "openai"
    name = path.removeprefix("/v1/models").removeprefix("/")
    is_llama = server.dialect == "llama.cpp"  # llama.cpp has one list for all clients, and no page for one model
    listed = (
        anthropic_api.models(server.models, server.window)
        if api == "anthropic" and not is_llama
        else openai_api.models(server.models, server.window, server.dialect)
    )
    if not path.startswith("/v1/models"):
        return error_reply(api, Refusal(f"Not found: {path}", status=404, kind="not_found_error"), 0)
    if not name:
        return ServerReply(200, listed)
    found = [model for model in listed["data"] if model["id"] == name and not is_llama]
    if not found:
        return error_reply(api, Refusal(f"model: {name}", status=404, kind="not_found_error"), 0)
    return ServerReply(200, found[0])
