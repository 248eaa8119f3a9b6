"""Odd requests by the thousand: broken HTTP, broken JSON, odd headers and paths, on all routes.

    python -m bench.gateway.fuzz [--count N] [--seed N]

Exits with 1 if one of them was answered with an error of ours (500), hung, was logged with a word of its content, or
left the gateway or its store in disorder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter

from tests.gateway.fuzzing import play, upstream_script
from tests.gateway.running import run_gateway
from tests.gateway.upstream import Upstream

_AT_ONCE = 1_000


def main() -> int:
    """Send them all and print what became of them."""
    parser = argparse.ArgumentParser(description="Send odd requests to a gateway.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    problems: list[str] = []
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        Upstream(upstream_script) as upstream,
        run_gateway(upstream.url, f"{folder}/store.db") as running,
    ):
        for number, left in enumerate(range(options.count, 0, -_AT_ONCE)):
            found, wrong = play(running, options.seed + number, min(left, _AT_ONCE))
            outcomes += found
            problems += wrong
        problems += running.store().verify().problems
    for problem in problems[:20]:
        print(f"FAILED {problem}")
    print(", ".join(f"{count:,} × {outcome}" for outcome, count in outcomes.most_common()))
    seconds = time.perf_counter() - began
    print(f"fuzz: {sum(outcomes.values()):,} requests in {seconds:.0f} s, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
