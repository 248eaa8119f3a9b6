"""The inspector over a store of its own, and a client that speaks to it as a browser does."""

from __future__ import annotations

import asyncio
import http.client
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest
from aiohttp import web

from everlong.config import Settings
from everlong.inspector.app import make_app
from everlong.inspector.handlers import Reader
from everlong.inspector.security import Watch
from everlong.store import Store
from tests.inspector.making import Ferry, make_ferry
from tests.waiting import PATIENCE


@dataclass
class Got:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def words(self) -> str:
        """What a person reads on the page."""
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.text)).split())

    def token(self, action: str) -> str:
        """The token of the form that is sent to an address."""
        found = re.search(
            rf'action="{re.escape(action)}"[^>]*>\s*<input type="hidden" name="token" value="(\w+)"', self.text
        )
        assert found is not None, f"there is no form for {action}"
        return found[1]


@dataclass
class Site:
    """An inspector that runs."""

    port: int
    store: Store

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None) -> Got:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            given = dict(headers or {})
            connection.putrequest(method, path, skip_host="Host" in given)
            data = b"" if body is None else body.encode()
            if body is not None:
                given = {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(data)), **given}
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders(data or None)
            answer = connection.getresponse()
            return Got(answer.status, dict(answer.headers.items()), answer.read().decode("utf-8", "replace"))
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Got:
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, form: Mapping[str, str], **headers: str) -> Got:
        given = {"Origin": f"http://{self.host}", **{name.replace("_", "-"): v for name, v in headers.items()}}
        return self.ask("POST", path, urlencode(form), given)


class Tags(HTMLParser):
    """The tags, attributes and words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture
def ferry(store: Store) -> Ferry:
    return make_ferry(store)


@pytest.fixture
def site(store: Store) -> Iterator[Site]:
    """An inspector over the store, without a gateway."""
    yield from run_site(store, Watch())


def run_site(
    store: Store, watch: Watch, settings: Settings | None = None, kind: type[Reader] = Reader
) -> Iterator[Site]:
    loop = asyncio.new_event_loop()
    ready, leaving = threading.Event(), asyncio.Event()
    ports: list[int] = []

    async def serve() -> None:
        app = make_app(kind(store.database, settings or Settings(), "store.db"), watch)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
        ready.set()
        await leaving.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    yield Site(ports[0], store)
    loop.call_soon_threadsafe(leaving.set)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    loop.close()
