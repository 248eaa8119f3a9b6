"""Embedders as the search sees them, and the passage of a message that they are given.

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


PASSAGE_VERSION = 1
"""The version of the passages; vectors of another version are made anew."""

PASSAGE_CHARS = 900
"""The most characters of a passage: about 200 tokens. On long chats, more of each message found less."""

_LEAST_LINES = 0.6


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def model_id(self) -> str:
        """The name of the model; vectors of models with different names cannot be compared."""
        ...

    def embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        """Return a row of numbers for each text; some models read a query differently from a passage."""
        ...


def passage_of(text: str) -> str:
    """Return the passage that stands for a text: its beginning, up to the end of a line if one is near."""
    text = text.strip()
    if len(text) <= PASSAGE_CHARS:
        return text
    end = text.rfind("\n", int(_LEAST_LINES * PASSAGE_CHARS), PASSAGE_CHARS)
    return text[: end if end > 0 else PASSAGE_CHARS].strip()


def question_text(text: str, speakers: Iterable[str]) -> str:
    """Return a question as it would be put to a speaker: people say "I" where others ask for them by name."""
    names = sorted({name for speaker in speakers for name in (speaker, speaker.split(" ")[0]) if name}, key=len)
    if not names:
        return text
    pattern = "|".join(map(re.escape, reversed(names)))
    return re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", "I", text, flags=re.IGNORECASE)
