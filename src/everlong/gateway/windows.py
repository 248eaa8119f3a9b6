"""Say how large a request is and may be: a model's window and prices, and the pace of its compactions.

Tokens are what the API last counted in this conversation and an estimate of what has come since; the first time, an
estimate that is rather too high. Asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everlong.caching.rules import prices_for
from everlong.config import compression_values
from everlong.context.budget import Budgets, compute_budgets
from everlong.context.pace import Pace, pace_of
from everlong.providers.catalogue import Catalogue, ModelInfo, relative_prices
from everlong.providers.names import ENDPOINTS, Endpoint, ModelName
from everlong.tokens import Prices

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.errors import ContextOverflow
    from everlong.gateway.lines import Line
    from everlong.providers.base import Usage

__all__ = ["Size", "Windows", "tokens_in", "tokens_of"]

_BYTES_PER_TOKEN = 2.8
"""Of a body of which nothing is known; most are nearer to four."""
_GROWTH = 1.15
"""What has come since may be denser than what was counted."""
_LEAST_WINDOW = 1_000
_MOST_MODELS = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """How large a request is, and how large it may be."""

    tokens: int
    window: int
    pace: Pace
    prices: Prices

    @property
    def is_considered(self) -> bool:
        """Whether it is so large that a compaction is considered."""
        return self.tokens >= self.pace.threshold

    @property
    def is_too_large(self) -> bool:
        """Whether it has to be compacted before it is sent."""
        return self.tokens >= self.pace.room


class Windows:
    """What is known of the windows of models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.catalogue = Catalogue(settings.models)
        self._compression = compression_values(settings.compression)
        self._budgets: dict[int, Budgets] = {}
        self._known: dict[ModelName, int] = {}
        self._priced: dict[ModelName, ModelInfo] = {}

    def window(self, model: str, provider: str) -> int:
        """The window of a model, in tokens."""
        name = ModelName(provider, model)
        if name not in self._known:
            if len(self._known) >= _MOST_MODELS:  # clients may send any name
                self._known.clear()
            self._known[name] = self.catalogue.info(name, _endpoint(provider)).context_length
        return self._known[name]

    def learn(self, model: str, provider: str, error: ContextOverflow) -> None:
        """Believe the limit that an upstream named, unless no model has such a small window."""
        if error.limit is not None and error.limit < _LEAST_WINDOW:
            return
        self.catalogue.learn(ModelName(provider, model), error)
        self._known.pop(ModelName(provider, model), None)

    def cost(self, model: str, provider: str, usage: Usage) -> float:
        """What a request cost in US dollars; nothing where prices are not known."""
        info = self._info(model, provider)
        if info.prices is None:
            return 0.0
        if info.price_step is not None and usage.prompt_tokens > info.price_step:
            return self.catalogue.cost(ModelName(provider, model), _endpoint(provider), usage) or 0.0
        return info.prices.cost(usage)

    def _info(self, model: str, provider: str) -> ModelInfo:
        name = ModelName(provider, model)
        info = self._priced.get(name)
        if info is None:
            if len(self._priced) >= _MOST_MODELS:
                self._priced.clear()
            info = self._priced[name] = self.catalogue.info(name, _endpoint(provider))
        return info

    def size(self, line: Line, model: str, provider: str, tokens: int, answer_tokens: int) -> Size:
        """Return how large a request of so many tokens is, beside what it may be."""
        fixed, head = tokens_of(line, line.fixed_bytes), tokens_of(line, line.head_bytes)
        return self.limits(model, provider, tokens, answer_tokens, fixed=fixed, head=head)

    def limits(
        self, model: str, provider: str, tokens: int, answer_tokens: int = 0, *, fixed: int = 0, head: int = 0
    ) -> Size:
        """Return how large a request of so many tokens may be, of which so many always stand there."""
        window = self.window(model, provider)
        if window not in self._budgets:
            if len(self._budgets) >= _MOST_MODELS:
                self._budgets.clear()
            self._budgets[window] = compute_budgets(self._compression, window)
        budgets, info = self._budgets[window], self._info(model, provider)
        # What a model costs at somebody else's is not known; how its tokens compare is.
        prices = prices_for(model) if info.prices is None else relative_prices(info)
        pace = pace_of(
            budgets,
            fixed=fixed,
            head=min(budgets.tail_tokens, head),
            answer_tokens=answer_tokens,
            dearer_above=prices.dearer_above if prices.are_known else None,
        )
        return Size(tokens, window, pace, prices)


def tokens_in(line: Line, sent: int) -> int:
    """Estimate the tokens of a body of so many bytes in a conversation: what the API counted, and what came since."""
    if line.reported is None or sent < line.reported[0]:
        return tokens_of(line, sent)
    size, tokens = line.reported
    return tokens + int((sent - size) * tokens / max(1, size) * _GROWTH)


def tokens_of(line: Line, count: int) -> int:
    """Estimate the tokens of so many bytes, as dense as the last body of the conversation was."""
    if line.reported is None:
        return int(count / _BYTES_PER_TOKEN)
    size, tokens = line.reported
    return int(count * tokens / max(1, size))


def _endpoint(provider: str) -> Endpoint:
    return ENDPOINTS.get(provider, Endpoint(provider))
