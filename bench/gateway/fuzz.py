"""Odd requests by the thousand: broken HTTP, broken JSON, structure bombs, odd headers and paths, on all routes.

    python -m bench.gateway.fuzz [--count N] [--seed N] [--bombs N]

The gateway runs as a program of its own, and so does whoever sends these requests. Meanwhile another client asks it for
its health and talks to a model. It also asks a bare server in a program of its own, which tells how long the machine
itself makes everyone wait. Exits with 1 if a request was answered with an error of ours (500) or hung, if the other
client had to wait for longer than 250 ms, if the gateway took more than 400 MB, was logged with a word of content, or
left its store in disorder.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.gateway.served import Program, raw
from tests.gateway.upstream import Exchange, Upstream

from bench.gateway.odd_requests import SECRET, Shot, bomb, outcome_of, shots, upstream_script
from everlong.store import Store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tests.gateway.running import Raw

__all__ = ["Neighbour", "bare_server", "peak_megabytes"]

_MOST_SECONDS = 0.25
_MOST_MEGABYTES = 400
_PATIENCE = 120.0
_QUIET_SECONDS = 3.0
_OTHER = b"another client"
_MODEL = re.compile(r'"model":"[^"]*"')


class Neighbour(threading.Thread):
    """Another client: how long it has to wait for what it asks."""

    def __init__(self, address: str, path: str, pause: float = 0.02) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._path = path
        self._pause = pause
        self._is_over = threading.Event()
        self.waits: list[float] = []
        self.problems: list[str] = []
        self._seen = 0

    def forget(self) -> None:
        """Forget how long it waited so far."""
        self.waits.clear()
        self._seen = 0

    def new_waits(self) -> list[float]:
        """Return the waits since this was asked last."""
        new = self.waits[self._seen :]
        self._seen += len(new)
        return new

    def run(self) -> None:
        """Ask until told to stop; on a new connection after one that broke."""
        while not self._is_over.is_set():
            try:
                with raw(self._address) as client:
                    self._ask(client)
            except OSError as error:
                self.problems.append(f"another client got {type(error).__name__} from {self._path}")

    def _ask(self, client: Raw) -> None:
        while not self._is_over.wait(self._pause):
            number = len(self.waits) + 1
            said = {"model": "m", "messages": [{"role": "user", "content": f"{_OTHER.decode()} asks {number}"}]}
            began = time.perf_counter()
            try:
                if self._path == "/healthz":
                    answer = client.ask(b"", self._path, method="GET")
                else:
                    answer = client.ask(json.dumps(said).encode(), self._path)
            finally:
                self.waits.append(time.perf_counter() - began)
            if answer.status != 200:
                self.problems.append(f"another client got {answer.status} from {self._path}")

    def end(self) -> None:
        """Stop asking."""
        self._is_over.set()
        self.join(_PATIENCE)


class LogReader(threading.Thread):
    """Reads what a gateway logs, so that it never waits for somebody to read."""

    def __init__(self, program: Program) -> None:
        super().__init__(daemon=True)
        self._pipe = program.process.stderr
        self.lines: list[str] = []

    def run(self) -> None:
        """Read until the gateway is gone."""
        self.lines.extend(self._pipe or ())


_BARE = """
from aiohttp import web
async def health(request):
    return web.json_response({"status": "ok"})
async def say(app):
    print("listening", flush=True)
