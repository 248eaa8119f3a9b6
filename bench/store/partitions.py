"""A PostgreSQL store in partitions by tenant beside one without, on the same server in the same run.

Both get the same conversations of many tenants. Compared are the answers, the wall time of a step (medians, steps of
both in turn), how many partitions each statement of the hot path reads, and the bytes on the disk for each byte of
words.

    python -m bench.store.partitions [--tenants 24] [--messages 200] [--partitions 8]
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable

from sqlalchemy import text

from bench.store.server import postgres
from bench.store.speed import messages
from everlong.model import Message, text_of
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.paths import Reader
from everlong.store.upgrade import open_database

_SIZES = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')"
)


def open_in_schema(url: str, name: str, partitions: int) -> Database:
    """Open a store in a schema of its own."""
    with Store.open(url) as store, store.database.engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    return open_database(f"{url}&options=-csearch_path%3D{name}", partitions=partitions)


def compare(stores: tuple[Store, Store], steps: dict[str, Callable[[Store], object]]) -> dict[str, list[list[float]]]:
    """Take each step on both stores in turn; return the seconds of each, and check that the answers are the same."""
    found: dict[str, list[list[float]]] = {}
    for name, step in steps.items():
        answers = []
        for store in stores:
            started = time.perf_counter()
            answers.append(step(store))
            found.setdefault(name, []).append([time.perf_counter() - started])
        if answers[0] != answers[1]:
            raise AssertionError(f"{name}: the stores differ for tenant {stores[0].tenant}")
    return found


def steps_of(talk: list[Message], place: int) -> dict[str, Callable[[Store], object]]:
    """Return the steps of one tenant."""
    more: Message = {"role": "user", "content": f"one more, {place}"}
    word = text_of(talk[5]).split()[0]
    return {
        "record": lambda store: store.record(talk).depth,
        "record, grown": lambda store: store.record([*talk, more]).depth,
        "context": lambda store: store.context(store.record([*talk, more])),
        "index": lambda store: store.searcher.index_pending(10_000),
        "search": lambda store: sorted(hit.snippet for hit in store.search(word).hits),
    }


def parts_read(database: Database, statement: str, values: tuple[object, ...]) -> int:
    """Return how many partitions of the nodes and contents a statement really reads."""
    with database.read() as connection:
        plan = "\n".join(
            row[0] for row in connection.exec_driver_sql(f"EXPLAIN (ANALYZE, TIMING OFF) {statement}", values)
        )
    lines = [line for line in plan.splitlines() if "never executed" not in line]
    return len(set(re.findall(r"on (?:node|content)_p(\d+)", "\n".join(lines))))


def check_plans(store: Store, partitions: int) -> None:
    """Print how many partitions the statements of the hot path read."""
    with store.database.read() as connection:
        query = text("SELECT id, branch, digest FROM node WHERE tenant = :tenant LIMIT 1")
        ident, branch, digest = connection.execute(query, {"tenant": store.tenant}).one()
    reading = Reader(store.database, store.tenant)._nodes  # noqa: SLF001 - the statement itself
    statements: dict[str, tuple[str, tuple[object, ...]]] = {
        "find a message of a tenant": ("SELECT branch FROM node WHERE id = %s AND tenant = %s", (ident, store.tenant)),
        "find a content of a tenant": (
            "SELECT 1 FROM content WHERE digest = %s AND tenant = %s",
            (digest, store.tenant),
        ),
        "find a content by its digest": ("SELECT 1 FROM content WHERE digest = %s", (digest,)),
        "read a branch": (reading, (branch, 0, 1_000_000, store.tenant)),
    }
    for name, (statement, values) in statements.items():
        print(f"  {name:30} reads {parts_read(store.database, statement, values)} of {partitions} partitions")


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenants", type=int, default=24)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=8)
    asked = parser.parse_args()
    with postgres() as url:
        databases = open_in_schema(url, "plain", 0), open_in_schema(url, "parts", asked.partitions)
        seconds: dict[str, list[list[float]]] = {}
        words = 0
        for place in range(asked.tenants):
            talk = messages(asked.messages, seed=place)
            words += sum(len(text_of(one).encode()) for one in talk)
            stores = Store(databases[0], f"tenant {place}"), Store(databases[1], f"tenant {place}")
            for name, pair in compare(stores, steps_of(talk, place)).items():
                both = seconds.setdefault(name, [[], []])
                both[0] += pair[0]
                both[1] += pair[1]
        print(f"{asked.tenants} tenants with {asked.messages} messages each: the same answers")
        for name, (plain, parts) in seconds.items():
            first, second = statistics.median(plain) * 1e3, statistics.median(parts) * 1e3
            told = f"{first:8.1f} ms in one table, {second:8.1f} ms in {asked.partitions}"
            print(f"  {name:14} {told}  {second / first:5.2f} ×")
        check_plans(stores[1], asked.partitions)
        for name, database in zip(("one table", f"{asked.partitions} partitions"), databases, strict=True):
            with database.read() as connection:
                size = int(connection.execute(text(_SIZES)).scalar_one())
            print(f"  {name:14} {size / 1e6:8.1f} MB, {size / words:.2f} bytes for each byte of words")
            database.close()


if __name__ == "__main__":
    main()
