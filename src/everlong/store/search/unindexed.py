"""What is stored and not indexed yet, put in order and counted as the index would.

An index tells how many texts have a word and how long texts are; of those that are not in it nobody has counted either.
Pure functions over texts that are already loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from everlong.store.search.corpus import Loaded
from everlong.store.search.index import Size
from everlong.store.search.rank import Figures
from everlong.store.search.words import counted, is_dense

__all__ = ["Unindexed", "weighed"]


class Unindexed(NamedTuple):
    """Texts with any word that is asked for, best first, and what there is to know of all texts, indexed or not."""

    documents: list[Loaded]
    figures: Figures


def weighed(
    pending: Iterable[Loaded],
    weights: Mapping[str, float],
    size: Size,
    frequencies: Mapping[str, int],
    matches: Callable[[Loaded], bool],
) -> Unindexed:
    """Read what is pending; ``frequencies`` are the index's own."""
    pairs = [term for term in weights if is_dense(term)]
    found: list[tuple[Loaded, dict[str, int]]] = []
    holding = Counter(frequencies)
    total = terms = 0
    for document in pending:
        total += 1
        if not matches(document):
            continue
        counts, length = counted(document.text, document.plain, weights, pairs)
        holding.update(counts.keys())
        terms += length
        found.append((document, counts))
    average = size.average_length
    if found:
        average = (average * size.documents + terms) / (size.documents + len(found))
    figures = Figures(size.documents + total, max(1.0, average), holding)
    worth = {term: weight * figures.idf(term) for term, weight in weights.items()}
    found.sort(key=lambda one: (-sum(worth[term] for term in one[1]), -one[0].ts, -one[0].seq))
    return Unindexed([document for document, _ in found], figures)
