"""Faults in a cluster under load: every answered turn is stored once, and nobody needs to restart anything.

Three machines run PostgreSQL under Patroni, with synchronous replication; three gateways store there. Leaders are
killed, every fifth time with the whole machine; cables are pulled, disks filled; PgBouncer, etcd and the gateways are
restarted. After each fault the cluster brings itself in order while clients go on. At the end all that they were
answered stands in the database once, and no journal has anything left.

With an earlier version to upgrade from, the gateways change versions whenever they restart, so that both store side by
side.

    python -m bench.cluster --kills 30 --others 5 --before COMMIT
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout, TCPConnector

from bench.cluster.machines import PATH, PATRONI, Cluster, Machine, missing, until
from bench.gateway.kills import Client, Seen, audit, drain
from bench.gateway.serving import children_of
from bench.gateway.upstreams import failing_upstream
from bench.measure import verdict

FOLDER = "EVERLONG_CLUSTER_FOLDER"
"""The variable that names the cluster's folder; set inside of the namespaces."""
_NAMESPACES = ("--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
_ANSWERS = 20
"""Answers that clients get while something is broken, and before the next thing breaks."""
_FULL_SECONDS = 5.0
"""Seconds for which a disk stays full, at least."""
_LONGEST = 30.0
"""Seconds in which every client gets an answer."""


@dataclass
class Row:
    """One kind of fault, how often it happened, and what clients saw."""

    name: str
    count: int = 0
    answered: int = 0
    asked_again: int = 0
    longest: float = 0.0
    in_order: float = 0.0
    """The longest time, in seconds, until the cluster had brought itself in order."""


class Faults:
    """The faults of a cluster; each comes back when what is broken is whole again."""

    def __init__(self, cluster: Cluster, seen: Seen, before: Path | None = None) -> None:
        self._cluster, self._seen = cluster, seen
        self._versions = itertools.cycle([{}] if before is None else [{"PYTHONPATH": str(before)}, {}])

    def answers(self) -> None:
        """Wait until clients have got some answers more."""
        before = len(self._seen.answered)
        until(lambda: len(self._seen.answered) >= before + _ANSWERS, "answers")

    def kill_leader(self) -> None:
        """Kill the server that leads."""
        leader = self._cluster.leader()
        leader.kill_server()
        self._another_leads(leader)

    def kill_machine(self) -> None:
        """Kill everything on the machine that leads; start it again when another one leads."""
        leader = self._cluster.leader()
        leader.kill()
        self._another_leads(leader)
        self.answers()
        leader.start()

    def pull_cable(self) -> None:
        """Part the leader from everything; put it back when another one leads."""
        leader = self._cluster.leader()
        leader.connect(is_up=False)
        self._another_leads(leader)
        self.answers()
        leader.connect(is_up=True)

    def fill_disk(self) -> None:
        """Fill the leader's disk for a while."""
        leader, began = self._cluster.leader(), time.monotonic()
        leader.fill_disk()
        self.answers()
        until(lambda: time.monotonic() > began + _FULL_SECONDS, "time")
        leader.clear_disk()

    def restart_pooler(self) -> None:
        """Kill PgBouncer and start it again."""
        self._cluster.pooler.stop()
        self.answers()
        self._cluster.pooler.start()

    def restart_etcd(self) -> None:
        """Kill etcd on all machines and start it again."""
        for machine in self._cluster.machines:
            machine.etcd.stop()
        for machine in self._cluster.machines:
            machine.etcd.start()

    def restart_gateways(self) -> None:
        """Stop the gateways one after the other as an upgrade does."""
        version = next(self._versions)
        for gateway in self._cluster.gateways:
            gateway.stop(signal.SIGTERM)
            gateway.start(**version)
            until(lambda: self._cluster.ready() == len(self._cluster.gateways), "all gateways ready")
            self.answers()

    def _another_leads(self, former: Machine) -> None:
        others = [machine for machine in self._cluster.machines if machine is not former]

        def is_led() -> bool:
            leaders = (one for machine in others for one in machine.state().get("members", []))
            return any(
                one["role"] == "leader" and one["state"] == "running" and one["name"] != former.name for one in leaders
            )

        until(is_led, "another leader")


def _plan(faults: Faults, kills: int, others: int) -> Iterator[tuple[str, Callable[[], None], int]]:
    machines = kills // 5
    yield "leader killed", faults.kill_leader, kills - machines
    yield "leader's machine killed", faults.kill_machine, machines
    yield "leader's cable pulled", faults.pull_cable, others
    yield "leader's disk full", faults.fill_disk, others
    yield "PgBouncer restarted", faults.restart_pooler, others
    yield "etcd restarted", faults.restart_etcd, others
    yield "gateways restarted in turn", faults.restart_gateways, 2  # the second time back to this version


def _disturb(cluster: Cluster, seen: Seen, asked: argparse.Namespace) -> list[Row]:
    faults, rows = Faults(cluster, seen, _version(cluster.folder, asked.before)), []
    print(f"  {'fault':28}{'times':>6}{'answered':>10}{'asked again':>13}{'longest wait':>14}{'in order after':>16}")
    for name, fault, count in _plan(faults, asked.kills, asked.others):
        row, before, unanswered = Row(name), len(seen.answered), len(seen.asked) - len(seen.answered)
        seen.longest = 0.0
        for _ in range(count):
            faults.answers()
            began = time.monotonic()
            fault()
            cluster.wait_until_whole()
            row.count, row.in_order = row.count + 1, max(row.in_order, time.monotonic() - began)
        row.answered, row.longest = len(seen.answered) - before, seen.longest
        row.asked_again = max(0, len(seen.asked) - len(seen.answered) - unanswered)
        rows.append(row)
        print(
            f"  {name:28}{row.count:>6}{row.answered:>10,}{row.asked_again:>13,}{row.longest:>12.1f} s"
            f"{row.in_order:>14.1f} s",
            flush=True,
        )
    return rows


def _version(folder: Path, commit: str | None) -> Path | None:
    """Return the source of an earlier version, unpacked."""
    if commit is None:
        return None
    packed, project = folder / "before.tar", Path(__file__).parents[2]
    subprocess.run(["git", "archive", "--output", packed, commit, "src"], cwd=project, check=True)  # noqa: S607
    with tarfile.open(packed) as archive:
        archive.extractall(folder / "before", filter="data")
    return folder / "before" / "src"


async def _load(cluster: Cluster, asked: argparse.Namespace) -> tuple[Seen, list[Row]]:
    seen, pause = Seen(), asked.clients / asked.rate
    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=60)) as session:
        clients = [Client(f"client {number}", [(cluster.front, 0)], seen, pause) for number in range(asked.clients)]
        talkers = [asyncio.create_task(client.talk(session)) for client in clients]
        try:
            rows = await asyncio.to_thread(_disturb, cluster, seen, asked)
        finally:
            seen.is_over = True
            await asyncio.gather(*talkers)
    return seen, rows


