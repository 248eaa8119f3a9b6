"""A gateway in a thread of its own, and a client that speaks to it in bytes."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import anthropic
import openai
from aiohttp import web

from everlong.config import Settings
from everlong.context import Summarizer
from everlong.gateway.app import SERVER_OPTIONS, make_app
from everlong.gateway.gateway import Gateway
from everlong.gateway.routing import Routes
from everlong.gateway.telemetry import GatewayLog, RequestAccount, server_logger
from everlong.gateway.writer import StoreWriter
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.opening import open_database
from everlong.testing import ModelServer
from tests.gateway.upstream import Hangup, Headed, Headers, Wire, read_headers
from tests.waiting import PATIENCE

TENANT = "x-test-tenant"


class ForTenants(Gateway):
    """A gateway whose tenants a test names; who they are is otherwise decided by their keys."""

    async def converse(self, dialect: Any, request: web.Request, account: RequestAccount) -> web.StreamResponse:
        account.caller = replace(account.caller, tenant=request.headers.get(TENANT, account.caller.tenant))
        return await super().converse(dialect, request, account)


@dataclass
class Running:
    """A gateway that runs."""

    port: int
    gateway: Gateway
    database: Database
    loop: asyncio.AbstractEventLoop
    clients: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def store(self, tenant: str = "local") -> Store:
        """What it has stored, once all that it has taken is there."""
        asyncio.run_coroutine_threadsafe(_settled(self.gateway), self.loop).result(PATIENCE)
        return Store(self.database, tenant)

    def openai(self) -> openai.OpenAI:
        """Return an official client, which is closed with the gateway."""
        return self.clients.enter_context(openai.OpenAI(base_url=f"{self.url}/v1", api_key="made-up", max_retries=0))

    def anthropic(self) -> anthropic.Anthropic:
        """Return an official client, which is closed with the gateway."""
        return self.clients.enter_context(anthropic.Anthropic(base_url=self.url, api_key="made-up", max_retries=0))

    def raw(self) -> Raw:
        """A connection to it."""
        return Raw(self.port)


async def _settled(gateway: Gateway) -> None:
    while True:
        if tasks := list(gateway._backlog.under_way):
            await asyncio.wait(tasks)
        elif gateway.journal.kept:  # the file was locked for too long, or its process has ended
            await asyncio.sleep(0.01)
        else:
            return


@contextmanager
def run_gateway(
    upstream: str,
    database: str,
    settings: Mapping[str, Any] | None = None,
    summarizer: Callable[[], Summarizer | None] | None = lambda: None,
    writer: StoreWriter | None = None,
) -> Iterator[Running]:
    """Run a gateway in front of an upstream, on a free port."""
    given = Settings.model_validate({"auxiliary": {"compression": {"provider": "main"}}, **(settings or {})})
    opened = open_database(database)
    folder = Path(tempfile.mkdtemp(prefix="everlong-spool-"))
    gateway = ForTenants(given, opened, Routes(given, upstream), summarizer=summarizer, journal=folder, writer=writer)
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    ready, leaving = threading.Event(), asyncio.Event()

    async def serve() -> None:
        app = make_app(gateway)
        logger = server_logger(GatewayLog(None))
        runner = web.AppRunner(app, **SERVER_OPTIONS, logger=logger, access_log=None, shutdown_timeout=1.0)
        try:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            ports.append(runner.addresses[0][1])
            ready.set()
            await leaving.wait()
        finally:
            ready.set()
            await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    ready.wait(PATIENCE)
    running = Running(ports[0], gateway, opened, loop)
    try:
        with running.clients:
            yield running
    finally:
        loop.call_soon_threadsafe(leaving.set)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the gateway does not come to an end"
        loop.close()
        opened.close()
        assert not any(folder.glob("*.jsonl")), "something is left in the journal"
        shutil.rmtree(folder)


@contextmanager
def modelled(
    script: Any, folder: Path, settings: Mapping[str, Any] | None = None, *, window: int = 200_000, **more: Any
) -> Iterator[tuple[ModelServer, Running]]:
    """Run a gateway in front of a model server, with its store in a folder."""
    with (
        ModelServer(script, window=window) as model,
        run_gateway(model.url, str(folder / "store.db"), settings, **more) as running,
    ):
        yield model, running


@dataclass
class Answer(Headed):
    """An answer as it came."""

    status: int
    reason: str
    headers: Headers
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Raw:
    """A client that sends and reads bytes."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.wire.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.wire.socket.sendall(data)

    def begin(
        self, body: bytes, path: str = "/v1/messages", headers: Iterable[tuple[str, str]] = (), method: str = "POST"
    ) -> None:
        """Send a whole request."""
        given = list(headers)
        if not any(name.lower() == "host" for name, _ in given):
            given.insert(0, ("host", "localhost"))
        names = {name.lower() for name, _ in given}
        if "content-type" not in names:
            given.append(("content-type", "application/json"))
        if "content-length" not in names and "transfer-encoding" not in names:
            given.append(("content-length", str(len(body))))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given)]
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def ask(
        self, body: bytes, path: str = "/v1/messages", headers: Iterable[tuple[str, str]] = (), method: str = "POST"
    ) -> Answer:
        """Send a request and read its answer."""
        self.begin(body, path, headers, method)
        return self.answer()

    def head(self) -> Answer:
        """The head of an answer; what comes after it is not read."""
        first, headers = read_headers(self.wire.until(b"\r\n\r\n"))
        _, status, reason = [*first.split(" ", 2), ""][:3]
        return Answer(int(status), reason, headers, b"")

    def answer(self, *, has_body: bool = True) -> Answer:
        """A whole answer; `Hangup` where it is cut."""
        answer = self.head()
        return self.rest_of(answer) if has_body else answer

    def rest_of(self, answer: Answer) -> Answer:
        """The body of an answer of which the head was read."""
        if "chunked" in (answer.header("transfer-encoding") or ""):
            answer.body = self.wire.chunks()
        elif (length := answer.header("content-length")) is not None:
            answer.body = self.wire.exactly(int(length))
        else:
            answer.body = self.rest()
        return answer

    def chunk(self) -> bytes:
        """The next piece of a stream; nothing at its end."""
        return self.wire.chunk()

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        try:
            while True:
                self.wire.more()
        except Hangup:
            pass
        found, self.wire.buffer = self.wire.buffer, b""
        return found
