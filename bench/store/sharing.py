"""Agents and stateless clients that share one store, for a long time; each is held against itself alone in a store.

    python -m bench.store.sharing [--steps N] [--seed N] [--every N] [--postgres]

They begin alike on purpose, are answered alike, retry, edit, break off, compact and come back after restarts. Exits
with 1 if one of them differs from what it would be alone; then the steps that lead there are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time

from tests.store.shared_store import World

from bench.store.server import postgres
from everlong.store import Store

_ROUND = 500
"""Steps after which all begins anew in an empty store."""


def main() -> int:
    """Let them talk, and look at what is stored."""
    options = _options()
    began, done, actors = time.perf_counter(), 0, 0
    problems: list[str] = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = stack.enter_context(postgres()) if options.postgres else f"{folder}/store.db"
        for number in range(-(-options.steps // _ROUND)):
            seed = options.seed + number
            world = World(lambda tenant: Store.open(url, tenant), f"round {number}")
            try:
                found = world.go_on(random.Random(seed), min(_ROUND, options.steps - done), options.every)
            finally:
                world.close()
            done += len(world.steps)
            actors += len(world.actors)
            problems += [f"seed {seed}, step {len(world.steps)}: {problem}" for problem in found]
    for problem in problems[:20]:
        print(f"FAILED {problem}")
    seconds = time.perf_counter() - began
    print(f"sharing: {actors} agents and clients, {done:,} steps; {len(problems)} problems, {seconds:.0f} s")
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Hold conversations in a shared store against the same ones alone.")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=20, help="steps after which everything is checked")
    parser.add_argument("--postgres", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
