"""What compactions did to the requests after them: what had to be sent anew, and what did not have to be sent at all.

Estimates, made from the compaction history (tokens before and after, by the engine's count) and from what the providers
reported for the requests around it. They answer one question: what would this request have cost without its newest
compaction? Knows turns, the history and rates; no store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from everlong.agent.accounting.sums import Estimate, Tokens

if TYPE_CHECKING:
    from everlong.providers.rates import Rates
    from everlong.store import Compaction, Turn
    from everlong.store.receipts import Receipt

__all__ = ["Effects", "paid_again"]

_SHORT, _HOUR = 300.0, 3_600.0
"""Seconds for which a provider holds what was written to its cache."""

Rate = Literal["input", "cache_read", "cache_write", "cache_write_1h"]


@dataclass(frozen=True, slots=True)
class _Before:
    """The request before this one on the same branch."""

    tokens: Tokens
    model: str | None
    ended: float
    """When the provider last saw it."""
    seconds: float
    """How long the provider holds it from then on; 0 where it was not cached."""

    def is_held(self, at: float) -> bool:
        """Whether the provider still holds it at a moment."""
        return at - self.ended <= self.seconds


class Effects:
    """Walks through turns and receipts, oldest first, and tells for each turn what compactions did to it.

    Args:
        compactions: the history.
        repeated: for each view that a fork took over, the view that it repeats.
    """

    def __init__(self, compactions: Iterable[Compaction], repeated: Mapping[int, int]) -> None:
        self._by_view = {one.view_id: one for one in compactions if one.view_id is not None}
        self._repeated = repeated
        self._before: dict[int, _Before] = {}
        self._branches: dict[str, int] = {}
        self._seen: set[int] = set()

    def refreshed(self, receipt: Receipt, tokens: Tokens) -> None:
        """Take in a call on the side: one that read from the cache of the same model keeps it alive."""
        branch = self._branches.get(receipt.session)
        before = None if branch is None else self._before.get(branch)
        if branch is None or before is None or not tokens.cache_read or receipt.model != before.model:
            return
        if before.is_held(receipt.at):
            self._before[branch] = replace(before, ended=receipt.at)

    def of(self, turn: Turn, tokens: Tokens, rates: Rates | None) -> tuple[Estimate, Estimate]:
        """What the turn had to send anew, and what it did not have to send; without rates, tokens only."""
        before = self._before.get(turn.branch)
        held_for = _held_for(tokens, before)
        self._before[turn.branch] = _Before(tokens, turn.model, turn.ended or turn.began, held_for)
        if turn.session is not None:
            self._branches[turn.session] = turn.branch
        done = self._compaction_of(turn.view_id)
        if done is None or turn.view_id is None or done.tokens_before is None or done.tokens_after is None:
            return Estimate(), Estimate()
        spared = max(0, done.tokens_before - done.tokens_after)
        is_first = turn.view_id == done.view_id and turn.view_id not in self._seen
        self._seen.add(turn.view_id)
        if not is_first:
            return Estimate(), _unsent(spared, _charged_as(tokens, before), rates)
        if before is None or not before.is_held(turn.began):  # all of it would have been sent anew anyway
            return Estimate(), _unsent(spared, _written_as(tokens), rates)
        would_be_new = max(0, done.tokens_before - before.tokens.prompt)
        moved = max(0, done.tokens_after - would_be_new - tokens.cache_read)
        return paid_again(moved, tokens, rates), _unsent(spared, "cache_read", rates)

    def _compaction_of(self, view: int | None) -> Compaction | None:
        while view is not None and view not in self._by_view:
            view = self._repeated.get(view)
        return None if view is None else self._by_view[view]


def _held_for(tokens: Tokens, before: _Before | None) -> float:
    """How long a provider holds what a request sent: as long as it was written for, else as long as what it read."""
    if tokens.cache_write_5m:
        return _SHORT
    if tokens.cache_write_1h:
        return _HOUR
    if tokens.cache_read:
        return (before.seconds if before is not None else 0.0) or _SHORT
    return 0.0


def _charged_as(tokens: Tokens, before: _Before | None) -> Rate:
    """How the provider would have charged more of what stood in the request before this one: as it did the rest."""
    if tokens.cache_read and (before is None or 2 * tokens.cache_read >= before.tokens.prompt):
        return "cache_read"
    return _written_as(tokens)


def _written_as(tokens: Tokens) -> Rate:
    if tokens.cache_write_5m:
        return "cache_write"
    return "cache_write_1h" if tokens.cache_write_1h else "input"


def _unsent(spared: int, rate: Rate, rates: Rates | None) -> Estimate:
    return Estimate(spared) if rates is None else Estimate(spared, (spared * _price(rates, rate)).scaleb(-6))


def paid_again(moved: int, tokens: Tokens, rates: Rates | None) -> Estimate:
    """Return what a request paid above reading for tokens that had been sent before.

    They are paid as what the request wrote, from its beginning on: an hour stands before five minutes.
    """
    moved = min(moved, tokens.written + tokens.plain)
    if rates is None:
        return Estimate(moved)
    left, cost = moved, Decimal(0)
    for amount, rate in (
        (tokens.cache_write_1h, rates.cache_write_1h),
        (tokens.cache_write_5m, rates.cache_write),
        (tokens.plain, rates.input),
    ):
        part = min(left, amount)
        cost += part * (rate - rates.cache_read)
        left -= part
    return Estimate(moved, cost.scaleb(-6))


def _price(rates: Rates, rate: Rate) -> Decimal:
    price: Decimal = getattr(rates, rate)
    return price