app = web.Application()
app.router.add_get("/healthz", health)
app.on_startup.append(say)
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
web.run_app(app, sock=listening, print=None)
"""


@contextmanager
def bare_server() -> Iterator[str]:
    """Run a server that does nothing but answer; its address."""
    process = subprocess.Popen([sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        port = process.stdout.readline().strip()
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


class _Sent(NamedTuple):
    """An odd request, and what came of it."""

    number: int
    outcome: str
    told: str


def _sent_by_another(address: str, seed: int, count: int, every: int) -> Iterator[_Sent]:
    """Have another process send the odd requests: to make them takes so long that it would hold up the clients here."""
    here, there = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_send_all, args=(there, address, seed, count, every), daemon=True)
    process.start()
    there.close()
    with suppress(EOFError):
        while True:
            yield here.recv()
    process.join()


def _send_all(results: Connection, address: str, seed: int, count: int, every: int) -> None:
    for number, odd in enumerate(shots(seed, count)):
        shot = bomb(random.Random(f"{seed} {number}")) if number % every == every - 1 else odd
        outcome = outcome_of(lambda: raw(address), shot, _PATIENCE)
        results.send(_Sent(number, outcome, _told(shot)))
    results.close()


class _Run:
    """One gateway that is sent odd requests, and what was found."""

    def __init__(self, folder: str, upstream: str, bare: str) -> None:
        self._store = f"{folder}/store.db"
        arguments = ("--port", "0", "--upstream", upstream, "--store", self._store)
        self._program = Program(*arguments, EVERLONG_HOME=folder, EVERLONG_TEST_STARTED="1")
        self._log = LogReader(self._program)
        self._log.start()
        self.others = [Neighbour(self._program.address, path) for path in ("/healthz", "/v1/chat/completions")]
        self.bare = Neighbour(bare, "/healthz")
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []
        self.slow: list[tuple[float, str]] = []
        self.quiet = 0.0
        """The longest wait of the others before anything odd was sent."""
        self.megabytes = 0.0

    def play(self, seed: int, count: int, every: int) -> None:
        """Send so many requests, every so often one whose structure takes long to read."""
        try:
            for other in (*self.others, self.bare):
                other.start()
            time.sleep(_QUIET_SECONDS)
            self.quiet = max(max(other.waits, default=0.0) for other in self.others)
            for other in (*self.others, self.bare):
                other.forget()
            for sent in _sent_by_another(self._program.address, seed, count, every):
                self._note(sent)
            self.bare.end()
            for other in self.others:
                other.end()
                self.problems += other.problems[:5]
            self.megabytes = peak_megabytes(self._program.process.pid)
            self._program.tell(signal.SIGTERM)
            self._program.process.wait(_PATIENCE)
        finally:
            if self._program.process.poll() is None:
                self._program.process.kill()
                self._program.process.wait()
        self._look_behind()

    def _note(self, sent: _Sent) -> None:
        """Note what came of a request, and whether the others had to wait meanwhile."""
        self.outcomes[sent.outcome] += 1
        if sent.outcome in {"500", "hang"}:
            self.problems.append(f"request {sent.number}: {sent.outcome} for {sent.told}")
        waits = [wait for other in self.others for wait in other.new_waits()]
        if max(waits, default=0.0) > _MOST_SECONDS:
            self.slow.append((max(waits), f"during request {sent.number}: {sent.outcome} for {sent.told}"))

    def _look_behind(self) -> None:
        """Look for words in the log, and for disorder in the store."""
        self._log.join()
        lines = (_MODEL.sub("", line) for line in self._log.lines)
        self.problems += [f"logged {line[-300:]!r}" for line in lines if SECRET in line][:5]
        with Store.open(self._store) as opened:
            self.problems += opened.verify().problems


def main() -> int:
    """Send them all and print what became of them."""
    parser = argparse.ArgumentParser(description="Send odd requests to a gateway.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bombs", type=int, help="how many of them have a structure that takes long to read; 1 in 100")
    options = parser.parse_args()
    bombs = options.bombs if options.bombs is not None else options.count // 100
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Upstream(_answered) as upstream, bare_server() as bare:
        run = _Run(folder, upstream.url, bare)
        run.play(options.seed, options.count, max(1, options.count // max(1, bombs)))
    problems = run.problems
    late = sum(wait > _MOST_SECONDS for other in run.others for wait in other.waits)
    if late:
        problems.append(f"another client waited for more than {_MOST_SECONDS * 1_000:.0f} ms {late} times")
        problems += [f"{wait * 1_000:.0f} ms {when}" for wait, when in sorted(run.slow, reverse=True)[:5]]
    if run.megabytes > _MOST_MEGABYTES:
        problems.append(f"the gateway took {run.megabytes:.0f} MB")
    for problem in problems[:20]:
        print(f"FAILED {problem}")
    print(", ".join(f"{count:,} × {outcome}" for outcome, count in run.outcomes.most_common()))
    health, chat = (f"{max(other.waits, default=0.0) * 1_000:.0f} ms" for other in run.others)
    asked = sum(len(other.waits) for other in run.others)
    quiet = f"{run.quiet * 1_000:.0f} ms"
    print(f"another client: {asked:,} requests, slowest {health} (health), {chat} (chat); {quiet} before")
    floor = run.bare.waits
    slowest, over = max(floor, default=0.0), sum(wait > _MOST_SECONDS for wait in floor)
    print(f"a bare server meanwhile: {len(floor):,} requests, slowest {slowest * 1_000:.0f} ms, {over} over the limit")
    print(f"the gateway: {run.megabytes:.0f} MB at most")
    seconds = time.perf_counter() - began
    print(f"fuzz: {sum(run.outcomes.values()):,} requests in {seconds:.0f} s, {len(problems)} problems")
    return 1 if problems else 0


def _answered(exchange: Exchange) -> None:
    if _OTHER in exchange.received.body:
        exchange.answer(b'{"choices":[{"message":{"role":"assistant","content":"Yes."}}]}')
    else:
        upstream_script(exchange)


def _told(shot: Shot) -> str:
    """Return enough of a request to know what it was."""
    head, _, body = b"".join(shot.pieces).partition(b"\r\n\r\n")
    return f"{len(body):,} bytes, {head[:60]!r} … {body[:60]!r}"


def peak_megabytes(pid: int) -> float:
    """Return the most memory that a process has had; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM")), 0.0)


if __name__ == "__main__":
    raise SystemExit(main())
