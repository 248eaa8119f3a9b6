"""Retries: which failures, how often, and the waits between them.

Waits grow and are scattered, so that many clients do not come back at the same moment; the API's ``retry-after`` is
obeyed. A stream is tried again only until its first event.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

from everlong.errors import ConfigError, ProviderError
from everlong.model import Message
from everlong.providers.base import CallOptions, Event, Provider, Reply

__all__ = ["RetryPolicy", "Retrying"]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts and the waits between them."""

    attempts: int = 4
    """Calls in all, the first included."""
    first_delay: float = 0.5
    longest_delay: float = 20.0
    """The longest wait without a ``retry-after``; each is about twice the one before."""
    patience: float = 120.0
    """The longest ``retry-after`` in seconds that is waited for; a longer one raises the error at once."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"attempts must be at least 1, got {self.attempts}", key="attempts")

    def delay(self, attempt: int, error: ProviderError, dice: Callable[[], float]) -> float | None:
        """Return the seconds to wait after an attempt; None to give up."""
        if not error.may_retry or attempt >= self.attempts:
            return None
        scattered: float = min(self.longest_delay, self.first_delay * 2 ** (attempt - 1)) * (0.5 + dice() / 2)
        if error.retry_after is None:
            return scattered
        if error.retry_after > self.patience:
            return None
        # A little more than asked, so that clients that were told the same moment do not all come back at it.
        return error.retry_after + min(scattered, 0.25 * error.retry_after)


class Retrying:
    """A provider that tries again; it calls ``on_retry`` with the error, the number of the attempt and the wait."""

    def __init__(
        self,
        inner: Provider,
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        dice: Callable[[], float] = random.random,
        on_retry: Callable[[ProviderError, int, float], None] | None = None,
    ) -> None:
        self.inner = inner
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._dice = dice
        self._on_retry = on_retry

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.inner.name

    @property
    def model(self) -> str:
        """The model's name."""
        return self.inner.model

    @property
    def takes_markers(self) -> bool:
        """True if cache markers reach the model's cache."""
        return self.inner.takes_markers

    def complete(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Reply:
        """Return the model's answer, after as many attempts as the policy allows."""
        attempt = 1
        while True:
            try:
                return self.inner.complete(messages, **call)
            except ProviderError as error:
                self._wait(attempt, error)
            attempt += 1

    def stream(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Iterator[Event]:
        """Yield the model's answer as it comes; a failure after the first event is raised, not tried again."""
        attempt = 1
        while True:
            has_begun = False
            try:
                for event in self.inner.stream(messages, **call):
                    has_begun = True
                    yield event
            except ProviderError as error:
                if has_begun:
                    raise
                self._wait(attempt, error)
            else:
                return
            attempt += 1

    def _wait(self, attempt: int, error: ProviderError) -> None:
        delay = self._policy.delay(attempt, error, self._dice)
        if delay is None:
            raise error
        if self._on_retry is not None:
            self._on_retry(error, attempt, delay)
        self._sleep(delay)

    def served_context_length(self) -> int | None:
        """Return the model's window by the server's own account."""
        return self.inner.served_context_length()

    def load(self) -> None:
        """Load what the first call would load, if anything."""
        load = getattr(self.inner, "load", None)
        if load is not None:
            load()

    def close(self) -> None:
        """Close connections."""
        self.inner.close()
