"""The inspector over a large store: server CPU until the first byte of each page, and the size of the list.

    python -m bench.inspector [--messages 100000] [--longest 20000]

The time is that of the process (`time.process_time`), so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from aiohttp.test_utils import TestClient, TestServer

from everlong.config import Settings
from everlong.inspector.app import make_app
from everlong.inspector.handlers import Reader
from everlong.inspector.security import Watch
from everlong.model import Message
from everlong.store import Store

MODEL = "anthropic:claude-sonnet-4-5"
WORDS = "The ferry from pontoon {n} leaves at 0{h}:15; `berth_{n}` is booked in **bookings/{n}.toml**. "
MOST_MS, MOST_LIST_BYTES = 150.0, 100_000


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


async def measure(store: Store, ident: str) -> list[tuple[str, float, int]]:
    """Return each page with the milliseconds of CPU until its first byte, and its bytes."""
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
        *(f"{link}/{tab}" for tab in ("cache", "tree")),
        f"/inspector/m/{'' if node is None else node.hex()}",
    ]
    found: list[tuple[str, float, int]] = []
    async with TestClient(TestServer(app)) as client:
        short = store.conversations.newest(1)[0].id
        for path in ("", "/tree", "/timeline", "/transcript"):  # templates, prices and windows are read once
            await client.get(f"/inspector/c/{short}{path}")
        for path in paths:
            began = time.process_time()
            answer = await client.get(path)
            first = await answer.content.readany()
            spent = (time.process_time() - began) * 1000
            found.append((path.replace(ident, "ID"), spent, len(first) + len(await answer.content.read())))
    return found


def main() -> int:
    """Print a line for each page; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--longest", type=int, default=20_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db") as store:
        ident = fill(store, asked.messages, asked.longest)
        while store.searcher.index_pending(5_000):
            pass
        found = asyncio.run(measure(store, ident))
    is_missed = False
    for path, spent, size in found:
        is_over = spent > MOST_MS or (path == "/inspector/" and size > MOST_LIST_BYTES)
        is_missed |= is_over
        print(f"{spent:8.1f} ms {size:10,} bytes  {path}{'  OVER' if is_over else ''}")
    return int(is_missed)


if __name__ == "__main__":
    raise SystemExit(main())
