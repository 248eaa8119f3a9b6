"""Many conversations that begin alike, of three tenants, interleaved; every stored turn is held against its client.

    python -m bench.gateway.identity [--conversations N] [--steps N] [--seed N] [--postgres]

Clients fork, rewind, edit, retry, clear old results, move markers and have sub-agents; the gateway is restarted
half-way. With ``--postgres`` two replicas share a PostgreSQL server, and one of them is restarted. Exits with 1 if a
turn is where it does not belong.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time

from tests.gateway.running import run_gateway
from tests.gateway.world import World, answer_to, problems_in, slowly

from bench.store.server import postgres
from everlong.store import Store
from everlong.testing import ModelServer


def main() -> int:
    """Let them talk, and look at what was stored."""
    options = _options()
    began = time.perf_counter()
    world = World(options.seed, ["ada", "ben", "cleo"], options.conversations)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        database = stack.enter_context(postgres()) if options.postgres else f"{folder}/store.db"
        model = stack.enter_context(ModelServer(answer_to, faults=slowly, remember=100))
        replicas = [stack.enter_context(run_gateway(model.url, database))] if options.postgres else []
        for _ in range(2):
            with run_gateway(model.url, database) as running:
                ports = [running.port, *(replica.port for replica in replicas)]
                world.go_on(options.steps // 2, lambda ports=ports: ports)  # type: ignore[misc]
        problems = [f"refused upstream: {record.error}" for record in model.rejections]
        with Store.open(database) as opened:
            problems += problems_in(world, lambda tenant: Store(opened.database, tenant))
    for problem in problems[:20]:
        print(f"FAILED {problem}")
    seconds = time.perf_counter() - began
    print(
        f"identity: {len(world.clients)} conversations, {len(world.sent):,} turns, all checked; "
        f"{len(problems)} problems, {seconds:.0f} s"
    )
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Hold every stored turn against what its client sent.")
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
