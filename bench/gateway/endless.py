"""A client that only appends, far past the window, through the gateway: nothing goes wrong, and nothing is forgotten.

The upstream counts the tokens of every request itself and refuses what does not fit its window or breaks the protocol.
Facts are told early and asked about at the end, as in `bench.agent.session`; the model looks them up with the gateway's
own tool, of which the client hears nothing.

    python -m bench.gateway.endless --turns 5000
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.api_rules import install_rules

from bench.agent.clerk import Clerk
from bench.agent.facts import FACTS
from bench.agent.requests import Job, jobs
from bench.agent.session import PARAPHRASED, own_folder
from bench.gateway.client import Refused, WholeHistory
from bench.gateway.serving import gateway, memory_of
from bench.measure import verdict
from everlong.agent.approval import Approvals, approve_everything
from everlong.agent.tools import builtin_tools
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.toolbox import Toolbox
from everlong.agent.tools.workspace import Workspace
from everlong.store import Store
from everlong.testing import ModelServer

install_rules()

APIS = ("anthropic", "openai")
MODELS = {"anthropic": "claude-sonnet-5", "openai": "custom-model"}
WINDOW = 64_000
READ_SHARE = 0.9
SYSTEM = "You are the clerk of a harbour office. You work with files and commands, and answer in a sentence or two."
_PADDING = "Note for the record: the tide gauge, the gate log and the crane hours were read again and found in order. "


@dataclass
class Played:
    """The outcome of a conversation."""

    api: str
    turns: int
    errors: list[str] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)
    compactions: Counter[str] = field(default_factory=Counter)
    largest_prompt: int = 0
    read_share: float = 0.0
    history_bytes: int = 0
    history_tokens: int = 0
    seconds: float = 0.0
    megabytes: float = 0.0
    problems: list[str] = field(default_factory=list)

    def known(self, *, literal: bool) -> int:
        """Return the number of answered questions of one kind."""
        return sum(fact.question in self.found for fact in FACTS if fact.is_literal is literal)

    @property
    def is_good(self) -> bool:
        """True if every bar was held."""
        literal = sum(fact.is_literal for fact in FACTS)
        known = self.known(literal=True) == literal and self.known(literal=False) >= PARAPHRASED
        clean = not (self.errors or self.rejections or self.problems)
        return known and clean and self.read_share >= READ_SHARE


def play(turns: int, api: str, window: int = WINDOW, words: int = 0, engine: str = "compressor") -> Played:
    """Play a conversation of so many turns and twenty questions; ``words`` pads each request."""
    played = Played(api, turns)
    todo = list(jobs(turns))
    clerk = Clerk(todo, prefix="everlong_", engine=engine)
    model = MODELS[api]
    settings = {
        "models": {model: {"context_length": window}},
        "context": {"engine": engine},
        "auxiliary": {"compression": {"provider": "main"}},
        "gateway": {"routes": {"*": {"recall": True}}},
    }
    started = time.perf_counter()
    with (
        own_folder(is_quick=True) as folder,
        ModelServer(clerk, window=window, remember=8, alternate_roles=True) as server,
        gateway(server.url, folder / "gateway.db", settings) as (url, process),
        Store.open(folder / "client.db") as own,
    ):
        tools = Toolbox([tool for tool in builtin_tools() if tool.name not in {"recall", "read_turn"}])
        client = WholeHistory(url, api, model, SYSTEM, tools.schemas())
        driver = _Driver(client, tools, ToolContext(Workspace(folder / "project", ()), own, "none"), played)
        for job in todo:
            driver.work(job, _PADDING * words)
        for fact in FACTS:
            driver.asked(fact.question)
        client.close()
        played.history_bytes, played.megabytes = client.size, memory_of(process)
        with Store.open(folder / "gateway.db") as store:
            played.compactions = Counter(one.reason for one in store.compactions())
            played.problems = store.verify().problems if turns <= 1_000 else []
        played.found = clerk.found
        played.rejections = [f"request {one.number}: {one.error}" for one in server.rejections]
        played.largest_prompt = max(one.prompt_tokens for one in server.requests)
        played.history_tokens = played.history_bytes // 4
        read = sum(_read(one.usage) for one in server.requests)
        played.read_share = read / max(1, sum(one.prompt_tokens for one in server.requests))
    played.seconds = time.perf_counter() - started
    return played


def _read(usage: dict[str, object]) -> int:
    details = usage.get("prompt_tokens_details")
    found = usage.get("cache_read_input_tokens") or (details.get("cached_tokens") if isinstance(details, dict) else 0)
    return found if isinstance(found, int) else 0


class _Driver:
    """Says everything in turn, and runs the tools that the model calls."""

    def __init__(self, client: WholeHistory, tools: Toolbox, context: ToolContext, played: Played) -> None:
        self._client, self._tools, self._context, self._played = client, tools, context, played
        self._approvals = Approvals(approve_everything)

    def work(self, job: Job, padding: str) -> None:
        answer = self.asked(f"{padding}{job.prompt}")
        if answer != job.answer:
            self._played.errors.append(f"HB-{job.ticket} was answered with {answer!r}")

    def asked(self, prompt: str) -> str:
        self._client.add({"role": "user", "content": prompt})
        try:
            while True:
                text, calls = self._client.ask()
                if not calls:
                    return text
                results = [(call.id, self._tools.run(call, self._context, self._approvals).text) for call in calls]
                self._client.answer(results)
        except Refused as error:
            self._played.errors.append(f"{prompt[-40:]}: {error}")
            self._client.add({"role": "assistant", "content": "(no answer)"})
            return ""


def report(played: Played) -> None:
    """Print what came of it."""
    print(
        f"\n{played.api}: {played.turns} turns and {len(FACTS)} questions through the gateway, {played.seconds:.0f} s"
    )
    print(f"  history              {played.history_bytes:,} bytes, about {played.history_tokens:,} tokens")
    print(f"  compactions          {dict(played.compactions)}; largest prompt {played.largest_prompt:,} tokens")
    print(f"  memory               {played.megabytes:.0f} MB")
    ok = verdict(played.read_share, READ_SHARE, at_least=True)
    print(f"  read from the cache  {played.read_share:.1%} >= {READ_SHARE:.0%} {ok}")
    for name, literal, bar in (("asked literally", True, 10), ("asked otherwise", False, PARAPHRASED)):
        known = played.known(literal=literal)
        print(f"  {name}      {known}/10 >= {bar} {verdict(known, bar, at_least=True)}")
    for fact in FACTS:
        if fact.question not in played.found:
            print(f"    not known: {fact.question}")
    for name, found in (("errors", played.errors), ("rejections", played.rejections), ("problems", played.problems)):
        print(f"  {name:20} {len(found)} <= 0 {verdict(len(found), 0)}")
        for one in found[:5]:
            print(f"    {one[:300]}")


def main() -> int:
    """Play and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.endless", description=__doc__)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--api", choices=(*APIS, "both"), default="both")
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument("--words", type=int, default=0, help="sentences that pad each request")
    parser.add_argument("--engine", choices=("compressor", "lcm"), default="compressor")
    asked = parser.parse_args()
    good = True
    for api in APIS if asked.api == "both" else (asked.api,):
        played = play(asked.turns, api, asked.window, asked.words, asked.engine)
        report(played)
        good = good and played.is_good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
