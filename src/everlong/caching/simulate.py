"""A prompt cache that follows the published rules, to see what a series of requests would cost.

It is given requests as they are sent, markers and all, and reads those by itself; it does not know which strategy put
them there. Costs are in units of one fresh input token. Beside each request's own cost stand two others: without any
caching, and the oracle's, which reads every token that an earlier request of the session sent in the same position and
writes each new one once.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from everlong.caching.blocks import Block, Count, layout_of, rough_count
from everlong.caching.reader import Measure, Prompt, PromptReader
from everlong.caching.rules import SECONDS, CacheRules, ModelRules, cache_rules, model_rules, provider_of

__all__ = ["CacheSimulator", "Outcome", "Totals"]

_ORACLE_WRITE = 1.25


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one request cost; tokens read, written by time to live, and paid in full."""

    at: float
    prompt: int
    read: int
    written: dict[str, int]
    fresh: int
    cost: float
    oracle: float
    uncached: float
    reachable: float
    """What the best placement could cost if nothing lived longer than five minutes."""
    reason: str = ""
    """Why less was read than an earlier request had sent; empty if nothing was missed."""
    missed: int = 0
    """How many tokens of it were not read."""
    is_ping: bool = False


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over a session."""

    requests: int
    cost: float
    oracle: float
    uncached: float
    reachable: float
    prompt: int
    read: int
    reasons: dict[str, int]
    """Missed tokens by reason."""

    @property
    def over_oracle(self) -> float:
        """The cost as a multiple of the oracle's."""
        return self.cost / self.oracle if self.oracle else 1.0

    @property
    def of_uncached(self) -> float:
        """The cost as a share of that without caching."""
        return self.cost / self.uncached if self.uncached else 1.0

    @property
    def hit_share(self) -> float:
        """The share of all prompt tokens that was read from the cache."""
        return self.read / self.prompt if self.prompt else 0.0

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Totals:
        """The totals of some requests."""
        reasons: dict[str, int] = {}
        for outcome in outcomes:
            if outcome.reason:
                reasons[outcome.reason] = reasons.get(outcome.reason, 0) + outcome.missed
        return cls(
            sum(not outcome.is_ping for outcome in outcomes),
            sum(outcome.cost for outcome in outcomes),
            sum(outcome.oracle for outcome in outcomes),
            sum(outcome.uncached for outcome in outcomes),
            sum(outcome.reachable for outcome in outcomes),
            sum(outcome.prompt for outcome in outcomes),
            sum(outcome.read for outcome in outcomes),
            dict(sorted(reasons.items(), key=lambda item: -item[1])),
        )


class _Entry(NamedTuple):
    expires: float
    readable: float
    ttl: str


