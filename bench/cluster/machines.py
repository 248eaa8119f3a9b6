"""The cluster: three machines with PostgreSQL, Patroni and etcd, PgBouncer and HAProxy before them, three gateways.

Each machine is a network namespace with a disk of its own (a tmpfs). Everything runs in one namespace of processes
(see `__main__`): the kernel ends all of it with the process that began it, however that ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psycopg

from bench.store.server import binaries

PROGRAMS = ("patroni", "etcd", "pgbouncer", "haproxy", "unshare", "nsenter", "setpriv", "ip")
PATRONI = Path(sys.prefix, "patroni")
"""The Patroni that runs. Debian 12's is too old: it takes the leader's lock from whoever got it meanwhile."""
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

_COUNT = 3
_FRONTS = (8640, 8641, 8642)
"""The ports at which clients find the first gateway, two of them, and all."""
_FRONT = _FRONTS[-1]
_POOL, _LEADER = 6432, 5000
"""The ports of PgBouncer, and of HAProxy's way to the leader."""
_SOON = "connect_timeout=2&tcp_user_timeout=5000"
"""How soon a machine that has vanished from the network counts as gone."""
_PATIENCE = 180.0
"""Seconds that something may take which the cluster does by itself."""


def missing() -> list[str]:
    """Return the programs that are not installed."""
    found = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    found += [] if PATRONI.is_dir() else [str(PATRONI)]
    return found if binaries() is not None else [*found, "postgres"]


def until(is_true: Callable[[], Any], what: str, seconds: float = _PATIENCE) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds:g} seconds still not: {what}")
        time.sleep(0.1)


class Service:
    """A program that is started, killed and started again."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._command, self._env, self._log = list(command), {**os.environ, "PATH": PATH, **(env or {})}, log / name
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **env: str) -> None:
        """Start the program, with some variables besides its own."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**self._env, **env}
            )

    @property
    def process(self) -> int:
        """Return the process that runs."""
        return 0 if self._process is None else self._process.pid

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the program, and wait for its end."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()


