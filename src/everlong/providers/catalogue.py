"""Windows and prices of models, and the cost of a request.

A window comes from the user's settings, else the offline catalogue of the package ``genai-prices``, else the server
itself, else a default; a smaller limit in an overflow error overrides them. For an endpoint of the user's own the
server is asked before the catalogue, because anything may be served there under any name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from everlong.errors import ProviderError
from everlong.providers.base import Usage
from everlong.providers.endpoints import Endpoint, ModelName, priced_as
from everlong.tokens import Prices

if TYPE_CHECKING:
    from everlong.config import ModelSettings, ProviderSettings

__all__ = [
    "DEFAULT_CONTEXT_LENGTH",
    "Catalogue",
    "ModelInfo",
    "Rates",
    "relative_prices",
]

DEFAULT_CONTEXT_LENGTH = 128_000
"""The window of an unknown model."""

_MOST_NAMES = 1_000

Source = Literal["settings", "learned", "catalogue", "server", "default"]


@dataclass(frozen=True, slots=True)
class Rates:
    """US dollars for a million tokens of one request."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """Return the US dollars that a request costs. All other costs are computed by this formula."""
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
        """Return what the request would cost if every token of the prompt were plain."""
        return self.cost(Usage(usage.prompt_tokens, usage.output_tokens))


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The window of a model, its source, and its prices."""

    name: ModelName
    context_length: int
    context_source: Source
    prices: Rates | None = None
    """Prices at the lowest step; None if unknown."""
    price_step: int | None = None
    """Prompt tokens above which everything costs more; None if the price is flat or unknown."""


