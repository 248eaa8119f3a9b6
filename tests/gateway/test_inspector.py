"""The inspector behind a gateway: who may read it, and what an undo there does to the next request."""

from __future__ import annotations

import base64
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from everlong.config import Settings
from everlong.gateway.routing import Routes
from everlong.gateway.server import HostedGateway
from everlong.store import Occasion, Store
from everlong.store.opening import open_database
from everlong.testing import ModelServer
from tests.gateway.running import Answer, Raw
from tests.store.engines import ScriptedEngine, summarizing
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    import pytest

READER, WRITER = "reader-key-0123456789", "writer-key-0123456789"
KEYS = {"reader": {"key_variable": "READER_KEY", "inspect": True}, "writer": {"key_variable": "WRITER_KEY"}}


@contextmanager
def serving(upstream: str, folder: Path, **gateway: Any) -> Iterator[str]:
    given = Settings.model_validate(
        {"gateway": {"port": 0, **gateway}, "auxiliary": {"compression": {"provider": "main"}}}
    )
    database = folder / "served.db"
    with HostedGateway(given, Routes(given, upstream), lambda: open_database(database), has_inspector=True) as hosted:
        yield hosted.address


def ask(address: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
    host = address.removeprefix("http://")
    with Raw(int(address.rpartition(":")[2])) as raw:
        return raw.ask(body, path, list({"Host": host, **(headers or {})}.items()), method=method)


def basic(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anybody:{key}".encode()).decode()}


class Talk:
    """A client that goes on with one conversation."""

    def __init__(self, address: str, model: ModelServer, key: str = "") -> None:
        self.address, self.model, self.key = address, model, key
        self.messages: list[dict[str, str]] = []

    def say(self, words: str) -> str:
        """Say something; return the words of the request as the model got it."""
        self.messages.append({"role": "user", "content": words})
        body = json.dumps({"model": "m", "messages": self.messages}).encode()
        headers = {"authorization": "Bearer made-up", **({"x-everlong-key": self.key} if self.key else {})}
        got = ask(self.address, "POST", "/v1/chat/completions", body, headers)
        assert got.status == 200, got.body
        self.messages.append(got.json()["choices"][0]["message"])
        return json.dumps(self.model.requests[-1].body["messages"])


def wait_for(store: Store, count: int) -> str:
    """The id of the only conversation, once so many messages of it are stored."""
    return until(lambda: [one.id for one in store.conversations.newest(1) if one.messages >= count])[0]


def test_the_page_is_there_with_its_policy(model: ModelServer, tmp_path: Path) -> None:
    with serving(model.url, tmp_path) as address:
        Talk(address, model).say("Where are the ferries?")
        with Store.open(tmp_path / "served.db") as store:
            ident = wait_for(store, 2)
        page = ask(address, "GET", "/inspector/")
        assert page.status == 200
        assert b"Where are the ferries?" in page.body
        assert "default-src 'none'" in (page.header("Content-Security-Policy") or "")
        assert ask(address, "GET", f"/inspector/c/{ident}/transcript").status == 200
        assert ask(address, "GET", "/inspector/static/inspector.js").status == 200
        assert ask(address, "GET", "/inspector/", headers={"Origin": "https://evil.example"}).status == 403
        assert ask(address, "GET", "/inspector/", headers={"Host": "evil.example"}).status == 403


def test_a_key_needs_the_right_and_shows_only_its_own(
    model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READER_KEY", READER)
    monkeypatch.setenv("WRITER_KEY", WRITER)
    with serving(model.url, tmp_path, keys=KEYS) as address:
        Talk(address, model, WRITER).say("Words of the writer.")
        Talk(address, model, READER).say("Words of the reader.")
        with Store.open(tmp_path / "served.db", "reader") as store:
            wait_for(store, 2)
        nobody = ask(address, "GET", "/inspector/")
        assert (nobody.status, (nobody.header("WWW-Authenticate") or "")[:5]) == (401, "Basic")
        assert ask(address, "GET", "/inspector/", headers=basic("wrong")).status == 401
        for passed_on in ({"X-Forwarded-For": "192.0.2.7"}, {"Host": "gateway.example"}):
            assert ask(address, "GET", "/inspector/", headers={**basic(WRITER), **passed_on}).status == 403
            assert ask(address, "GET", "/inspector/", headers={**basic(READER), **passed_on}).status == 200
        own = ask(address, "GET", "/inspector/", headers=basic(WRITER))
        assert own.status == 200, "on this machine any key reads its own conversations"
        assert b"Words of the reader." not in own.body
        for headers in (basic(READER), {"x-everlong-key": READER}):
            page = ask(address, "GET", "/inspector/", headers=headers)
            assert page.status == 200
            assert b"Words of the reader." in page.body
            assert b"Words of the writer." not in page.body
            assert READER.encode() not in page.body
        forged = {**basic(READER), "x-everlong-tenant": "writer", "x-everlong-inspector": "x"}
        assert b"Words of the writer." not in ask(address, "GET", "/inspector/", headers=forged).body


def test_an_open_page_does_not_hold_up_the_end(
    model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.server.DRAIN_SECONDS", 2 * PATIENCE)
    with serving(model.url, tmp_path) as address:
        place = ("127.0.0.1", int(address.rpartition(":")[2]))
        page = socket.create_connection(place)
        page.sendall(b"GET /inspector/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b" 200 " in page.recv(100)
        began = time.monotonic()
    page.close()
    assert time.monotonic() - began < PATIENCE


def test_the_open_pages_of_one_key_keep_no_other_out(
    model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READER_KEY", READER)
    monkeypatch.setenv("WRITER_KEY", WRITER)
    with serving(model.url, tmp_path, keys=KEYS) as address:
        place = ("127.0.0.1", int(address.rpartition(":")[2]))
        pages = [socket.create_connection(place) for _ in range(70)]
        for page in pages:
            asked = f"GET /inspector/live HTTP/1.1\r\nHost: 127.0.0.1\r\nx-everlong-key: {WRITER}\r\n\r\n"
            page.sendall(asked.encode())
        said = [page.recv(100).split(b" ")[1] for page in pages]
        assert said.count(b"200") == 16
        assert ask(address, "GET", "/inspector/", headers=basic(READER)).status == 200
        for page in pages:
            page.close()


def test_an_undo_in_the_page_changes_the_next_request(model: ModelServer, tmp_path: Path) -> None:
    with serving(model.url, tmp_path) as address, Store.open(tmp_path / "served.db") as store:
        talk = Talk(address, model)
        talk.say("The first words.")
        talk.say("The second words.")
        ident = wait_for(store, 4)
        part = store.conversations.parts(ident)[-1]
        assert part.branch is not None
        engine = ScriptedEngine(summarizing(0, 3, "what was said"))
        done = store.compact(store.branch(part.branch), engine, Occasion("manual", part.id), roll_over=part.id)
        assert done.outcome == "compacted"
        # Storing the next turn shows the gateway that another has compacted it, some time after the answer.
        until(lambda: "The first words." not in talk.say("More words."))
        wait_for(store, len(talk.messages))
        page = ask(address, "GET", f"/inspector/c/{ident}/compactions/1").body.decode()
        token = re.search(r'name="token" value="(\w+)"', page)
        number = re.search(r'name="compaction" value="(\d+)"', page)
        assert token is not None
        assert number is not None
        form = urlencode({"token": token[1], "compaction": number[1]}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": address}
        undone = ask(address, "POST", f"/inspector/c/{ident}/undo", form, headers)
        assert (undone.status, (undone.header("Location") or "")[-13:]) == (303, "result=undone")
        assert "The first words." in talk.say("The last words.")
