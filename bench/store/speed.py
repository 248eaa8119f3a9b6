"""Speed of the store on SQLite: 100,000 messages of about 1 KB, 8 % of them Chinese.

Bars: durable bulk import of at least 10,000 messages per CPU second, stored and readable, as one conversation and as
conversations of 50 messages in a batch; one durable append at a time with the same median at 100,000 messages as at
1,000 (± 20 %), its p99.9 at most 5 and its maximum at most 10 times the worst of a bare write + fsync loop that runs in
between; a list of 20,000 messages that has grown, recorded in half the CPU time of hashing it whole or less. Also told:
what the database takes on the disk per byte of text.

    python -m bench.store.speed [--messages 100000] [--appends 1000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from bench.measure import verdict
from everlong.model import Message
from everlong.store import Branch, Store
from everlong.store.core import Checkpoints

_WORDS = (  # noqa: SIM905 - a hundred words read better without their quotes
    "the a to of in is that for it with as was on be at by this from have or an they which one you were all her she "
    "harbour planner crane berth schedule tide pilot vessel cargo manifest invoice customs engine deploy server test "
    "function return value error timeout connection database index query session token branch commit review merge"
).split()
_CHINESE = (
    "港口计划起重机泊位时间表潮汐领航员船舶货物清单发票海关引擎部署服务器测试函数返回值错误超时连接数据库索引查询会话"
)


LONG = 20_000
"""Messages of the list that grows."""


def message(number: int, chance: random.Random) -> Message:
    """Return one message of about 1 KB."""
    role = "user" if number % 2 == 0 else "assistant"
    if chance.random() < 0.08:
        return {"role": role, "content": f"{number} " + "".join(chance.choices(_CHINESE, k=340))}
    words = " ".join(chance.choices(_WORDS, k=150))
    return {"role": role, "content": f"{number} {words} src/mod_{number % 977}/file_{chance.randrange(9_999)}.py"}


def messages(count: int, seed: int = 7) -> list[Message]:
    """Return so many messages, always the same ones."""
    chance = random.Random(seed)
    return [message(number, chance) for number in range(count)]


def bulk(store: Store, talk: list[Message]) -> tuple[Branch, float]:
    """Import a long conversation; CPU seconds until it is stored."""
    started = time.process_time()
    at = store.record(talk)
    return at, time.process_time() - started


def grown(store: Store, talk: list[Message], steps: int = 20) -> tuple[float, float]:
    """Record a long list that grows by two messages at a time; median CPU seconds with and without checkpoints."""
    store.record(talk)
    medians: list[float] = []
    for kept in (store.checkpoints, Checkpoints(store.chain, most_bytes=0)):
        store.checkpoints = kept
        spent: list[float] = []
        for _ in range(steps):
            talk = [*talk, *({"role": role, "content": f"{len(talk)}"} for role in ("user", "assistant"))]
            started = time.process_time()
            store.record(talk)
            spent.append(time.process_time() - started)
        medians.append(statistics.median(spent))
    return medians[0], medians[1]


def many(store: Store, talk: list[Message], length: int = 50) -> tuple[int, float]:
    """Import as many short conversations in a batch; their number, and CPU seconds until all are stored."""
    short = [talk[start : start + length] for start in range(0, len(talk), length)]
    started = time.process_time()
    with store.batch():
        for one in short:
            store.record(one)
    return len(short), time.process_time() - started


def appends(store: Store, at: Branch, count: int, floor: Path) -> tuple[Branch, list[float], list[float]]:
    """Append durably, each time followed by a bare write and fsync of the same size; return the seconds of both."""
    chance = random.Random(at.depth)
    ours: list[float] = []
    bare: list[float] = []
    with floor.open("ab", buffering=0) as file:
        for number in range(count):
            new = message(at.depth + number, chance)
            started = time.perf_counter()
            at = store.append(at, [new])
            ours.append(time.perf_counter() - started)
            data = str(new).encode()
            started = time.perf_counter()
            file.write(data)
            os.fsync(file.fileno())
            bare.append(time.perf_counter() - started)
    return at, ours, bare


def share(values: list[float], part: float) -> float:
    """Return the value below which a part of the values is."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--appends", type=int, default=1_000)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    talk = messages(asked.messages)
    raw = sum(len(str(one["content"]).encode()) for one in talk)
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        path = Path(name) / "store.db"
        with Store.open(path) as store:
            at, early_cpu = bulk(store, talk[:1_000])
            early, ours_early, bare_early = appends(store, at, asked.appends, Path(name) / "floor")
            del early
        path.unlink()
        with Store.open(path) as store:
            at, cpu = bulk(store, talk)
            rate = len(talk) / cpu
            size = path.stat().st_size
            print(f"bulk import   {rate:>10,.0f} messages per CPU second   {verdict(rate, 10_000, at_least=True)}")
            print(f"  the first thousand: {1_000 / early_cpu:,.0f}; size {size / raw:.2f} bytes per byte of text")
            started = time.process_time()
            if store.context(at) != talk:
                raise AssertionError("what was stored is not what is read")
            print(f"  read whole: {len(talk) / (time.process_time() - started):,.0f} messages per CPU second")
            _, ours, bare = appends(store, at, asked.appends, Path(name) / "floor")
        path.unlink()
        with Store.open(path) as store:
            count, cpu = many(store, talk)
            rate = len(talk) / cpu
            told = f"in {count:,} conversations   {verdict(rate, 10_000, at_least=True)}"
            print(f"batch import  {rate:>10,.0f} messages per CPU second {told}")
        path.unlink()
        with Store.open(path) as store:
            quick, slow = grown(store, talk[:LONG])
            told = f"{slow * 1e3:.1f} without checkpoints   {verdict(quick, slow / 2)}"
            print(f"grown list    {quick * 1e3:>10.1f} ms of CPU at {LONG:,} messages and two new ones, {told}")
    growth = statistics.median(ours) / statistics.median(ours_early)
    worst = max(*bare, *bare_early)
    tail, most = share(ours + ours_early, 0.999), max(*ours, *ours_early)
    print(
        f"append        {statistics.median(ours) * 1e3:>10.2f} ms median at {len(talk):,}, "
        f"{statistics.median(ours_early) * 1e3:.2f} at 1,000: {growth:.2f} times   {verdict(growth, 1.2)}"
    )
    print(f"  bare write + fsync: median {statistics.median(bare) * 1e3:.2f} ms, worst {worst * 1e3:.2f} ms")
    print(f"  p99.9 {tail * 1e3:.2f} ms, {tail / worst:.2f} times the worst   {verdict(tail, 5 * worst)}")
    print(f"  max   {most * 1e3:.2f} ms, {most / worst:.2f} times the worst   {verdict(most, 10 * worst)}")


if __name__ == "__main__":
    main()
