"""The inspector over a large store: server CPU until the first byte of each page, and the size of the list.

    python -m bench.inspector [--messages 100000] [--longest 20000] [--no-gateway]

The time is that of the process (`time.process_time`), so that other work on the machine does not count; that of the
whole page stands behind it. Then a gateway is driven with and without an open live page of an inspector over the same
store, in turns; the bar is the ratio of the rates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout
from aiohttp.test_utils import TestClient, TestServer

from bench.gateway.driving import drive
from bench.gateway.serving import gateway
from bench.gateway.upstreams import upstream
from everlong.config import Settings
from everlong.context.engine import ContextEngine
from everlong.context.literals import SUMMARY_PREFIX
from everlong.inspector.app import make_app
from everlong.inspector.handlers import Reader
from everlong.inspector.security import Watch
from everlong.model import Message
from everlong.store import Branch, Occasion, Store

MODEL = "anthropic:claude-sonnet-4-5"
WORDS = "The ferry from pontoon {n} leaves at 0{h}:15; `berth_{n}` is booked in **bookings/{n}.toml**. "
MOST_MS, MOST_LIST_BYTES = 150.0, 100_000
LEAST_RATIO = 0.95
SUMMARY = "## Goal\n- Plan the ferries of pontoon 7\n\n## Critical Context\n- bookings/9.toml\n  berth = 9"
_ROUNDS, _REQUESTS, _CLIENTS, _BYTES = 5, 240, 4, 20_000


def talk(messages: int, seed: int) -> list[Message]:
    """Return a made-up conversation with Markdown, calls and results."""
    made: list[Message] = []
    while len(made) < messages:
        n = seed + len(made)
        text = WORDS.format(n=n, h=n % 9) * 3
        arguments = json.dumps({"path": f"bookings/{n}.toml"})
        call = {"id": f"c{n}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        made += [
            {"role": "user", "content": f"Question {n}: {text}"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"berth = {n}\n" * 20},
            {"role": "assistant", "content": f"# Answer {n}\n\n- {text}\n- done"},
        ]
    return made[:messages]


class Cut(ContextEngine):
    """An engine that puts a summary in the place of all but the newest messages."""

    @property
    def name(self) -> str:
        """The name in the history."""
        return "cut"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Ignore what a call used."""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return always True."""
        del prompt_tokens
        return True

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        """Return a summary and the newest messages."""
        del current_tokens, focus_topic
        return [{"role": "user", "content": f"{SUMMARY_PREFIX}\n\n{SUMMARY}"}, *messages[-400:]]


def compact(store: Store, ident: str, at: Branch) -> None:
    """Compact a conversation in the middle of its turns."""
    done = store.compact(
        at, Cut(), Occasion("threshold", ident, MODEL), roll_over=ident, current_tokens=180_000, lease_seconds=None
    )
    view = store.database.sql("UPDATE turn SET view_id = ? WHERE session = ? AND depth > ?")
    store.database.write(
        lambda connection: connection.exec_driver_sql(view, (done.view_id, ident, at.depth // 2)).rowcount
    )


def fill(store: Store, messages: int, longest: int) -> str:
    """Store one conversation of the longest size and many short ones; return the id of the long one."""
    first = ""
    left = messages
    while left > 0:
        size = min(left, longest if not first else 100)
        one = store.sessions.start(
            title=f"Conversation {left}", model=MODEL, client="bench", folder=f"/work/{left % 7}"
        )
        at = store.record(talk(size, left), conversation=one.id)
        store.sessions.attach(one.id, at)
        if not first:
            first = one.id
            _add_turns(store, one.id, at.id, at.depth)
            compact(store, one.id, at)
        left -= size
    return first


def _add_turns(store: Store, session: str, branch: int, depth: int) -> None:
    usage = json.dumps(
        {"input_tokens": 10, "cache_read_tokens": 90_000, "cache_write_tokens": 900, "output_tokens": 90}
    )
    statement = store.database.sql(
        "INSERT INTO turn (tenant, session, branch, node, depth, model, status, usage, cost, ts, ended)"
        " VALUES (?,?,?,?,?,?,?,?,?,?,?)"
    )
    rows = [
        (store.tenant, session, branch, b"", place, MODEL, "done", usage, 0.03, 1e9 + place, 1e9 + place + 1)
        for place in range(2, depth, 2)
    ]
    store.database.write(lambda connection: connection.exec_driver_sql(statement, rows).rowcount)


async def measure(store: Store, ident: str) -> list[tuple[str, float, float, int]]:
    """Return each page with the milliseconds of CPU until its first byte and until its end, and its bytes."""
    app = make_app(Reader(store.database, Settings()), Watch())
    link = f"/inspector/c/{ident}"
    node = store.conversations.node_at(ident, 9_000 if store.conversations.get(ident).messages > 9_000 else 1)
    paths = [
        "/inspector/",
        "/inspector/?client=bench&compacted=no&cost=0.01",
        "/inspector/search?q=pontoon+leaves",
        "/inspector/cost",
        link,
        *(f"{link}/{tab}" for tab in ("timeline", "timeline.json", "transcript", "transcript?page=7", "compactions")),
        *(f"{link}/compactions/1{part}" for part in ("", "/lines/2", "/dropped")),
        *(f"{link}/{tab}" for tab in ("cache", "tree")),
        f"/inspector/m/{'' if node is None else node.hex()}",
    ]
    found: list[tuple[str, float, float, int]] = []
    async with TestClient(TestServer(app)) as client:
        short = store.conversations.newest(1)[0].id
        for path in ("", "/tree", "/timeline", "/transcript"):  # templates, prices and windows are read once
            await client.get(f"/inspector/c/{short}{path}")
        for path in paths:
            began = time.process_time()
            answer = await client.get(path)
            first = await answer.content.readany()
            spent = (time.process_time() - began) * 1000
            size = len(first) + len(await answer.content.read())
            whole = (time.process_time() - began) * 1000
            found.append((path.replace(ident, "ID"), spent, whole, size))
    return found


@contextmanager
def inspecting(database: Path) -> Iterator[str]:
    """Run an inspector over a store; yield the address of its first page."""
    command = [sys.executable, "-m", "everlong", "inspect", "--web", "--no-browser", "--store", str(database)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None  # noqa: S101 - asked for above
        found = (re.search(r"http://127\.0\.0\.1:\S+", line) for line in process.stderr)
        yield next(match[0] for match in found if match)
    finally:
        process.terminate()
        process.wait(20)


class OpenPage:
    """A live list as a browser has it open: it listens, and reads the rows again after each change."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read()))
        self.changes = 0

    def __enter__(self) -> OpenPage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    async def _read(self) -> None:
        async with (
            ClientSession(timeout=ClientTimeout(total=None)) as session,
            session.get(f"{self._address}live") as events,
        ):
            while not self._is_over.is_set():
                try:
                    line = await asyncio.wait_for(events.content.readline(), 0.5)
                except TimeoutError:
                    continue
                if line.startswith(b"event: change"):
                    self.changes += 1
                    async with session.get(self._address, headers={"HX-Request": "true"}) as rows:
                        await rows.read()


