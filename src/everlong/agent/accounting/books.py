"""The books of a store: every call that was paid for, added up by model, by session or by day, and over all.

A session stands for its whole lineage, because a compaction only begins the next part of the same conversation. Reads
the store once, oldest first; what a call costs is looked up by the name of its model.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from everlong.agent.accounting.effects import Effects, paid_again
from everlong.agent.accounting.sums import Account, Entry, Estimate, Tokens
from everlong.caching.misses import REASONS
from everlong.errors import ConfigError
from everlong.providers.catalogue import Catalogue
from everlong.providers.names import Endpoint, ModelName, endpoint_for, parse_model_name
from everlong.store.history import repeated_views

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.providers.rates import Rates
    from everlong.store import Session, Store, Turn
    from everlong.store.receipts import Receipt

__all__ = ["Books", "By", "Prices", "account", "first_sessions"]

By = Literal["model", "session", "day"]
UNNAMED = "unknown"
"""Stands where a call names no model."""
NO_SESSION = "(no session)"


@dataclass
class Books:
    """What was paid for: over all, and by whatever was asked for."""

    by: By
    since: float | None = None
    total: Account = field(default_factory=Account)
    groups: dict[str, Account] = field(default_factory=dict)
    """By model, by the id of a lineage's first session, or by date, in the order in which they first appear."""
    titles: dict[str, str] = field(default_factory=dict)
    """Titles of the sessions that `groups` names."""
    unpriced: list[str] = field(default_factory=list)
    """Models whose price is not known, though they were called."""
    entries: list[Entry] = field(default_factory=list)
    """Every call that was counted, oldest first."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready data."""
        return {
            "by": self.by,
            "since": self.since,
            "currency": "USD",
            "total": self.total.to_dict(),
            "groups": [
                {self.by: name, **({"title": self.titles.get(name)} if self.by == "session" else {}), **one.to_dict()}
                for name, one in self.groups.items()
            ],
            "unpriced_models": self.unpriced,
        }


def account(
    store: Store,
    settings: Settings,
    *,
    by: By = "model",
    since: float | None = None,
    session: str | None = None,
) -> Books:
    """Add up what was paid for.

    Args:
        store: the store whose turns, receipts and compactions are read.
        settings: the configuration, for prices and endpoints of the user's own.
        by: what to group by.
        since: only calls from this moment on, in seconds since 1970.
        session: only the lineage of this session, by its id.
    """
    return _Bookkeeper(store, settings, Books(by, since), session).kept()


class _Bookkeeper:
    """Keeps one set of books."""

    def __init__(self, store: Store, settings: Settings, books: Books, session: str | None) -> None:
        self._store = store
        self._books = books
        self._prices = Prices(settings)
        self._roots = first_sessions(store.sessions.newest())
        self._only = None if session is None else self._roots.get(session, session)

    def kept(self) -> Books:
        store, books = self._store, self._books
        compactions = store.compactions()
        effects = Effects(compactions, repeated_views(store))
        for call in self._calls():
            if isinstance(call, _Paid):
                self._paid(call, effects)
            elif self._is_meant(call.session, call.began):
                for one in self._accounts(call.model, call.session, call.began):
                    one.unanswered += 1
        for done in compactions:
            if self._is_meant(done.session, done.at):
                for one in self._accounts(done.model, done.session, done.at):
                    one.compactions += 1
        books.unpriced = self._prices.missing
        if books.by != "session":  # sessions stay as they began; models and days have an order of their own
            books.groups = dict(sorted(books.groups.items()))
        return books

    def _calls(self) -> Iterator[_Paid | Turn]:
        """Every call, oldest first; a turn itself where it brought no answer."""
        turns: Iterator[_Paid | Turn] = (_paid_turn(turn) for turn in self._store.turns.since())
        receipts: Iterator[_Paid | Turn] = (_paid_receipt(one) for one in self._store.receipts.since())
        return heapq.merge(turns, receipts, key=_moment)

    def _paid(self, call: _Paid, effects: Effects) -> None:
        rates = self._prices.of(call.model, call.tokens.prompt, call.at)
        done = Estimate(), Estimate()
        if call.turn is not None:
            done = effects.of(call.turn, call.tokens, rates)
        elif call.receipt is not None:
            effects.refreshed(call.receipt, call.tokens)
        if not self._is_meant(call.session, call.at):
            return
        usage = call.tokens.usage
        entry = Entry(
            call.at,
            call.receipt.kind if call.receipt is not None else "conversation",
            call.model or UNNAMED,
            call.session,
            call.tokens,
            None if rates is None else rates.cost(usage),
            None if rates is None else rates.uncached_cost(usage),
            *done,
            *_missed(call, rates),
        )
        if rates is None:
            self._prices.miss(entry.model)
        self._books.entries.append(entry)
        for one in self._accounts(call.model, call.session, call.at):
            one.add(entry)

    def _is_meant(self, session: str | None, at: float) -> bool:
        if self._books.since is not None and at < self._books.since:
            return False
        return self._only is None or (session is not None and self._roots.get(session, session) == self._only)

    def _accounts(self, model: str | None, session: str | None, at: float) -> tuple[Account, Account]:
        """Those that a call belongs to: the one over all, and that of its group."""
        books = self._books
        name = model or UNNAMED
        if books.by == "day":
            name = f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d}"
        elif books.by == "session":
            name = NO_SESSION if session is None else self._roots.get(session, session)
            if session is not None and name not in books.titles and (title := self._titled(name)):
                books.titles[name] = title
        return books.total, books.groups.setdefault(name, Account())

    def _titled(self, ident: str) -> str | None:
        return self._store.sessions.get(ident).title if ident in self._roots else None


