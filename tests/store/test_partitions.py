"""A PostgreSQL store in partitions by tenant: the same answers, each tenant in one part, and no other part is read."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text

from everlong.model import Message
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.upgrade import open_database
from everlong.store.upkeep.garbage import collect_garbage

TENANTS = [f"tenant {number}" for number in range(24)]


def talk(tenant: str, count: int = 6) -> list[Message]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": f"{tenant} says pelican-{n} to everyone"} for n in range(count)]


@pytest.fixture
def partitioned(schema_url: str) -> Database:
    return open_database(schema_url, partitions=8)


def test_a_store_is_divided_when_it_is_created_and_stays_so(schema_url: str) -> None:
    for asked in (8, 0, 4):
        with Store(open_database(schema_url, partitions=asked)) as store, store.database.read() as connection:
            parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('node')"
            assert connection.execute(text(parts)).scalar_one() == 8


def test_the_same_answers_as_without_partitions(partitioned: Database, file_store: Store) -> None:
    for tenant in TENANTS[:8]:
        pair = Store(partitioned, tenant), Store(file_store.database, tenant)
        told = []
        for store in pair:
            at = store.record(talk(tenant))
            store.record([*talk(tenant)[:3], {"role": "assistant", "content": "another way"}])
            made = store.sessions.start(at, title=tenant, from_depth=0)
            node = store.entries(at)[2].id
            assert node is not None
            forgotten = store.forget([node])
            while store.searcher.index_pending(500):
                pass
            found = sorted(hit.snippet for hit in store.search("pelican-4").hits)
            store.sessions.end(made.id, "exit")
            told.append((store.context(at), forgotten, found, store.verify().problems, collect_garbage(store)))
        assert told[0] == told[1]
        assert told[0][3] == []
    partitioned.close()


def test_a_statement_that_names_the_tenant_reads_one_part(partitioned: Database) -> None:
    store = Store(partitioned, "one")
    store.record(talk("one"))
    statements = (
        "SELECT branch FROM node WHERE id = '\\x00' AND tenant = 'one'",
        "SELECT 1 FROM content WHERE digest = '\\x00' AND tenant = 'one'",
    )
    with partitioned.read() as connection:
        for statement in statements:
            plan = "\n".join(connection.execute(text(f"EXPLAIN {statement}")).scalars())
            assert len(set(re.findall(r"(?:node|content)_p\d", plan))) == 1, plan
    partitioned.close()
