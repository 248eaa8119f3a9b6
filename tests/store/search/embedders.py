"""Embedders for tests: words counted by hash, where words that mean the same count as one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAME = {"hound": "terrier", "adopt": "rescued"}
SIZE = 256


class WordEmbedder:
    """A model that knows a few synonyms; remembers every text that it was given."""

    def __init__(self, model_id: str = "words") -> None:
        self.model_id = model_id
        self.texts: list[str] = []
        self.questions: list[str] = []
        self.error: Exception | None = None

    def embed(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        if self.error is not None:
            raise self.error
        (self.questions if is_query else self.texts).extend(texts)
        found = np.full((len(texts), SIZE), 1e-3, np.float32)
        for place, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                digest = hashlib.sha256(SAME.get(word, word).encode()).digest()
                found[place, int.from_bytes(digest[:4], "big") % SIZE] += 1.0
        return found
