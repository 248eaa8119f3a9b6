"""A long session while everything fails: calls, the summarizer, a memory provider, and the process itself.

The scripted session of `bench.agent.session` runs in a process of its own (`bench.agent.worker`), against a model
server in this one. A tenth of all calls fail in random ways, the summarizer is dead for a tenth of the turns, a memory
provider hangs at a compaction, and the process is killed with SIGKILL again and again: after an answer, inside a tool,
inside a compaction. Each time another one resumes the session. Afterwards every message that was acknowledged must be
in the store, once and in order, and the store must be whole.

    python -m bench.agent.faults --turns 2000 --kills 20
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.api_rules import install_rules
from tests.api_rules.faults import random_faults

from bench.agent.audit import audited
from bench.agent.clerk import Clerk, is_for_summary
from bench.agent.hanging import offered_in
from bench.agent.requests import Job, jobs
from bench.agent.session import APIS, own_folder
from bench.agent.worker import MEMORY_SECONDS, Errand
from everlong.store import Store
from everlong.testing import Ask, Fault, ModelServer
from everlong.testing.server.exchange import KINDS, Api

install_rules()

__all__ = ["Run", "play"]

WINDOW = 32_768
SHARE = 0.10
_MOMENTS = ("call", "compaction", "done", "call", "compaction")
"""After which lines a process is killed, in turn."""
_RESUMING = 5
"""Every so many kills the next process is killed too, while it resumes the session."""
_MOST_DELAY = 0.06


@dataclass
class Run:
    """The events of a run, and their faults."""

    turns: int
    acknowledged: list[int] = field(default_factory=list)
    """Requests that were done, in order."""
    calls: list[str] = field(default_factory=list)
    """Calls whose answer was acknowledged."""
    session: str | None = None
    kills: Counter[str] = field(default_factory=Counter)
    """Processes that were killed, by the moment."""
    seen: Counter[str] = field(default_factory=Counter)
    """Lines by their kind, and compactions by what came of them."""
    errors: Counter[str] = field(default_factory=Counter)
    """Errors that a request ended with before it was tried again."""
    faults: Counter[str] = field(default_factory=Counter)
    most_hung: int = 0
    """The most waits for the hanging memory provider in one process."""
    problems: list[str] = field(default_factory=list)


def play(turns: int, kills: int, api: Api = "anthropic", seed: int = 1, *, is_quick: bool = False) -> Run:
    """Play a session of so many turns with so many kills."""
    run = Run(turns)
    todo = list(jobs(turns, seed))
    with own_folder(is_quick=is_quick) as folder:
        for name, text in offered_in().items():
            (folder / "plugins" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "plugins" / name).write_text(text, encoding="utf-8")
        plan = _Plan(run, seed)
        with ModelServer(Clerk(todo), window=WINDOW, faults=plan, remember=64, alternate_roles=True) as server:
            plan.server = server
            errand = Errand(server.url, api, WINDOW, str(folder), turns, seed, 0, None)
            _Keeper(run, errand, folder, random.Random(f"kills {seed}"), kills).keep()
            run.faults = Counter(record.fault for record in server.requests if record.fault is not None)
            run.problems += [f"refused: {record.error}" for record in server.rejections]
        with Store.open(folder / "store.db") as store:
            run.problems += audited(store, run.session or "", _told(todo, run), run.calls)
    if run.acknowledged != list(range(turns)):
        run.problems.append(f"{len(run.acknowledged)} of {turns} requests were done, or not in their order")
    if run.most_hung > 1:
        run.problems.append(f"a memory provider that hangs was waited for {run.most_hung} times in one process")
    for kind in ("stopped", "given up"):
        run.problems += [f"{run.seen[kind]} requests were {kind}"] if run.seen[kind] else []
    return run


def _told(todo: list[Job], run: Run) -> list[Job]:
    return [todo[ticket] for ticket in run.acknowledged]


class _Plan:
    """The faults that requests meet: by chance, and always for summaries while the summarizer is dead."""

    def __init__(self, run: Run, seed: int) -> None:
        self.server: ModelServer | None = None
        self._run = run
        self._chance = random_faults(seed, SHARE, KINDS)
        self._dead = range(run.turns * 3 // 10, run.turns * 4 // 10)

    def __call__(self, number: int) -> Fault | None:
        assert self.server is not None  # noqa: S101 - set before the first request
        record = self.server.requests[number]
        if len(self._run.acknowledged) in self._dead:
            ask = Ask(record.api, number, record.body, record.headers, 0)
            if is_for_summary(ask):
                return Fault("server_error")
        return self._chance(number) if callable(self._chance) else None


class _Keeper:
    """Keeps a process going until the session is done, and kills it on the way."""

    def __init__(self, run: Run, errand: Errand, folder: Path, dice: random.Random, kills: int) -> None:
        self._run = run
        self._errand = errand
        self._folder = folder
        self._dice = dice
        ends = sorted(dice.sample(range(2, max(4, run.turns - 2)), kills)) if kills else []
        self._strikes_again = False
        self._due = [(at, _MOMENTS[place % len(_MOMENTS)]) for place, at in enumerate(ends)]

    def keep(self) -> None:
        """Start processes until one of them comes to the end."""
        while len(self._run.acknowledged) < self._run.turns:
            before = len(self._run.acknowledged), sum(self._run.kills.values())
            self._one()
            if before == (len(self._run.acknowledged), sum(self._run.kills.values())):
                self._run.problems.append(f"a process ended by itself after {before[0]} requests")
                return

    def _one(self) -> None:
        first = len(self._run.acknowledged)
        errand = asdict(self._errand) | {"first": first, "session": self._run.session}
        path = os.pathsep.join([str(self._folder / "plugins"), *(entry for entry in sys.path if entry)])
        with subprocess.Popen(
            [sys.executable, "-m", "bench.agent.worker", json.dumps(errand)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        ) as process:
            try:
                self._listen(process)
            finally:
                process.kill()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - asked for
        for line in process.stdout:
            if line.endswith("\n"):  # else its process was killed while it wrote
                said = json.loads(line)
                self._take(said)
                if self._is_due(said):
                    time.sleep(self._delay(said["kind"]))  # so that it is somewhere inside
                    process.kill()

    def _is_due(self, said: dict[str, Any]) -> bool:
        if said["kind"] == "session":
            is_due, self._strikes_again = self._strikes_again, False
            self._run.kills["resuming"] += is_due
            return is_due
        if not self._due or len(self._run.acknowledged) < self._due[0][0] or said["kind"] != self._due[0][1]:
            return False
        self._run.kills[self._due.pop(0)[1]] += 1
        self._strikes_again = self._run.kills.total() % _RESUMING == 0
        return True

    def _delay(self, moment: str) -> float:
        delay = self._dice.uniform(0.0, _MOST_DELAY)
        # A compaction waits for the memory provider first; half of the kills are to strike what comes after that.
        return delay + (MEMORY_SECONDS if moment == "compaction" and self._dice.random() < 0.5 else 0.0)

    def _take(self, said: dict[str, Any]) -> None:
        run = self._run
        run.seen[said["kind"] if said["kind"] != "compacted" else str(said["outcome"])] += 1
        if said["kind"] == "done":
            run.acknowledged.append(said["ticket"])
            run.most_hung = max(run.most_hung, said["hung"])
        elif said["kind"] == "call":
            run.calls.append(said["id"])
        elif said["kind"] == "session":
            run.session = run.session or said["id"]
        elif said["kind"] == "error":
            run.errors[said["name"]] += 1
        elif said["kind"] == "compacted" and said["fallback"]:
            run.seen["without the model"] += 1


def report(run: Run, api: str) -> None:
    """Print what happened."""
    print(f"\n{api}: {len(run.acknowledged)} of {run.turns} turns, {len(run.calls)} calls acknowledged")
    print(f"  killed       {dict(run.kills)}")
    print(f"  faults       {sum(run.faults.values())}: {dict(run.faults.most_common())}")
    print(f"  errors       {dict(run.errors)}, each tried again")
    print(f"  seen         {dict(run.seen)}")
    print(f"  waits for a hanging memory provider: {run.most_hung} in one process at most")
    print(f"  problems     {len(run.problems)}")
    for problem in run.problems[:20]:
        print(f"    {problem[:240]}")


def main() -> int:
    """Play and tell; 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.agent.faults", description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--api", choices=(*APIS, "both"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    good = True
    for api in APIS if asked.api == "both" else (asked.api,):
        run = play(asked.turns, asked.kills, api, asked.seed)
        report(run, api)
        good = good and not run.problems
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