class Machine:
    """One of the machines: a namespace of the network, a disk, and what runs there."""

    def __init__(self, number: int, folder: Path, disk: int) -> None:
        self.name, self.address = f"n{number}", f"10.77.0.{10 + number}"
        self.disk = folder / self.name
        self._link = f"v{number}"
        self._data = self.disk / "data"
        self.disk.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={disk}m,mode=0700", "tmpfs", str(self.disk))
        shutil.chown(self.disk, "postgres")
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])  # noqa: S607 - looked for before
        until(self._has_network, "a network of its own")
        inside, end = self._inside(), f"e{number}"
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", end)
        _run("ip", "link", "set", end, "netns", str(self._holder.pid))
        _run("ip", "link", "set", self._link, "master", "br0", "up")
        _run(*inside, "ip", "addr", "add", f"{self.address}/24", "dev", end)
        _run(*inside, "ip", "link", "set", end, "up")
        _run(*inside, "ip", "link", "set", "lo", "up")
        settings = folder / f"{self.name}.yaml"
        settings.write_text(json.dumps(self._patroni()), encoding="utf-8")  # JSON is YAML
        account = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups")
        command, env = [*inside, *account, "patroni", str(settings)], {"PYTHONPATH": str(folder / PATRONI.name)}
        self.patroni = Service(f"patroni-{number}", command, folder, env)
        self.etcd = Service(f"etcd-{number}", [*inside, "etcd", *self._etcd(folder)], folder)

    def _has_network(self) -> bool:
        own = Path(f"/proc/{self._holder.pid}/ns/net")
        return own.exists() and own.readlink() != Path("/proc/self/ns/net").readlink()

    def _inside(self) -> tuple[str, ...]:
        return "nsenter", "-t", str(self._holder.pid), "-n"

    def _etcd(self, folder: Path) -> Sequence[str]:
        machines = ",".join(f"n{number}=http://10.77.0.{10 + number}:2380" for number in range(1, _COUNT + 1))
        return (
            *("--name", self.name, "--data-dir", str(folder / f"etcd-data-{self.name}"), "--logger", "zap"),
            *("--listen-peer-urls", f"http://{self.address}:2380"),
            *("--initial-advertise-peer-urls", f"http://{self.address}:2380"),
            *("--listen-client-urls", f"http://{self.address}:2379"),
            *("--advertise-client-urls", f"http://{self.address}:2379"),
            *("--initial-cluster", machines, "--initial-cluster-state", "new"),
            *("--heartbeat-interval", "250", "--election-timeout", "2500"),
            "--pre-vote",  # else a machine that comes back unseats the leader of the others
        )

    def _patroni(self) -> Any:
        rules = ["local all all trust", "host all all 10.77.0.0/24 trust", "host replication all 10.77.0.0/24 trust"]
        return {
            "scope": "everlong",
            "name": self.name,
            "restapi": {"listen": f"{self.address}:8008", "connect_address": f"{self.address}:8008"},
            "etcd3": {"hosts": [f"10.77.0.{10 + number}:2379" for number in range(1, _COUNT + 1)]},
            "bootstrap": {
                "dcs": {
                    "ttl": 20,  # Patroni takes no less
                    "loop_wait": 2,
                    "retry_timeout": 4,
                    "primary_start_timeout": 0,
                    "synchronous_mode": True,
                    "synchronous_mode_strict": True,  # else a new leader acknowledges alone until it has a standby
                    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 100}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"wal-segsize": "1"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"{self.address}:5432",
                "connect_address": f"{self.address}:5432",
                "data_dir": str(self._data),
                "bin_dir": str(binaries()),
                "pgpass": str(self.disk / "pgpass"),
                "pg_hba": rules,
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "postgres"}},
                "parameters": {
                    "unix_socket_directories": str(self.disk),
                    "shared_buffers": "32MB",
                    "min_wal_size": "8MB",
                    "max_wal_size": "32MB",
                    "wal_keep_size": "16MB",
                    "wal_retrieve_retry_interval": "1s",  # nothing is acknowledged until a standby has found the leader
                    "wal_sender_timeout": "10s",  # a parted leader stops when its standbys count as gone
                },
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
        }

    def kill_server(self) -> None:
        """Kill all processes of the PostgreSQL server."""
        with suppress(FileNotFoundError, ProcessLookupError):
            server = int((self._data / "postmaster.pid").read_text().split()[0])
            children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
            for process in (server, *map(int, children)):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def kill(self) -> None:
        """Kill everything that runs on the machine."""
        self.patroni.stop()
        self.kill_server()
        self.etcd.stop()

    def close(self) -> None:
        """End everything on the machine, and take away its disk."""
        self.kill()
        self._holder.kill()
        self._holder.wait()
        _run("umount", "--lazy", str(self.disk))

    def start(self) -> None:
        """Start what runs on the machine; Patroni starts the server."""
        self.etcd.start()
        self.patroni.start()

    def connect(self, *, is_up: bool) -> None:
        """Put the machine's cable in, or pull it out."""
        _run("ip", "link", "set", self._link, "up" if is_up else "down")

    def fill_disk(self) -> None:
        """Leave no byte on the disk."""
        with (self.disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))

    def clear_disk(self) -> None:
        """Take away what filled it."""
        (self.disk / "filler").unlink()

    def state(self) -> Any:
        """Return what the machine's Patroni knows about the cluster; nothing if it does not answer."""
        with suppress(OSError, URLError, ValueError), urlopen(f"http://{self.address}:8008/cluster", timeout=2) as said:
            return json.load(said)
        return {}


