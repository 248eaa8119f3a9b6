"""A picture of the books: what was paid call by call, what it would have been without a cache, what compactions did.

SVG through the panels of `everlong.caching.plot`; nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import accumulate

from everlong.agent.accounting.books import Books
from everlong.agent.accounting.sums import Entry
from everlong.caching.plot import PANEL_HEIGHT, panel, picture

__all__ = ["draw"]

_MOST_POINTS = 600
_TOP = 40


def draw(books: Books) -> str:
    """The SVG of some books, two panels of running totals in US dollars."""
    entries = [entry for entry in books.entries if entry.cost is not None]
    paid = {
        "paid": _running(entry.cost or Decimal(0) for entry in entries),
        "without a cache": _running(entry.uncached_cost or Decimal(0) for entry in entries),
    }
    compaction = {
        "not sent (estimated)": _running(entry.unsent.cost for entry in entries),
        "sent anew (estimated)": _running(entry.rewritten.cost for entry in entries),
        "summaries": _running(_if_summary(entry) for entry in entries),
    }
    form = ",.2f" if books.total.uncached_cost >= 1 else ",.4f"
    title = f"US dollars in total over {len(entries):,} calls"
    lines = panel(title, paid, _TOP, form)
    lines += panel("what compactions saved and cost", compaction, _TOP + PANEL_HEIGHT, form)
    return picture("What models were paid", lines, 2)


def _if_summary(entry: Entry) -> Decimal:
    return (entry.cost or Decimal(0)) if entry.kind == "summary" else Decimal(0)


def _running(amounts: Iterable[Decimal]) -> list[float]:
    return _thinned([float(total) for total in accumulate(amounts, initial=Decimal(0))])


def _thinned(values: Sequence[float]) -> list[float]:
    """At most so many of the values, evenly, with the first and the last."""
    if len(values) <= _MOST_POINTS:
        return list(values)
    last = len(values) - 1
    return [values[last * place // (_MOST_POINTS - 1)] for place in range(_MOST_POINTS)]
