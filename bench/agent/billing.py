"""A server's bill for a long session against the cache simulator's prediction for the same bodies, to the token.

The session goes through the official client to the model server of `everlong.testing`, whose cache was written from the
documentation and apart from the simulator: two opinions on the same rules. Both count by the server's own counter, so
that a difference is one of the rules. It has tools, many parallel calls, thinking, pauses that outlive the cache, calls
that fail and are tried again, rewinds and compactions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.api_rules import install_rules, use_clock
from tests.api_rules.faults import ManualClock, random_faults
from tests.api_rules.prompt_cache import anthropic_blocks_of

from everlong import ContextCompressor, Message, PromptCache
from everlong.caching import simulation
from everlong.caching.simulation import CacheSimulator
from everlong.providers import AnthropicProvider, Done, Reply, Retrying, RetryPolicy, Usage
from everlong.providers.anthropic_api import anthropic_usage
from everlong.testing import Answer, Ask, Call, ModelServer
from everlong.testing.server.exchange import Record

install_rules()

MODEL = "claude-sonnet-5"
WINDOW = 40_000
READ_SHARE = 0.9
STRATEGIES = simulation.STRATEGIES
"""Those that need no pings, which nobody sends here."""
_RULES = "Note in the log which berth a boat was given, at what hour, and who asked for it; never give one twice. "
SYSTEM: Message = {"role": "system", "content": "You run the office of a small harbour. " + _RULES * 60}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.replace('_', ' ').capitalize()} of the harbour. {_RULES}",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
    for name in ("read_log", "write_log", "list_berths")
]
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}


class Tokens(NamedTuple):
    """The tokens of one prompt, or of many, by what they cost."""

    read: int = 0
    written_5m: int = 0
    written_1h: int = 0
    plain: int = 0

    @classmethod
    def of(cls, usage: Usage) -> Tokens:
        """Return the tokens of a usage."""
        short = usage.cache_write_tokens - usage.cache_write_1h_tokens
        return cls(usage.cache_read_tokens, short, usage.cache_write_1h_tokens, usage.input_tokens)


@dataclass
class Billing:
    """The bill of a session and its prediction, request by request."""

    billed: list[Tokens] = field(default_factory=list)
    predicted: list[Tokens] = field(default_factory=list)
    reported: list[Tokens] = field(default_factory=list)
    """The usage that the client was told, for each answered call."""
    failures: int = 0
    compactions: int = 0
    pauses: int = 0
    """Pauses that are longer than five minutes."""
    rewinds: int = 0

    @property
    def differing(self) -> list[int]:
        """The requests for which the two do not agree."""
        pairs = zip(self.billed, self.predicted, strict=True)
        return [at for at, (billed, predicted) in enumerate(pairs) if billed != predicted]

    @property
    def read_share(self) -> float:
        """The share of all prompt tokens that was read from the cache."""
        total = summed(self.billed)
        return total.read / max(1, sum(total))


def summed(tokens: list[Tokens]) -> Tokens:
    """Return the sum by kind."""
    return Tokens(*map(sum, zip(*tokens, strict=True)))


def clerk(ask: Ask) -> Answer:
    """Act as the model: look things up, now and then very many at once, and answer with the results."""
    dice = random.Random(ask.number)
    if ask.results and dice.random() < 0.7:
        return Answer(f"Berth {ask.number} is free from noon. " * 3, thinking="The log is clear.")
    width = 24 if dice.random() < 0.03 else dice.choice((1, 1, 1, 2, 3))
    calls = [
        Call(dice.choice(("read_log", "list_berths")), {"path": f"log/{ask.number}-{n}.txt"}) for n in range(width)
    ]
    return Answer("I look that up.", calls, thinking=f"Page {ask.number} may have it.")


class Auditor:
    """Tells what each request should be billed: reads what the server recorded, at the times at which it was sent."""

    def __init__(self, server: ModelServer, billing: Billing) -> None:
        self.times: list[float] = []
        self._server = server
        self._billing = billing
        self._simulator = CacheSimulator(MODEL, "anthropic", per_block=False, measure=measured)
        self._before: list[Message] = []
        self._read = 0

    def audit(self) -> None:
        """Take in the requests that came since the last time."""
        for record, at in zip(self._server.requests[self._read :], self.times[self._read :], strict=True):
            self._read += 1
            if record.status == 200:
                self._predict(record, at)
            else:
                self._billing.failures += 1

    def _predict(self, record: Record, at: float) -> None:
        # Equal messages become the same objects, which the simulator looks up instead of keeping them all.
        old = self._before
        messages = [old[n] if n < len(old) and old[n] == new else new for n, new in enumerate(record.body["messages"])]
        self._before = messages
        outcome = self._simulator.send({**record.body, "messages": messages}, at, responds_after=0.0)
        written = outcome.written
        predicted = Tokens(outcome.read, written.get("5m", 0), written.get("1h", 0), outcome.fresh)
        self._billing.predicted.append(predicted)
        self._billing.billed.append(Tokens.of(anthropic_usage(record.usage)))


def measured(body: Mapping[str, Any]) -> list[int]:
    """Return the tokens of every block of a request, as the server counts them."""
    return [block.tokens for block in anthropic_blocks_of(body)]


class Session:
    """One conversation with the clerk, on a clock of its own."""

    def __init__(
        self, server: ModelServer, clock: ManualClock, settings: Mapping[str, Any], seed: int, window: int
    ) -> None:
        self.billing = Billing()
        self._clock = clock
        self._dice = random.Random(seed)
        self._cache = PromptCache(MODEL, "anthropic", settings=settings, clock=clock)
        client = AnthropicProvider(MODEL, api_key="key-of-nobody", base_url=server.url)
        self._provider = Retrying(client, RetryPolicy(attempts=8), sleep=clock.sleep, dice=lambda: 0.5)
        self._engine = ContextCompressor(window, model=MODEL, overhead_tokens=400, clock=clock)
        self._auditor = Auditor(server, self.billing)
        self._messages: list[Message] = [SYSTEM]
        self._earlier: list[list[Message]] = []
        """The conversation as it was before each turn since the last compaction."""

    def turn(self, number: int) -> None:
        """Ask as a person, or go back and ask something else; the clerk looks things up and answers."""
        self._wait()
        if len(self._earlier) > 8 and self._dice.random() < 0.05:
            del self._earlier[-self._dice.randint(1, 8) :]
            self._messages = self._earlier.pop()
            self.billing.rewinds += 1
        self._earlier.append(self._messages)
        asked = f"Request {number}: which berth is free for the boat Heron {number}? It comes at {number % 24}:00."
        self._messages = [*self._messages, {"role": "user", "content": asked}]
        reply = self._answered()
        while reply.calls:
            self._clock.advance(self._dice.uniform(1, 40))
            lines = [f"{self._dice.randrange(24):02}:00 berth {self._dice.randrange(90)} taken\n" for _ in range(20)]
            results = [
                {"role": "tool", "tool_call_id": call.id, "content": f"{call.arguments}\n{''.join(lines)}"}
                for call in reply.calls
            ]
            self._messages = [*self._messages, *results]
            reply = self._answered()

    def _wait(self) -> None:
        chance = self._dice.random()
        seconds = self._dice.uniform(301, 4_000) if chance < 0.03 else self._dice.uniform(5, 290)
        self.billing.pauses += seconds > 300
        self._clock.advance(seconds)

    def _answered(self) -> Reply:
        if self._engine.should_compress_preflight(self._messages):
            self._messages = self._engine.compress(self._messages)
            self._earlier.clear()
            self.billing.compactions += 1
        events = self._provider.stream(
            self._messages, tools=TOOLS, max_tokens=4_000, options=THINKING, prepare=self._prepared
        )
        *_, last = events
        self._auditor.audit()
        if not isinstance(last, Done):
            raise TypeError(f"the last event of a stream is Done, got {last!r}")
        self.billing.reported.append(Tokens.of(last.reply.usage))
        self._engine.update_from_response(last.reply.usage.to_dict())
        self._messages = [*self._messages, last.reply.message]
        return last.reply

    def _prepared(self, body: dict[str, Any]) -> dict[str, Any]:
        self._auditor.times.append(self._clock())
        return self._cache.apply(body)

    def close(self) -> None:
        """Let go of connections."""
        self._provider.close()


def play(turns: int, strategy: str = "ledger", seed: int = 1, window: int = WINDOW) -> Billing:
    """Play a session of so many turns under a strategy."""
    clock = ManualClock()
    faults = random_faults(seed, 0.03, ("rate_limit", "server_error", "overloaded"))
    with ModelServer(clerk, window=window, faults=faults, alternate_roles=True, remember=16) as server:
        use_clock(server, clock)
        session = Session(server, clock, STRATEGIES[strategy], seed, window)
        try:
            for number in range(turns):
                session.turn(number)
        finally:
            session.close()
        if server.rejections:
            raise AssertionError(f"the server refused a request: {server.rejections[0].error}")
    return session.billing
