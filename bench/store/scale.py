"""Scale of the store, on SQLite and PostgreSQL: what a turn, a search and the upkeep cost in stores of several sizes.

A store has a conversation for every thousand messages, and one that holds a tenth of all, with a fork for every hundred
of its own. CPU time, with that of the server, and the power by which each figure grows from the smallest store to the
largest: at most .2 for what a turn or a search does, at most 1.05 for what walks everything. A list that has grown by
one message is recorded in at most 3 times the CPU of comparing the two lists in Python. Upkeep runs beside a process
that appends 20 times a second and never waits more than 250 ms for one.

PostgreSQL beside SQLite, in a store of its own: indexing in at most twice the CPU, at most twice the size, queries in
at most 2.5 times the time, and the same hits.

    python -m bench.store.scale [--sizes 10000,100000,1000000] [--on sqlite,postgresql] [--folder DIR]
                                [--postgres 10000]

0 leaves a part out.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import update

from bench.measure import exponent, verdict
from bench.store.scale_queries import WORST, check_postgres, measure_all, messages, size_of
from bench.store.server import Meter, dump, postgres, server_processes
from everlong.model import Message
from everlong.store import Branch, Store
from everlong.store.schema import session
from everlong.store.upkeep.maintenance import backup, retain, stats

EACH, LENGTH = 1_000, 900
"""Messages for which a store has one conversation, and what that holds; the rest is one long conversation."""
FORKED = 100
"""Messages for which a store has one fork."""
BEHIND = 500
"""Messages behind the view of the long conversation."""
PERIOD = 0.05
"""Seconds between two appends of the process that writes beside the others."""
MOST_WAIT = 0.25
"""The most seconds that it may wait for one."""
OLD = 0.1
"""The share of conversations that retention deletes."""
BARS = {"turn": 0.2, "search": 0.2, "walk": 1.05}
"""The most power by which each kind of work may grow."""
COMPARISONS = 3.0
"""How often comparing two lists may fit into recording the longer one."""
_START = 1_700_000_000.0
_RUNS = 25
_LONG = "conversation 0"
_LONG_LIST = 10_000
"""Messages from which on comparing two lists takes more time than a commit."""

Figures = dict[tuple[str, str], float]
"""CPU seconds by kind and name of the work."""


class _Summary:
    """An engine that keeps the head and the tail, and puts one message in the place of the middle."""

    name = "bench"
    last_prompt_tokens = 0
    threshold_tokens = 0
    context_length = 0

    def compress(self, messages: list[Message], **options: Any) -> list[Message]:
        del options
        return [*messages[:3], {"role": "user", "content": "[CONTEXT SUMMARY]: the middle"}, *messages[-20:]]


class Place(NamedTuple):
    """Where a store is, and what measures the CPU that it takes."""

    address: str
    folder: Path
    meter: Meter

    @property
    def is_server(self) -> bool:
        """Return whether it is PostgreSQL."""
        return self.address.startswith("postgresql:")


@contextmanager
def new_place(engine: str, parent: Path | None) -> Iterator[Place]:
    """Make an empty store's place; it is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=parent, prefix="everlong-scale-") as name:
        folder = Path(name)
        if engine == "sqlite":
            yield Place(str(folder / "store.db"), folder, Meter())
        else:
            with postgres() as url:
                yield Place(url, folder, Meter(url))


def check_store(place: Place, count: int) -> Figures:
    """Fill a store and measure all work in it."""
    found: Figures = {}
    with Store.open(place.address) as store:
        text = fill(store, count, place.meter, found)
        if place.is_server:
            with store.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("VACUUM ANALYZE")
        size = size_of(store)
        print(f"{'size':24}{size / 1e6:10,.0f} MB   {size / text:.2f} times the text", flush=True)
        long = check_turns(store, count, place.meter, found)
        for name, one in measure_all(store, count, place.meter).items():
            found["search", name] = one.median / 1e3
            told = " partial" if one.is_partial else ""
            print(
                f"{name:24}{one.median:10.1f} ms   at most {one.worst:.1f} {verdict(one.worst, WORST)}{told}",
                flush=True,
            )
        check_upkeep(place, store, long, found)
    return found


