"""A request that is refused as too long is answered all the same, whatever goes on at that moment."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from everlong.testing import ModelServer
from tests.gateway.running import Running, run_gateway
from tests.waiting import PATIENCE, until

WORDS = "what the client says takes up some room in the window of the model " * 30
CHAT = "/v1/chat/completions"


def history(turns: int) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[at % 2], "content": f"{at} {WORDS}"} for at in range(turns)]


def send(running: Running, turns: int) -> int:
    body = json.dumps({"model": "made-up", "messages": history(turns), "max_tokens": 200}).encode()
    with running.raw() as raw:
        raw.wire.socket.settimeout(PATIENCE)
        return raw.ask(body, CHAT, [("authorization", "Bearer k")]).status


def locked_until_refused(model: ModelServer, path: Path) -> threading.Thread:
    """Lock the store as another process would, until a request was refused as too long."""
    is_locked = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)) as other:
            other.execute("BEGIN IMMEDIATE")
            is_locked.set()
            until(lambda: model.rejections)
            other.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_locked.wait(PATIENCE)
    return thread


def test_a_request_that_came_while_the_store_was_locked_is_compacted_once_it_has_to_be(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with ModelServer(window=8_000) as model, run_gateway(model.url, str(path)) as running:
        holder = locked_until_refused(model, path)
        assert send(running, 25) == 200
        holder.join(PATIENCE)
        assert [record.status for record in model.requests] == [400, 200]
        store = running.store()
        assert store.verify().problems == []
        assert [session.id for session in store.sessions.newest()] != []
