"""The protocol of token counters, and the choice of one for a model."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Protocol

from everlong.arguments import check_text
from everlong.tokens.estimate import EstimatingCounter
from everlong.tokens.exact import ExactCounter, vocabulary_for


class TokenCounter(Protocol):
    """A counter of the tokens of a text; it never raises on a ``str`` and always gives the same count.

    >>> class Words:
    ...     name = "words"
    ...
    ...     def count_text(self, text: str) -> int:
    ...         return len(text.split())
    >>> words: TokenCounter = Words()
    >>> MessageCounter(words).count_text("the ferry is late")
    4
    """

    name: str
    """The name of the vocabulary, or ``estimate``."""

    exact: bool
    """True if counts come from a vocabulary, False for an estimate."""

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text; 0 for the empty one."""
        ...


def counter_for(model: str | None = None) -> TokenCounter:
    """Return the best counter for a model: exact if its vocabulary is bundled, else the estimator.

    >>> counter_for("gpt-4o").count_text("The ferry Amber takes berth 4.")
    8
    """
    check_text("model", model, or_none=True)
    vocabulary = vocabulary_for(model) if model else None
    if vocabulary is None or not _vocabularies_installed():
        return EstimatingCounter()
    return ExactCounter(vocabulary)


@lru_cache(maxsize=1)
def _vocabularies_installed() -> bool:
    # find_spec looks for the package without loading it: choosing must stay as quick as importing.
    return find_spec("splintr") is not None
