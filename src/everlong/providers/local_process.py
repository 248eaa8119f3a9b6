"""The process in which a local model is served; run as a file, and done as soon as its standard input ends.

So it ends with whoever started it, however that one ends. The first line that it is told is the key that requests must
carry; the first line that it says is its address. Knows nothing of Everlong.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

__all__: list[str] = []


def main(path: str, window: int, temperature: str) -> None:
    """Serve a model on loopback, and say where."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that talks to the model
    key = sys.stdin.readline().strip()
    xllamacpp = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = window
    params.n_parallel = 1
    # Threads that wait for each other burn time where others want the cores too, so half of them are left alone.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, _cores() // 2)
    if temperature:
        params.sampling.temp = float(temperature)
    params.warmup = False
    params.cache_ram_mib = 0  # the one conversation stays in its slot; eight gigabytes of others are not kept
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # native threads may still be at work on an answer that nobody waits for


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
