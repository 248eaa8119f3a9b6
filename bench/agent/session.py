"""A session of thousands of turns with real tools in a small window: does it go on, and is what was said still known?

The official client talks to the model server of `everlong.testing`, which refuses what the real APIs refuse. The agent
works in a folder of its own with real files and commands, is compacted many times, and is asked at the end about twenty
facts of its first turns (`bench.agent.facts`); the scripted model answers from what stands in its requests only.

    python -m bench.agent.session --turns 2000 --api both
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.api_rules import install_rules

from bench.agent.clerk import Clerk
from bench.agent.facts import FACTS, FILES
from bench.agent.requests import Job, jobs
from bench.measure import verdict
from everlong.agent import (
    Agent,
    AgentEvent,
    AgentOptions,
    CompactionFinished,
    Notice,
    ToolFinished,
    approve_everything,
    open_agent,
)
from everlong.config import Settings
from everlong.context import ContextCompressor
from everlong.providers import Connection, RetryPolicy, connect
from everlong.store import Store
from everlong.testing import ModelServer
from everlong.testing.server.exchange import Api

install_rules()

__all__ = ["APIS", "MODELS", "Played", "connected", "own_folder", "play", "settings_for"]

APIS: tuple[Api, ...] = ("anthropic", "openai")
MODELS = {"anthropic": "anthropic:claude-sonnet-5", "openai": "custom-model"}
WINDOW = 32_768
PARAPHRASED = 8
"""Of ten facts that are asked about in other words, so many must be known."""
GROWTH = 1.5
"""The allowed growth of a turn's CPU, from the second tenth of a session to the last."""
_PARTS = 10


@dataclass
class Played:
    """The outcome of a session."""

    api: Api
    turns: int
    window: int
    requests: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    compactions: list[CompactionFinished] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    """Calls by tool and outcome."""
    found: dict[str, str] = field(default_factory=dict)
    largest_prompt: int = 0
    read_share: float = 0.0
    """The share of prompt tokens that came from the provider's cache."""
    cpu: list[float] = field(default_factory=list)
    """CPU milliseconds of a turn, by tenths of the session; server and client included."""
    missing: list[str] = field(default_factory=list)
    """Words that the last request should contain and does not."""
    sessions: int = 0

    def known(self, *, literal: bool) -> int:
        """Return how many of the facts that are asked about literally, or not, were known."""
        return sum(fact.question in self.found for fact in FACTS if fact.is_literal is literal)

    @property
    def growth(self) -> float:
        """The growth of a turn's CPU; the first tenth has files to make and no window to fill."""
        return self.cpu[-1] / self.cpu[1]

    @property
    def is_good(self) -> bool:
        """True if every bar but that of speed was held."""
        literal = sum(fact.is_literal for fact in FACTS)
        known = self.known(literal=True) == literal and self.known(literal=False) >= PARAPHRASED
        return known and not (self.errors or self.rejections or self.missing)


def settings_for(window: int, model: str, **sections: object) -> Settings:
    """Return the usual settings, with a window for a model that the catalogue does not know."""
    values: dict[str, object] = {
        "models": {model: {"context_length": window}},
        "auxiliary": {"compression": {"provider": "main"}},
    }
    return Settings.model_validate(values | sections)


def connected(server_url: str, api: Api, settings: Settings) -> Connection:
    """Connect the official client of an API to the server; it tries again without waiting."""
    url = server_url if api == "anthropic" else f"{server_url}/v1"
    policy = RetryPolicy(attempts=6, first_delay=0.0, longest_delay=0.0)
    return connect(MODELS[api], settings, base_url=url, api_key="made-up", policy=policy, timeout=20.0)


@contextmanager
def own_folder(*, is_quick: bool = False) -> Iterator[Path]:
    """Yield a folder with a home, a project and nothing of the user who runs this; in memory if it must be quick."""
    before = os.environ.get("EVERLONG_HOME")
    memory = "/dev/shm" if is_quick and os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a folder of our own in it
    with tempfile.TemporaryDirectory(prefix="everlong-bench-", dir=memory) as name:
        folder = Path(name)
        os.environ["EVERLONG_HOME"] = str(folder / "home")
        for path, text in FILES.items():
            target = folder / "project" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        try:
            yield folder
        finally:
            if before is None:
                del os.environ["EVERLONG_HOME"]
            else:
                os.environ["EVERLONG_HOME"] = before


def play(
    turns: int,
    api: Api,
    window: int = WINDOW,
    seed: int = 1,
    *,
    with_model: bool = True,
    is_quick: bool = False,
    engine: str = "compressor",
) -> Played:
    """Play a session of so many turns and twenty questions.

    Args:
        turns: requests before the questions.
        api: the wire format.
        window: the model's window.
        seed: chooses the requests.
        with_model: whether the model writes the summaries; without, they are made from the conversation's own words.
        is_quick: do not wait for a disk.
        engine: the context engine.
    """
    played = Played(api, turns, window)
    todo = list(jobs(turns, seed))
    clerk = Clerk(todo, engine=engine)
    with (
        own_folder(is_quick=is_quick) as folder,
        ModelServer(clerk, window=window, remember=8, alternate_roles=True) as server,
    ):
        settings = settings_for(window, MODELS[api], context={"engine": engine})
        options = AgentOptions(root=folder / "project", approver=approve_everything)
        with Store.open(folder / "store.db") as store:
            connection = connected(server.url, api, settings)
            agent = open_agent(settings, connection, options, store=store, listen=_Listener(played))
            if not with_model and isinstance(agent.engine, ContextCompressor):
                agent.engine.summarizer = None
            _Driver(agent, todo, played).drive()
            played.missing = _missing(agent, server)
            played.sessions = len(store.conversations.parts(agent.conversation.session_id))
            agent.end()
            agent.close()
        played.requests, played.found = clerk.asked, clerk.found
        played.rejections = [f"request {record.number}: {record.error}" for record in server.rejections]
        played.largest_prompt = max(record.prompt_tokens for record in server.requests)
        played.read_share = _read_share(server)
    return played


