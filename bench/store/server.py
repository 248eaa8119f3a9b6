"""A private PostgreSQL server in a temporary folder, for benchmarks and tests.

Made from the binaries that are installed, reachable through a socket in that folder only, and gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPTIONS = ("-c", "listen_addresses=", "-c", "max_connections=200", "-c", "shared_buffers=64MB")

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
    found = binaries()
    if found is None:
        raise FileNotFoundError("no PostgreSQL server is installed (initdb and postgres were looked for)")
    folder = Path(tempfile.mkdtemp(prefix="everlong-pg-"))
    account = "postgres" if hasattr(os, "geteuid") and os.geteuid() == 0 else None  # the server refuses to be root
    if account:
        shutil.chown(folder, account)
    folder.chmod(0o700)
    data = folder / "data"
    try:
        _run([str(found / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "-N"], account)
        speed = () if durable else ("-c", "fsync=off", "-c", "full_page_writes=off")
        command = [
            str(found / "postgres"),
            "-D",
            str(data),
            *_OPTIONS,
            *speed,
            "-c",
            f"unix_socket_directories={folder}",
        ]
        with (folder / "log").open("wb") as log:
            guard = subprocess.Popen(
                ["sh", "-c", _GUARD, str(folder), *command],  # noqa: S607 - every system has its shell on the path
                user=account,
                cwd="/",
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        try:
            _wait_until_ready(found, folder)
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            if guard.stdin is not None:
                guard.stdin.close()
            guard.wait(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def restart(url: str) -> None:
    """Stop the server of an url as an upgrade does, and start it again with the same options."""
    _controlled(url, "restart", "-m", "fast", "-w")


def stop(url: str) -> None:
    """Stop a server that was restarted; `postgres` knows only the one that it started."""
    _controlled(url, "stop", "-m", "immediate")


def _controlled(url: str, *words: str) -> None:
    found, folder = binaries(), Path(url.rpartition("host=")[2])
    if found is None:
        raise FileNotFoundError("no PostgreSQL server is installed")
    account = "postgres" if hasattr(os, "geteuid") and os.geteuid() == 0 else None
    log = ["-l", str(folder / "restart.log")] if words[0] == "restart" else []
    _run([str(found / "pg_ctl"), *words, "-D", str(folder / "data"), *log], account)


def _wait_until_ready(found: Path, folder: Path) -> None:
    for _ in range(600):
        asked = subprocess.run([str(found / "pg_isready"), "-q", "-h", str(folder)], check=False)
        if asked.returncode == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the PostgreSQL server did not start: {(folder / 'log').read_text(errors='replace')[-500:]}")


def _run(command: list[str], account: str | None) -> None:
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    ran = subprocess.run(
        command, user=account, cwd="/", env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    if ran.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {ran.stderr.strip() or ran.stdout.strip()}")
