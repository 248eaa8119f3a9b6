"""The books of a store: every paid call, added up by model, by session or by day, and over all.

A session stands for its whole lineage, because a compaction only begins the next part of the same conversation. The
store is read once, oldest first; the name of its model gives the price of a call.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from everlong.caching.misses import REASONS
from everlong.providers.base import Usage
from everlong.providers.catalogue import Catalogue
from everlong.store.compaction import repeated_views
from everlong.store.sessions import usage_totals

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.providers.catalogue import Rates
    from everlong.store import Compaction, Session, Store, Turn
    from everlong.store.costs import Receipt
    from everlong.wire.logs import LogUsage

CallKind = Literal["conversation", "summary", "memory", "plugin"]
KINDS: tuple[CallKind, ...] = ("conversation", "summary", "memory", "plugin")
"""Purposes of calls: the conversation itself, and three kinds on its side."""

_NOTHING = Decimal(0)

By = Literal["model", "session", "day"]
UNNAMED = "unknown"
"""The model of a call that names none."""
NO_SESSION = "(no session)"

_FIVE_MINUTES, _HOUR = 300.0, 3_600.0
"""Seconds for which a provider holds its cache."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens that a compaction moved or spared, and what they come to in US dollars."""

    tokens: int = 0
    cost: Decimal = _NOTHING

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.tokens + other.tokens, self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class BookEntry:
    """One call that was answered, and what earlier compactions did to it."""

    at: float
    kind: CallKind
    model: str
    session: str | None
    tokens: Usage
    cost: Decimal | None
    """US dollars; None where the price is not known."""
    uncached_cost: Decimal | None
    """US dollars that the same tokens would have cost without a cache."""
    rewritten: Estimate = Estimate()
    """Tokens sent anew because a compaction moved them; the cost is the price above reading them."""
    unsent: Estimate = Estimate()
    """Tokens not sent thanks to a compaction, and their price."""
    missed: Estimate = Estimate()
    """Tokens that lay in the cache and were paid again; the cost is the price above reading them."""
    missed_by: str = ""
    """The reason for the miss, one of `everlong.caching.misses`; empty where there was none."""
    calls: int = 1
    """Calls that the tokens are of; a client's log may only tell the sum of many."""
    is_estimated: bool = False
    """True if the provider reported no usage, so that the tokens are our own count."""


@dataclass(slots=True)
class MissSum:
    """The calls that missed the cache for one reason."""

    calls: int = 0
    missed: Estimate = Estimate()


@dataclass(slots=True)
class KindSum:
    """The calls of one kind."""

    calls: int = 0
    tokens: Usage = field(default_factory=Usage)
    cost: Decimal = _NOTHING


@dataclass(slots=True)
class Account:
    """The sum of many calls."""

    kinds: dict[str, KindSum] = field(default_factory=lambda: {kind: KindSum() for kind in KINDS})
    uncached_cost: Decimal = _NOTHING
    unpriced_calls: int = 0
    """Calls to models without a known price; their tokens are counted, amounts leave them out."""
    estimated_calls: int = 0
    """Calls whose tokens are our own count."""
    unanswered: int = 0
    """Requests that brought no answer; their cost is unknown."""
    compactions: int = 0
    rewritten: Estimate = Estimate()
    unsent: Estimate = Estimate()
    misses: dict[str, MissSum] = field(default_factory=dict)
    """Calls that missed the provider's cache, by reason."""

    @property
    def calls(self) -> int:
        """All calls that were answered."""
        return sum(kind.calls for kind in self.kinds.values())

    @property
    def tokens(self) -> Usage:
        """All tokens."""
        return sum((kind.tokens for kind in self.kinds.values()), Usage())

    @property
    def cost(self) -> Decimal:
        """US dollars for all calls whose price is known."""
        return sum((kind.cost for kind in self.kinds.values()), _NOTHING)

    @property
    def has_prices(self) -> bool:
        """True if any call has a known price, or there are no calls."""
        return self.unpriced_calls < self.calls or not self.calls

    def add(self, entry: BookEntry) -> None:
        """Count one call."""
        mine = self.kinds[entry.kind]
        mine.calls += entry.calls
        mine.tokens += entry.tokens
        self.estimated_calls += entry.is_estimated
        if entry.cost is None or entry.uncached_cost is None:
            self.unpriced_calls += entry.calls
        else:
            mine.cost += entry.cost
            self.uncached_cost += entry.uncached_cost
        self.rewritten += entry.rewritten
        self.unsent += entry.unsent
        if entry.missed_by:
            mine_missed = self.misses.setdefault(entry.missed_by, MissSum())
            mine_missed.calls += 1
            mine_missed.missed += entry.missed

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready data; amounts are exact texts, null where no price is known."""

        def amount(value: Decimal) -> str | None:
            return dollars(value) if self.has_prices else None

        return {
            "calls": self.calls,
            "tokens": self.tokens.to_dict(),
            "cost": amount(self.cost),
            "uncached_cost": amount(self.uncached_cost),
            "caching_saved": amount(self.uncached_cost - self.cost),
            "kinds": {
                name: {"calls": kind.calls, "tokens": kind.tokens.to_dict(), "cost": amount(kind.cost)}
                for name, kind in self.kinds.items()
            },
            "compaction": {
                "count": self.compactions,
                "summaries_cost": amount(self.kinds["summary"].cost),
                "rewritten_tokens": self.rewritten.tokens,
                "rewritten_cost": amount(self.rewritten.cost),
                "unsent_tokens": self.unsent.tokens,
                "unsent_cost": amount(self.unsent.cost),
            },
            "cache_misses": {
                reason: {"calls": one.calls, "tokens": one.missed.tokens, "cost": amount(one.missed.cost)}
                for reason, one in self.misses.items()
            },
            "unpriced_calls": self.unpriced_calls,
            "estimated_calls": self.estimated_calls,
            "unanswered": self.unanswered,
        }


def dollars(value: Decimal) -> str:
    """Return an exact amount in plain digits, without trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass
