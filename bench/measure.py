"""CPU time of a piece of work: the best of several runs, because the machines that run this are noisy."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

if sys.platform != "win32":
    import resource


def best_cpu(work: Callable[[], object], repeat: int = 5) -> float:
    """Return the least CPU seconds that the work took in several runs."""
    best = math.inf
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def best_child_cpu(command: Sequence[str], repeat: int = 7) -> float:
    """Return the least CPU seconds that a fresh process took; wall time where the system does not tell."""
    best = math.inf
    # Programs keep their compiled modules, as an installed copy does; the first of these runs writes them.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(repeat):
        before, clock = _children_cpu(), time.perf_counter()
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        spent = _children_cpu() - before
        best = min(best, spent if spent > 0 else time.perf_counter() - clock)
    return best


def _children_cpu() -> float:
    if sys.platform == "win32":
        return 0.0
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the power by which cost grows with size, by least squares over logarithms; 1 is linear."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)


def verdict(value: float, allowed: float, *, at_least: bool = False) -> str:
    """Return a word for a bar: whether it was held."""
    return "ok" if (value >= allowed if at_least else value <= allowed) else "MISSED"
