"""Many clients at two replicas while everything around them fails: no turn is lost, and none is wrong.

The upstream fails one request in twenty, the shared PostgreSQL server is restarted twice, and one replica is killed.
Clients go on as real ones do: what failed upstream they send again, and where a replica is gone they ask the other. At
the end every conversation is read back from the database, turn by turn.

    python -m bench.gateway.load --clients 64 --seconds 600
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import ClientConnectionError, ClientSession, ClientTimeout, TCPConnector

from bench.gateway.serving import gateway
from bench.gateway.upstreams import PATH, failing_upstream
from bench.measure import verdict
from bench.store.server import postgres, restart, stop
from everlong.model import Message, text_of
from everlong.store import Store

_SETTINGS = {"models": {"m-1": {"context_length": 60_000}}, "auxiliary": {"compression": {"provider": "main"}}}
_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer made-up"}
_PAUSE = 0.05
_TURNS_EACH = 60
"""A client begins another conversation after so many turns."""


@dataclass
class Seen:
    """The clients' observations."""

    talks: list[list[Message]] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    turns: int = 0


_STILL, _MOST_LOOKS = 12, 180
"""Seconds without another turn after which all are stored, and how long that is waited for."""


class Client:
    """Talks until it is told to stop."""

    def __init__(self, number: int, replicas: list[str], seen: Seen) -> None:
        self._name, self._replicas, self._seen = f"client {number}", replicas, seen
        self._dice = random.Random(number)
        self._talks = 0

    async def talk(self, session: ClientSession, until: float) -> None:
        """Begin conversations, and go on with each for a while."""
        while time.monotonic() < until:
            self._talks += 1
            said: list[Message] = [{"role": "system", "content": "You repeat what you hear."}]
            self._seen.talks.append(said)
            for turn in range(_TURNS_EACH):
                if time.monotonic() > until:
                    break
                words = f"{self._name} talk {self._talks} turn {turn}: " + "the quay, the crane and the tide " * 12
                said.append({"role": "user", "content": words})
                answer = await self._asked(session, said)
                if answer is None:
                    said.pop()
                    break
                if answer != f"Heard: {words}":
                    self._seen.problems.append(f"{words[:40]!r} was answered with {answer[:60]!r}")
                said.append({"role": "assistant", "content": answer})
                self._seen.turns += 1
                await asyncio.sleep(_PAUSE * self._dice.random())

    async def _asked(self, session: ClientSession, said: list[Message]) -> str | None:
        body = orjson.dumps({"model": "m-1", "messages": said})
        for attempt in range(40):
            url = self._dice.choice(self._replicas)
            try:
                async with session.post(url + PATH, data=body, headers=_HEADERS) as response:
                    data = orjson.loads(await response.read())
            except (ClientConnectionError, TimeoutError, ValueError):
                self._seen.answers["replica gone"] += 1
                await asyncio.sleep(0.05 * attempt)
                continue
            if response.status == 200:
                self._seen.answers["answered"] += 1
                return str(data["choices"][0]["message"]["content"])
            if data.get("error", {}).get("code") == "made_up_fault":
                self._seen.answers["upstream failed"] += 1
                continue
            self._seen.problems.append(f"{response.status}: {str(data)[:200]}")
            return None
        self._seen.problems.append(f"{self._name} found nobody to answer")
        return None


async def _load(replicas: list[str], clients: int, seconds: float, faults: list[tuple[float, Any]]) -> Seen:
    seen = Seen()
    until = time.monotonic() + seconds
    timeout = ClientTimeout(total=60)
    async with ClientSession(connector=TCPConnector(limit=0), timeout=timeout) as session:

        async def disturb() -> None:
            for share, fault in faults:
                await asyncio.sleep(max(0.0, until - seconds + share * seconds - time.monotonic()))
                await asyncio.to_thread(fault)

        talkers = [Client(number, replicas, seen).talk(session, until) for number in range(clients)]
        await asyncio.gather(disturb(), *talkers)
    return seen


