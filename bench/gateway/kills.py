"""The gateway's processes killed again and again under load: nothing that was answered is lost, or stored twice.

Clients begin conversations, go on with them and change their last question. Meanwhile the storing process is killed,
then the gateway itself, each at a random moment after some answers. At the end every answer that a client got stands in
the database once; one that a client did not get, at most once.

    python -m bench.gateway.kills --rounds 50 --fronts 20
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from bench.gateway.load import wait_until_stored
from bench.gateway.serving import Served, children_of, gateway
from bench.gateway.upstreams import PATH, failing_upstream
from bench.measure import verdict
from everlong.model import Message, text_of
from everlong.store import Store

_SETTINGS = {"models": {"m-1": {"context_length": 1_000_000}}, "auxiliary": {"compression": {"provider": "main"}}}
_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer made-up"}
_LEAST_ANSWERS = 30
"""Answers between two kills."""
_MOST_LATER = 0.3
"""Seconds after those answers in which a kill comes."""
_TURNS_EACH = 6
_FORK_SHARE = 0.3


@dataclass
class Seen:
    """The clients' observations."""

    answered: set[str] = field(default_factory=set)
    """The answers that clients got."""
    asked: set[str] = field(default_factory=set)
    """The answers that they may have got."""
    is_over: bool = False
    problems: list[str] = field(default_factory=list)


class Client:
    """Talks until it is told to stop; what was not answered it says in other words."""

    def __init__(self, number: int, gateways: list[Served], seen: Seen) -> None:
        self._name, self._gateways, self._seen = f"client {number}", gateways, seen
        self._dice = random.Random(number)
        self._number = 0

    async def talk(self, session: ClientSession) -> None:
        """Begin conversations, go on with each for a while, and change some questions."""
        while not self._seen.is_over:
            said: list[Message] = []
            for _ in range(_TURNS_EACH):
                self._number += 1
                words = f"{self._name} says {self._number}: " + "the quay and the tide " * self._dice.randrange(1, 40)
                asked: Message = {"role": "user", "content": words}
                if not await self._ask(session, [*said, asked], words):
                    continue
                if self._dice.random() > _FORK_SHARE:
                    said += [asked, {"role": "assistant", "content": f"Heard: {words}"}]

    async def _ask(self, session: ClientSession, said: list[Message], words: str) -> bool:
        self._seen.asked.add(f"Heard: {words}")
        body = orjson.dumps({"model": "m-1", "messages": said})
        try:
            async with session.post(self._gateways[-1][0] + PATH, data=body, headers=_HEADERS) as response:
                data = orjson.loads(await response.read())
        except (ClientError, TimeoutError, ValueError, OSError):
            await asyncio.sleep(0.05)
            return False
        if response.status != 200:
            self._seen.problems.append(f"{response.status}: {str(data)[:200]}")
            return False
        self._seen.answered.add(str(data["choices"][0]["message"]["content"]))
        return True


async def _load(
    gateways: list[Served], clients: int, rounds: int, fronts: int, start_again: Callable[[], Served]
) -> Seen:
    seen, dice = Seen(), random.Random(7)
    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=60)) as session:
        talkers = [asyncio.create_task(Client(number, gateways, seen).talk(session)) for number in range(clients)]
        for number in range(rounds + fronts):
            before = len(seen.answered)
            while len(seen.answered) < before + _LEAST_ANSWERS or not children_of(gateways[-1][1]):
                await asyncio.sleep(0.01)
            await asyncio.sleep(dice.random() * _MOST_LATER)
            if number < rounds:
                for pid in children_of(gateways[-1][1]):
                    os.kill(pid, signal.SIGKILL)
            else:
                os.kill(gateways[-1][1], signal.SIGKILL)
                gateways.append(await asyncio.to_thread(start_again))
        seen.is_over = True
        await asyncio.gather(*talkers)
    return seen


def audit(path: Path, seen: Seen) -> list[str]:
    """Return the differences between the clients' answers and the database."""
    with Store.open(path) as store:
        done = [turn.id for turn in store.turns.since() if turn.status == "done"]
        stored = Counter(text_of(store.turns.reply(number) or {}) for number in done)
        problems = store.verify().problems[:5]
    lost = [words for words in seen.answered if not stored[words]]
    doubled = [words for words, count in stored.items() if count > 1]
    unknown = [words for words in stored if words not in seen.asked]
    for kind, found in (("lost", lost), ("stored twice", doubled), ("never asked", unknown)):
        problems += [f"{len(found)} {kind}, such as {found[0][:50]!r}"] if found else []
    return [*problems, *seen.problems[:5]]


def run(clients: int, rounds: int, fronts: int) -> tuple[Seen, list[str]]:
    """Kill the processes so many times; what clients saw, and what is wrong in the database."""
    with ExitStack() as opened, tempfile.TemporaryDirectory(prefix="everlong-bench-") as folder:
        model = opened.enter_context(failing_upstream(0.0))
        path = Path(folder) / "store.db"

        def start() -> Served:
            return opened.enter_context(gateway(model, path, _SETTINGS, Path(folder) / "journal"))

        seen = asyncio.run(_load([start()], clients, rounds, fronts, start))
        wait_until_stored(str(path))
        return seen, audit(path, seen)


def main() -> int:
    """Kill, audit and tell; 1 where something was lost or stored twice."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.kills", description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10, help="kills of the storing process")
    parser.add_argument("--fronts", type=int, default=4, help="kills of the gateway itself")
    asked = parser.parse_args()
    seen, problems = run(asked.clients, asked.rounds, asked.fronts)
    print(f"the storing process killed {asked.rounds} times, the gateway {asked.fronts} times")
    print(f"  {len(seen.answered):,} requests answered, {len(seen.asked) - len(seen.answered):,} not")
    print(f"  problems{len(problems):>8}  {verdict(len(problems), 0)}")
    for problem in problems:
        print(f"    {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
