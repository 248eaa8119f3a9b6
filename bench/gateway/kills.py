"""The gateway's processes killed again and again under load: nothing that was answered is lost, or stored twice.

Clients begin conversations, go on with them and change their last question. Meanwhile the storing process is killed,
then the gateway itself, each at a random moment after some answers. Every second storing process is killed while it
stores, the others as they come: mostly while they start, so that turns pile up in the journal.

When the clients have stopped, every answer that they got is in the database or in the journal. Then the journal is
drained, for as long as that makes progress; its rate is compared with that of turns that are stored directly. At the
end every answer that a client got stands in the database once; one that a client did not get, at most once.

    python -m bench.gateway.kills --rounds 50 --fronts 20
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from bench.gateway.driving import CLIENT
from bench.gateway.serving import Served, children_of, gateway
from bench.gateway.upstreams import PATH, failing_upstream
from bench.measure import verdict
from everlong.gateway.journal import JournalEntry
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
_STILL_SECONDS = 60.0
"""Seconds without progress after which the journal does not drain any more."""
_DIRECT_TURNS = 2_000
"""Answers after the last kill, once the journal is empty, by which the rate of direct storing is measured."""


@dataclass
class Seen:
    """The clients' observations."""

    answered: set[str] = field(default_factory=set)
    """The answers that clients got."""
    asked: set[str] = field(default_factory=set)
    """The answers that they may have got."""
    is_over: bool = False
    longest: float = 0.0
    """The longest time, in seconds, in which a client that asked again and again got no answer."""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Drained:
    """What became of the turns that were only in the journal when the clients stopped."""

    backlog: int
    """Answers that were in the journal and not in the database."""
    lost: int
    """Answers that were in neither."""
    left: int
    """Bytes of the journal at the end."""
    turns: int
    """Turns that came into the database meanwhile."""
    seconds: float

    @property
    def rate(self) -> float:
        """Turns per second."""
        return self.turns / self.seconds if self.seconds else 0.0


class Client:
    """Talks until it is told to stop; what was not answered it says in other words."""

    def __init__(self, name: str, gateways: list[Served], seen: Seen, pause: float = 0.0) -> None:
        self._name, self._gateways, self._seen, self._pause = name, gateways, seen, pause
        self._dice, self._headers = random.Random(name), {**_HEADERS, CLIENT: name}
        self._number = 0
        self._since = 0.0
        """The moment since which this client has waited for an answer; 0 if it does not."""

    async def talk(self, session: ClientSession) -> None:
        """Begin conversations, go on with each for a while, and change some questions."""
        while not self._seen.is_over:
            said: list[Message] = []
            for _ in range(_TURNS_EACH):
                self._number += 1
                words = f"{self._name} says {self._number}: " + "the quay and the tide " * self._dice.randrange(1, 40)
                asked: Message = {"role": "user", "content": words}
                if self._seen.is_over:
                    return
                if self._pause:
                    await asyncio.sleep(2 * self._pause * self._dice.random())
                if not await self._ask(session, [*said, asked], words):
                    continue
                if self._dice.random() > _FORK_SHARE:
                    said += [asked, {"role": "assistant", "content": f"Heard: {words}"}]

    async def _ask(self, session: ClientSession, said: list[Message], words: str) -> bool:
        self._seen.asked.add(f"Heard: {words}")
        self._since = self._since or time.monotonic()
        body = orjson.dumps({"model": "m-1", "messages": said})
        try:
            async with session.post(self._gateways[-1][0] + PATH, data=body, headers=self._headers) as response:
                data = orjson.loads(await response.read())
        except (ClientError, TimeoutError, ValueError, OSError):
            await asyncio.sleep(0.05)
            return False
        finally:
            self._seen.longest = max(self._seen.longest, time.monotonic() - self._since)
        if response.status != 200:
            self._seen.problems.append(f"{response.status}: {str(data)[:200]}")
            return False
        self._seen.answered.add(str(data["choices"][0]["message"]["content"]))
        self._since = 0.0
        return True


async def _load(
    gateways: list[Served], path: Path, asked: argparse.Namespace, start_again: Callable[[], Served]
) -> Seen:
    seen, dice = Seen(), random.Random(7)
    pause = asked.clients / asked.rate if asked.rate else 0.0
    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=60)) as session:
        clients = [Client(f"client {number}", gateways, seen, pause) for number in range(asked.clients)]
        talkers = [asyncio.create_task(client.talk(session)) for client in clients]
        for number in range(asked.rounds + asked.fronts):
            before, stored = len(seen.answered), count_turns(path)
            while len(seen.answered) < before + _LEAST_ANSWERS or not children_of(gateways[-1][1]):
                await asyncio.sleep(0.01)
            while number % 2 and count_turns(path) == stored:
                await asyncio.sleep(0.01)
            await asyncio.sleep(dice.random() * _MOST_LATER)
            if number < asked.rounds:
                for pid in children_of(gateways[-1][1]):
                    os.kill(pid, signal.SIGKILL)
            else:
                os.kill(gateways[-1][1], signal.SIGKILL)
                gateways.append(await asyncio.to_thread(start_again))
        seen.is_over = True
        await asyncio.gather(*talkers)
    return seen


