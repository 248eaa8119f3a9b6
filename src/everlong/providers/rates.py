"""What one request costs, to the last digit: decimal prices for each kind of token.

A price may rise with the size of a prompt and change with the day, so rates are those of one request. Nothing here is
rounded; whoever shows an amount rounds it. Where prices come from, the catalogue knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from everlong.providers.base import Usage

__all__ = ["Rates", "first_step", "listed_rates"]


@dataclass(frozen=True, slots=True)
class Rates:
    """US dollars for a million tokens of one request."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """What a request of such tokens costs."""
        short = usage.cache_write_tokens - usage.cache_write_1h_tokens
        total = (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + short * self.cache_write
            + usage.cache_write_1h_tokens * self.cache_write_1h
        )
        return total.scaleb(-6)

    def uncached_cost(self, usage: Usage) -> Decimal:
        """What it would cost if every token of the prompt were plain."""
        return (usage.prompt_tokens * self.input + usage.output_tokens * self.output).scaleb(-6)


def listed_rates(entry: Any, prompt_tokens: int, at: float | None = None) -> Rates | None:
    """The rates that an entry of the package ``genai-prices`` has for a request; None where it has none.

    Args:
        entry: what the catalogue has for a model.
        prompt_tokens: all tokens of the request's prompt.
        at: when it was sent, in seconds since 1970; now, if not given.
    """
    moment = datetime.now(tz=UTC) if at is None else datetime.fromtimestamp(at, tz=UTC)
    listed = entry.get_prices(moment)

    def price(name: str) -> Decimal | None:
        return _at_step(getattr(listed, name, None), prompt_tokens)

    plain, output = price("input_mtok"), price("output_mtok")
    if plain is None or output is None:
        return None
    read, write, hour = price("cache_read_mtok"), price("cache_write_mtok"), price("cache_write_1h_mtok")
    write = plain if write is None else write
    return Rates(plain, output, plain if read is None else read, write, write if hour is None else hour)


def first_step(entry: Any) -> int | None:
    """The prompt tokens from which on an entry's model costs more; None where its price is flat."""
    price = getattr(entry.get_prices(datetime.now(tz=UTC)), "input_mtok", None)
    return min((tier.start for tier in getattr(price, "tiers", None) or ()), default=None)


def _at_step(price: Any, prompt_tokens: int) -> Decimal | None:
    if price is None:
        return None
    tiers = getattr(price, "tiers", None)
    if tiers is None:
        return Decimal(price)
    reached = [tier for tier in tiers if prompt_tokens > tier.start]
    return Decimal(max(reached, key=lambda tier: tier.start).price if reached else price.base)
