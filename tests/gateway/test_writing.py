"""Group commit: works that come together are stored together, and each stands for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everlong.gateway.writing import Writer
from everlong.store import Store
from everlong.store.database import open_database

if TYPE_CHECKING:
    from sqlalchemy import Connection


def test_works_of_which_one_does_not_fit_with_the_others_are_all_done(tmp_path: Path) -> None:
    database = open_database(tmp_path / "store.db")
    store = Store(database)
    misses = database.sql("UPDATE session SET cost = 0 WHERE id = ?")
    passes: list[bool] = []

    def unlucky() -> str:
        def work(connection: Connection) -> None:
            passes.append(database.is_putting_off)
            if database.is_putting_off:  # when it is written, others have been there before
                database.put(connection, misses, [("nobody",)], is_counted=True)

        database.write_later(work, 1)
        return "unlucky"

    def said(number: int) -> int:
        return store.record([{"role": "user", "content": f"words {number}"}]).depth

    async def hand_over() -> list[object]:
        writer = Writer(database)
        works: list[Callable[[], object]] = [partial(said, number) for number in range(5)]
        futures = [writer.submit(work, can_wait=True) for work in (*works, unlucky)]
        results = await asyncio.gather(*futures)
        await asyncio.to_thread(writer.close)
        return list(results)

    assert asyncio.run(hand_over()) == [1, 1, 1, 1, 1, "unlucky"]
    assert passes == [True, False]
    assert len(store.search("words").hits) == 5
    database.close()


def test_a_work_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    database = open_database(tmp_path / "store.db")
    store = Store(database)

    def fails() -> None:
        store.record([{"role": "user", "content": "never"}])
        raise ValueError("no")

    async def hand_over() -> list[object]:
        writer = Writer(database)
        first = writer.submit(lambda: store.record([{"role": "user", "content": "kept"}]).depth, can_wait=True)
        second = writer.submit(fails, can_wait=True)
        results = await asyncio.gather(first, second, return_exceptions=True)
        await asyncio.to_thread(writer.close)
        return list(results)

    depth, error = asyncio.run(hand_over())
    assert depth == 1
    with pytest.raises(ValueError, match="no"):
        raise error  # type: ignore[misc]
    assert len(store.search("kept").hits) == 1
    database.close()