class Cluster:
    """All of it, under the addresses at which others find it."""

    fronts = tuple(f"http://127.0.0.1:{port}" for port in _FRONTS)
    """Where the first gateway is found, two of them, and all."""
    front = fronts[-1]

    def __init__(self, folder: Path, upstream: str, disk: int = 400, balance: str = "leastconn") -> None:
        self.folder = folder
        shutil.copytree(PATRONI, folder / PATRONI.name)  # where the servers' account can read it
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "br0", "type", "bridge")
        _run("ip", "addr", "add", "10.77.0.1/24", "dev", "br0")
        _run("ip", "link", "set", "br0", "up")
        self.machines = [Machine(number, folder, disk) for number in range(1, _COUNT + 1)]
        hosts = ",".join(machine.address for machine in self.machines)
        self.url = f"postgresql://everlong@{hosts}/everlong?target_session_attrs=read-write&{_SOON}"
        pooled = f"postgresql://everlong@127.0.0.1:{_POOL}/everlong"
        # Two find the leader through PgBouncer and HAProxy, the third by itself.
        urls = (pooled, pooled, self.url)
        self.gateways = [self._gateway(number, url, upstream) for number, url in enumerate(urls, 1)]
        (folder / "haproxy.cfg").write_text(self._haproxy(balance), encoding="utf-8")
        (folder / "pgbouncer.ini").write_text(_pgbouncer(), encoding="utf-8")
        account = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups")
        self.haproxy = Service("haproxy", ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")], folder)
        self.pooler = Service("pgbouncer", [*account, "pgbouncer", str(folder / "pgbouncer.ini")], folder)

    def close(self) -> None:
        """End everything."""
        for service in (*self.gateways, self.pooler, self.haproxy):
            service.stop()
        for machine in self.machines:
            machine.close()

    def start(self) -> None:
        """Start everything; return when clients get answers."""
        for machine in self.machines:
            machine.start()
        self.wait_until_whole()
        host = self.leader().address
        with psycopg.connect(f"postgresql://postgres@{host}/postgres", autocommit=True) as connection:
            connection.execute("CREATE ROLE everlong LOGIN")
            connection.execute("CREATE DATABASE everlong OWNER everlong")
        for service in (self.haproxy, self.pooler, *self.gateways):
            service.start()
        until(lambda: self.ready() == len(self.gateways), "all gateways ready")
        until(lambda: all(map(_is_ready, _FRONTS)), "a gateway behind HAProxy")

    def processes(self) -> list[int]:
        """Return the gateways' processes."""
        return [gateway.process for gateway in self.gateways]

    def ready(self) -> int:
        """Return how many gateways can keep requests."""
        return sum(_is_ready(_FRONT + number) for number in range(1, len(self.gateways) + 1))

    def leader(self) -> Machine:
        """Return the machine that leads; wait for one."""
        found: list[Machine] = []

        def has_leader() -> bool:
            for machine in self.machines:
                members = machine.state().get("members", [])
                names = [one["name"] for one in members if one["role"] == "leader" and one["state"] == "running"]
                found[:] = [one for one in self.machines if one.name in names]
                if found:
                    return True
            return False

        until(has_leader, "a leader")
        return found[0]

    def is_whole(self) -> bool:
        """Return whether all machines run and agree on one leader's history, with a synchronous standby."""
        seen = set()
        for machine in self.machines:
            members = machine.state().get("members", [])
            running = [one for one in members if one["state"] in {"running", "streaming"}]
            if len(running) != _COUNT or not {"leader", "sync_standby"} <= {one["role"] for one in running}:
                return False
            leaders = [one["name"] for one in running if one["role"] == "leader"]
            seen |= {(*leaders, one.get("timeline")) for one in running}
        return len(seen) == 1

    def wait_until_whole(self) -> None:
        """Wait until the cluster has brought itself in order."""
        until(self.is_whole, "three machines, one of which leads and one of which is its synchronous standby")

    def _gateway(self, number: int, url: str, upstream: str) -> Service:
        home = self.folder / f"g{number}"
        home.mkdir()
        (home / "config.yaml").write_text(
            f"store: {{url: '{url}'}}\nmodels: {{m-1: {{context_length: 1000000}}}}\n"
            f"gateway: {{port: {_FRONT + number}, upstream: '{upstream}', summaries: built-in}}\n",
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "everlong", "serve", "--json"]
        return Service(f"gateway-{number}", command, self.folder, {"EVERLONG_HOME": str(home)})

    def _haproxy(self, balance: str) -> str:
        servers = "\n".join(
            f"  server {one.name} {one.address}:5432 check addr {one.address} port 8008" for one in self.machines
        )
        gateways = "\n".join(_front(port, count, balance) for count, port in enumerate(_FRONTS, 1))
        return f"""\
global
  maxconn 1000
defaults
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  timeout check 5s
listen postgres
  bind 127.0.0.1:{_LEADER}
  mode tcp
  option httpchk OPTIONS /primary
  default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
{gateways}
"""


def _front(port: int, count: int, balance: str) -> str:
    """Return HAProxy's section for the first gateways."""
    servers = "\n".join(f"  server g{number} 127.0.0.1:{_FRONT + number} check" for number in range(1, count + 1))
    return f"""\
listen gateways-{count}
  bind 127.0.0.1:{port}
  mode http
  balance {balance}
  option httpchk GET /readyz
  option redispatch
  retries 3
  default-server inter 1s fall 2 rise 1
{servers}"""


def _is_ready(port: int) -> bool:
    with suppress(OSError, URLError), urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as said:
        return bool(said.status == 200)
    return False


def _pgbouncer() -> str:
    return f"""\
[databases]
everlong = host=127.0.0.1 port={_LEADER} user=everlong
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {_POOL}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
server_login_retry = 1
server_connect_timeout = 3
query_wait_timeout = 3
tcp_user_timeout = 10000
"""


def _run(*command: str) -> None:
    env = {**os.environ, "PATH": PATH}
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ran.stderr.strip()}")
