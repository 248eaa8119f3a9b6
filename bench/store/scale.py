"""Scale of the store: what a step and a search cost as a conversation, its forks and the whole store grow.

One long conversation: a list that has grown by one message is recorded in at most 3 times the CPU of comparing the two
lists in Python; an append takes at most 5 ms, a context with a view and 500 messages behind it at most 20 ms, a fork at
most 3 ms with 10,000 forks there. Stores of several sizes, of conversations of 50 messages: backup, forgetting, the
list of all conversations, figures, a check of what is new and retention run beside a process that appends 20 times a
second and never waits more than 250 ms for one. Medians of CPU, with the exponent by which each grows.

Searches in stores of several sizes: the first page of every kind of query takes a median of at most 30 ms and at worst
120 ms of CPU, and grows with an exponent of at most .2, with 600 messages that are not indexed too. PostgreSQL beside
SQLite: indexing in at most 2.5 times the CPU, at most 3 times the text in size, queries in at most 2.5 times the time,
and the same hits.

    python -m bench.store.scale [--sizes 10000,100000] [--conversation 100000] [--forks 10000] [--folder DIR]
                                [--queries 10000,100000] [--postgres 10000] [--keep DIR]

0 leaves a part out. ``--keep`` leaves the databases of the searches there and uses them the next time.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import update

from bench.measure import verdict
from bench.store.scale_queries import check_postgres, check_queries
from bench.store.speed import messages
from everlong.model import Message
from everlong.store import Store
from everlong.store.schema import session
from everlong.store.upkeep.maintenance import backup, retain, stats

LENGTH = 50
"""Messages of each conversation of a store."""
BEHIND = 500
"""Messages behind the view of the long conversation."""
PERIOD = 0.05
"""Seconds between two appends of the process that writes beside the others."""
MOST_WAIT = 0.25
"""The most seconds that it may wait for one."""


class _Summary:
    """An engine that keeps the head and the tail, and puts one message in the place of the middle."""

    name = "bench"
    last_prompt_tokens = 0
    threshold_tokens = 0
    context_length = 0

    def compress(self, messages: list[Message], **options: Any) -> list[Message]:
        del options
        return [*messages[:3], {"role": "user", "content": "[CONTEXT SUMMARY]: the middle"}, *messages[-20:]]


def median_cpu(step: Callable[[int], object], count: int = 15) -> float:
    """Return the median CPU seconds of a step, which is given its number."""
    spent: list[float] = []
    for number in range(count):
        started = time.process_time()
        step(number)
        spent.append(time.process_time() - started)
    return statistics.median(spent)


def grown_lists(talk: list[Message], count: int) -> list[list[Message]]:
    """Return lists that are longer by one message each, with no object in common, as clients send them."""
    text = json.dumps(talk)
    added: list[Message] = []
    found: list[list[Message]] = []
    for number in range(count):
        added.append({"role": "user", "content": f"one more, {number}"})
        found.append([*json.loads(text), *(dict(one) for one in added)])
    return found


# -- one long conversation ---------------------------------------------------------------------------------------------


def check_conversation(folder: Path, count: int) -> dict[str, float]:
    """Measure the steps of a conversation of so many messages; return the CPU seconds of each."""
    talk = messages(count)
    with Store.open(folder / f"conversation-{count}.db") as store:
        started = time.process_time()
        at = store.record(talk, conversation="long")
        first = time.process_time() - started
        lists = grown_lists(talk, 7)
        floor = median_cpu(lambda number: lists[number] == lists[number + 1][:-1], len(lists) - 1)
        record = median_cpu(lambda number: store.record(lists[number], conversation="long"), len(lists))
        lists.clear()
        at = store.branch(at.id)

        def append(number: int) -> None:
            nonlocal at
            at = store.append(at, [{"role": "assistant", "content": f"appended {number}"}])

        appended = median_cpu(append, 50)
        store.compact(at, _Summary())  # type: ignore[arg-type] # as much of an engine as is called
        at = store.append(at, messages(BEHIND - 20, seed=count))
        context = median_cpu(lambda _: store.context(at))
        kept = store.checkpoints
        each = first / count * 1e6
        print(f"conversation of {count:,}: recorded whole in {first:.1f} s of CPU, {each:.0f} µs a message")
        ratio = record / floor
        print(
            f"  record, grown by one  {record * 1e3:9.1f} ms   {ratio:5.2f} × comparing ({floor * 1e3:.1f} ms)"
            f"   {verdict(ratio, 3)}   remembers {kept.size / 1e6:.0f} MB"
        )
        print(f"  append                {appended * 1e3:9.2f} ms   {verdict(appended * 1e3, 5)}")
        print(f"  context, view + {BEHIND}   {context * 1e3:9.1f} ms   {verdict(context * 1e3, 20)}")
    return {"record": record, "append": appended, "context": context}


def check_forks(folder: Path, count: int) -> None:
    """Measure a fork of a conversation that has been forked often already."""
    talk = messages(200)
    with Store.open(folder / "forks.db") as store:
        at = store.record(talk, conversation="forked")
        middle = store.branch(at.id, 100)

        def fork(number: int) -> None:
            store.append(middle, [{"role": "user", "content": f"another way, {number}"}])

        early = median_cpu(fork, 200)
        with store.batch():
            for number in range(200, count):
                fork(number)
        late = median_cpu(lambda number: fork(count + number), 200)

        def record(number: int) -> None:
            store.record([*talk[:100], {"role": "user", "content": f"a third way, {number}"}], conversation="forked")

        recorded = median_cpu(record, 50)
    print(f"forks: {early * 1e3:.2f} ms at first, with {count:,} there:")
    print(f"  append to its middle  {late * 1e3:9.2f} ms   {verdict(late * 1e3, 3)}")
    print(f"  record of its list    {recorded * 1e3:9.2f} ms   {verdict(recorded * 1e3, 3)}")


# -- whole stores ------------------------------------------------------------------------------------------------------


def fill(path: Path, count: int) -> None:
    """Make a store of so many messages in conversations that have ended, indexed."""
    talk = messages(min(count, 100_000), seed=count)
    with Store.open(path) as store:
        for start in range(0, count, 5_000):
            with store.batch():
                for first in range(start, min(start + 5_000, count), LENGTH):
                    part = [talk[(first + place) % len(talk)] for place in range(LENGTH)]
                    said = [{**one, "content": f"{first} {one['content']}"} for one in part]
                    name = f"conversation {first // LENGTH}"
                    at = store.record(said, conversation=name)
                    made = store.sessions.start(at, title=name, started=1e9 + first, from_depth=0)
                    store.sessions.end(made.id, "exit")
            store.searcher.index_pending(5_000)


def write_steadily(path: Path, begun: Event, stop: Event, waits: Any) -> None:
    """Append 20 times a second until told to stop; hand over the seconds that each append took."""
    found: list[float] = []
    with Store.open(path) as store:
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


def beside_writer(path: Path, work: Callable[[], object]) -> Beside:
    """Do something while another process appends."""
    context = multiprocessing.get_context("spawn")
    begun, stop, waits = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=write_steadily, args=(path, begun, stop, waits))
    process.start()
    try:
        begun.wait(60)
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        time.sleep(max(0.0, 1.0 - wall))
    finally:
        stop.set()
    found: list[float] = waits.get(timeout=60)
    process.join(60)
    return Beside(cpu, wall, max(found, default=math.inf), len(found))


def check_store(folder: Path, count: int) -> dict[str, float]:
    """Measure the work on a whole store beside a writer; return the CPU seconds of each piece."""
    path = folder / f"store-{count}.db"
    started = time.process_time()
    fill(path, count)
    size, spent = path.stat().st_size / 1e6, time.process_time() - started
    print(f"store of {count:,} messages: {size:,.0f} MB, made in {spent:.0f} s of CPU")
    found: dict[str, float] = {}
    with Store.open(path) as store:
        nodes = [store.entries(store.branch(number))[7].id for number in (3, 4)]
        old = update(session).where(session.c.started < 1e9 + 0.03 * count).values(ended=1e9)
        store.database.write(lambda connection: connection.execute(old).rowcount)
        pieces: list[tuple[str, Callable[[], object]]] = [
            ("nothing", lambda: time.sleep(1.0)),
            ("list", lambda: [one.to_dict() for one in store.conversations.newest()]),
            ("stats", lambda: stats(store)),
            ("backup", lambda: backup(store, folder / f"backup-{count}.db")),
            ("verify", store.verify),
            ("forget one message", lambda: store.forget([bytes(nodes[0] or b"")])),
            ("retention of 3 %", lambda: retain(store, days=1)),
        ]
        for name, work in pieces:
            done = beside_writer(path, work)
            found[name] = done.cpu
            told = verdict(done.waited * 1e3, MOST_WAIT * 1e3)
            print(
                f"  {name:20} {done.cpu:8.2f} s of CPU, {done.wall:8.2f} s; the writer waited at most "
                f"{done.waited * 1e3:6.0f} ms in {done.appends} appends   {told}"
            )
        log = path.with_name(f"{path.name}-wal")
        print(f"  log {log.stat().st_size / 1e6 if log.exists() else 0:.0f} MB")
        problems = store.verify().problems
        if problems:
            raise AssertionError(f"the store is damaged: {problems[:3]}")
    (folder / f"backup-{count}.db").unlink()
    path.unlink()
    return found


def print_exponents(sizes: Sequence[int], found: Sequence[dict[str, float]]) -> None:
    """Print by which power of the size each figure grows."""
    if len(sizes) < 2:
        return
    for name in found[0]:
        first, last = found[0][name], found[-1][name]
        if first > 0 and last > 0:
            power = math.log(last / first) / math.log(sizes[-1] / sizes[0])
            print(f"  {name:20} grows with the power {power:5.2f} from {sizes[0]:,} to {sizes[-1]:,}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_numbers, default=[10_000], help="messages of the stores, separated by commas")
    parser.add_argument("--conversation", type=int, default=100_000)
    parser.add_argument("--forks", type=int, default=10_000)
    parser.add_argument("--queries", type=_numbers, default=[10_000], help="messages of the stores that are searched")
    parser.add_argument("--postgres", type=int, default=0, help="messages of the comparison with PostgreSQL")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        lengths = [max(1_000, asked.conversation // 10), asked.conversation] if asked.conversation else []
        print_exponents(lengths, [check_conversation(folder, length) for length in lengths])
        if asked.forks:
            check_forks(folder, asked.forks)
        print_exponents(asked.sizes, [check_store(folder, size) for size in asked.sizes])
    check_queries(asked.queries, asked.keep)
    if asked.postgres:
        check_postgres(asked.postgres)


def _numbers(text: str) -> list[int]:
    return [number for part in text.split(",") if part.strip() and (number := int(part))]


if __name__ == "__main__":
    main()
