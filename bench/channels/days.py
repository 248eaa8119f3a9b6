"""A chat of thirty days on Discord: does it go on, is what was said on the first day still known, what does it cost?

The real adapter and its real library talk to a stand-in for Discord on loopback, the official client of a model to the
model server of `everlong.testing`, which refuses what the real API refuses and forgets its cache by the clock of this
run. Days have busy and idle hours; at night the connection is down and messages pile up until the morning. Nothing is
ever reset; idle conversations are compacted while their cache is warm. On the last day the person asks about ten things
of the first one; the scripted model answers only from its requests and from what ``recall`` gives it.

    python -m bench.channels.days --days 30 --messages 3000
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.api_rules import install_rules, use_clock
from tests.channels.discord_stand_in import DiscordStandIn, discord_stand_in

from bench.agent.clerk import Clerk
from bench.agent.facts import FACTS, Fact
from bench.agent.session import MODELS, connected, own_folder
from bench.measure import verdict
from everlong.agent import Agent, AgentOptions, open_agent
from everlong.channels.discord import DiscordPlatform
from everlong.channels.platform import Inbound
from everlong.channels.service import Channel, ChannelClock
from everlong.config import Settings
from everlong.store import Store
from everlong.store.conversations import ConversationFilters
from everlong.testing import Answer, Ask, ModelServer
from everlong.tokens import EstimatingCounter

install_rules()

__all__ = ["TOLD", "Days", "live"]

WINDOW = 32_768
WINDOWS = 4
"""The windows' worth of text that people must have said."""
NIGHT = 0.2
"""The share of a day's messages that comes while the connection is down."""
TOLD: tuple[Fact, ...] = tuple(fact for fact in FACTS if fact.teller != "tool")[:10]
"""The facts of the first day."""
_COUNTER = EstimatingCounter()
_DAY, _HOUR = 86_400.0, 3_600.0
_CACHE_SECONDS = 300.0
_NIGHT_BATCH = 25
"""Messages of one night at most: a chat takes thirty that wait."""
_MODEL = MODELS["anthropic"]
_PRICES = {"input_price": 3.0, "output_price": 15.0, "cache_read_price": 0.3, "cache_write_price": 3.75}
_ANSWER = "Good to hear. I keep that in mind for {word}, and ask again when it matters."
_WORDS = (
    *("harbour", "boat", "rope", "lamp", "tide", "crew", "quay", "engine", "paint", "weather", "supper", "market"),
    *("ticket", "bicycle", "garden", "window", "letter", "cousin", "lesson", "piano", "river", "bridge", "ferry"),
    *("kettle", "blanket", "lantern", "compass", "anchor", "ladder", "barrel", "sailor", "captain", "island"),
)


@dataclass
class Days:
    """What came of a chat."""

    days: int
    messages: int
    window: int
    refused: list[str] = field(default_factory=list)
    """Requests that the model's API did not take."""
    answers: int = 0
    unanswered: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    text_tokens: int = 0
    compactions: Counter[str] = field(default_factory=Counter)
    conversations: int = 0
    cost: float = 0.0
    read_share: float = 0.0
    largest_prompt: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """True if every bar was held."""
        told = len(self.known) == len(TOLD) and self.text_tokens >= WINDOWS * self.window
        return told and not self.refused and not self.unanswered and self.conversations == 1


class SimulatedClock:
    """The time of the run. Sleeping takes a moment, whatever it is for."""

    def __init__(self) -> None:
        self.time = 1_790_000_000.0

    def now(self) -> float:
        """Return the time."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Let the others go on."""
        await asyncio.sleep(min(seconds, 0.05))


class Companion(Clerk):
    """The scripted model: chats, takes facts in, and answers questions as `Clerk` does."""

    def __init__(self) -> None:
        super().__init__(())

    def __call__(self, ask: Ask) -> Answer:
        """Return the answer to a request."""
        made = super().__call__(ask)
        if made.calls or made.text != "What shall I do?":
            return made
        told = next((fact for fact in TOLD if fact.request in ask.last_user), None)
        words = [word for word in ask.last_user.split() if word in _WORDS]
        return Answer(told.answer if told is not None else _ANSWER.format(word=words[-1] if words else "later"))


