"""Private PostgreSQL servers in temporary folders, for benchmarks and tests.

Made from the binaries that are installed, reachable through sockets in these folders only, and gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OPTIONS = ("-c", "listen_addresses=", "-c", "max_connections=200", "-c", "shared_buffers=64MB")
_QUICK = ("-c", "fsync=off", "-c", "full_page_writes=off")

# The server ends with whoever started it, however that came about: the pipe to the shell closes with the last holder.
_GUARD = 'folder=$0; "$@" & server=$!; read -r _; kill -QUIT $server; wait $server; rm -rf "$folder"'


def binaries() -> Path | None:
    """Return the folder of the newest server that is installed, or None."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    if on_path:
        candidates.append(Path(on_path).resolve().parent)
    found = [path for path in candidates if (path / "initdb").exists() and (path / "postgres").exists()]
    return found[-1] if found else None


@contextmanager
def postgres(*, durable: bool = False) -> Iterator[str]:
    """Start a server and give the url of its database; ``durable`` keeps fsync on."""
    with _folder() as folder:
        _run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "-E", "UTF8", "-N")
        with _running(folder, *(() if durable else _QUICK)):
            yield f"postgresql://postgres@/postgres?host={folder}"


class Pair:
    """A leader and its synchronous standby, which takes its place once."""

    def __init__(self, leader: Path, standby: Path) -> None:
        self._leader, self._standby = leader, standby
        self.url = f"postgresql://postgres@/postgres?host={leader},{standby}&target_session_attrs=read-write"

    def kill_leader(self) -> None:
        """Kill all processes of the leader."""
        server = int((self._leader / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        for process in (server, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def promote(self) -> None:
        """Make a leader of the standby."""
        _run("pg_ctl", "promote", "-D", str(self._standby / "data"), "-w")


@contextmanager
def pair() -> Iterator[Pair]:
    """Start a leader that acknowledges a commit when a standby has it too, and that standby."""
    with _folder() as leader, _folder() as standby:
        _run("initdb", "-D", str(leader / "data"), "-A", "trust", "-U", "postgres", "-E", "UTF8", "-N")
        with _running(leader, *_QUICK, "-c", "synchronous_standby_names=*"):
            _run("pg_basebackup", "-h", str(leader), "-U", "postgres", "-D", str(standby / "data"), "-R", "-c", "fast")
            with _running(standby, *_QUICK):
                yield Pair(leader, standby)


def pooler_program() -> str | None:
    """Return PgBouncer, if it is installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def pooler(url: str) -> Iterator[str]:
    """Start PgBouncer before a server; each transaction gets another of its connections. Gives the url."""
    program = pooler_program()
    if program is None:
        raise FileNotFoundError("pgbouncer is not installed")
    with _folder() as folder:
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\npostgres = host={_folder_of(url)} user=postgres\n"
            f"[pgbouncer]\nlisten_addr =\nunix_socket_dir = {folder}\n"
            "auth_type = any\npool_mode = transaction\nserver_round_robin = 1\nmin_pool_size = 4\n",
            encoding="utf-8",
        )
        command = [program, "-q", str(folder / "pgbouncer.ini")]
        with subprocess.Popen(command, user=_account(), cwd="/", stderr=subprocess.DEVNULL) as process:
            try:
                _wait_until_ready(folder, port="6432")
                yield f"postgresql://postgres@/postgres?host={folder}&port=6432"
            finally:
                process.kill()


def restart(url: str) -> None:
    """Stop the server of an url as an upgrade does, and start it again with the same options."""
    folder = _folder_of(url)
    _run("pg_ctl", "restart", "-m", "fast", "-w", "-D", str(folder / "data"), "-l", str(folder / "restart.log"))


def stop(url: str) -> None:
    """Stop a server that was restarted; `postgres` knows only the one that it started."""
    _run("pg_ctl", "stop", "-m", "immediate", "-D", str(_folder_of(url) / "data"))


def server_processes(url: str) -> set[int]:
    """Return the processes of a server that this module started."""
    server = int((_folder_of(url) / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])
    return {server, *map(int, Path(f"/proc/{server}/task/{server}/children").read_text(encoding="utf-8").split())}


def server_cpu(url: str, without: Collection[int] = ()) -> float:
    """Return the CPU seconds of a server's processes, with those that have ended, and without some."""
    spent = 0.0
    for process in server_processes(url).difference(without):
        with suppress(OSError):  # it has just ended
            spent += int(Path(f"/proc/{process}/schedstat").read_text(encoding="utf-8").split()[0]) / 1e9
            stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            spent += sum(map(int, stat.split()[13:15])) / os.sysconf("SC_CLK_TCK")
    return spent


class Meter:
    """The CPU seconds of a ``with`` block: of this process, of its children that ended meanwhile, and of a server."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url
        self.without: frozenset[int] = frozenset()
        """Processes of the server that count for nothing."""
        self.spent = 0.0

    def __enter__(self) -> None:
        self._server = server_cpu(self.url, self.without) if self.url else 0.0
        self._own = _own_cpu()

    def __exit__(self, *_: object) -> None:
        own = _own_cpu() - self._own
        self.spent = own + (server_cpu(self.url, self.without) - self._server if self.url else 0.0)

    def median(self, step: Callable[[int], object], count: int) -> float:
        """Return the median CPU seconds of a step, which is given its number."""
        found: list[float] = []
        for number in range(count):
            with self:
                step(number)
            found.append(self.spent)
        return statistics.median(found)


def _own_cpu() -> float:
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


def dump(url: str, path: Path) -> None:
    """Copy a database into a file, as PostgreSQL's own tools do."""
    with path.open("wb") as file:
        command = [str(_program("pg_dump")), "-Fc", "-h", str(_folder_of(url)), "-U", "postgres", "postgres"]
        subprocess.run(command, stdout=file, check=True, cwd="/")


def _folder_of(url: str) -> Path:
    return Path(url.rpartition("host=")[2])


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder that belongs to the server's account."""
    folder = Path(tempfile.mkdtemp(prefix="everlong-pg-"))
    if account := _account():
        shutil.chown(folder, account)
    folder.chmod(0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(folder: Path, *options: str) -> Iterator[None]:
    """Run the server whose data are in a folder."""
    command = [str(_program("postgres")), "-D", str(folder / "data"), *_OPTIONS, *options]
    with (folder / "log").open("wb") as log:
        guard = subprocess.Popen(
            ["sh", "-c", _GUARD, str(folder), *command, "-c", f"unix_socket_directories={folder}"],  # noqa: S607 - every system has its shell on the path
            user=_account(),
            cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_ready(folder)
        yield
    finally:
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait(timeout=60)


def _wait_until_ready(folder: Path, port: str = "5432") -> None:
    for _ in range(600):
        asked = subprocess.run([str(_program("pg_isready")), "-q", "-h", str(folder), "-p", port], check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.1)
    said = (folder / "log").read_text(errors="replace") if (folder / "log").exists() else ""
    raise RuntimeError(f"the PostgreSQL server did not start: {said[-500:]}")


def _program(name: str) -> Path:
    found = binaries()
    if found is None:
        raise FileNotFoundError("no PostgreSQL server is installed (initdb and postgres were looked for)")
    return found / name


def _account() -> str | None:
    """Return the account of the server, which refuses to be root; None for this one."""
    return "postgres" if hasattr(os, "geteuid") and os.geteuid() == 0 else None


def _run(name: str, *arguments: str) -> None:
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    command = [str(_program(name)), *arguments]
    ran = subprocess.run(
        command, user=_account(), cwd="/", env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    if ran.returncode:
        raise RuntimeError(f"{name} failed: {ran.stderr.strip() or ran.stdout.strip()}")
