"""Three ways to deal with a full window: cut off what is old, summarize between head and tail, and Everlong.

Each is given the messages of a session one by one, and returns the request that it would send. None asks a model: the
plain summary lists the beginnings of the user's requests, Everlong writes its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import everlong.context
from everlong.model import Message, is_system, text_of
from everlong.store import Occasion
from everlong.store.schema import turn as turns

if TYPE_CHECKING:
    from everlong.context import CompactionReport
    from everlong.store import Branch, Store
    from everlong.tokens import MessageCounter

__all__ = ["MODEL", "Contender", "Cutting", "Everlong", "HeadAndTail"]

_ANSWER_TOKENS = 4_096
"""Room for the answer that the sliding window leaves, at most a quarter of the window."""
_HEAD, _TAIL = 4, 20
"""The messages that the plain summary keeps at both ends."""
_LISTED_LENGTH = 160
_TITLE, MODEL = "The booking system of a harbour", "demo-model"
"""The names under which the store has the session."""
_SECONDS = 20.0
"""Seconds between two messages."""


class Contender:
    """A way to deal with a full window: the messages that it holds, with the tokens of each."""

    name = ""
    about = ""
    """What it does, in a few words."""

    def __init__(self, window: int, counter: MessageCounter) -> None:
        self.window = window
        self.counter = counter
        self.messages: list[Message] = []
        self.sizes: list[int] = []

    def add(self, message: Message) -> None:
        """Take a message of the session."""
        self.messages.append(message)
        self.sizes.append(self.counter.count(message))

    def fit(self) -> None:
        """Make what is held fit the window, before it is sent."""
        raise NotImplementedError

    def hold(self, messages: list[Message]) -> None:
        """Hold other messages from now on."""
        self.messages, self.sizes = list(messages), [self.counter.count(message) for message in messages]

    @property
    def tokens(self) -> int:
        """The tokens of all messages."""
        return sum(self.sizes)


class Cutting(Contender):
    """Keeps the system prompt and the newest messages that fit: a sliding window."""

    name = "cut off the oldest"
    about = "drops old messages for good"

    def fit(self) -> None:
        """Drop the oldest messages until the rest fits; no result stays without its call."""
        messages, sizes = self.messages, self.sizes
        room = self.window - min(_ANSWER_TOKENS, self.window // 4)
        start = cut = next((at for at, one in enumerate(messages) if not is_system(one)), len(messages))
        tokens = self.tokens
        while cut < len(messages) and (tokens > room or (cut > start and messages[cut]["role"] == "tool")):
            tokens -= sizes[cut]
            cut += 1
        del messages[start:cut], sizes[start:cut]


class HeadAndTail(Contender):
    """Keeps the first and the newest messages, and lists the user's requests between them."""

    name = "summarize the middle"
    about = "keeps both ends, and a list of requests between"

    def __init__(self, window: int, counter: MessageCounter) -> None:
        super().__init__(window, counter)
        self._threshold = window // 2
        self._listed: list[str] = []

    def fit(self) -> None:
        """Replace everything between head and tail by one message, once half of the window is full."""
        if self.tokens <= self._threshold:
            return
        messages = self.messages
        start = _HEAD
        while start < len(messages) and messages[start]["role"] == "tool":
            start += 1
        end = max(start, len(messages) - _TAIL)
        while end < len(messages) and (messages[end]["role"] == "tool" or sum(self.sizes[end:]) > self._threshold):
            end += 1
        middle = messages[start:end]
        said = [" ".join(text_of(m).split())[:_LISTED_LENGTH] for m in middle if m["role"] == "user"]
        self._listed = [*self._listed, *(one for one in said if not one.startswith("Summary"))][-40:]
        told = "Summary of the conversation so far. The user asked:\n" + "\n".join(f"- {one}" for one in self._listed)
        self.hold([*messages[:start], {"role": "user", "content": told}, *messages[end:]])


class Everlong(Contender):
    """The engine and the store, as an agent uses them: a conversation with its requests and its compactions."""

    name = "Everlong"
    about = "a structured summary, and every word on disk"

    def __init__(self, window: int, store: Store, length: int = 0) -> None:
        self.engine = everlong.context.ContextCompressor(window)
        super().__init__(window, self.engine.counter)
        self.reports: list[tuple[int, CompactionReport]] = []
        """The message at which each compaction happened, and its report."""
        self.branch: Branch | None = None
        self._store = store
        self._clock = time.time() - length * _SECONDS
        self.conversation = store.sessions.start(title=_TITLE, client="demo", model=MODEL, started=self._clock).id
        self._part = self.conversation
        self._waiting: list[Message] = []
        self._times: list[float] = []
        self._asked: tuple[int, int, float] | None = None
        """The tokens from the cache, the fresh ones, and the cost of the request that has no answer yet."""
        self._seen = 0

    def add(self, message: Message) -> None:
        """Take a message of the session."""
        super().add(message)
        self._clock += _SECONDS
        self._seen += 1
        if self._asked is None:
            self._wait(message)
            return
        read, fresh, dollars = self._asked
        self._asked = None
        turn = self._store.turns.begin(self.keep(), model=MODEL, session=self._part, began=self._clock)
        self._wait(message)
        usage = {"input_tokens": 0, "cache_read_tokens": read, "cache_write_tokens": fresh}
        usage["output_tokens"] = self.sizes[-1]
        self._store.turns.finish(turn.id, message, usage=usage, cost=dollars, echo_node=self.keep().head)

    def _wait(self, message: Message) -> None:
        self._waiting.append(message)
        self._times.append(self._clock)

    def fit(self) -> None:
        """Store what is new, and compact if that is due."""
        branch = self.keep()
        if self.engine.should_compress_preflight(self.messages):
            occasion = Occasion("threshold", self._part, MODEL)
            done = self._store.compact(branch, self.engine, occasion, roll_over=self._part, current_tokens=self.tokens)
            self._part = done.child or self._part
            report = self.engine.last_report
            if done.outcome == "compacted" and report is not None:
                self.hold(done.messages)
                self.reports.append((self._seen, report))

    def ask(self, read: int, fresh: int, dollars: float) -> None:
        """Take note of a request, whose answer is the next message."""
        self._asked = (read, fresh, dollars)

    def keep(self) -> Branch:
        """Store the messages that are not stored yet; return the place of the newest."""
        if self.branch is None:
            self.branch = self._store.record(self._waiting, times=self._times, conversation=self.conversation)
            self._store.sessions.attach(self.conversation, self.branch)
        elif self._waiting:
            self.branch = self._store.append(self.branch, self._waiting, times=self._times)
        self._waiting, self._times = [], []
        return self.branch

    def forget_durations(self) -> None:
        """Remove the times at which requests ended: nobody was asked, so none took any time."""
        self._store.database.write(lambda connection: connection.execute(turns.update().values(ended=None)))
