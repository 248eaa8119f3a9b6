"""A private PostgreSQL server in a temporary folder, for benchmarks and tests.

Made from the binaries that are installed, reachable through a socket in that folder only, and gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPTIONS = ("-c", "listen_addresses=", "-c", "max_connections=200", "-c", "shared_buffers=64MB")


def binaries() -> Path | None:
    """The folder of the newest server that is installed, or None."""
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
        options = " ".join([*_OPTIONS, *speed, "-c", f"unix_socket_directories={folder}"])
        log = folder / "log"
        _run([str(found / "pg_ctl"), "-D", str(data), "-l", str(log), "-w", "-o", options, "start"], account)
        try:
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            _run([str(found / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop"], account)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], account: str | None) -> None:
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    ran = subprocess.run(
        command, user=account, cwd="/", env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    if ran.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {ran.stderr.strip() or ran.stdout.strip()}")
