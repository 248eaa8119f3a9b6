"""A simulated prompt cache that follows the published rules, to price a series of requests.

It reads the markers of each request as sent and does not know which strategy put them there. Costs are in units of one
fresh input token. Two reference costs stand beside each request's own: without any caching, and the oracle's. The
oracle reads every token that an earlier request of the session sent in the same position, and writes each new one once,
which costs nothing extra where the provider caches by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from everlong.caching.blocks import Block, Count, RequestView, layout_of, rough_count
from everlong.caching.misses import CachedPrompt, Miss, find_miss
from everlong.caching.prompt_cache import PromptCache, last_markable
from everlong.caching.rules import SECONDS, CacheRules, ModelRules, Provider, cache_rules, model_rules, provider_of
from everlong.model import Message
from everlong.tokens import MessageCounter

__all__ = [
    "MODEL",
    "STRATEGIES",
    "CacheOutcome",
    "CacheSimulator",
    "Measure",
    "Replay",
    "Totals",
    "replay",
    "requests_of",
]

Measure: TypeAlias = Callable[[Mapping[str, Any]], Sequence[int]]
"""A function that returns the tokens of every block of a request in order: tools, system, messages."""
MODEL = "claude-sonnet-4-6"
"""The model whose rules hold for a conversation that names none."""


@dataclass(frozen=True, slots=True)
class CacheOutcome:
    """The cost of one request; tokens read, written by time to live, and paid in full."""

    at: float
    prompt: int
    read: int
    written: dict[str, int]
    fresh: int
    cost: float
    oracle: float
    uncached: float
    reason: str = ""
    """The reason for reading less than the request before had left, as `find_miss` names it; empty if it read all."""
    missed: int = 0
    """The tokens that it had left and that were not read."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over a session."""

    requests: int
    cost: float
    oracle: float
    uncached: float
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
    def of(cls, outcomes: Sequence[CacheOutcome]) -> Totals:
        """Return the totals of some requests."""
        reasons: dict[str, int] = {}
        for outcome in outcomes:
            if outcome.reason:
                reasons[outcome.reason] = reasons.get(outcome.reason, 0) + outcome.missed
        return cls(
            len(outcomes),
            sum(outcome.cost for outcome in outcomes),
            sum(outcome.oracle for outcome in outcomes),
            sum(outcome.uncached for outcome in outcomes),
            sum(outcome.prompt for outcome in outcomes),
            sum(outcome.read for outcome in outcomes),
            dict(sorted(reasons.items(), key=lambda item: -item[1])),
        )


