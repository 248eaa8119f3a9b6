"""What the file of a local model says of itself: its name, the window it was trained with, how large it is.

Reads the header of a GGUF file and none of its weights. Knows no server.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from everlong.errors import ConfigError
from everlong.providers.names import SMALL

__all__ = ["ModelFile", "read_model_file"]

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_LIST = 64
"""Lists that are longer than this, as those of all tokens, are skipped."""
_MOST_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model in a file."""

    path: Path
    title: str
    """How the file calls the model; its own name where it does not say."""
    context_length: int | None
    """The window that the model was trained with, where the file says it."""
    parameters: int
    """How many numbers the model has."""
    is_split: bool
    """Whether this is the first of several files, and `parameters` tells of this one only."""

    @property
    def name(self) -> str:
        """The model's name in sessions and settings."""
        return self.path.stem

    @property
    def is_small(self) -> bool:
        """Whether it is too small for tools and summaries: it can answer, and little more."""
        return self.parameters < SMALL and not self.is_split


def read_model_file(path: Path) -> ModelFile:
    """What a model's file says of itself.

    Raises:
        ConfigError: there is no such file, or it is no GGUF file.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:4] != b"GGUF":
                raise ConfigError(f"{path} is no model: a GGUF file begins with GGUF", key="local")
            return _read(path, content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", key="local") from error
    except (struct.error, IndexError, ValueError) as error:  # ValueError: an empty file, words that are no UTF-8
        raise ConfigError(f"{path} is no whole GGUF file: {error}; download it again", key="local") from error


def _read(path: Path, content: mmap.mmap) -> ModelFile:
    header = _Header(content)
    version, tensors, facts = header.numbers("IQQ")
    if version < 2:
        raise ConfigError(f"{path} is a GGUF file of version {version}; 2 and newer are read", key="local")
    said = dict(header.fact() for _ in range(facts))
    window = said.get(f"{said.get('general.architecture')}.context_length")
    return ModelFile(
        path,
        title=str(said.get("general.name") or path.stem),
        context_length=int(window) if isinstance(window, int) and window > 0 else None,
        parameters=sum(header.tensor() for _ in range(tensors)),
        is_split=int(said.get("split.count") or 1) > 1,
    )


class _Header:
    """Reads one thing after the other."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = 4

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{kinds}", self._content, self._at)
        self._at += struct.calcsize(f"<{kinds}")
        return values

    def text(self) -> str:
        start = self._skipped_text()
        return self._content[start : self._at].decode("utf-8", "replace")

    def _skipped_text(self) -> int:
        (length,) = self.numbers("Q")
        start, self._at = self._at, self._at + length
        if self._at > len(self._content):
            raise IndexError("it ends in the middle")
        return start

    def fact(self) -> tuple[str, Any]:
        """A name and its value; None for a long list."""
        name = self.text()
        (kind,) = self.numbers("I")
        return name, self._value(kind)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            of, length = self.numbers("IQ")
            if length <= _LONGEST_LIST:
                return [self._value(of) for _ in range(length)]
            self._skip_list(of, length)
            return None
        return self.numbers(_number(kind))[0]

    def _skip_list(self, kind: int, length: int) -> None:
        if kind in {_STRING, _ARRAY}:
            for _ in range(length):
                self._skipped_text() if kind == _STRING else self._value(kind)
        else:
            self._at += length * struct.calcsize(_number(kind))

    def tensor(self) -> int:
        """How many numbers the next tensor has."""
        self._skipped_text()
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