class Books:
    """Paid calls, added up over all and by group."""

    by: By
    since: float | None = None
    total: Account = field(default_factory=Account)
    groups: dict[str, Account] = field(default_factory=dict)
    """Sums by model, by conversation, or by date, in order of appearance."""
    titles: dict[str, str] = field(default_factory=dict)
    """Titles of the conversations that `groups` names."""
    unpriced: list[str] = field(default_factory=list)
    """Called models without a known price."""
    entries: list[BookEntry] = field(default_factory=list)
    """Every call that was counted, oldest first."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready data."""
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
    """Add up the paid calls of a store.

    Args:
        store: the store whose turns, receipts and compactions are read.
        settings: the configuration, for prices and endpoints of the user's own.
        by: what to group by.
        since: only calls from this moment on, in seconds since 1970.
        session: only the lineage of this session, by its id.
    """
    return _Bookkeeper(store, settings, Books(by, since), session).keep()


class _Bookkeeper:
    """The keeper of one set of books."""

    def __init__(self, store: Store, settings: Settings, books: Books, session: str | None) -> None:
        self._store = store
        self._books = books
        self._catalogue = Catalogue(settings.models, settings.providers)
        sessions = store.sessions.newest()
        self._whole = {one.id: one.conversation for one in sessions}
        self._titles = {one.conversation: one.title for one in sessions if one.title}  # that of the first part
        self._logs = {one.id: _paid_log(one) for one in sessions if (one.origin or {}).get("import")}
        self._only = None if session is None else self._whole.get(session, session)

    def keep(self) -> Books:
        store, books = self._store, self._books
        compactions = store.compactions()
        effects = Effects(compactions, repeated_views(store))
        for call in self._calls():
            if isinstance(call, _Paid):
                self._enter(call, effects)
            elif self._is_meant(call.session, call.began):
                for one in self._accounts(call.model, call.session, call.began):
                    one.unanswered += 1
        for done in compactions:
            if self._is_meant(done.session, done.at):
                for one in self._accounts(done.model, done.session, done.at):
                    one.compactions += 1
        books.groups = {name: one for name, one in books.groups.items() if one.calls or one.unanswered}
        if books.by != "session":  # sessions stay in order of appearance
            books.groups = dict(sorted(books.groups.items()))
        return books

    def _calls(self) -> Iterator[_Paid | Turn]:
        """Yield every call, oldest first; a request without an answer comes as its turn, and logs come last."""
        turns: Iterator[_Paid | Turn] = (_paid_turn(one) for one in self._store.turns.since() if one.usage != {})
        receipts: Iterator[_Paid | Turn] = (
            _Paid(one.at, one.model, one.session, read_usage(one.usage), receipt=one)
            for one in self._store.receipts.since()
        )
        yield from heapq.merge(turns, receipts, key=lambda call: call.at if isinstance(call, _Paid) else call.began)
        yield from (log for log in self._logs.values() if log.calls > 0)

    def _enter(self, call: _Paid, effects: Effects) -> None:
        # A turn with look-ups is several requests, each with a price of its own.
        sent = (call.turn.usage or {}).get("sent_tokens") if call.turn is not None else None
        prompt = sent or call.tokens.prompt_tokens // max(1, call.calls)
        rates = self._catalogue.rates(call.model or UNNAMED, prompt, call.at)
        done = Estimate(), Estimate()
        if call.turn is not None:
            done = effects.take_turn(call.turn, call.tokens, rates)
            if call.session in self._logs:
                self._logs[call.session] = self._logs[call.session].without(call, call.turn.cost)
        if not self._is_meant(call.session, call.at):
            return
        told = call.dollars or None
        entry = BookEntry(
            call.at,
            call.receipt.kind if call.receipt is not None else "conversation",
            call.model or UNNAMED,
            call.session,
            call.tokens,
            told if told or rates is None else rates.cost(call.tokens),
            told if rates is None else max(told or _NOTHING, rates.uncached_cost(call.tokens)),
            *done,
            *_missed(call, rates),
            call.calls,
            call.turn is not None and bool((call.turn.usage or {}).get("estimated")),
        )
        if entry.cost is None and entry.model not in self._books.unpriced:
            self._books.unpriced.append(entry.model)
        self._books.entries.append(entry)
        for one in self._accounts(call.model, call.session, call.at):
            one.add(entry)

    def _is_meant(self, session: str | None, at: float) -> bool:
        if self._books.since is not None and at < self._books.since:
            return False
        return self._only is None or (session is not None and self._whole.get(session, session) == self._only)

    def _accounts(self, model: str | None, session: str | None, at: float) -> tuple[Account, Account]:
        """Return the accounts of a call: the one over all, and that of its group."""
        books = self._books
        name = self._catalogue.short(model or UNNAMED)
        if books.by == "day":
            name = f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d}"
        elif books.by == "session":
            name = NO_SESSION if session is None else self._whole.get(session, session)
            if name in self._titles:
                books.titles[name] = self._titles[name]
        return books.total, books.groups.setdefault(name, Account())