async def _store_directly(gateways: list[Served], path: Path, count: int, seen: Seen) -> float:
    """Have some more turns stored while nothing is killed; return how many there were in a second."""
    seen.is_over, answered, before, began = False, len(seen.answered), count_turns(path), time.monotonic()
    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=60)) as session:
        clients = [Client(f"later client {number}", gateways, seen) for number in range(count)]
        talkers = [asyncio.create_task(client.talk(session)) for client in clients]
        while len(seen.answered) < answered + _DIRECT_TURNS:
            await asyncio.sleep(0.01)
        seen.is_over = True
        await asyncio.gather(*talkers)
        asked, last = len(seen.answered) - answered, time.monotonic()
        while (stored := count_turns(path) - before) < asked and time.monotonic() - last < _STILL_SECONDS:
            await asyncio.sleep(0.1)
    return stored / (time.monotonic() - began)


def count_turns(path: str | Path) -> int:
    """Return the number of finished turns in the database, a file or a server."""
    if isinstance(path, str):
        with Store.open(path) as store, store.database.read() as reading:
            return int(reading.exec_driver_sql("SELECT count(ended) FROM turn").scalar_one())
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(ended) FROM turn").fetchone()[0])


def journal_size(folder: Path) -> int:
    """Return the bytes of all journals in a folder."""
    size = 0
    for path in folder.rglob("*.jsonl"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def answers_in(folder: Path) -> set[str]:
    """Return the answers that stand in the journals of a folder."""
    found: set[str] = set()
    for path in folder.rglob("*.jsonl"):
        with suppress(FileNotFoundError):
            for line in path.read_bytes().splitlines():
                with suppress(ValueError, TypeError):
                    found.add(text_of(JournalEntry.from_line(line).turn.reply or {}))
    return found


def stored_answers(path: str | Path) -> Counter[str]:
    """Return the answers that stand in the database, counted."""
    with Store.open(path) as store:
        done = [turn.id for turn in store.turns.since() if turn.status == "done"]
        return Counter(text_of(store.turns.reply(number) or {}) for number in done)


def drain(path: str | Path, folder: Path, seen: Seen) -> Drained:
    """Wait until the journal is empty, or makes no progress any more."""
    began, turns = time.monotonic(), count_turns(path)
    written = answers_in(folder)  # first: an answer may leave the journal for the database, and never the other way
    stored = stored_answers(path)
    missing = [words for words in seen.answered if not stored[words]]
    lost = [words for words in missing if words not in written]
    last, since = (-1, -1), time.monotonic()
    now = (journal_size(folder), count_turns(path))
    ended = began
    while now[0] and time.monotonic() - since < _STILL_SECONDS:
        if now[1] != last[1]:
            ended = time.monotonic()  # stored entries leave their file some seconds later
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.5)
        now = (journal_size(folder), count_turns(path))
    return Drained(len(missing) - len(lost), len(lost), now[0], now[1] - turns, ended - began)


def audit(path: str | Path, seen: Seen) -> list[str]:
    """Return the differences between the clients' answers and the database."""
    stored = stored_answers(path)
    with Store.open(path) as store:
        problems = store.verify().problems[:5]
    lost = [words for words in seen.answered if not stored[words]]
    doubled = [words for words, count in stored.items() if count > 1]
    unknown = [words for words in stored if words not in seen.asked]
    for kind, found in (("lost", lost), ("stored twice", doubled), ("never asked", unknown)):
        problems += [f"{len(found)} {kind}, such as {found[0][:50]!r}"] if found else []
    return [*problems, *seen.problems[:5]]


def run(asked: argparse.Namespace) -> tuple[Seen, Drained, float, list[str]]:
    """Kill the processes; return what clients saw, how the journal drained, and what is wrong in the database."""
    with tempfile.TemporaryDirectory(prefix="everlong-bench-") as folder, ExitStack() as opened:
        model = opened.enter_context(failing_upstream(0.0))
        path, journal = Path(folder) / "store.db", Path(folder) / "journal"

        def start() -> Served:
            return opened.enter_context(gateway(model, path, _SETTINGS, journal))

        gateways = [start()]
        seen = asyncio.run(_load(gateways, path, asked, start))
        drained = drain(path, journal, seen)
        rate = asyncio.run(_store_directly(gateways, path, asked.clients, seen))
        drain(path, journal, seen)
        return seen, drained, rate, audit(path, seen)


def main() -> int:
    """Kill, drain, audit and tell; 1 where something was lost or stored twice, or where the journal does not drain."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.kills", description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10, help="kills of the storing process")
    parser.add_argument("--fronts", type=int, default=4, help="kills of the gateway itself")
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second; 0 for as many as are answered")
    asked = parser.parse_args()
    seen, drained, rate, problems = run(asked)
    print(f"the storing process killed {asked.rounds} times, the gateway {asked.fronts} times")
    print(f"  {len(seen.answered):,} requests answered, {len(seen.asked) - len(seen.answered):,} not")
    print(f"  {drained.backlog:,} answers only in the journal when the clients stopped")
    print(f"  {drained.turns:,} turns drained in {drained.seconds:.0f} s: {drained.rate:.0f}/s; directly {rate:.0f}/s")
    for name, value in (
        ("answers in neither", drained.lost),
        ("bytes left in the journal", drained.left),
        ("problems in the database", len(problems)),
    ):
        print(f"  {name:26}{value:>8}  {verdict(value, 0)}")
    for problem in problems:
        print(f"    {problem}")
    return 1 if problems or drained.lost or drained.left else 0


if __name__ == "__main__":
    sys.exit(main())
