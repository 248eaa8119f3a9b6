"""What anything that counts tokens of a text looks like.

Knows nothing of messages, models or vocabularies; those build on this.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Protocol

from everlong.tokens.estimate import EstimatingCounter
from everlong.tokens.exact import ExactCounter, vocabulary_for


class TokenCounter(Protocol):
    """Counts the tokens of a text; never raises on a ``str``, and gives the same count every time."""

    name: str
    """What the count is made with: a vocabulary's name, or ``estimate``."""

    exact: bool
    """Whether counts are those of a real vocabulary rather than an estimate."""

    def count_text(self, text: str) -> int:
        """The number of tokens of a text; 0 for the empty one."""
        ...


def counter_for(model: str | None = None) -> TokenCounter:
    """The best counter for a model: exact where its vocabulary is bundled, else the estimator."""
    vocabulary = vocabulary_for(model) if model else None
    if vocabulary is None or not _vocabularies_installed():
        return EstimatingCounter()
    return ExactCounter(vocabulary)


@lru_cache(maxsize=1)
def _vocabularies_installed() -> bool:
    # find_spec looks for the package without loading it: choosing must stay as quick as importing.
    return find_spec("splintr") is not None
