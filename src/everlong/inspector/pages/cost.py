"""Costs: what models were paid by day, model, client or conversation, and what caching and compactions did to it.

The books are kept in memory and read anew only when something was paid since.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

from everlong.agent.accounting import Account, Books, account
from everlong.store.turns import newest_change

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.store import Store

__all__ = ["AGES", "Ledgers", "read_cost"]

CostView = Literal["day", "model", "client", "session"]
AGES = {"7d": 7, "30d": 30, "all": None}
_DAY = 86_400.0
_MOST_ROWS = 200
_MOST_BOOKS = 16
_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class CostPage:
    """The amounts paid in a time, by group."""

    by: CostView
    age: str
    rows: tuple[tuple[str, Account], ...]
    """Names of groups with their sums."""
    hidden: int
    books: Books


class _Kept(NamedTuple):
    """Books, the newest change that they know of, and until when they hold whatever has changed."""

    change: tuple[int, int, int]
    until: float
    books: Books


class Ledgers:
    """Books that were read before, by tenant, group and time.

    They hold until something was paid since, and at least 20 times as long as it took to read them: a busy gateway
    changes all the time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str, str], _Kept] = OrderedDict()

    def books(self, store: Store, settings: Settings, by: Literal["model", "session", "day"], age: str) -> Books:
        """Return the books of a time, by group."""
        key, now = (store.tenant, by, age), newest_change(store)
        with self._lock:
            known = self._known.get(key)
            if known is not None and (known.change == now or time.monotonic() < known.until):
                return known.books
        days, began = AGES[age], time.monotonic()
        since = None if days is None else time.time() - days * _DAY
        made = account(store, settings, by=by, since=since)
        with self._lock:
            ended = time.monotonic()
            self._known[key] = _Kept(now, ended + _PATIENCE * (ended - began), made)
            while len(self._known) > _MOST_BOOKS:
                self._known.popitem(last=False)
        return made


def read_cost(store: Store, settings: Settings, ledgers: Ledgers, query: Mapping[str, str]) -> CostPage:
    """Return the costs that an address asks for."""
    wanted = query.get("by", "day")
    by = cast("CostView", wanted if wanted in get_args(CostView) else "day")
    age = query.get("age", "30d")
    age = age if age in AGES else "30d"
    books = ledgers.books(store, settings, "session" if by == "client" else by, age)
    groups = _by_client(store, books) if by == "client" else books.groups
    paid = [(name, one) for name, one in groups.items() if one.calls]
    ranked = sorted(paid, reverse=True, key=itemgetter(0))
    if by != "day":
        ranked = sorted(paid, key=lambda one: (-one[1].cost, one[0]))
    return CostPage(by, age, tuple(ranked[:_MOST_ROWS]), max(0, len(ranked) - _MOST_ROWS), books)


def _by_client(store: Store, books: Books) -> dict[str, Account]:
    """Return the accounts of conversations, added up by the client that each came from."""
    clients = {one.id: one.client or one.source for one in store.sessions.newest()}
    found: dict[str, Account] = {}
    for entry in books.entries:
        name = clients.get(entry.session or "", "?")
        found.setdefault(name, Account()).add(entry)
    return found
