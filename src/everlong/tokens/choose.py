"""Which counter to use for a model.

Decides between exact and estimated by the model's name alone; asks no server and downloads nothing.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

from everlong.tokens.counter import TokenCounter
from everlong.tokens.estimate import EstimatingCounter
from everlong.tokens.exact import ExactCounter, vocabulary_for


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