class Catalogue:
    """Looks up models, and learns their limits from overflow errors.

    ``models`` are the settings of that name, ``providers`` the endpoints of the user's own.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSettings] | None = None,
        providers: Mapping[str, ProviderSettings] | None = None,
    ) -> None:
        self._settings = dict(models or {})
        self._providers = providers
        self._meant: dict[str, tuple[ModelName, Endpoint]] = {}
        self._learned: dict[ModelName, int] = {}
        self._served: dict[ModelName, int | None] = {}
        self._lock = threading.Lock()

    def info(self, name: ModelName, endpoint: Endpoint, ask: Callable[[], int | None] | None = None) -> ModelInfo:
        """Return window and prices of a model; ``ask`` asks its server, once, if no other source knows the window."""
        own = self._setting(name)
        # For an endpoint of the user's own, the catalogue knows only the window; and it is slow to load.
        is_needed = endpoint.catalogue is not None or own is None or own.context_length is None
        entry = _entry(name.model, endpoint.catalogue) if is_needed else None
        length, source = self._window(name, endpoint, entry, ask)
        learned = self._learned.get(name)
        if learned is not None and learned < length:
            length, source = learned, "learned"
        prices, step = _prices(entry, endpoint)
        return ModelInfo(name, length, source, self._own_rates(name) or prices, step)

    def _window(
        self, name: ModelName, endpoint: Endpoint, entry: Any, ask: Callable[[], int | None] | None
    ) -> tuple[int, Source]:
        own = self._setting(name)
        if own is not None and own.context_length is not None:
            return own.context_length, "settings"
        listed = getattr(entry, "context_window", None)
        if listed and endpoint.catalogue is not None:
            return int(listed), "catalogue"
        served = self._ask_once(name, ask)
        if served is not None:
            return served, "server"
        return (int(listed), "catalogue") if listed else (DEFAULT_CONTEXT_LENGTH, "default")

    def _ask_once(self, name: ModelName, ask: Callable[[], int | None] | None) -> int | None:
        if ask is None or name in self._served:
            return self._served.get(name)
        try:
            served = ask()
        except ProviderError:  # then the next source is asked
            served = None
        with self._lock:
            self._served[name] = served
        return served

    def learn(self, name: ModelName, limit: int | None) -> None:
        """Remember the limit that an overflow error named, if it named one."""
        if limit is not None and limit >= 1:
            with self._lock:
                self._learned[name] = min(limit, self._learned.get(name, limit))

    def _setting(self, name: ModelName) -> ModelSettings | None:
        keys = [f"{name.provider}:{name.model}", name.model]
        if name.provider == "custom":  # a name that came without its provider
            keys += [key for key in self._settings if key.endswith(f":{name.model}")]
        return next((self._settings[key] for key in keys if key in self._settings), None)

    def _own_rates(self, name: ModelName) -> Rates | None:
        own = self._setting(name)
        if own is None or own.input_price is None:
            return None

        def price(value: float | None, otherwise: Decimal) -> Decimal:
            return otherwise if value is None else _decimal(value)

        plain = _decimal(own.input_price)
        write = price(own.cache_write_price, plain)
        return Rates(
            input=plain,
            output=price(own.output_price, plain),
            cache_read=price(own.cache_read_price, plain),
            cache_write=write,
            cache_write_1h=write,
        )

    def rates(
        self, name: str, prompt_tokens: int = 0, at: float | None = None, *, is_most: bool = False
    ) -> Rates | None:
        """Return the price of each kind of token of a request, by the steps of the price; None if unknown.

        Args:
            name: the model as it is stored, with or without its provider.
            prompt_tokens: all tokens of the request's prompt.
            at: when it was sent, in seconds since 1970; now, if not given.
            is_most: whether pictures count, whose tokens may have a price of their own.
        """
        model, endpoint = self.meant(name)
        own = self._own_rates(model)
        if own is not None or endpoint.catalogue is None:  # no catalogue knows the prices of the user's own endpoints
            return own
        entry = _entry(model.model, endpoint.catalogue)
        return None if entry is None else _listed_rates(entry, prompt_tokens, at, is_most=is_most)

    def cost(self, name: str, usage: Usage) -> float | None:
        """Return the US dollars that a call costs, by the steps of the price; None if prices are not known."""
        rates = self.rates(name, usage.prompt_tokens)
        return None if rates is None else float(rates.cost(usage))

    def window(self, name: str) -> int | None:
        """Return the window of a model by its name as it is stored; None if nobody knows it."""
        info = self.info(*self.meant(name))
        return None if info.context_source == "default" else info.context_length

    def short(self, name: str) -> str:
        """Return a name without its provider if it means the same model, as clients of the gateway write it."""
        provider, _, bare = name.partition(":")
        return bare if bare and provider != "custom" and self.meant(bare) == self.meant(name) else name

    def meant(self, name: str) -> tuple[ModelName, Endpoint]:
        """Return the model whose price holds for a name as it is stored, and its endpoint."""
        if name not in self._meant:
            if len(self._meant) >= _MOST_NAMES:  # clients may send any name
                self._meant.clear()
            self._meant[name] = priced_as(name, self._providers)
        return self._meant[name]


def relative_prices(info: ModelInfo) -> Prices:
    """Return the prices of a model in units of a fresh input token, for the arithmetic of compactions."""
    known = info.prices
    if known is None or known.input <= 0:
        return Prices(dearer_above=info.price_step)
    fresh = known.input
    return Prices(
        float(known.cache_read / fresh),
        float(known.cache_write / fresh),
        float(known.output / fresh),
        dearer_above=info.price_step,
        are_known=True,
    )


# -- the offline catalogue --------------------------------------------------------------------------------------------


def _entry(model: str, provider: str | None) -> Any:
    """Return the catalogue's entry for a model; None without one, or if the package is not installed."""
    try:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - optional, and slow to load
    except ImportError:
        return None
    try:
        return get_snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None


def _listed_rates(entry: Any, prompt_tokens: int, at: float | None = None, *, is_most: bool = False) -> Rates | None:
    """Return the rates of an entry of the package ``genai-prices`` for a request; None if it has none."""
    moment = datetime.now(tz=UTC) if at is None else datetime.fromtimestamp(at, tz=UTC)
    listed = entry.get_prices(moment)

    def price(name: str) -> Decimal | None:
        first, _, rest = name.partition("_")
        names = (name, f"{first}_image_{rest}") if is_most else (name,)
        found = (_at_step(getattr(listed, one, None), prompt_tokens) for one in names)
        return max((one for one in found if one is not None), default=None)

    plain, output = price("input_mtok"), price("output_mtok")
    if plain is None or output is None:
        return None
    read, write, hour = price("cache_read_mtok"), price("cache_write_mtok"), price("cache_write_1h_mtok")
    write = plain if write is None else write
    return Rates(plain, output, plain if read is None else read, write, write if hour is None else hour)


def _first_step(entry: Any) -> int | None:
    """Return the prompt tokens above which an entry's model costs more; None if its price is flat."""
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


def _prices(entry: Any, endpoint: Endpoint) -> tuple[Rates | None, int | None]:
    if entry is None or endpoint.catalogue is None:
        return None, None
    lowest = _listed_rates(entry, 0)
    return (None, None) if lowest is None else (lowest, _first_step(entry))


def _decimal(price: float) -> Decimal:
    return Decimal(str(price))  # as it is written, not as it is stored
