"""Faults: a process that appends to a conversation, compacts it and works ahead is killed at random moments.

After each kill `verify` must be clean, every acknowledged message must be there, and the conversation must go on.

    python -m bench.lossless.faults --rounds 200
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from everlong.lossless import LosslessEngine
from everlong.model import Message
from everlong.store import Store
from everlong.store.tree import Branch

NAME = "the conversation"
LONGEST_ROUND = 0.4
"""Seconds after the first acknowledged message within which a process is killed."""


def make_engine() -> LosslessEngine:
    """Return an engine with a window so small that it compacts all the time."""
    return LosslessEngine(3_000, settings={"protect_last_n": 2, "threshold": 0.4})


def turn_of(number: int) -> list[Message]:
    """Return one turn of the conversation."""
    noise = " ".join(f"word{number}x{place}" for place in range(40))
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "user", "content": f"request {number}: {noise}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number} {noise}"},
        {"role": "assistant", "content": f"Step {number} is done; port {number} is open."},
    ]


def go_on(store: Store, at: Branch, number: int, engine: LosslessEngine) -> Branch:
    """Append a turn, compact if that is due, and work ahead."""
    at = store.append(at, turn_of(number))
    if engine.should_compress_preflight(store.context(at)):
        store.compact(at, engine, lease_seconds=None)
    engine.attach(store.graph(at))
    engine.work_ahead()
    return at


def work(path: str, number: int, depth: int, first: int) -> None:
    """Append and compact for ever; a line on stdout for each acknowledged turn. Runs in its own process."""
    with Store.open(path, wait=60.0) as store:
        at, engine = store.branch(number, depth), make_engine()
        for turn in range(first, first + 100_000):
            at = go_on(store, at, turn, engine)
            os.write(sys.stdout.fileno(), f"{turn} {at.id} {at.depth}\n".encode())


def killed_round(path: str, number: int, depth: int, first: int, chance: random.Random) -> list[str]:
    """Start a process, kill it at a random moment, and return the turns that it acknowledged."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.dup2(writing, sys.stdout.fileno())
            work(path, number, depth, first)
        except BaseException:  # noqa: BLE001 - a process of its own ends here, whatever happened
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as said:
        begun = said.readline()
        time.sleep(chance.random() * LONGEST_ROUND)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return [begun, *(line for line in said if line.endswith("\n"))]


def rounds(path: str, count: int, seed: int = 1) -> list[str]:
    """Run kill rounds on one conversation; return every problem that was found."""
    chance = random.Random(seed)
    with Store.open(path) as store:
        at = store.record([{"role": "system", "content": "You work."}, *turn_of(0)], conversation=NAME)
    turns, problems = 1, list[str]()
    for number in range(count):
        acknowledged = killed_round(path, at.id, at.depth, turns, chance)
        if not acknowledged[0]:
            return [*problems, f"round {number}: the process ended by itself; its error stands above"]
        with Store.open(path) as store:
            last, branch, depth = map(int, acknowledged[-1].split())
            at = store.branch(branch, depth)
            turns = last + 1
            problems += [f"round {number}: {problem}" for problem in store.verify().problems]
            said = [entry.message for entry in store.entries(at) if entry.id is not None]
            if said != [message for turn in range(turns) for message in turn_of(turn)]:
                problems.append(f"round {number}: the stored conversation is not what was acknowledged")
            at = go_on(store, at, turns, make_engine())
            turns += 1
            problems += [f"round {number}, after going on: {problem}" for problem in store.verify().problems]
        if problems:
            break
    print(f"{count} rounds, {turns:,} turns, {len(problems)} problems")
    return problems


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="in memory where the system allows")
    asked = parser.parse_args()
    memory = "/dev/shm" if asked.quick and os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a folder in it
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        problems = rounds(str(Path(folder) / "store.db"), asked.rounds, asked.seed)
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
