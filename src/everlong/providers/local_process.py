"""The process that serves a local model; it ends when its standard input ends.

So it ends with its parent, even if that is killed. It reads one line, the key that requests must carry, and writes one
line, its address.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

__all__: list[str] = []


def main(path: str, window: int, temperature: str) -> None:
    """Serve a model on loopback and print its address."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that talks to the model
    key = sys.stdin.readline().strip()
    xllamacpp = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = window
    params.n_parallel = 1
    # Threads that wait for each other waste time on a busy machine, so half of the cores are left alone.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, _cores() // 2)
    if temperature:
        params.sampling.temp = float(temperature)
    params.warmup = False
    params.cache_ram_mib = 0  # the one conversation stays in its slot; the default keeps eight gigabytes of others
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # native threads may still work on an answer that nobody waits for


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
