"""The way to the inspector: a process of its own that renders pages, to which ``/inspector`` is passed on.

The process starts with the first page that is asked for, so a gateway without readers pays nothing, and no page delays
a client. Key, right and host are checked here; the process believes only this gateway, by a secret that it is handed on
its standard input.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import secrets
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, web
from multidict import CIMultiDict

from everlong.gateway.auth import OWN_HEADER, Caller, Guard, Guesses, Refused, is_loopback
from everlong.gateway.bounds import BodyMemory, HeldMemory, receive
from everlong.processes import own_command

if TYPE_CHECKING:
    from everlong.gateway.telemetry import RequestAccount

__all__ = ["COMMAND", "INSPECTOR_PATH", "InspectorLink"]

INSPECTOR_PATH = "/inspector"
COMMAND: Sequence[str] = own_command("everlong.cli.inspect_web")
"""The program that renders pages."""
_START_SECONDS = 30.0
_ANSWER_SECONDS = 60.0
_MOST_REQUESTS, _MOST_OF_ONE = 64, 16
_MOST_BYTES = 65_536
_PASSED_ON = frozenset(
    {
        *("accept", "accept-language", "content-type", "cookie", "host", "hx-request", "hx-target", "hx-trigger"),
        *("hx-boosted", "last-event-id", "origin", "sec-fetch-mode", "sec-fetch-site", "sec-fetch-dest"),
    }
)
"""Headers of a browser that the inspector reads."""
_NOT_SENT_BACK = frozenset({"connection", "keep-alive", "transfer-encoding", "date", "server", "content-length"})


class InspectorLink:
    """Starts the inspector of a store when it is first asked for, and passes requests on to it.

    Calls ``on_change`` with the tenant after a reader has undone a compaction.
    """

    def __init__(
        self,
        store: str,
        guard: Guard,
        on_change: Callable[[str], None] = lambda _: None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._store = store
        self._guard = guard
        self._on_change = on_change
        self._command = command
        self._guesses = Guesses()
        self._proof = secrets.token_urlsafe(32)
        self._process: Process | None = None
        self._address = ""
        self._starting = asyncio.Lock()
        self._session: ClientSession | None = None
        self._under_way: dict[asyncio.Task[object] | None, str] = {}
        self._is_closed = False

    async def handle(self, request: web.Request, account: RequestAccount) -> web.StreamResponse:
        """Answer a request for a page."""
        caller = self._admit(request)
        if caller is None:
            text = "Give a gateway key as the password; from another machine, one with gateway.keys.NAME.inspect."
            return web.Response(
                status=401, text=text, headers={"WWW-Authenticate": 'Basic realm="everlong", charset="UTF-8"'}
            )
        account.caller = caller
        own = list(self._under_way.values()).count(caller.tenant)
        if len(self._under_way) >= _MOST_REQUESTS or own >= _MOST_OF_ONE:
            raise Refused(503, "too many pages of the inspector are open; close some", 1)
        task = asyncio.current_task()
        self._under_way[task] = caller.tenant
        try:
            return await self._pass_on(request, caller)
        finally:
            del self._under_way[task]

    async def close(self) -> None:
        """End the process and every open page."""
        self._is_closed = True
        for task in filter(None, list(self._under_way)):  # pages that wait for changes would wait for ever
            task.cancel()
        if self._session is not None:
            await self._session.close()
        if self._process is not None and self._process.returncode is None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                async with asyncio.timeout(3):
                    await self._process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()

    # -- who may read --------------------------------------------------------------------------------------------------

    def _admit(self, request: web.Request) -> Caller | None:
        """Return the sender of a request, by a header or by what a browser's own question for a password got."""
        headers = _with_key(request.headers)
        caller = self._guard.admit(headers)
        if not self._guard.is_open:
            self._guesses.check(request.remote or "", caller, self._guard.tried(headers))
            may_read = caller is None or _is_from_here(request) or (caller.limits and caller.limits.inspect)
            if caller is not None and not may_read:
                raise Refused(
                    403,
                    "this key may read the inspector only on the gateway's own machine; "
                    f"have gateway.keys.{caller.tenant}.inspect set to true",
                )
        elif caller is None:
            raise Refused(403, "the page that sent this is not the inspector")
        return caller

    # -- the process ---------------------------------------------------------------------------------------------------

    async def _pass_on(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await receive(request, HeldMemory(BodyMemory(_MOST_BYTES))) if request.body_exists else None
        headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() in _PASSED_ON)
        headers["x-everlong-inspector"] = self._proof
        headers["x-everlong-tenant"] = caller.tenant
        for is_last in (False, True):
            session, address = await self._ready()
            try:
                answer = await session.request(
                    request.method, address + request.raw_path, headers=headers, data=body, allow_redirects=False
                )
                break
            except (ClientError, OSError) as error:
                if is_last or self._is_closed:
                    raise Refused(502, f"the inspector does not answer ({type(error).__name__})") from error
        if request.method == "POST":
            self._on_change(caller.tenant)
        try:
            kept = CIMultiDict((n, v) for n, v in answer.headers.items() if n.lower() not in _NOT_SENT_BACK)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        except (ClientError, TimeoutError) as error:
            raise ConnectionResetError("the inspector broke off") from error
        finally:
            answer.release()
        return response

    async def _ready(self) -> tuple[ClientSession, str]:
        """Return the connection to a process that runs; start one if none does."""
        async with self._starting:
            if self._is_closed:
                raise Refused(503, "the gateway is about to stop; try again", 1, close=True)
            if self._process is None or self._process.returncode is not None:
                self._process, self._address = await self._start()
            if self._session is None:
                timeout = ClientTimeout(total=None, connect=5, sock_read=_ANSWER_SECONDS)
                self._session = ClientSession(
                    timeout=timeout, auto_decompress=False, cookie_jar=DummyCookieJar(), trust_env=False
                )
            return self._session, self._address

    async def _start(self) -> tuple[Process, str]:
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        assert process.stdin is not None  # noqa: S101 - asked for above
        assert process.stdout is not None  # noqa: S101 - asked for above
        try:
            async with asyncio.timeout(_START_SECONDS):
                process.stdin.write(json.dumps({"store": self._store, "proof": self._proof}).encode() + b"\n")
                await process.stdin.drain()
                line = (await process.stdout.readline()).decode().strip()
        except (TimeoutError, OSError):
            line = ""
        address = line.removesuffix("/").removesuffix(INSPECTOR_PATH)
        if not address.startswith("http://127.0.0.1:"):
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise Refused(502, "the inspector did not start; `everlong inspect --web` on this machine says why")
        return process, address


def _is_from_here(request: web.Request) -> bool:
    """Return whether a request comes from this machine, by the name of this machine and through no proxy."""
    if any(name in request.headers for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Real-IP")):
        return False
    try:
        name = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name) and is_loopback(request.remote or "")


def _with_key(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers with the password of a browser's own question in the place of a key."""
    given = headers.get("Authorization", "")
    if given[:6].lower() != "basic ":
        return headers
    try:
        _, _, password = base64.b64decode(given[6:].strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return headers
    kept = {name: value for name, value in headers.items() if name.lower() != "authorization"}
    return {**kept, OWN_HEADER: password}
