"""An upstream that answers at once, and a bare relay: the ceiling and the floor of what a gateway can do.

Each runs in a process of its own, so that whoever is measured has a core to itself as far as there is one.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import ClientSession, TCPConnector, web

__all__ = ["failing_upstream", "relay", "upstream"]

PATH = "/v1/chat/completions"
_MESSAGE = {"role": "assistant", "content": "All right, that is noted."}
_USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
_REPLY = json.dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
).encode()
_STREAMED = re.compile(rb'"stream": ?true')
_LARGEST = 2**30


def _events() -> list[bytes]:
    words = ["All right, ", "that is ", "noted."]
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": word}, None) for word in words]
    deltas.append(({}, "stop"))
    chunks: list[dict[str, Any]] = [
        {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m-1",
            "choices": [{"index": 0, "delta": delta, "finish_reason": end}],
        }
        for delta, end in deltas
    ]
    return [*(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks), b"data: [DONE]\n\n"]


async def _answer(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    if not _STREAMED.search(body[:200] + body[-400:]):  # whoever writes a request anew may put it last
        return web.Response(body=_REPLY, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in _events():
        await response.write(event)
    await response.write_eof()
    return response


def _run_upstream(ports: Any) -> None:
    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(PATH, _answer)
    asyncio.run(_serve(app, ports))


def _run_failing(ports: Any, share: float) -> None:
    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(PATH, _Failing(share).answer)
    asyncio.run(_serve(app, ports))


class _Failing:
    """Repeats what it hears, and fails now and then."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._dice = random.Random(1)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        messages = json.loads(await request.read())["messages"]
        if self._dice.random() < self._share:
            status = self._dice.choice((429, 500, 503, 529))
            error = {"message": "made up", "type": "api_error", "code": "made_up_fault"}
            return web.json_response({"error": error}, status=status)
        words = messages[-1]["content"]
        text = words if isinstance(words, str) else "".join(part.get("text", "") for part in words)
        choice = {"index": 0, "message": {**_MESSAGE, "content": f"Heard: {text}"}, "finish_reason": "stop"}
        size = sum(len(str(message)) for message in messages) // 4
        usage = {"prompt_tokens": size, "completion_tokens": 50, "total_tokens": size + 50}
        return web.json_response({"id": "c1", "model": "m-1", "choices": [choice], "usage": usage})


def _run_relay(ports: Any, url: str) -> None:
    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(PATH, _Relay(url).pass_on)
    asyncio.run(_serve(app, ports))


class _Relay:
    """Passes on what comes, and looks at nothing."""

    def __init__(self, url: str) -> None:
        self._url = url + PATH
        self._session: ClientSession | None = None

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        if self._session is None:
            self._session = ClientSession(connector=TCPConnector(limit=0), auto_decompress=False)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in {"host", "content-length"}}
        async with self._session.post(self._url, data=await request.read(), headers=headers) as answer:
            if not answer.headers["Content-Type"].startswith("text/event-stream"):
                return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


async def _serve(app: web.Application, ports: Any) -> None:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ports.put(runner.addresses[0][1])
    await asyncio.Event().wait()


@contextmanager
def _process(run: Callable[..., None], *arguments: Any) -> Iterator[str]:
    spawning = multiprocessing.get_context("spawn")
    ports = spawning.Queue()
    process = spawning.Process(target=run, args=(ports, *arguments), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=60)}"
    finally:
        process.terminate()
        process.join(10)


@contextmanager
def upstream() -> Iterator[str]:
    """Yield a model that answers at once."""
    with _process(_run_upstream) as url:
        yield url


@contextmanager
def failing_upstream(share: float) -> Iterator[str]:
    """Yield a model that repeats what it hears, and fails as often as ``share`` says."""
    with _process(_run_failing, share) as url:
        yield url


@contextmanager
def relay(url: str) -> Iterator[str]:
    """Yield a relay in front of it."""
    with _process(_run_relay, url) as address:
        yield address
