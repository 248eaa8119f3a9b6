"""Calls of models: `Asker` asks the conversation's own model and sends cache markers along (`PromptCache.apply`).

`SideCalls` adds up what calls for summaries, memory and plugins cost.

An answer that breaks off is asked for again. Any other failure is raised for the caller to decide.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from everlong.agent.events import AgentEvent, Restarted, TextDelta, ThinkingDelta, unheard
from everlong.errors import ContextOverflow, ProviderError, StoreError
from everlong.providers.base import CallOptions, Done
from everlong.providers.connection import Connection

if TYPE_CHECKING:
    from everlong.agent.watch import WorkWatch
    from everlong.caching import PromptCache
    from everlong.model import Message
    from everlong.providers.base import Provider, Reply, Usage
    from everlong.store import Store
    from everlong.store.costs import Kind

__all__ = ["Asker", "SideCalls"]

_RESTARTS = 3
"""Times that an answer that broke off is asked for again."""
_MOST_ANSWER_TOKENS = 16_384
_LEAST_ANSWER_TOKENS = 256
_UNCERTAINTY = 1.1
"""Factor by which a prompt may turn out larger than its estimate."""


class Asker:
    """Asks one model, always with the same tools.

    Args:
        connection: the model.
        tools: the schemas of the tools on offer.
        cache: places cache markers; None for none.
        max_answer_tokens: the most tokens of one answer, where the window has room for them.
        listen: told the answer as it comes.
    """

    def __init__(
        self,
        connection: Connection,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        cache: PromptCache | None = None,
        max_answer_tokens: int | None = None,
        listen: Callable[[AgentEvent], None] = unheard,
    ) -> None:
        self.connection = connection
        self.model = str(connection.model_name)
        """The model as ``provider:model``."""
        self.tools = tools
        self.cache = cache
        self.partial = ""
        """The text so far of an unfinished answer."""
        self._most = max_answer_tokens or _MOST_ANSWER_TOKENS
        self._listen = listen

    def answer_tokens(self, prompt_tokens: int, window: int) -> int:
        """Return the most tokens that an answer may have: those wanted, as far as the window has room for them."""
        most = min(self._most, max(_LEAST_ANSWER_TOKENS, window // 4))
        room = window - int(prompt_tokens * _UNCERTAINTY) - 64
        return max(1, min(most, max(_LEAST_ANSWER_TOKENS, room)))

    def room_left(self, error: ProviderError, prompt_tokens: int, answer_tokens: int) -> int | None:
        """Return the tokens left for an answer if prompt and answer together were too long; None if the prompt was.

        Args:
            error: the refusal.
            prompt_tokens: the estimate of the prompt.
            answer_tokens: the room that its answer asked for.
        """
        if not (isinstance(error, ContextOverflow) and error.limit and error.prompt_tokens):
            return None
        told = error.prompt_tokens  # some APIs mean the prompt, others prompt and answer together
        if abs(told - prompt_tokens - answer_tokens) > abs(told - prompt_tokens):
            return None
        left = error.limit - (told - answer_tokens) - 16
        return left if _LEAST_ANSWER_TOKENS <= left < answer_tokens else None

    def ask(self, messages: Sequence[Message], answer_tokens: int, watch: WorkWatch) -> Reply:
        """Return the model's answer; ask again if it breaks off, and tell that its text so far does not count.

        Raises:
            ProviderError: there is no answer.
            Interrupted: the work was stopped; `partial` has the text so far.
            OutOfTime: the time is up; as above.
        """
        options: CallOptions = {"tools": self.tools, "max_tokens": answer_tokens}
        if self.cache is not None:
            options |= {"prepare": self.cache.apply, "headers": self.cache.headers}
        for left in reversed(range(_RESTARTS + 1)):
            self.partial = ""
            has_begun = False
            try:
                for event in watch.each(partial(self.connection.stream, messages, **options)):
                    has_begun = True
                    if isinstance(event, Done):
                        self.partial = ""
                        return event.reply
                    if isinstance(event, TextDelta | ThinkingDelta):
                        self.partial += event.text if isinstance(event, TextDelta) else ""
                        self._listen(event)
            except ProviderError as error:
                if not has_begun and self.cache is not None:
                    self.cache.forget()
                if not (has_begun and error.may_retry and left):
                    self.partial = ""
                    raise
                self._listen(Restarted(str(error)))
        raise AssertionError("a stream ends with Done or an error")


class SideCalls:
    """The account of the calls on the side of one conversation.

    Args:
        store: keeps the receipts.
        session: returns the current session.
        warn: told if a receipt could not be stored.
    """

    def __init__(self, store: Store, session: Callable[[], str], warn: Callable[[str], None]) -> None:
        self._store = store
        self._session = session
        self._warn = warn
        self._spent = 0.0
        self._lock = threading.Lock()  # parts of a summary are written several at a time

    def paid(self, kind: Kind, provider: Provider, usage: Usage) -> None:
        """Add what a call used; a receipt that cannot be stored is only a warning."""
        model, cost = f"{provider.name}:{provider.model}", None
        if isinstance(provider, Connection):
            model, cost = str(provider.model_name), provider.cost(usage)
        with self._lock:
            self._spent += cost or 0.0
        try:
            self._store.receipts.add(self._session(), kind, model=model, usage=usage.to_dict(), cost=cost)
        except StoreError as error:
            self._warn(f"a {kind} call could not be stored, so `everlong usage` misses it: {error}")

    def take_cost(self) -> float | None:
        """Return the US dollars since the last call of this method; None where nothing with a price was spent."""
        with self._lock:
            spent, self._spent = self._spent, 0.0
        return spent or None
