"""The gateway's upkeep: it stores what waits in the journal, and indexes messages.

Turns wait there while the database or the storing process is away, and after a gateway was killed. They go the way of
all turns, through the writer, many in one commit and without a pause while any are left. Index entries are written in
threads, a bit at a time. Both pause while the database is away. Forgotten words are removed from the journal as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from sqlalchemy import func, select

from everlong.config.paths import data_home
from everlong.errors import NotStored
from everlong.gateway.formats import ANTHROPIC, OPENAI, RESPONSES
from everlong.gateway.journal import AWAY, Journal, JournalEntry
from everlong.gateway.recorder import RESPONSES_API, ConversationRecorder, ResponseRecorder
from everlong.store.schema import tombstone

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["GatewayUpkeep", "Indexing", "Recorders", "clean_journal", "journal_folder", "store_left_behind"]

_log = logging.getLogger("everlong.gateway")

T = TypeVar("T")

_REPLAY_SECONDS = 5.0
"""Seconds between two looks for entries that were left behind."""
_AGAIN_SECONDS = 1.0
"""Seconds between two tries while the database is away."""
_INDEX_SECONDS = 1.0
_EMBEDDING_SECONDS = 2.0
_LAST_SECONDS = 10.0
_AT_ONCE = 100
"""Messages that are read at once to be indexed."""


class _Writer(Protocol):
    """The part of a writer that the upkeep needs: `everlong.gateway.writer` has both."""

    @property
    def waiting(self) -> int: ...

    @property
    def writes_index(self) -> bool: ...

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]: ...


class GatewayUpkeep:
    """The upkeep of one gateway's database."""

    def __init__(self, journal: Journal, store_of: Callable[[str], Store], writer: _Writer) -> None:
        self._journal = journal
        self._store_of = store_of
        self._writer = writer
        self._indexing = Indexing(store_of, lambda: writer.waiting > 0, indexes=not writer.writes_index)
        self._recorders = Recorders(store_of)
        self._replaying: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()
        self._woken = asyncio.Event()
        self._forgotten: dict[str, int] = {}
        """The number of each tenant's forgotten blocks when there were entries that were put aside last."""

    def start(self) -> None:
        """Begin, in the running loop."""
        self._replaying = asyncio.create_task(self._replay())
        self._indexing.start()

    def wake(self) -> None:
        """Store what waits in the journal now."""
        self._woken.set()

    async def close(self) -> None:
        """Stop; work under way comes to its end first, because it uses the database. Store what waits by now."""
        self._is_over.set()
        self._woken.set()
        await asyncio.gather(_end(self._replaying), self._indexing.close())
        with suppress(*AWAY):
            async with asyncio.timeout(_LAST_SECONDS):
                await self._store_kept(is_last=True)

    async def _replay(self) -> None:
        while not self._is_over.is_set():
            try:
                while await self._store_kept():
                    pass
                await asyncio.to_thread(self._clean)
            except AWAY:
                pass  # in a moment again
            except Exception as error:  # noqa: BLE001 - whatever it is, the next entries must not wait for ever
                _log.error("what waits in the journal could not be stored: %s", type(error).__name__)
            await self._wait_for_kept()

    async def _wait_for_kept(self) -> None:
        """Wait until it is time to look again, or until there are entries to store."""
        until = asyncio.get_running_loop().time() + _REPLAY_SECONDS
        while (left := until - asyncio.get_running_loop().time()) > 0:
            await _pause(self._woken, min(left, _AGAIN_SECONDS))
            if self._woken.is_set() or self._journal.kept:
                break
        self._woken.clear()

    async def _store_kept(self, *, is_last: bool = False) -> bool:
        """Store the entries that wait by now; return whether there were any.

        Raises:
            AWAY: some could not be stored. Those of other tenants are stored even so.
        """
        await asyncio.to_thread(self._journal.take_over)
        batches, has_any = self._journal.batches(), False
        away: dict[str, Exception] = {}
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            if self._is_over.is_set() and not is_last:
                return False
            has_any = True
            for part in _by_recorder(batch):
                tenant = part[0][1].tenant
                if tenant not in away:  # what follows an entry is stored after it
                    try:
                        await self._store_batch(part)
                    except AWAY as error:
                        away[tenant] = error
        for reason in away.values():
            raise reason
        return has_any

    async def _store_batch(self, batch: Sequence[tuple[int, JournalEntry]]) -> None:
        """Store entries of one recorder: together, or one by one if they are refused as a whole."""
        entries = [entry for _, entry in batch]
        try:
            recorder = self._recorders.of(entries[0].tenant, entries[0].api)
            refused = await self._writer.submit(partial(recorder.replay, entries))
        except AWAY:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            if len(batch) > 1:
                for one in batch:
                    await self._store_batch([one])
                return
            refused = [str(error) or type(error).__name__]
        await asyncio.to_thread(_settle, self._journal, batch, refused)

    def _clean(self) -> None:
        self._journal.tidy()
        if self._journal.has_aside:
            database = self._store_of("local").database
            counts = select(tombstone.c.tenant, func.count()).group_by(tombstone.c.tenant)
            with database.read() as connection:
                forgotten = {row[0]: row[1] for row in connection.execute(counts)}
            for tenant, count in forgotten.items():
                if count != self._forgotten.get(tenant):
                    self._journal.drop_aside(tenant)
            self._forgotten = forgotten