def run(asked: argparse.Namespace, folder: Path) -> int:
    """Start the cluster, disturb it under load and audit; 1 where something was lost, doubled or late."""
    began = time.monotonic()
    with failing_upstream(0.0) as model:
        cluster = Cluster(folder, model)
        try:
            cluster.start()
            print(f"three machines, three gateways, ready after {time.monotonic() - began:.0f} s", flush=True)
            seen, rows = asyncio.run(_load(cluster, asked))
            drained = drain(cluster.url, folder, seen)
            problems = audit(cluster.url, seen)
        finally:
            cluster.close()
            if asked.logs:
                ignored = shutil.ignore_patterns("etcd-data-*", PATRONI.name)
                shutil.copytree(folder, asked.logs, ignore=ignored, dirs_exist_ok=True)
    longest = max(row.longest for row in rows)
    print(
        f"{len(seen.answered):,} turns answered, {drained.backlog:,} of them only in a journal at the end of the load"
    )
    for what, value, most in (
        ("answers in neither database nor journal", drained.lost, 0),
        ("bytes left in journals", drained.left, 0),
        ("problems in the database", len(problems), 0),
        ("longest wait of a client, in seconds", round(longest, 1), _LONGEST),
    ):
        print(f"  {what:42}{value:>8}  {verdict(value, most)}")
    for problem in problems:
        print(f"    {problem}")
    print(f"after {time.monotonic() - began:.0f} s")
    return 1 if problems or drained.lost or drained.left or longest > _LONGEST else 0


def enclose(command: Sequence[str]) -> int:
    """Run a command in namespaces and a folder of its own; neither is left when it ends, or this process is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="everlong-cluster-") as folder:
        Path(folder).chmod(0o755)
        # The shell is the first process of its namespace, and waits for those whose parent was killed.
        first = ("setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES, "sh", "-c", '"$@"; exit $?', "sh")
        process = subprocess.Popen([*first, *command], env={**os.environ, "PATH": PATH, FOLDER: folder})
        try:
            return process.wait()
        except BaseException:
            shells = [os.pidfd_open(shell) for shell in children_of(process.pid)]
            process.kill()  # unshare takes the shell along, and the kernel all others
            for shell in shells:
                select.select([shell], [], [])  # it ends after all others
            process.wait()
            raise


def refusal() -> int:
    """Return 2, and tell why, if there can be no cluster here; else 0."""
    if lacking := missing():
        print(f"not installed: {', '.join(lacking)}; `make test-cluster` installs it", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("namespaces of the network need root: sudo make test-cluster", file=sys.stderr)
        return 2
    return 0


def main() -> int:
    """Run inside of namespaces of our own, so that nothing stays behind."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="leaders that are killed")
    parser.add_argument("--others", type=int, default=5, help="how often each other fault happens")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=20.0, help="requests per second of all clients together, at most")
    parser.add_argument("--before", metavar="COMMIT", help="an earlier version, which the gateways upgrade from")
    parser.add_argument("--logs", type=Path, help="a folder for the logs of all programs")
    asked = parser.parse_args()
    if folder := os.environ.pop(FOLDER, ""):  # a name that settings do not know
        return run(asked, Path(folder))
    return refusal() or enclose([sys.executable, "-m", "bench.cluster", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
