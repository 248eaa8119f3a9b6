"""The web application: routes, the checks before them, and what a person sees when something goes wrong."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import web

from everlong.errors import ConfigError, EverlongError, NotStored, StoreError
from everlong.inspector.handlers import Answer, ConversationHandlers, Reader, StoreHandlers, Visit
from everlong.inspector.rendering import BASE, LANGUAGES, choose_language, render, stream, translator
from everlong.inspector.security import HEADERS, VISITOR, Watch, WrongVisitor
from everlong.store.turns import newest_change

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["HOST", "make_app", "serve"]

_LANGUAGE = "everlong_language"
"""The cookie that keeps a reader's language."""
_YEAR = 31_536_000
_THREADS = 2
"""Threads for the pages of one tenant; those of others have their own."""
_BODY_BYTES = 65_536
_CHUNK = 65_536
_INDEXED_AT_ONCE = 200
_INDEX_SECONDS = 5.0
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_logger = logging.getLogger("everlong.inspector")

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Page: TypeAlias = Callable[[Visit], Answer]


def make_app(reader: Reader, watch: Watch) -> web.Application:
    """Return the application over a store."""
    without_slash = web.normalize_path_middleware(append_slash=False, remove_slash=True)
    app = web.Application(client_max_size=_BODY_BYTES, middlewares=[_guarded(watch), without_slash])
    pages = _Pages(watch, reader)
    store, conversation = StoreHandlers(reader), ConversationHandlers(reader)
    one = f"{BASE}/c/{{ident}}"
    add = app.router
    add.add_get("/", _to_base)
    add.add_get(BASE, _to_base)
    add.add_get(f"{BASE}/static/{{name}}", _static)
    for path, page in (
        (f"{BASE}/", store.conversations),
        (f"{BASE}/search", store.search),
        (f"{BASE}/cost", store.cost),
        (f"{BASE}/m/{{node}}", store.message),
        (one, conversation.now),
        (f"{one}/timeline", conversation.timeline),
        (f"{one}/timeline.json", conversation.chart),
        (f"{one}/transcript", conversation.transcript),
        (f"{one}/compactions", conversation.compactions),
        (f"{one}/compactions/{{number}}", conversation.compaction),
        (f"{one}/tree", conversation.tree),
    ):
        add.add_get(path, pages.get(page))
    add.add_get(f"{one}/export/{{form}}", pages.export(conversation))
    add.add_post(f"{one}/undo", pages.post(conversation.undo))
    add.add_post(f"{one}/compact", pages.post(conversation.try_compaction))
    live = LiveHandler(reader)
    add.add_get(f"{BASE}/live", live.listen)
    app.on_shutdown.append(live.close)
    if not watch.proof:  # a gateway keeps the index of its store itself
        app.cleanup_ctx.append(partial(_indexing, reader.store(watch.tenant)))
    app.on_cleanup.append(pages.close)
    return app


async def _indexing(store: Store, _app: web.Application) -> AsyncIterator[None]:
    """Index what was stored and not indexed yet, in the background; the search finds it slowly until then."""

    async def work() -> None:
        while True:
            try:
                taken = await asyncio.to_thread(store.searcher.index_pending, _INDEXED_AT_ONCE)
            except StoreError:  # somebody else writes, or the store can only be read
                taken = 0
            await asyncio.sleep(0.05 if taken else _INDEX_SECONDS)

    task = asyncio.create_task(work())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _guarded(watch: Watch) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            request[VISITOR] = watch.admit(request.method, request.headers)
            response = await handler(request)
        except WrongVisitor as refused:
            response = _problem(request, 403, "app.refused", str(refused))
        except web.HTTPException as raised:
            if raised.status < 400:
                raised.headers.update(HEADERS)
                raise
            response = _problem(request, raised.status, "app.not_found", raised.reason)
        except ConnectionError:  # the reader has left, or a page could not be made to its end
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        except Exception as error:
            _logger.warning("a page failed: %s", type(error).__name__, exc_info=_logger.isEnabledFor(logging.DEBUG))
            response = _problem(request, 500, "app.failed", translator(_language(request))("app.failed_hint"))
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    return guard


def _language(request: web.Request) -> str:
    accepted = request.headers.get("Accept-Language", "")
    return choose_language(request.query.get("lang"), request.cookies.get(_LANGUAGE), accepted)


