"""How large a request may be: a model's window, the room that the answer needs, and how many tokens some bytes are.

Tokens are what the API last counted in this conversation and an estimate of what has come since; the first time, an
estimate that is rather too high. Asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everlong.context import ContextCompressor
from everlong.providers.catalogue import Catalogue, ModelInfo
from everlong.providers.names import ENDPOINTS, Endpoint, ModelName

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.errors import ContextOverflow
    from everlong.gateway.lines import Line
    from everlong.providers.base import Usage

__all__ = ["Size", "Windows"]

_BYTES_PER_TOKEN = 2.8
"""Of a body of which nothing is known; most are nearer to four."""
_GROWTH = 1.15
"""What has come since may be denser than what was counted."""
_FULL = 0.85
"""At this share of the window a conversation is compacted before it is sent, whatever the threshold."""
_MARGIN = 0.02
_LEAST_WINDOW = 1_000
_MOST_MODELS = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """How large a request is, and how large it may be."""

    tokens: int
    window: int
    threshold: int
    """From here on a compaction is made ahead of time."""
    room: int
    """What the prompt may have at most."""

    @property
    def is_due(self) -> bool:
        """Whether it should be compacted soon."""
        return self.tokens >= self.threshold

    @property
    def is_too_large(self) -> bool:
        """Whether it has to be compacted before it is sent."""
        return self.tokens >= self.room


class Windows:
    """What is known of the windows of models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.catalogue = Catalogue(settings.models)
        self._thresholds: dict[tuple[str, int], int] = {}
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
        name = ModelName(provider, model)
        info = self._priced.get(name)
        if info is None:
            if len(self._priced) >= _MOST_MODELS:
                self._priced.clear()
            info = self._priced[name] = self.catalogue.info(name, _endpoint(provider))
        if info.prices is None:
            return 0.0
        if info.price_step is not None and usage.prompt_tokens > info.price_step:
            return self.catalogue.cost(name, _endpoint(provider), usage) or 0.0
        return info.prices.cost(usage)

    def size(self, line: Line, sent: int, model: str, provider: str, answer_tokens: int) -> Size:
        """The size of a body of so many bytes."""
        return self.limits(model, provider, tokens_in(line, sent), answer_tokens)

    def limits(self, model: str, provider: str, tokens: int, answer_tokens: int = 0) -> Size:
        """Return how large a request of so many tokens may be."""
        window = self.window(model, provider)
        key = (model, window)
        if key not in self._thresholds:
            engine = ContextCompressor(window, settings=self._settings.compression, model=model)
            self._thresholds[key] = engine.threshold_tokens
        room = min(int(_FULL * window), int((1 - _MARGIN) * window) - answer_tokens)
        threshold = min(self._thresholds[key], int(0.9 * room))
        return Size(tokens, window, threshold, max(room, window // 8))


def tokens_in(line: Line, sent: int) -> int:
    """The tokens of a body of so many bytes in a conversation."""
    if line.reported is None:
        return int(sent / _BYTES_PER_TOKEN)
    size, tokens = line.reported
    density = tokens / max(1, size)
    if sent < size:
        return int(sent * density * _GROWTH)
    return tokens + int((sent - size) * density * _GROWTH)


def _endpoint(provider: str) -> Endpoint:
    return ENDPOINTS.get(provider, Endpoint(provider))