def fill(store: Store, count: int, meter: Meter, found: Figures) -> int:
    """Store so many messages and index them; return the bytes of their text."""
    talk = (one for part in messages(count) for one in part)
    size = done = 0
    recorded = indexed = 0.0
    for number, length in enumerate((count // 10, *[LENGTH] * (count // EACH))):
        said = list(islice(talk, length))
        size += sum(len(str(one["content"]).encode()) for one in said)
        times = [_START + done + place for place in range(length)]
        with meter:
            at = store.record(said, conversation=f"conversation {number}", times=times)
            store.sessions.start(at, title=f"conversation {number}", started=times[0], from_depth=0)
        recorded += meter.spent
        with meter:
            while store.searcher.index_pending(5_000):
                pass
        indexed += meter.spent
        done += length
    for name, spent in (("record all", recorded), ("index all", indexed)):
        found["walk", name] = spent
        print(f"{name:24}{spent:10.1f} s    {spent / count * 1e6:,.0f} µs a message", flush=True)
    return size


# -- what a turn does --------------------------------------------------------------------------------------------------


def check_turns(store: Store, count: int, meter: Meter, found: Figures) -> Branch:
    """Measure the steps of a turn in the longest conversation; return its end."""
    talk = list(islice((one for part in messages(count) for one in part), count // 10))
    floors: list[float] = []
    records: list[float] = []
    at = store.record(talk, conversation=_LONG)
    for shorter, longer in pairwise(grown_lists(talk, 7)):
        with meter:
            at = store.record(longer, conversation=_LONG)
        records.append(meter.spent)
        with meter:
            if shorter != longer[:-1]:
                raise AssertionError("the lists differ by more than their last message")
        floors.append(meter.spent)
    grown, ratio = statistics.median(records), statistics.median(records) / statistics.median(floors)
    found["list", "record of a grown list"] = grown
    print(
        f"{'record of a grown list':24}{grown * 1e3:10.2f} ms   {ratio:.1f} times comparing two "
        f"{verdict(ratio, COMPARISONS) if len(talk) >= _LONG_LIST else ''}",
        flush=True,
    )

    def append(number: int) -> None:
        nonlocal at
        at = store.append(at, [{"role": "assistant", "content": f"appended {number}"}])

    def fork(number: int) -> None:
        store.append(middle, [{"role": "user", "content": f"another way, {number}"}])

    appended, middle = meter.median(append, _RUNS), store.branch(at.id, count // 20)
    with store.batch():
        for number in range(count // 10 // FORKED):
            fork(number)
    forked = meter.median(lambda number: fork(count + number), _RUNS)
    store.compact(at, _Summary())  # type: ignore[arg-type] # as much of an engine as is called
    at = store.append(at, [{"role": "user", "content": f"behind it, {number}"} for number in range(BEHIND - 20)])
    context = meter.median(lambda _: store.context(at), _RUNS)
    for name, spent in (("append", appended), ("fork", forked), (f"context, view + {BEHIND}", context)):
        found["turn", name] = spent
        print(f"{name:24}{spent * 1e3:10.2f} ms", flush=True)
    return at


def grown_lists(talk: list[Message], count: int) -> Iterator[list[Message]]:
    """Yield lists that are longer by one message each, with no object in common, as clients send them."""
    text = json.dumps(talk)
    added: list[Message] = []
    for number in range(count):
        added.append({"role": "user", "content": f"one more, {number}"})
        yield [*json.loads(text), *(dict(one) for one in added)]


# -- upkeep ------------------------------------------------------------------------------------------------------------


def check_upkeep(place: Place, store: Store, long: Branch, found: Figures) -> None:
    """Measure the work on the whole store beside a writer."""
    node = store.entries(long, 6, 7)[0].id
    by_age = store.sessions.newest()[::-1][1:]  # without the long one
    old = [one.id for one in by_age[: round(OLD * len(by_age))]]
    ended = update(session).where(session.c.id.in_(old)).values(ended=_START)
    store.database.write(lambda connection: connection.execute(ended).rowcount)
    pieces: list[tuple[str, Callable[[], object]]] = [
        ("list", lambda: [one.to_dict() for one in store.conversations.newest()]),
        ("stats", lambda: stats(store)),
        ("backup", lambda: back_up(place, store)),
        ("verify", store.verify),
        ("forget one message", lambda: store.forget([bytes(node or b"")])),
        (f"retention of {OLD:.0%}", lambda: retain(store, days=1)),
    ]
    for name, work in pieces:
        done = beside_writer(place, work)
        found["walk", name] = done.cpu
        print(
            f"{name:24}{done.cpu:10.2f} s    {done.wall:.1f} s of time; the writer waited at most "
            f"{done.waited * 1e3:.0f} ms in {done.appends:,} appends {verdict(done.waited, MOST_WAIT)}",
            flush=True,
        )
    if problems := store.verify().problems:
        raise AssertionError(f"the store is damaged: {problems[:3]}")


def back_up(place: Place, store: Store) -> None:
    """Copy a store into a file."""
    copy = place.folder / "copy"
    dump(place.address, copy) if place.is_server else backup(store, copy)
    print(f"{'size of the copy':24}{copy.stat().st_size / 1e6:10,.0f} MB")
    copy.unlink()


def write_steadily(address: str, begun: Event, stop: Event, waits: Any) -> None:
    """Append 20 times a second until told to stop; hand over the seconds that each append took."""
    found: list[float] = []
    with Store.open(address) as store:
        at = store.record([{"role": "user", "content": "the one who writes"}], conversation="writer")
        begun.set()
        while not stop.wait(PERIOD):
            started = time.perf_counter()
            at = store.append(at, [{"role": "user", "content": f"written meanwhile, {len(found)}"}])
            found.append(time.perf_counter() - started)
    waits.put(found)


class Beside(NamedTuple):
    """A piece of work beside a writer: its CPU and wall seconds, and the longest that the writer waited."""

    cpu: float
    wall: float
    waited: float
    appends: int


def beside_writer(place: Place, work: Callable[[], object]) -> Beside:
    """Do something while another process appends."""
    context, meter = multiprocessing.get_context("spawn"), place.meter
    begun, stop, waits = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=write_steadily, args=(place.address, begun, stop, waits))
    before = server_processes(place.address) if place.is_server else set()
    process.start()
    try:
        begun.wait(60)
        if place.is_server:  # what the writer costs is not the work's
            meter.without = frozenset(server_processes(place.address) - before)
        wall = time.perf_counter()
        with meter:
            work()
        wall = time.perf_counter() - wall
        time.sleep(max(0.0, 1.0 - wall))
    finally:
        stop.set()
    found: list[float] = waits.get(timeout=60)
    process.join(60)
    return Beside(meter.spent, wall, max(found, default=math.inf), len(found))


# -- the table ---------------------------------------------------------------------------------------------------------


def print_table(sizes: Sequence[int], found: Sequence[Figures]) -> None:
    """Print the CPU of all work in stores of several sizes, and by which power of the size it grows."""
    print(f"{'CPU ms':28}" + "".join(f"{size:>14,}" for size in sizes) + "      power")
    for kind, name in found[0]:
        spent = [one[kind, name] * 1e3 for one in found]
        power = exponent(sizes, [max(one, 0.1) for one in spent]) if len(sizes) > 1 else 0.0
        told = verdict(power, BARS[kind]) if kind in BARS else ""
        print(f"{name:28}" + "".join(f"{one:>14,.1f}" for one in spent) + f"{power:>11.2f}   {told}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_numbers, default=[10_000], help="messages of the stores, separated by commas")
    parser.add_argument("--on", default="sqlite", help="sqlite, postgresql, or both with a comma")
    parser.add_argument("--postgres", type=int, default=0, help="messages of the comparison with PostgreSQL")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    for engine in asked.on.split(",") if asked.sizes else ():
        found: list[Figures] = []
        for size in asked.sizes:
            print(f"{engine}, {size:,} messages", flush=True)
            with new_place(engine, asked.folder) as place:
                found.append(check_store(place, size))
        print_table(asked.sizes, found)
    if asked.postgres:
        check_postgres(asked.postgres)


def _numbers(text: str) -> list[int]:
    return [number for part in text.split(",") if part.strip() and (number := int(part))]


if __name__ == "__main__":
    main()