def audit(url: str, seen: Seen) -> list[str]:
    """Return the differences between the conversations and the database."""
    began = time.time()
    problems: list[str] = []
    with Store.open(url) as store:
        for said in seen.talks:
            if len(said) < 3:
                continue
            problems += _audited(store, said, began)
        problems += store.verify().problems[:5]
    return problems


def _audited(store: Store, said: list[Message], began: float) -> list[str]:
    name = str(said[1]["content"])[:40]
    asked = said[:-1] if said[-1]["role"] == "assistant" else said
    at = store.record(asked)  # adds nothing where nothing is missing
    entries = [entry for entry in store.entries(at) if entry.id is not None]
    late = [entry for entry in entries if entry.ts > began]  # the audit itself had to add them
    if late:
        return [f"{name!r}: {len(late)} messages were not stored"]
    done = {turn.depth: turn for turn in store.turns.since() if (turn.branch, turn.status) == (at.id, "done")}
    missing = [depth for depth in range(1, len(asked), 2) if depth not in done]
    wrong = [
        depth
        for depth, turn in done.items()
        if (reply := store.turns.reply(turn.id)) is None or text_of(reply) != f"Heard: {asked[depth]['content']}"
    ]
    found = [f"{name!r}: no answer is stored at {missing[:5]}"] if missing else []
    return [*found, *([f"{name!r}: another answer is stored at {wrong[:5]}"] if wrong else [])]


def wait_until_stored(url: str) -> None:
    """Wait until nothing more comes out of the journals: for longer than two looks at them take, however slow it is."""
    turns = "SELECT count(*), count(ended) FROM turn"
    with Store.open(url) as store:
        last, still = (-1, -1), 0
        for _ in range(_MOST_LOOKS):
            with store.database.read() as connection:
                now = tuple(connection.exec_driver_sql(turns).one())
            last, still = now, still + 1 if now == last else 0
            if still >= _STILL:
                return
            time.sleep(1)


def run(clients: int, seconds: float) -> tuple[Seen, list[str]]:
    """Load two replicas for so many seconds; what was seen, and what is wrong in the database."""
    with ExitStack() as opened, tempfile.TemporaryDirectory(prefix="everlong-bench-") as folder:
        url = opened.enter_context(postgres(durable=True))
        opened.callback(stop, url)
        model = opened.enter_context(failing_upstream(0.05))
        spools = [Path(folder) / name for name in ("first", "second")]
        first = opened.enter_context(gateway(model, url, _SETTINGS, spools[0]))
        second = opened.enter_context(gateway(model, url, _SETTINGS, spools[1]))
        replicas = [first[0], second[0]]

        def kill() -> None:
            replicas.remove(second[0])
            os.kill(second[1], signal.SIGKILL)

        def replace() -> None:  # takes over what the killed one had written down
            replicas.append(opened.enter_context(gateway(model, url, _SETTINGS, spools[1]))[0])

        faults = [(0.25, lambda: restart(url)), (0.5, kill), (0.6, replace), (0.75, lambda: restart(url))]
        seen = asyncio.run(_load(replicas, clients, seconds, faults))
        wait_until_stored(url)
        return seen, audit(url, seen)


def main() -> int:
    """Load, audit and tell; 1 where something was lost or wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.load", description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    asked = parser.parse_args()
    seen, wrong = run(asked.clients, asked.seconds)
    print(f"{asked.clients} clients, {asked.seconds:g} s: {len(seen.talks)} conversations, {seen.turns} turns")
    print(f"  {dict(seen.answers)}")
    for name, found in (("seen by clients", seen.problems), ("in the database", wrong)):
        print(f"  problems {name:16} {len(found)} <= 0 {verdict(len(found), 0)}")
        for one in found[:5]:
            print(f"    {one[:300]}")
    return 0 if not seen.problems and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
