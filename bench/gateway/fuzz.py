"""Odd requests by the thousand: broken HTTP, broken JSON, structure bombs, odd headers and paths, on all routes.

    python -m bench.gateway.fuzz [--count N] [--seed N] [--bombs N]

The gateway runs as a program of its own. Meanwhile another client asks it for its health and talks to a model. Exits
with 1 if a request was answered with an error of ours (500) or hung, if the other client had to wait for longer than
250 ms, if the gateway took more than 400 MB, was logged with a word of content, or left its store in disorder.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.gateway.fuzzing import SECRET, Shot, bomb, outcome_of, shots, upstream_script
from tests.gateway.served import Program, raw
from tests.gateway.upstream import Exchange, Upstream

from everlong.store import Store

_MOST_SECONDS = 0.25
_MOST_MEGABYTES = 400
_PATIENCE = 120.0
_QUIET_SECONDS = 3.0
_OTHER = b"another client"
_MODEL = re.compile(r'"model":"[^"]*"')


class _Neighbour(threading.Thread):
    """Another client: how long it has to wait for what it asks."""

    def __init__(self, address: str, path: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._path = path
        self._is_over = threading.Event()
        self.waits: list[float] = []
        self.problems: list[str] = []

    def run(self) -> None:
        number = 0
        with raw(self._address) as client:
            while not self._is_over.wait(0.02):
                number += 1
                said = {"model": "m", "messages": [{"role": "user", "content": f"{_OTHER.decode()} asks {number}"}]}
                began = time.perf_counter()
                if self._path == "/healthz":
                    answer = client.ask(b"", self._path, method="GET")
                else:
                    answer = client.ask(json.dumps(said).encode(), self._path)
                self.waits.append(time.perf_counter() - began)
                if answer.status != 200:
                    self.problems.append(f"another client got {answer.status} from {self._path}")

    def end(self) -> None:
        """Stop asking."""
        self._is_over.set()
        self.join(_PATIENCE)


def main() -> int:
    """Send them all and print what became of them."""
    parser = argparse.ArgumentParser(description="Send odd requests to a gateway.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bombs", type=int, help="how many of them have a structure that takes long to read; 1 in 100")
    options = parser.parse_args()
    every = max(1, options.count // max(1, options.bombs if options.bombs is not None else options.count // 100))
    outcomes: Counter[str] = Counter()
    slow: list[tuple[float, str]] = []
    problems: list[str] = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Upstream(_answered) as upstream:
        store, log = f"{folder}/store.db", f"{folder}/log"
        arguments = ("--port", "0", "--upstream", upstream.url, "--store", store, "--log-file", log)
        program = Program(*arguments, EVERLONG_HOME=folder)
        try:
            others = [_Neighbour(program.address, path) for path in ("/healthz", "/v1/chat/completions")]
            for other in others:
                other.start()
            time.sleep(_QUIET_SECONDS)
            quiet = max(max(other.waits, default=0.0) for other in others)
            for other in others:
                other.waits.clear()
            for number, odd in enumerate(shots(options.seed, options.count)):
                shot = bomb(random.Random(f"{options.seed} {number}")) if number % every == every - 1 else odd
                before = [len(other.waits) for other in others]
                outcome = outcome_of(lambda: raw(program.address), shot, _PATIENCE)
                waits = [wait for other, first in zip(others, before, strict=True) for wait in other.waits[first:]]
                if max(waits, default=0.0) > _MOST_SECONDS:
                    slow.append((max(waits), f"during request {number}: {_told(shot)}"))
                outcomes[outcome] += 1
                if outcome in {"500", "hang"}:
                    problems.append(f"request {number}: {outcome} for {b''.join(shot.pieces)[:300]!r}")
            for other in others:
                other.end()
                problems += other.problems[:5]
            megabytes = _peak_megabytes(program.process.pid)
            program.tell(signal.SIGTERM)
            program.end()
        finally:
            if program.process.poll() is None:
                program.process.kill()
                program.process.communicate()
        problems += _left_behind(Path(log), store)
    slowest = [max(other.waits, default=0.0) for other in others]
    asked = sum(len(other.waits) for other in others)
    late = sum(wait > _MOST_SECONDS for other in others for wait in other.waits)
    if late:
        problems.append(f"another client waited for more than {_MOST_SECONDS * 1_000:.0f} ms {late} times")
        problems += [f"{wait * 1_000:.0f} ms {when}" for wait, when in sorted(slow, reverse=True)[:5]]
    if megabytes > _MOST_MEGABYTES:
        problems.append(f"the gateway took {megabytes:.0f} MB")
    for problem in problems[:20]:
        print(f"FAILED {problem}")
    print(", ".join(f"{count:,} × {outcome}" for outcome, count in outcomes.most_common()))
    health, chat = (f"{wait * 1_000:.0f} ms" for wait in slowest)
    print(
        f"another client: {asked:,} requests, slowest {health} (health), {chat} (chat), {quiet * 1_000:.0f} ms before"
    )
    print(f"the gateway: {megabytes:.0f} MB at most")
    seconds = time.perf_counter() - began
    print(f"fuzz: {sum(outcomes.values()):,} requests in {seconds:.0f} s, {len(problems)} problems")
    return 1 if problems else 0


def _answered(exchange: Exchange) -> None:
    if _OTHER in exchange.received.body:
        exchange.answer(b'{"choices":[{"message":{"role":"assistant","content":"Yes."}}]}')
    else:
        upstream_script(exchange)


def _told(shot: Shot) -> str:
    """Return enough of a request to know what it was."""
    data = b"".join(shot.pieces)
    return f"{len(data):,} bytes, {data[:60]!r} … {data.partition(b'\r\n\r\n')[2][:60]!r}"


def _peak_megabytes(pid: int) -> float:
    """Return the most memory that a process has had; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM")), 0.0)


def _left_behind(log: Path, store: str) -> list[str]:
    """Return what is wrong with the log and the store."""
    lines = (
        _MODEL.sub("", line) for line in log.read_text(encoding="utf-8").splitlines()
    )  # a name that clients make up
    problems = [f"logged {line[-300:]!r}" for line in lines if SECRET in line][:5]
    with Store.open(store) as opened:
        return problems + opened.verify().problems


if __name__ == "__main__":
    raise SystemExit(main())
