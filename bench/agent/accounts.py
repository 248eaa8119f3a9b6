"""The figures of ``everlong usage`` for a session against the server's bill: every token, every dollar.

An agent with real tools works through the official client on the model server of `everlong.testing`, is compacted with
summaries by its own model, flushes memories, meets faults and pauses that outlive the cache. Then the program itself is
asked what it all cost. The bill is the sum over the server's own records, priced by the package genai-prices.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import genai_prices
from tests.api_rules import install_rules, use_clock
from tests.api_rules.faults import ManualClock, random_faults

from bench.agent.clerk import Clerk
from bench.agent.requests import jobs
from bench.agent.session import MODELS, connected, own_folder, settings_for
from everlong.agent import AgentEvent, AgentOptions, CompactionFinished, Notice, approve_everything, open_agent
from everlong.store import Store
from everlong.testing import ModelServer
from everlong.testing.server.exchange import Record

install_rules()

__all__ = ["Compared", "play"]

MODEL = MODELS["anthropic"]
WINDOW = 32_768
TOKENS = {
    "input_tokens": "input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
    "cache_write_1h_tokens": "ephemeral_1h_input_tokens",
    "output_tokens": "output_tokens",
}
"""Kinds of tokens as ``everlong usage`` names them, and as the API does."""


@dataclass
class Compared:
    """A session's bill, and what the program tells about it."""

    billed: dict[str, int] = field(default_factory=dict)
    dollars: Decimal = Decimal(0)
    told: dict[str, Any] = field(default_factory=dict)
    requests: int = 0
    """Those that were answered."""
    failures: int = 0
    pauses: int = 0
    compactions: int = 0
    """Those with a summary by the session's own model."""
    notices: list[str] = field(default_factory=list)

    @property
    def differences(self) -> dict[str, int]:
        """The tokens by which the two differ."""
        told = self.told["total"]["tokens"]
        return {name: told[name] - number for name, number in self.billed.items() if told[name] != number}


def play(turns: int, window: int = WINDOW, seed: int = 1, **caching: Any) -> Compared:
    """Play a session of so many turns; return its bill and the program's figures.

    Args:
        turns: requests of the user.
        window: the model's window.
        seed: chooses the requests, faults and pauses.
        caching: settings of ``prompt_caching``.
    """
    compared = Compared()
    todo, dice, clock = list(jobs(turns, seed)), random.Random(f"pauses {seed}"), ManualClock()
    faults = random_faults(seed, 0.03, ("rate_limit", "server_error", "overloaded"))

    def listen(event: AgentEvent) -> None:
        if isinstance(event, CompactionFinished) and event.outcome == "compacted" and event.fallback is None:
            compared.compactions += str(event.summarizer).startswith(MODEL)
        elif isinstance(event, Notice):
            compared.notices.append(event.text)

    with (
        own_folder() as folder,
        ModelServer(Clerk(todo), window=window, faults=faults, alternate_roles=True) as server,
    ):
        use_clock(server, clock)
        settings = settings_for(window, MODEL, prompt_caching={"strategy": "ledger", **caching})
        options = AgentOptions(root=folder / "project", approver=approve_everything)
        with Store.open(folder / "store.db") as store:
            agent = open_agent(
                settings, connected(server.url, "anthropic", settings), options, store=store, listen=listen
            )
            for job in todo:
                seconds = dice.uniform(301, 4_000) if dice.random() < 0.05 else dice.uniform(1, 60)
                compared.pauses += seconds > 300
                clock.advance(seconds)
                agent.run(job.prompt)
            agent.end()
            agent.close()
        _bill(compared, server.requests)
        compared.told = told_by_the_program(folder / "store.db")
    return compared


def _bill(compared: Compared, records: Iterable[Record]) -> None:
    compared.billed = dict.fromkeys(TOKENS, 0)
    for record in records:
        if record.status != 200:
            compared.failures += 1
            continue
        compared.requests += 1
        tokens = {name: _reported(record.usage, there) for name, there in TOKENS.items()}
        for name, number in tokens.items():
            compared.billed[name] += number
        given = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
        usage = genai_prices.Usage(**{**tokens, "input_tokens": sum(tokens[name] for name in given)})
        price = genai_prices.calc_price(usage, MODEL.partition(":")[2], provider_id="anthropic")
        compared.dollars += price.total_price


def _reported(usage: Mapping[str, Any], name: str) -> int:
    return int((usage.get("cache_creation") or {}).get(name) or usage.get(name) or 0)


def told_by_the_program(store: Path) -> dict[str, Any]:
    """Return what ``everlong usage --json`` prints about a store."""
    command = [sys.executable, "-c", "from everlong.cli.main import main; main()"]
    ran = subprocess.run(
        [*command, "usage", "--json", "--store", str(store)], capture_output=True, text=True, check=True
    )
    told: dict[str, Any] = json.loads(ran.stdout)
    return told