class Indexing:
    """The writing of index entries, a bit at a time, when clients, who come first, leave time for it.

    Another process may do what needs no model, or ask the embedding model.
    """

    def __init__(
        self,
        store_of: Callable[[str], Store],
        is_busy: Callable[[], bool],
        *,
        indexes: bool = True,
        embeds: bool = True,
    ) -> None:
        self._store_of = store_of
        self._is_busy = is_busy
        self._indexes = indexes
        self._embeds = embeds
        self._task: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()

    def start(self) -> None:
        """Begin, in the running loop."""
        self._task = asyncio.create_task(self._index())

    async def close(self) -> None:
        """Stop; work under way comes to its end first, because it uses the database."""
        self._is_over.set()
        await _end(self._task)

    async def _index(self) -> None:
        searcher = self._store_of("local").searcher  # the index is one for all tenants
        while not self._is_over.is_set():
            taken = embedded = 0
            try:
                if self._indexes:
                    taken = await asyncio.to_thread(searcher.index_pending, _AT_ONCE, gives_way=True)
                if self._embeds:
                    embedded = await asyncio.to_thread(searcher.embed_pending, _AT_ONCE, _EMBEDDING_SECONDS)
            except AWAY:
                pass  # as above
            except Exception as error:  # noqa: BLE001 - a search indexes what is left
                _log.error("what was said could not be indexed: %s", type(error).__name__)
            has_more = (taken == _AT_ONCE or embedded > 0) and not self._is_busy()
            await _pause(self._is_over, _INDEX_SECONDS / 20 if has_more else _INDEX_SECONDS)


async def _pause(is_over: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await is_over.wait()


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        await asyncio.wait([task], timeout=_LAST_SECONDS)
        task.cancel()


def journal_folder() -> Path:
    """Return the folder of this user's journals."""
    return data_home() / "gateway-spool"


def store_left_behind(store_of: Callable[[str], Store], folder: Path, store: str = "") -> int:
    """Store the entries that gateways left in a folder of journals, all or those for a store; return how many."""
    journal, recorders, stored = Journal(folder, store), Recorders(store_of), 0
    try:
        while journal.take_over():
            for batch in journal.batches():
                for part in _by_recorder(batch):
                    try:
                        recorder = recorders.of(part[0][1].tenant, part[0][1].api)
                    except NotStored as error:
                        refused: list[str | None] = [str(error)] * len(part)
                    else:
                        with recorder.store.database.batch():
                            refused = recorder.replay([entry for _, entry in part])
                    _settle(journal, part, refused)
                    stored += len(part)
    finally:
        journal.close()
    return stored


def clean_journal(tenant: str) -> None:
    """Remove the entries of a tenant that were put aside, because it has forgotten words; running gateways do the rest.

    Nobody can store these entries, so nothing else would ever remove the words from them.
    """
    Journal(journal_folder()).drop_aside(tenant)


class Recorders:
    """The recorders of tenants and APIs."""

    def __init__(self, store_of: Callable[[str], Store]) -> None:
        self.store_of = store_of
        self._made: dict[tuple[str, str], ConversationRecorder] = {}

    def of(self, tenant: str, api: str) -> ConversationRecorder:
        """Return the recorder of a tenant for the requests of an API, by its name in the journal."""
        if (tenant, api) not in self._made:
            self._made[tenant, api] = _recorder_for(self.store_of(tenant), api)
        return self._made[tenant, api]


def _recorder_for(store: Store, api: str) -> ConversationRecorder:
    if api == RESPONSES_API:
        return ResponseRecorder(store)
    dialects = {one.name: one for one in (OPENAI, ANTHROPIC, RESPONSES)}
    if api not in dialects:
        raise NotStored(f"the journal names an API that nobody knows: {api[:40]!r}")
    return ConversationRecorder(store, dialects[api])


def _by_recorder(batch: Sequence[tuple[int, JournalEntry]]) -> list[list[tuple[int, JournalEntry]]]:
    """Return the entries of a batch by tenant and API, each in order."""
    found: dict[tuple[str, str], list[tuple[int, JournalEntry]]] = {}
    for number, entry in batch:
        found.setdefault((entry.tenant, entry.api), []).append((number, entry))
    return list(found.values())


def _settle(journal: Journal, batch: Sequence[tuple[int, JournalEntry]], refused: Sequence[str | None]) -> None:
    """Release the entries that were stored, and put the others aside."""
    for (number, entry), reason in zip(batch, refused, strict=True):
        if reason is None:
            journal.done(number)
        else:
            journal.put_aside(number, entry, reason)