def throughput(folder: Path) -> tuple[float, float, int]:
    """Return the requests per second of a gateway without and with an open live page, and the changes it was told."""
    database = folder / "served.db"
    rates: dict[bool, list[float]] = {False: [], True: []}
    changes = 0
    with upstream() as model, gateway(model, database, {}) as (address, _), inspecting(database) as page:
        asyncio.run(drive(address, _BYTES, _CLIENTS, _REQUESTS))
        for number in range(2 * _ROUNDS):
            is_open = number % 4 in {1, 2}  # in turn, and each first as often as the other
            if is_open:
                with OpenPage(page) as reader:
                    rate = asyncio.run(drive(address, _BYTES, _CLIENTS, _REQUESTS))
                changes += reader.changes
            else:
                rate = asyncio.run(drive(address, _BYTES, _CLIENTS, _REQUESTS))
            rates[is_open].append(rate.per_second)
    return statistics.median(rates[False]), statistics.median(rates[True]), changes


def main() -> int:
    """Print a line for each page; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--longest", type=int, default=20_000)
    parser.add_argument("--no-gateway", action="store_true", help="measure pages only")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db") as store:
        ident = fill(store, asked.messages, asked.longest)
        while store.searcher.index_pending(5_000):
            pass
        found = asyncio.run(measure(store, ident))
    is_missed = False
    for path, spent, whole, size in found:
        is_over = spent > MOST_MS or (path == "/inspector/" and size > MOST_LIST_BYTES)
        is_missed |= is_over
        print(f"{spent:8.1f} ms of {whole:8.1f} ms {size:10,} bytes  {path}{'  OVER' if is_over else ''}")
    if not asked.no_gateway:
        with tempfile.TemporaryDirectory() as folder:
            without, beside, changes = throughput(Path(folder))
        ratio = beside / without
        is_missed |= ratio < LEAST_RATIO
        told = f"{without:,.0f}/s without, {beside:,.0f}/s with an open page ({changes} updates): {ratio:.3f}"
        print(f"gateway: {told}{'  UNDER' if ratio < LEAST_RATIO else ''}")
    return int(is_missed)


if __name__ == "__main__":
    raise SystemExit(main())
