"""The server itself: takes a request, has it checked, asks the script, and writes the answer or the fault.

Standard library only, one thread per connection, on loopback. What a request must look like, what an answer looks like
and what the cache does is known to the other modules of this package.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from everlong.testing.server.cache import PromptCache
from everlong.testing.server.faults import Fault, FaultPlan
from everlong.testing.server.record import Record
from everlong.testing.server.reply import Reply, count_reply, models_reply, reply_to
from everlong.testing.server.script import Script, ScriptedModel
from everlong.testing.server.window import DIALECTS, Dialect

__all__ = ["ModelServer"]

_LARGEST = 32 * 1024 * 1024


class ModelServer:
    """A model API on loopback: ``with ModelServer(script) as server:``, then point a client at its address.

    Args:
        script: what the model says: a function of the `Ask`, a list of answers, or one text for all.
        window: tokens of a prompt together with the most that its answer may have.
        dialect: whose words the OpenAI-format endpoint speaks.
        faults: which request meets which fault.
        clock: the time by which the cache forgets.
        api_key: the key that clients must send; without one, any will do.
        counts_max_tokens: refuse a prompt that fits but leaves no room for its ``max_tokens``; the newest Claude
            models answer it.
        alternate_roles: refuse two Anthropic messages of one role in a row, as some hosts of the API do.
        models: the names that ``/v1/models`` lists.
        remember: keep the bodies of so many requests only, the newest; all by default.
        knows_compaction: answer ``compaction_trigger`` and ``/v1/responses/compact`` with a compaction item.
        overflows_in_stream: refuse a streamed request of the Responses API that is too long inside of the stream.
    """

    def __init__(  # noqa: PLR0913 - each is one thing a test may want to turn
        self,
        script: Script = "Understood.",
        *,
        window: int = 200_000,
        dialect: Dialect = "openai",
        faults: FaultPlan | None = None,
        clock: Callable[[], float] = time.monotonic,
        api_key: str | None = None,
        counts_max_tokens: bool = True,
        alternate_roles: bool = False,
        models: tuple[str, ...] = ("test-model",),
        remember: int | None = None,
        knows_compaction: bool = False,
        overflows_in_stream: bool = False,
    ) -> None:
        if dialect not in DIALECTS:
            raise ValueError(f"dialect is one of {', '.join(DIALECTS)}; got {dialect!r}")
        self.window = window
        self.dialect: Dialect = dialect
        self.api_key = api_key
        self.counts_max_tokens = counts_max_tokens
        self.alternate_roles = alternate_roles
        self.models = list(models)
        self.knows_compaction = knows_compaction
        self.overflows_in_stream = overflows_in_stream
        self.model = script if isinstance(script, ScriptedModel) else ScriptedModel(script, remember)
        self._remember = remember
        self.cache = PromptCache(clock)
        self.requests: list[Record] = []
        """Every request for a completion, in the order they came."""
        self.problems: list[str] = []
        """What went wrong inside of the script; told again when the server is left."""
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

    def started(self, make: Callable[[int], Record]) -> tuple[Record, Fault | None]:
        """Take a request into the books; returns its record and the fault that it meets."""
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
        """The requests that the server itself found fault with."""
        return [record for record in self.requests if record.rejected]

    def __enter__(self) -> Self:
        self._http = _HTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        assert self._http is not None  # noqa: S101 - set by __enter__
        assert self._thread is not None  # noqa: S101 - as above
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        if error is None and self.problems:
            raise AssertionError("the script or the server failed: " + "; ".join(self.problems))


class _HTTPServer(ThreadingHTTPServer):
    owner: ModelServer
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """Note what broke; a client that hangs up is no trouble of ours."""
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
        """Say that somebody is here."""
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
        if len(raw) < length:  # whoever sent it is gone, and was refused nothing
            self.close_connection = True
            return
        owner = self.server.owner
        if self._path == "/v1/messages/count_tokens":
            self._send(count_reply(owner, raw, self._headers))
            return
        self._send(reply_to(owner, self._path, raw, self._headers, too_large=length > _LARGEST))

    def _send(self, reply: Reply) -> None:
        if reply.silent_seconds:
            self.server.owner.closing.wait(reply.silent_seconds)
            self.close_connection = True
            return
        if reply.pieces is None:
            self._send_whole(reply)
        else:
            self._send_stream(reply)

    def _begin(self, reply: Reply, headers: Mapping[str, str]) -> None:
        self.send_response(reply.status)
        for name, value in {**headers, **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_whole(self, reply: Reply) -> None:
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body, ensure_ascii=False).encode()
        self._wait(reply.slow_seconds)
        self._begin(reply, {"content-type": "application/json", "content-length": str(len(data))})
        if reply.cut:
            data = data[: len(data) // 2]
            self.close_connection = True
        self.wfile.write(data)

    def _send_stream(self, reply: Reply) -> None:
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