class Life:
    """A person who writes to the bot for days.

    Args:
        discord: The stand-in.
        channel: The channel, listening.
        clock: The time of the run.
        days: What is noted down.
        seed: Chooses words and hours.
    """

    def __init__(self, discord: DiscordStandIn, channel: Channel, clock: SimulatedClock, days: Days, seed: int) -> None:
        self._discord, self._channel, self._clock, self._days = discord, channel, clock, days
        self._random = random.Random(seed)
        self._received: set[str] = set()
        self.person = next(iter(discord.people))
        self.chat = discord.add_private_chat(self.person)

    async def receive(self, event: Inbound) -> None:
        """Store an event, and remember that it came."""
        await self._channel.receive(event)
        self._received.add(event.message)

    async def live(self) -> None:
        """Live through all days, then ask."""
        per_day = self._days.messages // self._days.days
        at_night = min(_NIGHT_BATCH, int(per_day * NIGHT))
        for day in range(self._days.days):
            start = self._clock.time
            texts = list(self._texts(per_day, TOLD if day == 0 else ()))
            awake = texts[: len(texts) - at_night]
            for text in awake:
                await self._say([text])
                await self._pass(self._pause(len(awake)))
            await self._sleep_through(texts[len(awake) :])
            self._clock.time = max(self._clock.time, start + _DAY)
            print(f"  day {day + 1} of {self._days.days}: {self._days.text_tokens:,} tokens said", file=sys.stderr)
        for fact in TOLD:
            await self._say([fact.question])

    def _texts(self, count: int, facts: tuple[Fact, ...]) -> Iterator[str]:
        told = {1 + 2 * number: fact for number, fact in enumerate(facts)}
        for number in range(count):
            if number in told:
                yield told[number].request
                continue
            words = [self._random.choice(_WORDS) for _ in range(self._random.randint(30, 60))]
            amount = self._random.randint(2, 9_999)
            yield f"Today the {' '.join(words)}, and it was {amount} in the end."

    def _pause(self, count: int) -> float:
        """Return the seconds until the next message: mostly a minute, sometimes an hour or more."""
        if self._random.random() < 6 / max(6, count):
            return self._random.uniform(0.5, 2.0) * _HOUR
        return self._random.uniform(20, 90)

    async def _pass(self, seconds: float) -> None:
        """Let time pass; in a pause the channel is woken as its timer would, until the cache is cold."""
        end = self._clock.time + seconds
        if seconds > _CACHE_SECONDS:
            begun = self._clock.time
            for idle in (240.0, 271.0, 299.0):
                self._clock.time = begun + idle
                await self._channel.tick()
                await self._channel.settle()
        self._clock.time = end

    async def _sleep_through(self, texts: list[str]) -> None:
        """Let messages pile up while the connection is down, and answer them in the morning."""
        gateway = self._discord.gateway
        gateway.is_silent = True
        await asyncio.to_thread(self._discord.call, gateway.ask_to_reconnect)
        await self._pass(9 * _HOUR)
        said = [await asyncio.to_thread(self._discord.say, self.person, self.chat, text) for text in texts]
        self._count(texts)
        gateway.is_silent = False
        await self._answered(said)

    async def _say(self, texts: list[str]) -> None:
        said = [await asyncio.to_thread(self._discord.say, self.person, self.chat, text) for text in texts]
        self._count(texts)
        await self._answered(said)

    def _count(self, texts: list[str]) -> None:
        self._days.text_tokens += sum(_COUNTER.count_text(text) for text in texts)

    async def _answered(self, messages: list[str]) -> None:
        """Wait until messages were stored and answered."""
        end = time.monotonic() + 60
        while not self._received.issuperset(messages):
            if time.monotonic() > end:
                self._days.unanswered += [message for message in messages if message not in self._received]
                return
            await asyncio.sleep(0.002)
        await self._channel.settle()


def settings_for(window: int, discord: DiscordStandIn) -> Settings:
    """Return settings for one person."""
    return Settings.model_validate(
        {
            "models": {_MODEL: {"context_length": window, **_PRICES}},
            "auxiliary": {"compression": {"provider": "main"}},
            "channels": {
                "stream": False,
                "discord": {"users": list(discord.people), "api_base": discord.api},
            },
        }
    )


