"""Turns that waited in the journal: each is stored once, and many of them as quickly as if they had never waited."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner

from everlong.cli.main import cli
from everlong.errors import StoreError, StoreFull, StoreUnavailable
from everlong.gateway.formats import OPENAI
from everlong.gateway.journal import Journal, JournalEntry
from everlong.gateway.recorder import ConversationRecorder
from everlong.gateway.upkeep import GatewayUpkeep
from everlong.gateway.writer import Writer, recorder_of
from everlong.model import text_of
from everlong.store import Store
from everlong.store.database import Database
from everlong.store.tree import Branch
from everlong.store.turns import FinishedTurn
from tests.waiting import PATIENCE

T = TypeVar("T")


@pytest.fixture
def recorder(store: Store) -> ConversationRecorder:
    return ConversationRecorder(store, OPENAI)


def entry(number: int, *, is_open: bool = False) -> JournalEntry:
    """Return the entry of a conversation's only turn."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"Question {number}?"}]})
    reply = None if is_open else {"role": "assistant", "content": f"Answer {number}."}
    turn = FinishedTurn(reply, model="m", began=1_000.0 + number, names=[])
    return JournalEntry("local", "openai", turn, body, messages=[], is_open=is_open)


def broken(number: int) -> JournalEntry:
    """Return an entry that no code foresees."""
    said: Any = [number]
    return entry(number)._replace(body=None, at=Branch(0, bytes(16), 0), messages=said)


def answers(store: Store) -> Counter[str]:
    """Return the answers in a store, counted; a turn that is open has an empty one."""
    return Counter(text_of(store.turns.reply(turn.id) or {"content": ""}) for turn in store.turns.since())


def test_turns_are_stored_once_though_their_batch_is_replayed_again(
    store: Store, recorder: ConversationRecorder
) -> None:
    assert recorder.replay([entry(1), entry(2)]) == [None, None]
    assert recorder.replay([entry(number) for number in (1, 2, 3)]) == [None] * 3
    assert ConversationRecorder(store, OPENAI).replay([entry(2)]) == [None]
    assert answers(store) == {"Answer 1.": 1, "Answer 2.": 1, "Answer 3.": 1}
    assert not store.verify().problems


@pytest.mark.parametrize("together", [True, False])
def test_a_request_and_its_answer_become_one_turn(store: Store, recorder: ConversationRecorder, together: bool) -> None:
    entries = [entry(1, is_open=True), entry(2, is_open=True), entry(1)]
    for batch in [entries] if together else [[one] for one in entries]:
        assert not any(recorder.replay(batch))
    assert answers(store) == {"Answer 1.": 1, "": 1}
    assert not any(recorder.replay(entries))
    assert answers(store) == {"Answer 1.": 1, "": 1}


class Refusing(Writer):
    """A writer that is away for the first batches, and refuses batches of several entries."""

    def __init__(self, database: Database, away: int) -> None:
        super().__init__(database)
        self.away = away
        self.sizes: list[int] = []

    def submit(self, work: Callable[[], T], **how: Any) -> asyncio.Future[T]:
        assert isinstance(work, partial)
        (entries,) = work.args
        self.sizes.append(len(entries))
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self.away:
            self.away -= 1
            future.set_exception(StoreUnavailable("the storing process is being started again"))
        elif len(entries) > 1:
            future.set_exception(StoreError("made up"))
        else:
            return super().submit(work, **how)
        return future


def test_upkeep_stores_what_was_left_behind_by_way_of_the_writer(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.upkeep._AGAIN_SECONDS", 0.01)
    left = Journal(tmp_path / "journal")
    for one in (entry(1), broken(2), entry(3), entry(4)._replace(api="of a later version")):
        left.put(one)
    left.close()

    async def keep_up() -> list[int]:
        journal, writer = Journal(tmp_path / "journal"), Refusing(store.database, away=2)
        upkeep = GatewayUpkeep(journal, lambda tenant: Store(store.database, tenant), writer)
        upkeep.start()
        while not writer.sizes or journal.waiting:
            await asyncio.sleep(0.01)
        await upkeep.close()
        await writer.close()
        journal.close()
        return writer.sizes

    assert asyncio.run(asyncio.wait_for(keep_up(), PATIENCE)) == [3, 3, 3, 1, 1, 1]
    assert answers(store) == {"Answer 1.": 1, "Answer 3.": 1}
    aside = [path.read_bytes().splitlines()[1] for path in (tmp_path / "journal").iterdir()]
    assert sorted(JournalEntry.from_line(line).turn.began or 0 for line in aside) == [1_002.0, 1_004.0]


def test_another_machine_takes_over_the_journal_of_a_gateway_that_is_gone(tmp_path: Path) -> None:
    gone, running = Journal(tmp_path / "journal"), Journal(tmp_path / "journal")
    for number in (1, 2):
        gone.put(entry(number))
    gone.close()
    running.put(entry(3))
    command = ["serve", "--drain", str(tmp_path / "journal"), "--store", str(tmp_path / "store.db")]
    for count in (2, 0):
        ran = CliRunner().invoke(cli, command)
        assert ran.exit_code == 0
        assert f"stored {count} entries" in ran.output
        assert "; 1 files stay, of running gateways" in ran.output
    with Store.open(tmp_path / "store.db") as store:
        assert answers(store) == {"Answer 1.": 1, "Answer 2.": 1}
    running.close()


class HalfAway(Writer):
    """A writer that is away for one tenant."""

    def submit(self, work: Callable[[], T], **how: Any) -> asyncio.Future[T]:
        recorder = recorder_of(work)
        if recorder is None or recorder.store.tenant == "local":
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            future.set_exception(StoreFull("there is no room for something this large"))
            return future
        return super().submit(work, **how)


@pytest.mark.spec("12.6")
def test_what_one_tenant_cannot_store_holds_up_no_other(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.upkeep._AGAIN_SECONDS", 0.01)
    left = Journal(tmp_path / "journal")
    for one in [*map(entry, range(100)), entry(100)._replace(tenant="ada")]:
        left.put(one)
    left.close()

    async def keep_up() -> None:
        journal, writer = Journal(tmp_path / "journal"), HalfAway(store.database)
        upkeep = GatewayUpkeep(journal, lambda tenant: Store(store.database, tenant), writer)
        upkeep.start()
        while not answers(Store(store.database, "ada")):
            await asyncio.sleep(0.01)
        await upkeep.close()
        await writer.close()
        assert journal.waiting == 100
        journal.close()

    asyncio.run(asyncio.wait_for(keep_up(), PATIENCE))


@pytest.mark.spec("12.6")
def test_a_tenant_that_has_much_to_store_holds_up_no_other(store: Store) -> None:
    mine, others = (ConversationRecorder(Store(store.database, name), OPENAI) for name in ("ada", "ben"))

    async def write() -> list[asyncio.Future[Any]]:
        writer, begins, stored = Writer(store.database), threading.Event(), list[asyncio.Future[Any]]()
        writer.submit(lambda: begins.wait(PATIENCE))
        many = [writer.submit(partial(others.replay, [entry(number)])) for number in range(300)]
        one = writer.submit(partial(mine.replay, [entry(0)]))
        for future in (*many, one):
            future.add_done_callback(stored.append)
        begins.set()
        await asyncio.gather(one, *many)
        await writer.close()
        return [future for future in stored[:64] if future is one]

    assert len(asyncio.run(write())) == 1
