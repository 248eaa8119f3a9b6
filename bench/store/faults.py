"""Faults: processes that write, compact and read one store are killed at random moments, again and again.

Each round starts four processes on shared and own conversations and kills all of them with SIGKILL after a random
number of acknowledged writes. Afterwards every acknowledged message must be there once, and `verify` must be clean.
With ``--postgres`` eight processes write to a PostgreSQL server instead, for a number of writes each, and none is
killed: no message may be lost or doubled, and no deadlock may surface.

    python -m bench.store.faults --rounds 200
    python -m bench.store.faults --postgres --writes 600
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from bench.store.server import postgres
from everlong import ContextCompressor
from everlong.model import Message
from everlong.store import Store
from everlong.store.paths import message_of

WRITERS = 4

MOST_WRITES = 25
"""After at most this many acknowledged writes of one process all are killed."""


class Worker(NamedTuple):
    """A writing process, and what it says."""

    pid: int
    said: IO[str]


def work(url: str, writer: int, writes: int, prefix: str) -> None:
    """Write, compact and read; a line on stdout for each write that was acknowledged. Runs in its own process."""
    chance = random.Random(f"{prefix}{writer}")
    shared: list[Message] = [{"role": "user", "content": f"{prefix} shared beginning"}]
    own: list[Message] = [{"role": "user", "content": f"{prefix} conversation of writer {writer}"}]
    with Store.open(url, wait=60.0) as store:
        for number in range(writes):
            text = f"{prefix} writer {writer} says {number} " + "word " * chance.randrange(200)
            role = "assistant" if number % 2 == 0 else "user"
            step = chance.random()
            with store.batch() if number % 5 == 0 else contextlib.nullcontext():
                if step < 0.6:
                    own.append({"role": role, "content": text})
                    at = store.record(own)
                else:  # all writers append to one branch, and become forks of one another
                    at = store.append(store.record(shared), [{"role": role, "content": text}])
            print(text, flush=True)
            if step < 0.1:
                store.compact(at, engine())
            elif step < 0.2:
                store.context(at)
            elif step < 0.25:
                store.undo(at)
            elif step < 0.3:
                made = store.sessions.start(at, title=f"{prefix} {writer} {number}")
                store.sessions.roll_over(made.id, at)
            elif step < 0.35:
                store.searcher.index_pending(50)
            elif step < 0.45:
                turn = store.turns.begin(at)
                store.turns.finish(turn.id, {"role": "assistant", "content": f"reply to {text}"}, usage={"n": number})


def engine() -> ContextCompressor:
    """Return an engine that summarizes at once what it is given."""
    return ContextCompressor(4_000, settings={"protect_last_n": 2, "threshold": 0.3})


def start(url: str, count: int, writes: int, prefix: str) -> list[Worker]:
    """Start the writing processes as copies of this one, which has loaded everything, so that they write at once."""
    return [_started(url, writer, writes, prefix) for writer in range(count)]


def _started(url: str, writer: int, writes: int, prefix: str) -> Worker:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Worker(pid, os.fdopen(reading, encoding="utf-8"))
    status = 1
    try:
        os.dup2(writing, sys.stdout.fileno())
        work(url, writer, writes, prefix)
        status = 0
    except BaseException:  # noqa: BLE001 - a process of its own ends here, whatever happened
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def killed_round(url: str, number: int, chance: random.Random, writers: int = WRITERS) -> list[str]:
    """Run one round; return the writes that were acknowledged before all processes were killed."""
    running = start(url, writers, 10_000, f"round {number}")
    watched = running[chance.randrange(len(running))]
    acknowledged = [watched.said.readline() for _ in range(chance.randrange(1, MOST_WRITES))]
    for worker in running:
        os.kill(worker.pid, signal.SIGKILL)
    for worker in running:
        os.waitpid(worker.pid, 0)
        acknowledged += worker.said.readlines()
        worker.said.close()
    # A line that was cut off by the end of its process was not acknowledged.
    return [line.rstrip("\n") for line in acknowledged if line.endswith("\n")]


def missing(store: Store, acknowledged: Sequence[str]) -> list[str]:
    """Return acknowledged texts that the store does not hold, or holds more than once."""
    found: dict[str, int] = {}
    with store.database.read() as connection:
        rows = connection.exec_driver_sql(
            "SELECT c.bytes, c.codec, c.state, c.stub FROM node n JOIN content c ON c.digest = n.digest"
        )
        for row in rows:
            text = str(message_of(*row).get("content"))
            found[text] = found.get(text, 0) + 1
    return [text for text in acknowledged if found.get(text) != 1]


def rounds(url: str, count: int, seed: int = 1) -> list[str]:
    """Run kill rounds on one store; every problem that was found."""
    chance = random.Random(seed)
    acknowledged: list[str] = []
    problems: list[str] = []
    for number in range(count):
        acknowledged += killed_round(url, number, chance)
        with Store.open(url) as store:
            problems += [f"round {number}: {problem}" for problem in store.verify().problems]
            problems += [f"round {number}: lost or doubled: {text[:60]!r}" for text in missing(store, acknowledged)]
        if problems:
            break
    print(f"{count} rounds, {len(acknowledged):,} acknowledged messages, {len(problems)} problems")
    return problems


def writers(url: str, count: int, writes: int) -> list[str]:
    """Let several processes write to one server; return every problem that was found."""
    Store.open(url).close()
    running = start(url, count, writes, "server")
    acknowledged: list[str] = []
    problems: list[str] = []
    for worker in running:
        acknowledged += [line.rstrip("\n") for line in worker.said]
        worker.said.close()
        if os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1]):
            problems.append(f"process {worker.pid} failed; what it said stands above")
    with Store.open(url) as store:
        problems += store.verify().problems
        problems += [f"lost or doubled: {text[:60]!r}" for text in missing(store, acknowledged)]
    if len(acknowledged) != count * writes:
        problems.append(f"{count * writes} writes were due and {len(acknowledged)} acknowledged")
    print(f"{count} writers, {len(acknowledged):,} acknowledged messages, {len(problems)} problems")
    return problems


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--writes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="in memory where the system allows, without fsync")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if asked.postgres:
            problems = writers(stack.enter_context(postgres(durable=not asked.quick)), 8, asked.writes)
        else:
            # What a kill can do to a store does not depend on the disk under it.
            memory = "/dev/shm" if asked.quick and os.access("/dev/shm", os.W_OK) else None  # noqa: S108
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))
            problems = rounds(str(folder / "store.db"), asked.rounds, asked.seed)
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