@dataclass(frozen=True, slots=True)
class _Paid:
    """A call that was answered: a turn, one on the side, or all those of a client's log."""

    at: float
    model: str | None
    session: str | None
    tokens: Usage
    turn: Turn | None = None
    receipt: Receipt | None = None
    calls: int = 1
    dollars: Decimal = _NOTHING
    """The cost that the log tells; 0 if it tells none."""

    def without(self, call: _Paid, dollars: float) -> _Paid:
        """Return the calls of a log without one that is counted by itself."""
        rest = Usage(*(mine - its for mine, its in zip(astuple(self.tokens), astuple(call.tokens), strict=True)))
        return replace(self, tokens=rest, calls=self.calls - 1, dollars=self.dollars - _exact(dollars))


def _exact(dollars: float) -> Decimal:
    return Decimal(str(round(dollars, 9)))


def _paid_log(one: Session) -> _Paid:
    """Return the calls of a session that a client's log tells about."""
    tokens = Usage(one.input_tokens, one.output_tokens, one.cache_read_tokens, one.cache_write_tokens)
    return _Paid(one.active, one.model, one.id, tokens, calls=one.api_calls, dollars=_exact(one.cost))


def _paid_turn(turn: Turn) -> _Paid | Turn:
    if turn.usage is None:
        return turn
    return _Paid(turn.began, turn.model, turn.session, read_usage(turn.usage), turn=turn)


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Return a stored usage; cache writes count as five-minute ones unless it says otherwise."""
    totals = usage_totals(usage)
    told, written = usage.get("cache_write_1h_tokens"), totals["cache_write_tokens"]
    hour = min(written, told) if isinstance(told, int) and not isinstance(told, bool) else 0
    return Usage(totals["input_tokens"], totals["output_tokens"], totals["cache_read_tokens"], written, hour)


def _missed(call: _Paid, rates: Rates | None) -> tuple[Estimate, str]:
    """Return the tokens that a call should have read from the cache, and why it did not, if the gateway knows."""
    usage = call.turn.usage if call.turn is not None else None
    told = (usage or {}).get("cache_miss")
    tokens, reason = (told.get("tokens"), told.get("reason")) if isinstance(told, dict) else (None, None)
    if not isinstance(tokens, int) or reason not in REASONS:
        return Estimate(), ""
    return paid_again(tokens, call.tokens, rates), str(reason)


def price_log(settings: Settings, model: str | None, usage: LogUsage, at: float) -> float:
    """Return the US dollars for what a client's log tells, as `account` has them; 0 where no price is known."""
    tokens = Usage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    catalogue = Catalogue(settings.models, settings.providers)
    rates = catalogue.rates(model or UNNAMED, tokens.prompt_tokens // max(1, usage.api_calls), at)
    return 0.0 if rates is None else float(rates.cost(tokens))


# -- effects of compactions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Before:
    """The request before this one on the same branch."""

    tokens: Usage
    model: str | None
    ended: float
    """The moment at which the provider last saw it."""
    seconds: float
    """Seconds for which the provider holds it from then on; 0 where it was not cached."""


class Effects:
    """The effects of compactions on turns; takes turns in, oldest first.

    Args:
        compactions: the history.
        repeated: for each view that a fork took over, the view that it repeats.
    """

    def __init__(self, compactions: Iterable[Compaction], repeated: Mapping[int, int]) -> None:
        self._by_view = {one.view_id: one for one in compactions if one.view_id is not None}
        self._repeated = repeated
        self._before: dict[int, _Before] = {}
        self._seen: set[int] = set()

    def take_turn(self, turn: Turn, tokens: Usage, rates: Rates | None) -> tuple[Estimate, Estimate]:
        """Take in a turn, and return what it sent anew and what it did not send; without rates, tokens only."""
        before = self._before.get(turn.branch)
        held_for = _held_for(tokens, before)
        self._before[turn.branch] = _Before(tokens, turn.model, turn.ended or turn.began, held_for)
        done = self._compaction_of(turn.view_id)
        if done is None or turn.view_id is None or done.tokens_before is None or done.tokens_after is None:
            return Estimate(), Estimate()
        spared = max(0, done.tokens_before - done.tokens_after)
        is_first = turn.view_id == done.view_id and turn.view_id not in self._seen
        self._seen.add(turn.view_id)
        if not is_first:
            # More tokens of the request before would have been charged as most of it was.
            reads = tokens.cache_read_tokens
            was_read = reads and (before is None or 2 * reads >= before.tokens.prompt_tokens)
            return Estimate(), _unsent(Usage(cache_read_tokens=spared) if was_read else _written(spared, tokens), rates)
        if before is None or turn.began - before.ended > before.seconds:  # all of it would have been sent anew anyway
            return Estimate(), _unsent(_written(spared, tokens), rates)
        moved = max(0, before.tokens.prompt_tokens - spared - tokens.cache_read_tokens)
        return paid_again(moved, tokens, rates), _unsent(Usage(cache_read_tokens=spared), rates)

    def _compaction_of(self, view: int | None) -> Compaction | None:
        while view is not None and view not in self._by_view:
            view = self._repeated.get(view)
        return None if view is None else self._by_view[view]


def _held_for(tokens: Usage, before: _Before | None) -> float:
    """Return the seconds for which a provider caches a request: those of its write, else those of what it read."""
    if tokens.cache_write_tokens > tokens.cache_write_1h_tokens:
        return _FIVE_MINUTES
    if tokens.cache_write_tokens:
        return _HOUR
    if tokens.cache_read_tokens:
        return (before.seconds if before is not None else 0.0) or _FIVE_MINUTES
    return 0.0


def _written(number: int, like: Usage) -> Usage:
    """Return prompt tokens that are paid as what a request sent anew."""
    if not like.cache_write_tokens:
        return Usage(number)
    is_hour = like.cache_write_tokens == like.cache_write_1h_tokens
    return Usage(cache_write_tokens=number, cache_write_1h_tokens=number if is_hour else 0)


def _unsent(spared: Usage, rates: Rates | None) -> Estimate:
    return Estimate(spared.prompt_tokens, _NOTHING if rates is None else rates.cost(spared))


def paid_again(moved: int, tokens: Usage, rates: Rates | None) -> Estimate:
    """Return what a request paid above reading for tokens that had been sent before.

    They are paid as what the request wrote, from its beginning on: an hour stands before five minutes.
    """
    moved = min(moved, tokens.cache_write_tokens + tokens.input_tokens)
    if rates is None:
        return Estimate(moved)
    written = min(moved, tokens.cache_write_tokens)
    hour = min(written, tokens.cache_write_1h_tokens)
    paid = Usage(moved - written, cache_write_tokens=written, cache_write_1h_tokens=hour)
    return Estimate(moved, rates.cost(paid) - rates.cost(Usage(cache_read_tokens=moved)))
