"""One paid call as a value, and sums of them: tokens by kind, amounts, and what compactions did to them.

Pure arithmetic. Where calls come from and what tokens cost, other modules know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from everlong.providers.base import Usage
from everlong.store.session import usage_totals

__all__ = ["KINDS", "Account", "Entry", "Estimate", "KindSum", "MissSum", "Tokens"]

CallKind = Literal["conversation", "summary", "memory", "ping", "plugin"]
KINDS: tuple[CallKind, ...] = ("conversation", "summary", "memory", "ping", "plugin")
"""What calls are for: the conversation itself, and what is called on its side."""

_NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one call, or of many, by what they cost."""

    plain: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    output: int = 0

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> Tokens:
        """Those that a stored usage tells; what was written is for five minutes where it does not say for how long."""
        totals = usage_totals(usage)
        told = usage.get("cache_write_1h_tokens")
        written = totals["cache_write_tokens"]
        hour = min(written, told) if isinstance(told, int) and not isinstance(told, bool) else 0
        return cls(totals["input_tokens"], totals["cache_read_tokens"], written - hour, hour, totals["output_tokens"])

    @property
    def written(self) -> int:
        """All that was written to the cache."""
        return self.cache_write_5m + self.cache_write_1h

    @property
    def prompt(self) -> int:
        """All that was sent."""
        return self.plain + self.cache_read + self.written

    @property
    def usage(self) -> Usage:
        """The same in the words of providers."""
        return Usage(self.plain, self.output, self.cache_read, self.written, self.cache_write_1h)

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.plain + other.plain,
            self.cache_read + other.cache_read,
            self.cache_write_5m + other.cache_write_5m,
            self.cache_write_1h + other.cache_write_1h,
            self.output + other.output,
        )

    def to_dict(self) -> dict[str, int]:
        """The figures by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens that a compaction moved or spared, and what they come to in US dollars."""

    tokens: int = 0
    cost: Decimal = _NOTHING

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.tokens + other.tokens, self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class Entry:
    """One call that was answered, and what earlier compactions did to it."""

    at: float
    kind: CallKind
    model: str
    session: str | None
    tokens: Tokens
    cost: Decimal | None
    """US dollars; None where the price is not known."""
    uncached_cost: Decimal | None
    """What the same tokens would have cost without a cache."""
    rewritten: Estimate = Estimate()
    """What it had to send anew because a compaction moved it; the cost is what that was above reading it."""
    unsent: Estimate = Estimate()
    """What it did not have to send because of a compaction, and what that would have cost."""
    missed: Estimate = Estimate()
    """Tokens that lay in the cache and were paid for again, and how much dearer that was than reading them."""
    missed_by: str = ""
    """Why it was not read, by one of the reasons of `everlong.caching.misses`."""


@dataclass(slots=True)
class MissSum:
    """The calls that missed the cache for one reason."""

    calls: int = 0
    missed: Estimate = Estimate()


@dataclass(slots=True)
class KindSum:
    """The calls of one kind."""

    calls: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    cost: Decimal = _NOTHING


@dataclass(slots=True)
class Account:
    """The sum of many calls."""

    kinds: dict[str, KindSum] = field(default_factory=lambda: {kind: KindSum() for kind in KINDS})
    uncached_cost: Decimal = _NOTHING
    unpriced_calls: int = 0
    """Calls to models whose price is not known; their tokens are counted, no amount has them."""
    unanswered: int = 0
    """Requests that brought no answer; what a provider may have charged for them is not known."""
    compactions: int = 0
    rewritten: Estimate = Estimate()
    unsent: Estimate = Estimate()
    misses: dict[str, MissSum] = field(default_factory=dict)
    """By reason, the calls that did not read what the one before had left in the provider's cache."""

    @property
    def calls(self) -> int:
        """All calls that were answered."""
        return sum(kind.calls for kind in self.kinds.values())

    @property
    def tokens(self) -> Tokens:
        """All tokens."""
        return sum((kind.tokens for kind in self.kinds.values()), Tokens())

    @property
    def cost(self) -> Decimal:
        """US dollars for all calls whose price is known."""
        return sum((kind.cost for kind in self.kinds.values()), _NOTHING)

    @property
    def has_prices(self) -> bool:
        """Whether any of its calls has a known price, or there is none."""
        return self.unpriced_calls < self.calls or not self.calls

    def add(self, entry: Entry) -> None:
        """Count one call."""
        mine = self.kinds[entry.kind]
        mine.calls += 1
        mine.tokens += entry.tokens
        if entry.cost is None or entry.uncached_cost is None:
            self.unpriced_calls += 1
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
        """Everything as JSON-ready data; amounts are exact, as text, and null where no price is known."""

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
            "unanswered": self.unanswered,
        }


def dollars(value: Decimal) -> str:
    """An exact amount in plain digits, without zeros at its end."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
