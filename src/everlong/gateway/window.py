"""The windows of models, and the size of requests in tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.caching.rules import prices_for
from everlong.config import compression_values
from everlong.context.policy import Budgets, Pace, adapt_budgets, compute_budgets, compute_pace
from everlong.gateway.body import BrokenBody, dump_json, parse_json, read_body
from everlong.providers.catalogue import Catalogue, relative_prices
from everlong.providers.endpoints import ENDPOINTS, Endpoint, ModelName
from everlong.tokens import MessageCounter, Prices, counter_for

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context.policy import Habits
    from everlong.errors import ContextOverflow
    from everlong.gateway.body import Draft
    from everlong.gateway.conversations import LiveConversation
    from everlong.gateway.formats import Dialect
    from everlong.model import Message
    from everlong.providers.base import Usage

__all__ = [
    "KnownModel",
    "RequestSize",
    "Windows",
    "count_request",
    "lower_answer",
    "read_request",
    "tokens_in",
    "tokens_of",
]

_BYTES_PER_TOKEN = 2.8
"""Bytes per token of an unknown body; most are nearer to four."""
_LEAST_BYTES_PER_TOKEN = 2.0
"""Bytes per token of a body that is hardly denser than any other."""
_GROWTH = 1.15
"""Factor for text that came since the last count and may be denser."""
_ANSWER_SHARE = 0.25
"""Share of the window that is kept free for an answer at most, however many tokens its request asks for."""
_LEAST_ANSWER_SHARE = 0.05
_LOWERED_SHARE = 0.2
"""Share of the window that a lowered request asks for; the rest leaves room for the ask of a summary."""
_FULL = 0.98
"""Share of the window that is never exceeded on purpose."""
_LEAST_THINKING = 1_024
_LEAST_WINDOW = 1_000
_MOST_MODELS = 1_000


class KnownModel(NamedTuple):
    """The window of a model in tokens, and its prices in units of a fresh input token."""

    window: int
    prices: Prices


@dataclass(frozen=True, slots=True)
class RequestSize:
    """The size of a request, and its limits."""

    tokens: int
    window: int
    pace: Pace
    prices: Prices

    @property
    def is_considered(self) -> bool:
        """True if it is large enough to consider a compaction."""
        return self.tokens >= self.pace.threshold

    answer: int = 0
    """Tokens that are kept free for the answer."""

    @property
    def is_too_large(self) -> bool:
        """True if it has to be compacted before it is sent."""
        return self.tokens >= self.pace.room

    @property
    def fits(self) -> bool:
        """True if the window holds it with an answer, be that a shorter one, although a compaction may be due."""
        return self.left + self.answer > min(self.answer, int(_LEAST_ANSWER_SHARE * self.window))

    @property
    def left(self) -> int:
        """The tokens that the window still holds beside it and its answer."""
        return int(_FULL * self.window) - self.tokens - self.answer


class Windows:
    """The known windows and prices of models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.catalogue = Catalogue(settings.models, settings.providers)
        self._compression = compression_values(settings.compression)
        self._budgets: dict[int, Budgets] = {}
        self._known: dict[ModelName, KnownModel] = {}
        self._counts_answers: dict[ModelName, bool] = {}
        """Models of which it is known whether prompt and answer together have to fit the window."""
        self._of_tenants: dict[str, Windows] = {}

    def of(self, tenant: str) -> Windows:
        """Return the windows as a tenant knows them: a client may have its upstream name any limit."""
        if tenant not in self._of_tenants:
            self._of_tenants[tenant] = Windows(self._settings)
        return self._of_tenants[tenant]

    def load(self) -> None:
        """Load the catalogue, which takes a fifth of a second, before the first request needs it."""
        self.known("", "")

    def known(self, model: str, provider: str) -> KnownModel:
        """Return what is known of a model; it is looked up once."""
        name = ModelName(provider, model)
        if name not in self._known:
            if len(self._known) >= _MOST_MODELS:  # clients may send any name
                self._known.clear()
            info = self.catalogue.info(name, ENDPOINTS.get(provider, Endpoint(provider)))
            # Another provider may charge other prices for the model; the ratios between its kinds of tokens stay.
            prices = prices_for(model) if info.prices is None else relative_prices(info)
            self._known[name] = KnownModel(info.context_length, prices)
        return self._known[name]

    def learn(self, model: str, provider: str, error: ContextOverflow) -> None:
        """Believe the limit that an upstream named, unless no model has such a small window."""
        if error.limit is not None and error.limit < _LEAST_WINDOW:
            return
        self.catalogue.learn(ModelName(provider, model), error.limit)
        self._known.pop(ModelName(provider, model), None)

    def heard(self, model: str, provider: str, tokens: int, asked: int, *, is_taken: bool) -> bool:
        """Take in whether a prompt was taken that fits the window without its answer; return whether it is news."""
        name, window = ModelName(provider, model), self.known(model, provider).window
        fits_alone = tokens < _FULL * window < tokens + asked
        if not fits_alone or name in self._counts_answers or (is_taken and tokens + asked <= window):
            return False
        if len(self._counts_answers) >= _MOST_MODELS:
            self._counts_answers.clear()
        self._counts_answers[name] = not is_taken
        return True

    def lowered(self, model: str, provider: str, tokens: int, asked: int, *, is_awaiting: bool = False) -> int:
        """Return the tokens that a request may ask for beside a prompt.

        Fewer only where more was refused once, or while a summary is written for which it would have to wait.
        """
        counts = self._counts_answers.get(ModelName(provider, model), is_awaiting)
        window = self.known(model, provider).window
        if not counts or tokens + asked <= _FULL * window:
            return asked
        share = int(_LOWERED_SHARE * window)  # always the same, unless not even that is left
        least = int(_LEAST_ANSWER_SHARE * window)
        return min(asked, max(least, min(share, int(_FULL * window) - tokens)))

    def cost(self, model: str, usage: Usage) -> float:
        """Return the cost of a request in US dollars, as `everlong usage` has it; 0 if prices are not known."""
        return self.catalogue.cost(model, usage) or 0.0

    def is_small(self, model: str, provider: str, size: int) -> bool:
        """Return whether a body of so many bytes is too small for a compaction to be considered."""
        return not self.limits(model, provider, int(size / _LEAST_BYTES_PER_TOKEN)).is_considered

    def size(
        self, conversation: LiveConversation, model: str, provider: str, tokens: int, answer_tokens: int
    ) -> RequestSize:
        """Return the size and the limits of a request."""
        fixed, head = (
            tokens_of(conversation, conversation.fixed_bytes),
            tokens_of(conversation, conversation.head_bytes),
        )
        answer = min(answer_tokens, int(_ANSWER_SHARE * self.known(model, provider).window))
        if self._counts_answers.get(ModelName(provider, model)) is False:
            answer = 0  # the upstream takes more than fits
        return self.limits(model, provider, tokens, answer, fixed=fixed, head=head, habits=conversation.habits)

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
        """Return the limits of a request, of which ``fixed`` tokens are in every request of its conversation.

        With the ``habits`` of its conversation, an automatic threshold follows them.
        """
        window, prices = self.known(model, provider)
        if window not in self._budgets:
            if len(self._budgets) >= _MOST_MODELS:
                self._budgets.clear()
            self._budgets[window] = compute_budgets(self._compression, window)
        budgets = self._budgets[window]
        if habits is not None:
            budgets = adapt_budgets(self._compression, window, fixed, habits, prices)
        pace = compute_pace(
            budgets,
            fixed=fixed,
            head=min(budgets.tail_tokens, head),
            answer_tokens=answer_tokens,
            dearer_above=prices.dearer_above if prices.are_known else None,
        )
        return RequestSize(tokens, window, pace, prices, answer_tokens)


