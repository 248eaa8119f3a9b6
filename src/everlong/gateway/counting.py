"""How many tokens a request would have, where the upstream does not say: our own count, calibrated.

From the moment it is known that an upstream cannot count, it learns from what the upstream reports for whole requests,
now and then, in another thread. An upstream that could not is asked again after a while: it may have been mended.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from everlong.gateway.encodings import Unreadable, plain
from everlong.gateway.raw import read_body
from everlong.tokens import Calibration, MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.gateway.dialects import Dialect
    from everlong.model import Message

__all__ = ["Counting", "has_no_count"]

_SECONDS_BETWEEN = 20.0
_SECONDS_LACKING = 300.0
_MOST_MODELS = 50
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
        if len(self._learned) >= _MOST_MODELS:  # clients may send any name
            self._learned.clear()
        self._learned[model] = now
        asyncio.get_running_loop().run_in_executor(None, self._learn, dialect, body, model, prompt_tokens)

    def _count(self, dialect: Dialect, body: bytes) -> int:
        model, messages, tools = _read(dialect, body)
        with self._lock:
            return self._of(model).estimate(messages, model, tools)

    def _learn(self, dialect: Dialect, body: bytes, model: str, prompt_tokens: int) -> None:
        _, messages, tools = _read(dialect, body)
        with self._lock:
            self._of(model).observe(messages, prompt_tokens, model, tools)

    def _of(self, model: str) -> Calibration:
        found = self._models.get(model)
        if found is None:
            if len(self._models) >= _MOST_MODELS:
                self._models.clear()
            found = self._models.setdefault(model, Calibration(MessageCounter(counter_for(model))))
        return found


def _read(dialect: Dialect, body: bytes) -> tuple[str, list[Message], list[dict[str, Any]] | None]:
    read = read_body(body, dialect.list_name)
    system = dialect.system_of(read)
    said = dialect.said([entry.value for entry in read.entries], system[-1] if system else None)
    messages = [*system, *(message for one in said for message in one)]
    tools = read.field("tools")
    return str(read.field("model") or ""), messages, tools if isinstance(tools, list) else None