@dataclass(frozen=True, slots=True)
class _Paid:
    """A call that was answered: a turn, or one on the side."""

    at: float
    model: str | None
    session: str | None
    tokens: Tokens
    turn: Turn | None = None
    receipt: Receipt | None = None


def _paid_turn(turn: Turn) -> _Paid | Turn:
    if not turn.usage:
        return turn
    tokens = Tokens.of(turn.usage)
    if turn.usage.get("audited"):
        turn = replace(turn, view_id=None)  # it was sent whole, whatever view was in force
    return _Paid(turn.began, turn.model, turn.session, tokens, turn=turn)


def _missed(call: _Paid, rates: Rates | None) -> tuple[Estimate, str]:
    """Return what a call did not read from the provider's cache, and why, where the gateway found that out."""
    usage = call.turn.usage if call.turn is not None else None
    told = (usage or {}).get("cache_miss")
    tokens, reason = (told.get("tokens"), told.get("reason")) if isinstance(told, dict) else (None, None)
    if not isinstance(tokens, int) or reason not in REASONS:
        return Estimate(), ""
    return paid_again(tokens, call.tokens, rates), str(reason)


def _paid_receipt(receipt: Receipt) -> _Paid:
    return _Paid(receipt.at, receipt.model, receipt.session, Tokens.of(receipt.usage), receipt=receipt)


def _moment(call: _Paid | Turn) -> float:
    return call.at if isinstance(call, _Paid) else call.began


def first_sessions(sessions: list[Session]) -> dict[str, str]:
    """Return for each session the first one of its lineage."""
    parents = {one.id: one.parent for one in sessions}
    roots: dict[str, str] = {}
    for ident in parents:
        line = [ident]
        while line[-1] not in roots and (above := parents[line[-1]]) is not None and above in parents:
            line.append(above)
        roots |= dict.fromkeys(line, roots.get(line[-1], line[-1]))
    return roots


class Prices:
    """What tokens cost, by the name of a model as it was stored."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalogue = Catalogue(settings.models)
        self._known: dict[str, tuple[ModelName, Endpoint] | None] = {}
        self.missing: list[str] = []
        """Models whose price is not known."""

    def of(self, model: str | None, prompt_tokens: int, at: float) -> Rates | None:
        """Return the rates of one request; None where they are not known."""
        name = model or UNNAMED
        if name not in self._known:
            self._known[name] = self._resolved(name)
        found = self._known[name]
        return None if found is None else self._catalogue.rates(*found, prompt_tokens, at)

    def miss(self, model: str) -> None:
        """Note a model whose price is not known."""
        if model not in self.missing:
            self.missing.append(model)

    def _resolved(self, name: str) -> tuple[ModelName, Endpoint] | None:
        own = self._settings.providers
        try:
            parsed = parse_model_name(name, own)
            return parsed, endpoint_for(parsed.provider, own)
        except ConfigError:
            # One that nobody known serves may still have prices of its own in the settings.
            provider, colon, model = name.partition(":")
            bare = ModelName(provider, model) if colon else ModelName("custom", name)
            return bare, Endpoint(bare.provider)