def tokens_in(conversation: LiveConversation, sent: int) -> int:
    """Estimate the tokens of a body in a conversation: the tokens that the API counted, and those that came since."""
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


def lower_answer(draft: Draft, most: int) -> Draft:
    """Return a body that asks for so many tokens at most; a budget for thinking has to be smaller than that."""
    lowered = {name: dump_json(most) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")}
    thinking = parse_json(draft.body[slice(*draft.fields["thinking"])]) if "thinking" in draft.fields else None
    if isinstance(thinking, dict) and isinstance(thinking.get("budget_tokens"), int):
        budget = max(_LEAST_THINKING, min(thinking["budget_tokens"], most - _LEAST_THINKING))
        lowered["thinking"] = dump_json({**thinking, "budget_tokens": budget})
    return draft.changed(sorted((*draft.fields[name], said) for name, said in lowered.items() if name in draft.fields))


def read_request(dialect: Dialect, body: bytes) -> tuple[str, list[Message], list[dict[str, Any]] | None]:
    """Return the model, the messages and the tools of a body."""
    read = read_body(body, dialect.list_name)
    system = dialect.system_of(read)
    said = dialect.said([entry.value for entry in read.entries], system[-1] if system else None)
    messages = [*system, *(message for one in said for message in one)]
    tools = read.field("tools")
    return str(read.field("model") or ""), messages, tools if isinstance(tools, list) else None


def count_request(dialect: Dialect, body: bytes) -> int:
    """Return our own count of the tokens of a body; blocks."""
    try:
        model, messages, tools = read_request(dialect, body)
        return MessageCounter(counter_for(model)).total(messages, tools)
    except (BrokenBody, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return int(len(body) / _BYTES_PER_TOKEN)
