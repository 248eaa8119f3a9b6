"""The session, played to all contenders at once, and the figures of the run: sizes, cost and facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from everlong.cli.demo.contenders import Contender, Cutting, Everlong, HeadAndTail
from everlong.cli.demo.session import Fact, find_in_context
from everlong.model import calls_of, text_of

if TYPE_CHECKING:
    from everlong.model import Message
    from everlong.store import Store

__all__ = ["PRICES", "Answer", "Played", "Track", "answers_of", "play"]

PRICES = {"input_price": 3.0, "output_price": 0.0, "cache_read_price": 0.3, "cache_write_price": 3.75}
"""US dollars for a million tokens that the demo reckons with; only input is compared."""
_HITS = 10

Source = Literal["context", "recall", "lost"]


@dataclass(slots=True)
class Track:
    """What one contender sent: the size of each request, and what all of them cost."""

    contender: Contender
    sizes: list[int] = field(default_factory=list)
    read: int = 0
    """Tokens that the provider's cache held."""
    written: int = 0
    """Tokens that it did not hold."""
    _last: list[Message] = field(default_factory=list)

    def send(self) -> tuple[int, int]:
        """Count a request, and return its cached and its fresh tokens.

        What it has in common with the one before, from the start on, is cached.
        """
        held = self.contender
        pairs = zip(held.messages, self._last, strict=False)
        same = next((at for at, (one, other) in enumerate(pairs) if not _is_same(one, other)), None)
        shared = min(len(held.messages), len(self._last)) if same is None else same
        cached = sum(held.sizes[:shared])
        self.read += cached
        self.written += held.tokens - cached
        self.sizes.append(held.tokens)
        self._last = list(held.messages)
        return cached, held.tokens - cached

    @property
    def dollars(self) -> float:
        """The cost of the input of all requests."""
        return _dollars(self.read, self.written)


def _dollars(read: int, written: int) -> float:
    return (read * PRICES["cache_read_price"] + written * PRICES["cache_write_price"]) / 1_000_000


def _is_same(one: Message, other: Message) -> bool:
    """Return whether a provider reads two messages alike; the store writes a text as a part."""
    if one is other:
        return True
    return (one["role"], text_of(one), calls_of(one)) == (other["role"], text_of(other), calls_of(other))


@dataclass(slots=True)
class Played:
    """The record of a played session."""

    window: int
    everlong: Everlong
    tracks: list[Track]
    raw_sizes: list[int] = field(default_factory=list)
    """Tokens of each request if nothing were done."""


def play(session: Sequence[Message], window: int, store: Store) -> Played:
    """Play a session to every contender."""
    ours = Everlong(window, store, len(session))
    counter = ours.engine.counter
    contenders = [Cutting(window, counter), HeadAndTail(window, counter), ours]
    played = Played(window, ours, [Track(one) for one in contenders])
    raw = 0
    for message in session:
        if message["role"] == "assistant":  # an agent calls the model here, so the context must fit now
            for track in played.tracks:
                track.contender.fit()
                read, fresh = track.send()
                if track.contender is ours:
                    ours.ask(read, fresh, _dollars(read, fresh))
            played.raw_sizes.append(raw)
        for track in played.tracks:
            track.contender.add(message)
        raw += counter.count(message)
    ours.keep()
    ours.forget_durations()
    return played


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the answer to a question comes from at the end: the context, a recall from the store, or nowhere."""

    fact: Fact
    source: Source
    words: str = ""
    """The words that state it."""


def answers_of(track: Track, facts: Sequence[Fact], store: Store | None = None) -> list[Answer]:
    """Return where a contender has each answer from; only one with a store can recall."""
    return [_answer(fact, track.contender.messages, store) for fact in facts]


def _answer(fact: Fact, context: Sequence[Message], store: Store | None) -> Answer:
    words = find_in_context(fact, context)
    if words:
        return Answer(fact, "context", words)
    if store is None:
        return Answer(fact, "lost")
    for hit in store.search(fact.question, limit=_HITS).hits:
        text = store.read(hit.node, chars=1_000_000).text if hit.node is not None else ""
        if words := next((needle for needle in fact.needle if needle in text), ""):
            return Answer(fact, "recall", words)
    return Answer(fact, "lost")