def live(days: int, messages: int, window: int = WINDOW, seed: int = 1) -> Days:
    """Play a chat of some days, and return what came of it."""
    played = Days(days, messages, window)
    clock, companion = SimulatedClock(), Companion()
    begun = time.monotonic()
    with (
        own_folder(is_quick=True) as folder,
        ModelServer(companion, window=window, remember=4, alternate_roles=True) as server,
        discord_stand_in() as discord,
        Store.open(folder / "store.db") as store,
    ):
        use_clock(server, clock.now)
        discord.add_person("ada")
        settings = settings_for(window, discord)

        def open_one(settings: Settings, _model: str | None, options: AgentOptions, **more: Any) -> Agent:
            return open_agent(settings, connected(server.url, "anthropic", settings), options, **more)

        asyncio.run(_live(discord, store, settings, clock, played, seed, open_one))
        played.refused = [f"request {record.number}: {record.error}" for record in server.rejections]
        played.requests, played.known = companion.asked, _known(companion)
        played.largest_prompt = max(record.prompt_tokens for record in server.requests)
        _account(store, played)
    played.seconds = time.monotonic() - begun
    return played


async def _live(
    discord: DiscordStandIn,
    store: Store,
    settings: Settings,
    clock: SimulatedClock,
    played: Days,
    seed: int,
    opener: Callable[..., Agent],
) -> None:
    platform = DiscordPlatform(discord.token, settings.channels.discord)
    section, turns = settings.channels.discord, asyncio.Semaphore(2)
    channel = Channel(platform, store, settings, section, turns, ChannelClock(clock.now, clock.sleep), opener)
    await channel.start()
    life = Life(discord, channel, clock, played, seed)
    places = channel.places
    listening = asyncio.ensure_future(
        platform.run(life.receive, places.last_seen, lambda: [one.place for one in places.all("discord")])
    )
    try:
        while not discord.gateway.is_connected:
            await asyncio.sleep(0.01)
        await life.live()
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await channel.stop()
    shown = discord.posted(life.chat)
    played.answers = len(shown)
    played.unanswered += [text for text in shown if text == "…"]


def _known(companion: Companion) -> dict[str, str]:
    asked = {fact.question for fact in TOLD}
    return {question: where for question, where in companion.found.items() if question in asked}


def _account(store: Store, played: Days) -> None:
    """Take the figures from the store, as `everlong usage` shows them."""
    found = store.conversations.page(ConversationFilters(), limit=10)
    played.conversations = len(found)
    for one in found:
        read = one.cache_read_tokens
        total = one.input_tokens + one.cache_read_tokens + one.cache_write_tokens
        played.cost += one.cost
        played.read_share = read / max(1, total)
    played.compactions.update(done.reason for done in store.compactions())


def report(played: Days) -> None:
    """Print what came of a chat."""
    print(f"{played.days} days, {played.messages:,} messages and {len(TOLD)} questions in {played.seconds:.0f} s")
    print(f"  text of the person    {played.text_tokens:,} tokens, {played.text_tokens / played.window:.1f} windows")
    print(f"  answers               {played.answers:,} messages; requests to the model {dict(played.requests)}")
    print(f"  largest prompt        {played.largest_prompt:,} of {played.window:,} tokens")
    print(f"  compactions           {dict(played.compactions)}")
    print(f"  cost                  ${played.cost:.2f}, ${played.cost / played.days:.3f} a day; "
          f"{played.read_share:.0%} of the prompts from the cache")  # fmt: skip
    print(f"  conversations         {played.conversations} <= 1 {verdict(played.conversations, 1)}")
    print(f"  refused requests      {len(played.refused)} <= 0 {verdict(len(played.refused), 0)}")
    print(f"  messages unanswered   {len(played.unanswered)} <= 0 {verdict(len(played.unanswered), 0)}")
    known, where = len(played.known), dict(Counter(played.known.values()))
    print(f"  early facts known     {known} >= {len(TOLD)} {verdict(known, len(TOLD), at_least=True)}  {where}")
    for problem in [*played.refused[:5], *(fact.question for fact in TOLD if fact.question not in played.known)]:
        print(f"    {problem}")


def main() -> int:
    """Play and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.channels.days", description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    played = live(asked.days, asked.messages, asked.window, asked.seed)
    report(played)
    return 0 if played.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