@dataclass
class CacheSimulator:
    """One provider's cache, as one session sees it.

    ``per_block`` counts the look-back in blocks also where newer rules collapse runs of calls and results.
    ``strict`` lets a request refresh only the one entry that it reads, not every one that it marks.
    ``measure`` gives the tokens of a request's blocks where the provider's own count is at hand; else each block's text
    is given to ``count``.
    """

    model: str = "claude-sonnet-4-5"
    provider: str = ""
    per_block: bool = True
    strict: bool = False
    count: Count = rough_count
    measure: Measure | None = None
    rules: CacheRules = field(init=False)
    prices: ModelRules = field(init=False)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._provider = provider_of(self.provider, model=self.model)
        self.rules = cache_rules(self._provider, self.model)
        self.prices = model_rules(self.model)
        self._entries: dict[bytes, _Entry] = {}
        self._seen: dict[bytes, float] = {}
        self._reader = PromptReader(self.count, self.measure)
        self._before: Prompt | None = None

    @property
    def totals(self) -> Totals:
        """What all requests so far cost."""
        return Totals.of(self.outcomes)

    def send(
        self, body: Mapping[str, Any], at: float, *, responds_after: float = 2.0, is_ping: bool = False
    ) -> Outcome:
        """One request at a time in seconds; what it writes can be read once its response has begun.

        A ping that keeps the cache alive has a price, but no part in what the session would cost otherwise.
        """
        model = body.get("model")
        if isinstance(model, str) and model and model != self.model:
            self.model, self.prices = model, model_rules(model)
            self.rules = cache_rules(self._provider, model)
        prompt = self._reader.read(body, layout_of(self._provider, body), f"{self._provider}/{self.model}")
        known, recent = self._sent_since(prompt, -math.inf), self._sent_since(prompt, at - SECONDS["5m"])
        is_automatic = self.rules.style == "automatic"
        hit = self._find_automatic(prompt, at) if is_automatic else self._find_marked(prompt, at)
        reason = self._reason(prompt, at, hit, known)
        write = self._write_automatic if is_automatic else self._write_marked
        outcome = self._priced(prompt, at, hit, write(prompt, hit, at, responds_after), (known, recent), reason)
        if is_ping:
            outcome = replace(outcome, oracle=0.0, uncached=0.0, reachable=0.0, is_ping=True)
        else:
            self._seen.update(dict.fromkeys(prompt.chain, at))
        self._before = prompt
        self.outcomes.append(outcome)
        return outcome

    def _sent_since(self, prompt: Prompt, when: float) -> int:
        """The last block whose prefix an earlier request sent after a time; what leads up to it was sent then too."""
        places = range(len(prompt.chain))
        return bisect_left(places, True, key=lambda place: self._seen.get(prompt.chain[place], -math.inf) <= when) - 1

    # -- caches that are told what to keep ---------------------------------------------------------------------------

    def _marks(self, prompt: Prompt) -> list[tuple[int, str]]:
        least = self.prices.minimum_tokens
        return [(place, ttl) for place, ttl in prompt.marks if prompt.sizes[place] >= least]

    def _find_marked(self, prompt: Prompt, at: float) -> int:
        positions = self._positions(prompt.blocks)
        return max((self._walk_back(prompt, positions, place, at) for place, _ in self._marks(prompt)), default=-1)

    def _write_marked(self, prompt: Prompt, hit: int, at: float, delay: float) -> dict[str, int]:
        marks = self._marks(prompt)
        held = self._entries[prompt.chain[hit]] if hit >= 0 else None
        written: dict[str, int] = {}
        done = prompt.upto(hit)
        for place, ttl in sorted(marks, key=lambda mark: (mark[1] != "1h", mark[0])):
            if place > hit and prompt.upto(place) > done:
                written[ttl] = written.get(ttl, 0) + prompt.upto(place) - done
                done = prompt.upto(place)
        for place, ttl in marks:
            entry = self._live(prompt.chain[place], at)
            if entry is None:
                # What lies inside of a prefix that was read is not paid for again, so it lives no longer than that.
                life = ttl if place > hit or held is None else min(ttl, held.ttl, key=SECONDS.__getitem__)
                self._entries[prompt.chain[place]] = _Entry(at + SECONDS[life], at + delay, life)
            elif not self.strict:
                self._entries[prompt.chain[place]] = entry._replace(expires=at + SECONDS[entry.ttl])
        if held is not None:
            self._entries[prompt.chain[hit]] = held._replace(expires=at + SECONDS[held.ttl])
        return written

    def _walk_back(self, prompt: Prompt, positions: Sequence[int], start: int, at: float) -> int:
        place = start
        while place >= 0 and positions[start] - positions[place] < self.rules.look_back:
            entry = self._live(prompt.chain[place], at)
            if entry is not None and entry.readable <= at:
                return place
            place -= 1
        return -1

    def _positions(self, blocks: Sequence[Block]) -> Sequence[int]:
        if self.per_block or not self.rules.collapses_tool_runs:
            return range(len(blocks))
        positions: list[int] = []
        for at, block in enumerate(blocks):
            joins = at > 0 and block.kind in ("tool_use", "tool_result") and blocks[at - 1].kind == block.kind
            positions.append(positions[-1] + (not joins) if positions else 0)
        return positions

    def _live(self, prefix: bytes, at: float) -> _Entry | None:
        entry = self._entries.get(prefix)
        return entry if entry is not None and at < entry.expires else None

    # -- caches that keep every prefix by themselves -----------------------------------------------------------------

    def _find_automatic(self, prompt: Prompt, at: float) -> int:
        for place in range(len(prompt.chain) - 1, -1, -1):
            entry = self._live(prompt.chain[place], at)
            if entry is not None and entry.readable <= at:
                return place
        return -1

    def _write_automatic(self, prompt: Prompt, hit: int, at: float, delay: float) -> dict[str, int]:
        least = self.prices.minimum_tokens
        written: dict[str, int] = {}
        places = [place for place in range(len(prompt.chain)) if prompt.sizes[place] >= least]
        if self.rules.implicit_breakpoint:
            places = [place for place in places if prompt.blocks[place].is_input][-1:]
            if places and places[0] > hit:
                written["5m"] = prompt.upto(places[0]) - prompt.upto(hit)
            places += [hit] if hit >= 0 else []
        for place in places:
            entry = self._live(prompt.chain[place], at)
            readable = at + delay if entry is None else entry.readable
            self._entries[prompt.chain[place]] = _Entry(at + self.rules.ttl_seconds, readable, "auto")
        return written

    # -- prices and reasons ------------------------------------------------------------------------------------------

    def _priced(
        self, prompt: Prompt, at: float, hit: int, written: dict[str, int], known: tuple[int, int], reason: str
    ) -> Outcome:
        prices, scale = self.prices, self.prices.scale(prompt.tokens)
        step = self.rules.step_tokens if self.rules.style == "automatic" else 1
        read = prompt.upto(hit) // step * step
        fresh = prompt.tokens - read - sum(written.values())
        paid = read * prices.read + sum(tokens * prices.write[ttl] for ttl, tokens in written.items()) + fresh
        ever, lately = (
            scale * (prompt.upto(end) * prices.read + (prompt.tokens - prompt.upto(end)) * _ORACLE_WRITE)
            for end in known
        )
        missed = max(0, prompt.upto(known[0]) - prompt.upto(hit))
        full = prompt.tokens * scale
        return Outcome(at, prompt.tokens, read, written, fresh, paid * scale, ever, full, lately, reason, missed)

    def _reason(self, prompt: Prompt, at: float, hit: int, known: int) -> str:
        """Why less was read than an earlier request had sent, or what changed since the last one."""
        if known <= hit:
            return self._change(prompt)
        if self.rules.style == "markers" and not prompt.marks:
            return "no markers"
        is_small = prompt.sizes[known] < self.prices.minimum_tokens
        if is_small or (self.rules.style == "markers" and not self._marks(prompt)):
            return "below the least size"
        for place in range(known, hit, -1):
            entry = self._entries.get(prompt.chain[place])
            if entry is not None:
                late = "not readable yet" if entry.readable > at else "out of the look-back"
                return "expired" if entry.expires <= at else late
        return "never marked"

    def _change(self, prompt: Prompt) -> str:
        before = self._before
        if before is None:
            return "first request"
        pairs = zip(prompt.chain, before.chain, strict=False)
        same = next((at for at, (new, old) in enumerate(pairs) if new != old), len(before.chain))
        if same >= len(before.chain):
            return ""
        return f"{prompt.blocks[same].tier} changed" if same < len(prompt.blocks) else "history cut short"
