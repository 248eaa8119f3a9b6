"""A store behind a pooler that gives each transaction another connection to the server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from bench.store.server import binaries, pooler, pooler_program, postgres
from sqlalchemy import text

from everlong import ContextCompressor
from everlong.errors import StoreBusy
from everlong.model import Message
from everlong.store import Store
from everlong.store.opening import open_database


@pytest.fixture(scope="module")
def pooled_url() -> Iterator[str]:
    if binaries() is None or pooler_program() is None:
        pytest.skip("no PostgreSQL server or no pooler: install postgresql and pgbouncer")
    with postgres() as server, pooler(server) as url:
        yield url


def talk(length: int) -> list[Message]:
    return [
        {"role": "user" if n % 2 else "assistant", "content": f"The harbour says {n}. " * 20} for n in range(length)
    ]


def test_everything_works_with_another_connection_for_each_transaction(pooled_url: str) -> None:
    with Store.open(pooled_url) as first, Store.open(pooled_url) as second:
        for length in range(2, 30):  # a driver would prepare on one connection what it runs on the next
            at = (first, second)[length % 2].record(talk(length))
        shorter = first.compact(at, ContextCompressor(2_000, settings={"protect_last_n": 2, "threshold": 0.3}))
        assert second.context(at) == shorter.messages
        first.searcher.index_pending(500)
        assert second.search("harbour 17").hits
        assert second.verify().problems == []


def test_limits_of_a_transaction_do_not_stay_with_the_connection(pooled_url: str) -> None:
    with Store.open(pooled_url, uuid.uuid4().hex, wait=0.2) as store:
        at = store.record(talk(2))
        database = open_database(pooled_url)
        with database.engine.connect() as other, other.begin():
            other.execute(text("SELECT 1 FROM branch WHERE id = :id FOR UPDATE"), {"id": at.id})
            with pytest.raises(StoreBusy):
                store.append(at, talk(3)[2:])
        with database.read() as reading:
            assert reading.execute(text("SHOW lock_timeout")).scalar() == "0"
        database.close()