@dataclass
class CacheSimulator:
    """One provider's cache, as one session sees it.

    ``per_block`` counts the look-back in blocks even if newer rules collapse runs of calls and results. ``measure``
    gives the provider's own token count of a request's blocks; without it, ``counter`` counts messages, else ``count``
    each block's text.
    """

    model: str = MODEL
    provider: str = ""
    per_block: bool = True
    count: Count = rough_count
    counter: MessageCounter | None = None
    measure: Measure | None = None
    rules: CacheRules = field(init=False)
    prices: ModelRules = field(init=False)
    outcomes: list[CacheOutcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._provider = provider_of(self.provider, model=self.model)
        self.rules = cache_rules(self._provider, self.model)
        self.prices = model_rules(self.model)
        self._entries: dict[bytes, _SimulatedPrefix] = {}
        self._seen: set[bytes] = set()
        self._views: dict[str, RequestView] = {}
        self._before: CachedPrompt | None = None

    @property
    def totals(self) -> Totals:
        """The costs of all requests so far."""
        return Totals.of(self.outcomes)

    def send(self, body: Mapping[str, Any], at: float, *, responds_after: float = 2.0) -> CacheOutcome:
        """Price one request at a time in seconds; what it writes can be read once its response has begun."""
        model = body.get("model")
        if isinstance(model, str) and model and model != self.model:
            self.model, self.prices = model, model_rules(model)
            self.rules = cache_rules(self._provider, model)
        prompt = self._read(body)
        is_automatic = self.rules.style == "automatic"
        hit = self._find_automatic(prompt, at) if is_automatic else self._find_marked(prompt, at)
        write = self._write_automatic if is_automatic else self._write_marked
        outcome = self._price(prompt, at, hit, write(prompt, hit, at, responds_after))
        miss = self._find_miss(prompt, outcome)
        if miss is not None:
            outcome = replace(outcome, reason=miss.reason, missed=miss.tokens)
        self._seen.update(prompt.chain)
        self.outcomes.append(outcome)
        return outcome

    def _read(self, body: Mapping[str, Any]) -> _Prompt:
        layout = layout_of(self._provider, body)
        view = self._views.setdefault(
            self.model, RequestView(f"{self._provider}/{self.model}", self.count, self.counter)
        )
        view.update(body, layout)
        sizes = view.sizes if self.measure is None else _sum_measured(view.blocks, self.measure(body))
        marks = [(at, view.blocks[at].marker or "5m") for at in view.marked]
        automatic = body.get("cache_control") if layout == "anthropic" else None
        last = last_markable(view, len(view.blocks)) if isinstance(automatic, Mapping) else None
        if automatic is not None and last is not None and last not in view.marked:
            marks.append((last, "1h" if automatic.get("ttl") == "1h" else "5m"))
        return _Prompt(view.blocks, view.chain, sizes, marks)

    def _find_miss(self, prompt: _Prompt, outcome: CacheOutcome) -> Miss | None:
        """Return why a request did not read what the one before it had left, and remember this one."""
        digests: dict[str, list[bytes]] = {"tools": [], "system": [], "messages": []}
        for block in prompt.blocks:
            digests[block.tier].append(block.digest)
        now = CachedPrompt(
            outcome.at,
            max((SECONDS[ttl] for _, ttl in prompt.marks), default=self.rules.ttl_seconds),
            self.model,
            tuple(digests["tools"]),
            tuple(digests["system"]),
            digests["messages"],
            None,
            outcome.prompt,
            outcome.read,
            sum(outcome.written.values()),
        )
        before, self._before = self._before, now
        return None if before is None else find_miss(before, now, self.rules, self.prices)

    def _find_sent(self, prompt: _Prompt) -> int:
        """Return the last block whose prefix, and so every shorter one, an earlier request sent."""
        places = range(len(prompt.chain))
        return bisect_left(places, True, key=lambda place: prompt.chain[place] not in self._seen) - 1

    # -- caches that are told what to keep ---------------------------------------------------------------------------

    def _marks(self, prompt: _Prompt) -> list[tuple[int, str]]:
        least = self.prices.minimum_tokens
        return [(place, ttl) for place, ttl in prompt.marks if prompt.sizes[place] >= least]

    def _find_marked(self, prompt: _Prompt, at: float) -> int:
        positions = self._positions(prompt.blocks)
        return max((self._walk_back(prompt, positions, place, at) for place, _ in self._marks(prompt)), default=-1)

    def _write_marked(self, prompt: _Prompt, hit: int, at: float, delay: float) -> dict[str, int]:
        marks = self._marks(prompt)
        held = self._entries[prompt.chain[hit]] if hit >= 0 else None
        written: dict[str, int] = {}
        done = prompt.tokens_to(hit)
        for place, ttl in sorted(marks, key=lambda mark: (mark[1] != "1h", mark[0])):
            if place > hit and prompt.tokens_to(place) > done:
                written[ttl] = written.get(ttl, 0) + prompt.tokens_to(place) - done
                done = prompt.tokens_to(place)
        for place, ttl in marks:
            entry = self._live(prompt.chain[place], at)
            if entry is None:
                # A mark inside of a prefix that was read costs nothing, so it lives no longer than that prefix.
                life = ttl if place > hit or held is None else min(ttl, held.ttl, key=SECONDS.__getitem__)
                self._entries[prompt.chain[place]] = _SimulatedPrefix(at + SECONDS[life], at + delay, life)
            else:
                self._entries[prompt.chain[place]] = entry._replace(expires=at + SECONDS[entry.ttl])
        if held is not None:
            self._entries[prompt.chain[hit]] = held._replace(expires=at + SECONDS[held.ttl])
        return written

    def _walk_back(self, prompt: _Prompt, positions: Sequence[int], start: int, at: float) -> int:
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

    def _live(self, prefix: bytes, at: float) -> _SimulatedPrefix | None:
        entry = self._entries.get(prefix)
        return entry if entry is not None and at < entry.expires else None

    # -- caches that keep every prefix by themselves -----------------------------------------------------------------

    def _find_automatic(self, prompt: _Prompt, at: float) -> int:
        for place in range(len(prompt.chain) - 1, -1, -1):
            entry = self._live(prompt.chain[place], at)
            if entry is not None and entry.readable <= at:
                return place
        return -1

    def _write_automatic(self, prompt: _Prompt, hit: int, at: float, delay: float) -> dict[str, int]:
        least = self.prices.minimum_tokens
        written: dict[str, int] = {}
        places = [place for place in range(len(prompt.chain)) if prompt.sizes[place] >= least]
        if self.rules.implicit_breakpoint:
            places = [place for place in places if prompt.blocks[place].is_input][-1:]
            if places and places[0] > hit:
                written["5m"] = prompt.tokens_to(places[0]) - prompt.tokens_to(hit)
            places += [hit] if hit >= 0 else []
        for place in places:
            entry = self._live(prompt.chain[place], at)
            readable = at + delay if entry is None else entry.readable
            self._entries[prompt.chain[place]] = _SimulatedPrefix(at + self.rules.ttl_seconds, readable, "auto")
        return written

    # -- prices ------------------------------------------------------------------------------------------------------

    def _price(self, prompt: _Prompt, at: float, hit: int, written: dict[str, int]) -> CacheOutcome:
        prices, scale = self.prices, self.prices.scale(prompt.tokens)
        step = self.rules.step_tokens if self.rules.style == "automatic" else 1
        read = prompt.tokens_to(hit) // step * step
        fresh = prompt.tokens - read - sum(written.values())
        paid = read * prices.read + sum(tokens * prices.write[ttl] for ttl, tokens in written.items()) + fresh
        known = prompt.tokens_to(self._find_sent(prompt))
        is_free = self.rules.style == "automatic" and not self.rules.implicit_breakpoint
        write = 1.0 if is_free else prices.write["5m"]
        oracle = scale * (known * prices.read + (prompt.tokens - known) * write)
        return CacheOutcome(at, prompt.tokens, read, written, fresh, paid * scale, oracle, prompt.tokens * scale)


class _SimulatedPrefix(NamedTuple):
    expires: float
    readable: float
    ttl: str


class _Prompt(NamedTuple):
    """One request: ``blocks[i]`` ends the prefix with the hash ``chain[i]`` and ``sizes[i]`` tokens."""

    blocks: list[Block]
    chain: list[bytes]
    sizes: list[int]
    marks: list[tuple[int, str]]
    """The marked blocks in order, each with its time to live."""

    @property
    def tokens(self) -> int:
        """The size of the whole prompt."""
        return self.sizes[-1] if self.sizes else 0

    def tokens_to(self, at: int) -> int:
        """Return the tokens of the prefix that a block ends; 0 before the first."""
        return self.sizes[at] if at >= 0 else 0


def _sum_measured(blocks: Sequence[Block], tokens: Sequence[int]) -> list[int]:
    if len(tokens) != len(blocks):
        raise ValueError(
            f"measure gave {len(tokens)} numbers for a request of {len(blocks)} blocks; give one for each tool, each "
            "block of the system prompt and each block of a message"
        )
    return list(accumulate(tokens))


# -- a session under every strategy ------------------------------------------------------------------------------------

STRATEGIES: dict[str, dict[str, Any]] = {
    "off": {"strategy": "off"},
    "system_and_3": {"strategy": "system_and_3"},
    "ledger": {"strategy": "ledger"},
    "ledger, 1h": {"strategy": "ledger", "cache_ttl": "1h"},
}


@dataclass(frozen=True, slots=True)
class Replay:
    """The costs of one session under each strategy."""

    name: str
    model: str
    provider: Provider
    outcomes: dict[str, list[CacheOutcome]]

    @property
    def totals(self) -> dict[str, Totals]:
        """The sums for each strategy."""
        return {strategy: Totals.of(outcomes) for strategy, outcomes in self.outcomes.items()}

    @property
    def requests(self) -> int:
        """The number of requests in the session, without pings."""
        return next(iter(self.totals.values())).requests

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready data."""
        strategies = {
            strategy: {
                "cost": totals.cost,
                "over_oracle": totals.over_oracle,
                "of_uncached": totals.of_uncached,
                "hit_share": totals.hit_share,
                "missed_by_reason": totals.reasons,
                "requests": [asdict(outcome) for outcome in self.outcomes[strategy]],
            }
            for strategy, totals in self.totals.items()
        }
        any_totals = next(iter(self.totals.values()))
        return {
            "name": self.name,
            "model": self.model,
            "provider": self.provider,
            "requests": self.requests,
            "uncached": any_totals.uncached,
            "oracle": any_totals.oracle,
            "strategies": strategies,
        }


def requests_of(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, gap: float = 30.0
) -> list[tuple[float, dict[str, Any]]]:
    """Return the requests that led to a conversation, each ``gap`` seconds after the one before."""
    ends = [at for at, message in enumerate(messages) if message.get("role") == "assistant" and at]
    if not ends or ends[-1] != len(messages) - 1:
        ends.append(len(messages))
    found: list[tuple[float, dict[str, Any]]] = []
    for end in ends:
        if not any(message.get("role") != "system" for message in messages[:end]):
            continue
        body: dict[str, Any] = {"messages": list(messages[:end])}
        found.append((gap * len(found), {**body, "tools": list(tools)} if tools else body))
    return found


def replay(
    name: str,
    calls: Sequence[tuple[float, dict[str, Any]]],
    model: str,
    provider: str = "",
    *,
    counter: MessageCounter | None = None,
) -> Replay:
    """Return what a session costs under every strategy that makes a difference at the provider."""
    found = provider_of(provider, model=model)
    rules = cache_rules(found, model)
    chosen = STRATEGIES if rules.style == "markers" else {"automatic": {"strategy": "auto"}}
    outcomes = {strategy: _play(calls, model, found, settings, counter) for strategy, settings in chosen.items()}
    return Replay(name, model, found, outcomes)


def _play(
    calls: Sequence[tuple[float, dict[str, Any]]],
    model: str,
    provider: Provider,
    settings: dict[str, Any],
    counter: MessageCounter | None,
) -> list[CacheOutcome]:
    count = rough_count if counter is None else counter.count_text
    simulator = CacheSimulator(model, provider, count=count, counter=counter)
    cache = PromptCache(model, provider, settings=settings, count=count, clock=lambda: 0.0)
    for at, body in calls:
        simulator.send(cache.apply(body, at), at)
    return simulator.outcomes