class _Listener:
    def __init__(self, played: Played) -> None:
        self._played = played

    def __call__(self, event: AgentEvent) -> None:
        if isinstance(event, CompactionFinished):
            self._played.compactions.append(event)
        elif isinstance(event, Notice):
            self._played.notices.append(event.text)
        elif isinstance(event, ToolFinished):
            self._played.tools[f"{event.call.name} {event.outcome}"] += 1


class _Driver:
    """Asks everything in turn, and measures."""

    def __init__(self, agent: Agent, todo: list[Job], played: Played) -> None:
        self._agent = agent
        self._todo = todo
        self._played = played

    def drive(self) -> None:
        parts = [len(self._todo) * part // _PARTS for part in range(_PARTS + 1)]
        for first, last in itertools.pairwise(parts):
            started = time.process_time()
            for job in self._todo[first:last]:
                answer = self._asked(job.prompt)
                if answer != job.answer:
                    self._played.errors.append(f"HB-{job.ticket} was answered with {answer!r}")
            self._played.cpu.append(1e3 * (time.process_time() - started) / max(1, last - first))
        for fact in FACTS:
            self._asked(fact.question)

    def _asked(self, prompt: str) -> str:
        try:
            return self._agent.run(prompt).text
        except Exception as error:  # noqa: BLE001 - whatever it is, it is one of the things that are counted
            self._played.errors.append(f"{prompt[-40:]}: {type(error).__name__}: {error}")
            return ""


def _missing(agent: Agent, server: ModelServer) -> list[str]:
    """Return the required words that are missing from the last request."""
    last = server.model.asked[-1]
    prompt = agent.conversation.system_prompt
    return ["the system prompt"] if prompt and prompt not in last.text else []


def _read_share(server: ModelServer) -> float:
    read = total = 0
    for record in server.requests:
        details = record.usage.get("prompt_tokens_details") or {}
        read += record.usage.get("cache_read_input_tokens") or details.get("cached_tokens") or 0
        total += record.prompt_tokens
    return read / max(1, total)


# -- telling ----------------------------------------------------------------------------------------------------------


def report(played: Played) -> None:
    """Print what came of a session."""
    reasons = Counter(f"{one.reason} {one.outcome}" for one in played.compactions)
    done = [one for one in played.compactions if one.outcome == "compacted"]
    shrunk = [one.tokens_after / one.tokens_before for one in done]
    quality = [one.quality for one in done if one.quality is not None]
    fallbacks = Counter(one.fallback for one in done if one.fallback is not None)
    print(f"\n{played.api}: {played.turns} turns and {len(FACTS)} questions in a window of {played.window:,} tokens")
    print(f"  requests             {dict(played.requests)}, largest prompt {played.largest_prompt:,} tokens")
    print(f"  tools                {dict(played.tools)}")
    print(f"  compactions          {dict(reasons)}, {fallbacks.total()} without the model; {played.sessions} sessions")
    for reason, count in fallbacks.most_common(3):
        print(f"    without the model ({count}): {reason[:200]}")
    if shrunk:
        print(
            f"  after a compaction   {sum(shrunk) / len(shrunk):.0%} of the tokens, {max(shrunk):.0%} at most; "
            f"{quality[-1] if quality else 'nothing is known of its quality'}"
        )
    print(f"  read from the cache  {played.read_share:.0%} of all prompt tokens")
    per_turn = " ".join(f"{ms:.0f}" for ms in played.cpu)
    print(f"  CPU ms per turn      {per_turn} by tenths; server and client included")
    for name, literal, bar in (("asked literally", True, 10), ("asked otherwise", False, PARAPHRASED)):
        known = played.known(literal=literal)
        where = Counter(
            played.found[f.question] for f in FACTS if f.is_literal is literal and f.question in played.found
        )
        print(f"  {name}      {known}/10 >= {bar} {verdict(known, bar, at_least=True)}  {dict(where)}")
    for fact in FACTS:
        if fact.question not in played.found:
            print(f"    not known: {fact.question}")
    for name, found in (("errors", played.errors), ("rejections", played.rejections), ("missing", played.missing)):
        print(f"  {name:20} {len(found)} <= 0 {verdict(len(found), 0)}")
        for one in found[:5]:
            print(f"    {one[:200]}")
    print(f"  growth of a turn     {played.growth:.2f} <= {GROWTH} {verdict(played.growth, GROWTH)}")
    for text, count in Counter(played.notices).most_common(5):
        print(f"  notice ({count}): {text[:160]}")


def main() -> int:
    """Play and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.agent.session", description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--api", choices=(*APIS, "both"), default="both")
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-model", action="store_true", help="summaries from the conversation's own words")
    parser.add_argument("--engine", choices=("compressor", "lcm"), default="compressor")
    asked = parser.parse_args()
    good = True
    for api in APIS if asked.api == "both" else (asked.api,):
        played = play(
            asked.turns, api, asked.window, asked.seed, with_model=not asked.without_model, engine=asked.engine
        )
        report(played)
        good = good and played.is_good and played.growth <= GROWTH
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
