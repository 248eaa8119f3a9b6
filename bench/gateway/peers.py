"""Other gateways in front of the same upstream: installed aside, started as servers, measured as ours is.

Each lives in a virtual environment of its own in a folder of the checkout that git ignores; the project depends on none
of them. They run as they come, in one process and without a database, and talk to loopback only: what they would send
or fetch on the side is turned off. A peer that cannot be had is told with the reason, and the others go on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.gateway.serving import Served

__all__ = ["PEERS", "Peer", "Unusable", "installed", "running"]

FOLDER = Path(__file__).parents[2] / ".bench-peers"
_INSTALL_SECONDS = 1_200
_START_SECONDS = 120
_WINDOW = 10_000_000
"""The window that the gateway is told, too, so that nobody compacts anything."""


class Unusable(Exception):  # noqa: N818 - the reason why there are no figures
    """A peer that could not be installed, started or asked."""


@dataclass(frozen=True)
class Peer:
    """A gateway of somebody else.

    Args:
        name: what it is called, with its version.
        package: what pip installs; several requirements stand apart by spaces.
        health: the path that answers when it is ready.
        command: its program and arguments, by the folder of programs, one for its files, the upstream and its port.
        environment: what keeps it from the network.
        python: the oldest Python that it runs on.
    """

    name: str
    package: str
    health: str
    command: Callable[[Path, Path, str, int], list[str]]
    environment: Mapping[str, str]
    python: tuple[int, int] = (3, 11)


def _litellm(programs: Path, folder: Path, upstream: str, port: int) -> list[str]:
    known = {"model": "openai/m-1", "api_base": f"{upstream}/v1", "api_key": "made-up"}
    config = folder / "config.yaml"
    config.write_text(json.dumps({"model_list": [{"model_name": "m-1", "litellm_params": known}]}))
    options = ["--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
    return [str(programs / "litellm"), "--config", str(config), *options]


def _headroom(programs: Path, folder: Path, upstream: str, port: int) -> list[str]:
    (folder / "models.json").write_text(json.dumps({"openai": {"context_limits": {"m-1": _WINDOW}}}))
    for bundled in programs.parent.glob("lib/python*/site-packages/litellm/litellm_core_utils/tokenizers"):
        (folder / "vocabularies").symlink_to(bundled)  # the ones that it would fetch
    options = ["--host", "127.0.0.1", "--port", str(port), "--openai-api-url", upstream]
    return [str(programs / "headroom"), "proxy", *options, "--no-rate-limit"]  # else it takes 60 requests a minute


_LOCAL_LITELLM = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
}
_LOCAL_HEADROOM = {
    "HEADROOM_OFFLINE": "1",  # it does without the model that shortens prose, which makes it quicker
    "HEADROOM_TELEMETRY": "off",
    "HEADROOM_BEACON": "off",
    "HEADROOM_UPDATE_CHECK": "off",
    "HEADROOM_NO_SUBSCRIPTION_TRACKING": "1",
    "HEADROOM_MODEL_LIMITS": "models.json",
    "TIKTOKEN_CACHE_DIR": "vocabularies",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
PEERS = (
    Peer("litellm 1.103.7", "litellm[proxy]==1.103.7", "/health/liveliness", _litellm, _LOCAL_LITELLM),
    Peer("headroom 0.42.0", "headroom-ai[proxy]==0.42.0", "/livez", _headroom, {**_LOCAL_LITELLM, **_LOCAL_HEADROOM}),
)


def installed(peer: Peer, folder: Path = FOLDER) -> Path:
    """Return the folder of a peer's programs, which are installed the first time.

    Raises:
        Unusable: pip could not install it, or there is no Python for it.
    """
    home = folder / peer.name.replace(" ", "-")
    programs, done = home / "bin", home / ".installed"
    if done.exists() and done.read_text() == peer.package:
        return programs
    print(f"  installing {peer.package} into {home.name} (once, some minutes)", file=sys.stderr, flush=True)
    pip = (sys.executable, "-m", "pip", "--python", str(programs / "python"))  # one of its own takes seconds to make
    steps = (
        [_interpreter(peer.python), "-m", "venv", "--clear", "--without-pip", str(home)],
        [*pip, "install", "--quiet", "--disable-pip-version-check", *peer.package.split()],
    )
    for step in steps:
        try:
            made = subprocess.run(step, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise Unusable(f"{peer.package} was not installed within {_INSTALL_SECONDS} s") from error
        if made.returncode:
            errors = [line for line in made.stderr.splitlines() if line.startswith("ERROR")]
            raise Unusable(f"{peer.package} was not installed: {_last(errors or made.stderr.splitlines())}")
    done.write_text(peer.package)
    return programs


def _interpreter(oldest: tuple[int, int]) -> str:
    """Return a Python that is new enough: the one that runs this, else the first on the path that works."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    for minor in range(oldest[1], oldest[1] + 5):
        found = shutil.which(f"python{oldest[0]}.{minor}")
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    raise Unusable(f"it needs Python {oldest[0]}.{oldest[1]} or newer on the path")


@contextmanager
def running(peer: Peer, programs: Path, upstream: str) -> Iterator[Served]:
    """Yield the address of a peer in front of an upstream, and its process, until the block ends.

    Raises:
        Unusable: it did not start.
    """
    with tempfile.TemporaryDirectory(prefix="everlong-bench-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), _free_port()
        said = folder / "output.txt"
        own = {"PATH": f"{programs}:{os.environ.get('PATH', '')}", "HOME": name, "NO_COLOR": "1"}  # no keys, no proxies
        with said.open("wb") as output:
            process = subprocess.Popen(
                peer.command(programs, folder, upstream, port),
                cwd=folder,
                env={**own, **peer.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(process, url + peer.health, said)
            yield url, process.pid
        finally:
            _stop(process)


def _wait_for(process: subprocess.Popen[bytes], health: str, said: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            lines = said.read_text(errors="replace").splitlines()
            raise Unusable(f"it ended with {process.returncode} at its start: {_last(lines)}")
        with suppress(OSError), urllib.request.urlopen(health, timeout=2) as answer:  # noqa: S310 - loopback
            if answer.status == 200:
                return
        time.sleep(0.2)
    lines = said.read_text(errors="replace").splitlines()
    raise Unusable(f"{health} did not answer within {_START_SECONDS} s: {_last(lines)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a peer and whatever it started: the session is its own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _last(lines: list[str]) -> str:
    told = [line.strip()[:300] for line in lines if line.strip()]
    return " | ".join(told[-5:]) or "it said nothing"
