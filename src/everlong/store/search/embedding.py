"""Embedders as the search sees them, and the passages of a message that they are given.

An embedder turns texts into vectors, so that texts about the same thing lie close together. The store neither chooses
nor loads one: whoever opens the store hands it in. Knows no database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PASSAGES_VERSION", "Embedder", "passages_of", "question_text"]

PASSAGES_VERSION = 1
"""The version of the passages; vectors of another version are made anew."""

PASSAGE_CHARS = 900
"""The most characters of a passage: about 200 tokens, so that every model reads it to its end."""

MOST_PASSAGES = 4
"""The most passages of one message, each of which has a vector."""

_LINE = re.compile(r"[^\n]*\n?")


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def model_id(self) -> str:
        """The name of the model; vectors of models with different names cannot be compared."""
        ...

    def embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        """Return a row of numbers for each text; some models read a query differently from a passage."""
        ...


def passages_of(text: str, most: int = MOST_PASSAGES) -> list[str]:
    """Cut a text into passages at the ends of lines; of a long text, return the first ones."""
    passages: list[str] = []
    current = ""
    for line in _LINE.findall(text):
        rest = line
        while len(current) + len(rest) > PASSAGE_CHARS:
            if not current:
                current, rest = rest[:PASSAGE_CHARS], rest[PASSAGE_CHARS:]
            if current.strip():
                passages.append(current.strip())
            current = ""
            if len(passages) == most:
                return passages
        current += rest
    if current.strip():
        passages.append(current.strip())
    return passages[:most]


def question_text(text: str, speakers: Iterable[str]) -> str:
    """Return a question as it would be put to a speaker: people say "I" where others ask for them by name."""
    names = sorted({name for speaker in speakers for name in (speaker, speaker.split(" ")[0]) if name}, key=len)
    if not names:
        return text
    pattern = "|".join(map(re.escape, reversed(names)))
    return re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", "I", text, flags=re.IGNORECASE)