def _problem(request: web.Request, status: int, title: str, text: str) -> web.Response:
    about = {"section": "", "given": {}, "store_name": "", "tenant": "local", "title_key": title, "text": text}
    body = render("problem.html", _language(request), about)
    return web.Response(text=body, status=status, content_type="text/html", headers=dict(HEADERS))


class _Pages:
    """Runs page functions in worker threads, and sends what they return."""

    def __init__(self, watch: Watch, reader: Reader) -> None:
        self._watch = watch
        self._reader = reader
        self._workers = defaultdict[str, ThreadPoolExecutor](partial(ThreadPoolExecutor, _THREADS, "inspector"))
        """Those of each tenant."""

    async def close(self, _app: web.Application) -> None:
        """Wait for pages under way."""
        for workers in list(self._workers.values()):
            await asyncio.to_thread(workers.shutdown)

    def get(self, page: Page) -> Handler:
        """Return the handler of a page that is read."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._answer(request, page, {})

        return handle

    def post(self, action: Page) -> Handler:
        """Return the handler of an action that changes something: its form has to bring the token."""

        async def handle(request: web.Request) -> web.StreamResponse:
            form = await request.post()
            self._watch.check_token(request[VISITOR], request.path, str(form.get("token", "")))
            return await self._answer(request, action, {name: str(value) for name, value in form.items()})

        return handle

    def export(self, conversation: ConversationHandlers) -> Handler:
        """Return the handler that sends a conversation as a file."""

        async def handle(request: web.Request) -> web.StreamResponse:
            visit = self._visit(request, {})
            loop = asyncio.get_running_loop()
            try:
                file = await loop.run_in_executor(self._workers[visit.store.tenant], conversation.export, visit)
            except NotStored as error:
                return _problem(request, 404, "app.not_found", str(error))
            response = web.StreamResponse(headers={**HEADERS, "Content-Disposition": file.disposition})
            response.content_type = file.content_type
            response.charset = "utf-8"
            await response.prepare(request)
            with file.data:
                while chunk := await loop.run_in_executor(self._workers[visit.store.tenant], file.data.read, _CHUNK):
                    await response.write(chunk)
            await response.write_eof()
            return response

        return handle

    async def _answer(self, request: web.Request, page: Page, form: dict[str, str]) -> web.StreamResponse:
        visit = self._visit(request, form)
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._workers[visit.store.tenant], page, visit)
            if answer.location:
                return web.Response(status=303, headers={"Location": answer.location})
            if answer.data is not None:
                return web.json_response(answer.data)
            return await self._send(request, visit, answer)
        except NotStored as error:
            return _problem(request, 404, "app.not_found", str(error))
        except (StoreError, EverlongError) as error:
            _logger.warning("a page could not be made: %s", type(error).__name__)
            return _problem(request, 503, "app.failed", str(error))

    async def _send(self, request: web.Request, visit: Visit, answer: Answer) -> web.StreamResponse:
        """Send a page from its template; its first piece before the rest is made."""
        pieces = stream(answer.template, visit.language, answer.values)
        loop = asyncio.get_running_loop()
        response = web.StreamResponse(headers=dict(HEADERS))
        response.content_type, response.charset = "text/html", "utf-8"
        if request.query.get("lang") in LANGUAGES:
            response.set_cookie(_LANGUAGE, visit.language, max_age=_YEAR, path=BASE, samesite="Lax", httponly=True)
        first = await loop.run_in_executor(self._workers[visit.store.tenant], next, pieces, "")
        await response.prepare(request)
        piece = first
        while piece:
            await response.write(piece.encode("utf-8", "replace"))
            try:
                piece = await loop.run_in_executor(self._workers[visit.store.tenant], next, pieces, "")
            except Exception as error:  # the page has begun, so all that is left is to break it off
                _logger.warning("a page broke off: %s", type(error).__name__)
                raise ConnectionResetError("the page could not be made to its end") from error
        await response.write_eof()
        return response

    def _visit(self, request: web.Request, form: dict[str, str]) -> Visit:
        visitor = request[VISITOR]
        return Visit(
            store=self._reader.store(visitor.tenant),
            path=request.path,
            names=dict(request.match_info),
            query=dict(request.query),
            form=form,
            language=_language(request),
            is_part="HX-Request" in request.headers and "HX-Boosted" not in request.headers,
            token=lambda action: self._watch.token(visitor, action),
        )


async def _to_base(_request: web.Request) -> web.Response:
    return web.Response(status=303, headers={"Location": f"{BASE}/"})


async def _static(request: web.Request) -> web.Response:
    """Send a file of ours; only names that are there can be asked for."""
    name = request.match_info["name"]
    folder = files("everlong.inspector") / "static"
    known = {one.name: one for one in folder.iterdir() if one.is_file()}
    file = known.get(name)
    kind = next((kind for ending, kind in _TYPES.items() if name.endswith(ending)), None)
    if file is None or kind is None:
        raise web.HTTPNotFound
    keep = {"Cache-Control": f"max-age={_YEAR}, immutable"} if "v" in request.query else {}
    return web.Response(body=file.read_bytes(), content_type=kind, charset="utf-8", headers=keep)


# -- live updates: a stream of events that says when the database has changed, so that pages look again ----------------


_SECONDS = 1.0
"""Seconds between two looks of an open page at the store."""
_BEAT_SECONDS = 15.0


class LiveHandler:
    """Looks at the store once a second while a page is open, and tells the page of a change."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._looking = asyncio.Lock()
        """Locked while one page looks: a database that hangs takes one thread; clients need the others."""
        self._closing = asyncio.Event()

    async def close(self, _app: web.Application) -> None:
        """End every stream, because the process stops."""
        self._closing.set()

    async def listen(self, request: web.Request) -> web.StreamResponse:
        """Send an event for each change until the page is closed."""
        tenant = request[VISITOR].tenant
        response = web.StreamResponse(headers={**HEADERS, "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        seen, beat = await self._look(tenant), time.monotonic()
        await response.write(b"retry: 3000\n\n")
        try:
            while not self._closing.is_set() and not _has_left(request):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _SECONDS)
                now = await self._look(tenant)
                if now not in {None, seen}:
                    seen = now
                    await response.write(b"event: change\ndata: 1\n\n")
                elif time.monotonic() - beat > _BEAT_SECONDS:
                    beat = time.monotonic()
                    await response.write(b": still here\n\n")
        except ConnectionError:
            pass  # the page was closed
        return response

    async def _look(self, tenant: str) -> tuple[int, int, int] | None:
        """Return the numbers of the newest change; None where the store cannot be read just now."""
        async with self._looking:
            with suppress(StoreError):
                return await asyncio.to_thread(newest_change, self._reader.store(tenant))
            return None


def _has_left(request: web.Request) -> bool:
    """Return whether the page was closed; nothing may be written for long, so nothing else would tell."""
    return request.transport is None or request.transport.is_closing()


# -- the process: it listens on this machine ---------------------------------------------------------------------------


HOST = "127.0.0.1"
_LAST_SECONDS = 1.0
"""Seconds that open pages get to end when the process stops."""


async def serve(
    reader: Reader, watch: Watch, *, port: int, on_ready: Callable[[str], None], until_eof: bool = False
) -> None:
    """Serve until a signal comes; ``on_ready`` gets the address of the first page.

    Args:
        reader: The store that is looked at.
        watch: The checks before each page.
        port: The port on this machine; 0 for any free one.
        on_ready: Called once, when pages can be read.
        until_eof: Stop when standard input ends, for a program that started this one.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # there are no such handlers on Windows; Ctrl-C raises there
            loop.add_signal_handler(name, stop.set)
    runner = web.AppRunner(make_app(reader, watch), access_log=None, shutdown_timeout=_LAST_SECONDS)
    await runner.setup()
    bound = _bind(port)
    try:
        await web.SockSite(runner, bound).start()
        on_ready(f"http://{HOST}:{bound.getsockname()[1]}{BASE}/")
        if until_eof:
            # A thread that nobody waits for: it may hang in a read for ever.
            threading.Thread(target=_wait_for_end, args=(loop, stop), daemon=True).start()
        await stop.wait()
    finally:
        await runner.cleanup()


def _bind(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        raise ConfigError(
            f"the inspector cannot listen on {HOST}:{port}: {error.strerror}; choose another --port, or 0 for any",
            key="port",
        ) from error
    return made


def _wait_for_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with suppress(OSError, ValueError):
        while sys.stdin.buffer.read(4_096):
            pass
    with suppress(RuntimeError):  # the loop may be over already
        loop.call_soon_threadsafe(stop.set)
