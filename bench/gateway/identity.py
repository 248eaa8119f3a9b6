"""Many conversations that begin alike, of three tenants, interleaved; every stored turn is held against its client.

    python -m bench.gateway.identity [--conversations N] [--steps N] [--seed N] [--postgres] [--window N]

Clients fork, rewind, edit, retry, clear old results, move markers and have sub-agents; the gateway is restarted
half-way. With ``--postgres`` two replicas share a PostgreSQL server, and one of them is restarted. Exits with 1 if a
turn is where it does not belong.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time

from tests.api_rules import install_rules
from tests.gateway.running import run_gateway
from tests.gateway.world import World, answer_to, problems_in, slowly

from bench.store.server import postgres
from everlong.store import Store
from everlong.testing import ModelServer

install_rules()


def main() -> int:
    """Let them talk, and look at what was stored."""
    options = _options()
    began = time.perf_counter()
    padding = " and so on" * 250 if options.window else ""
    world = World(options.seed, ["ada", "ben", "cleo"], options.conversations, padding)
    names = ("claude-sonnet-5", "gpt-test")
    settings = {"models": {name: {"context_length": options.window} for name in names}} if options.window else {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        database = stack.enter_context(postgres()) if options.postgres else f"{folder}/store.db"
        model = stack.enter_context(
            ModelServer(answer_to, faults=slowly, remember=100, window=options.window or 200_000)
        )
        replicas = [stack.enter_context(run_gateway(model.url, database, settings))] if options.postgres else []
        for _ in range(2):
            with run_gateway(model.url, database, settings) as running:
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
    parser.add_argument("--window", type=int, help="tokens of a window that the conversations outgrow, as 8000")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
