"""The windows of models, and how many tokens of them a request takes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everlong.caching.rules import prices_for
from everlong.config import compression_values
from everlong.context.policy import Budgets, Pace, adapted_budgets, compute_budgets, pace_of
from everlong.gateway.body import Unreadable, plain, read_body
from everlong.providers.catalogue import Catalogue, ModelInfo, relative_prices
from everlong.providers.names import ENDPOINTS, Endpoint, ModelName
from everlong.tokens import Calibration, MessageCounter, Prices, counter_for

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context.policy import Habits
    from everlong.errors import ContextOverflow
    from everlong.gateway.conversations import LiveConversation
    from everlong.gateway.formats import Dialect
    from everlong.model import Message
    from everlong.providers.base import Usage

__all__ = ["Counting", "RequestSize", "Windows", "has_no_count", "read_request", "tokens_in", "tokens_of"]

_BYTES_PER_TOKEN = 2.8
"""Of a body of which nothing is known; most are nearer to four."""
_GROWTH = 1.15
"""What has come since may be denser than what was counted."""
_LEAST_WINDOW = 1_000
_MOST_MODELS = 1_000


@dataclass(frozen=True, slots=True)
class RequestSize:
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

    def size(
        self, conversation: LiveConversation, model: str, provider: str, tokens: int, answer_tokens: int
    ) -> RequestSize:
        """Return how large a request of so many tokens is, beside what it may be."""
        fixed, head = (
            tokens_of(conversation, conversation.fixed_bytes),
            tokens_of(conversation, conversation.head_bytes),
        )
        return self.limits(model, provider, tokens, answer_tokens, fixed=fixed, head=head, habits=conversation.habits)

    def limits(
        self,
        model: str,
        provider: str,
        tokens: int,
        answer_tokens: int = 0,
        *,
        fixed: int = 0,
        head: int = 0,
        habits: Habits | None = None,
    ) -> RequestSize:
        """Return how large a request of so many tokens may be, of which so many always stand there.

        With the ``habits`` of its conversation, an automatic threshold follows those.
        """
        window = self.window(model, provider)
        if window not in self._budgets:
            if len(self._budgets) >= _MOST_MODELS:
                self._budgets.clear()
            self._budgets[window] = compute_budgets(self._compression, window)
        budgets, info = self._budgets[window], self._info(model, provider)
        # What a model costs at somebody else's is not known; how its tokens compare is.
        prices = prices_for(model) if info.prices is None else relative_prices(info)
        if habits is not None:
            budgets = adapted_budgets(self._compression, window, fixed, habits, prices)
        pace = pace_of(
            budgets,
            fixed=fixed,
            head=min(budgets.tail_tokens, head),
            answer_tokens=answer_tokens,
            dearer_above=prices.dearer_above if prices.are_known else None,
        )
        return RequestSize(tokens, window, pace, prices)


def tokens_in(conversation: LiveConversation, sent: int) -> int:
    """Estimate the tokens of a body of so many bytes in a conversation: what the API counted, and what came since."""
    if conversation.reported is None or sent < conversation.reported[0]:
        return tokens_of(conversation, sent)
    size, tokens = conversation.reported
    return tokens + int((sent - size) * tokens / max(1, size) * _GROWTH)


def tokens_of(conversation: LiveConversation, count: int) -> int:
    """Estimate the tokens of so many bytes, as dense as the last body of the conversation was."""
    if conversation.reported is None:
        return int(count / _BYTES_PER_TOKEN)
    size, tokens = conversation.reported
    return int(count * tokens / max(1, size))


def _endpoint(provider: str) -> Endpoint:
    return ENDPOINTS.get(provider, Endpoint(provider))


_SECONDS_BETWEEN = 20.0
_SECONDS_LACKING = 300.0
_COUNTING_MOST_MODELS = 50
_NOT_THERE = frozenset({404, 405, 501})
_MOST_ERROR_BYTES = 1_000_000


def has_no_count(status: int, data: bytes, encoding: str = "") -> bool:
    """Whether an answer says that there is no such endpoint; an error of the API's own is about the request."""
    if status not in _NOT_THERE:
        return False
    try:
        said = json.loads(plain(data, encoding, _MOST_ERROR_BYTES))
    except (Unreadable, ValueError, RecursionError):
        return True
    error = said.get("error") if isinstance(said, dict) and said.get("type") == "error" else None
    return not (isinstance(error, dict) and isinstance(error.get("type"), str))


class Counting:
    """Counts for the upstreams that do not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._models: dict[str, Calibration] = {}
        self._learned: dict[str, float] = {}
        self._lacking: dict[str, float] = {}
        self._lock = threading.Lock()

    def lacks(self, upstream: str) -> bool:
        """Whether an upstream has turned out not to count, in the last five minutes."""
        since = self._lacking.get(upstream)
        return since is not None and self._clock() - since < _SECONDS_LACKING

    def lacking(self, upstream: str) -> None:
        """Say that an upstream does not count."""
        self._lacking[upstream] = self._clock()

    async def count(self, dialect: Dialect, body: bytes) -> int:
        """The tokens of a request; `Broken` where it is none."""
        return await asyncio.to_thread(self._count, dialect, body)

    def learn(self, dialect: Dialect, body: bytes, model: str, prompt_tokens: int) -> None:
        """Learn from what an upstream reported; at most now and then."""
        now = self._clock()
        if not self._lacking or now - self._learned.get(model, -_SECONDS_BETWEEN) < _SECONDS_BETWEEN:
            return
        if len(self._learned) >= _COUNTING_MOST_MODELS:  # clients may send any name
            self._learned.clear()
        self._learned[model] = now
        asyncio.get_running_loop().run_in_executor(None, self._learn, dialect, body, model, prompt_tokens)

    def _count(self, dialect: Dialect, body: bytes) -> int:
        model, messages, tools = read_request(dialect, body)
        with self._lock:
            return self._of(model).estimate(messages, model, tools)

    def _learn(self, dialect: Dialect, body: bytes, model: str, prompt_tokens: int) -> None:
        _, messages, tools = read_request(dialect, body)
        with self._lock:
            self._of(model).observe(messages, prompt_tokens, model, tools)

    def _of(self, model: str) -> Calibration:
        found = self._models.get(model)
        if found is None:
            if len(self._models) >= _COUNTING_MOST_MODELS:
                self._models.clear()
            found = self._models.setdefault(model, Calibration(MessageCounter(counter_for(model))))
        return found


def read_request(dialect: Dialect, body: bytes) -> tuple[str, list[Message], list[dict[str, Any]] | None]:
    """Return the model, the messages and the tools of a body."""
    read = read_body(body, dialect.list_name)
    system = dialect.system_of(read)
    said = dialect.said([entry.value for entry in read.entries], system[-1] if system else None)
    messages = [*system, *(message for one in said for message in one)]
    tools = read.field("tools")
    return str(read.field("model") or ""), messages, tools if isinstance(tools, list) else None
