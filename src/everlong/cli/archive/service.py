"""The user service that runs ``everlong archive`` from login on: a unit of systemd, or an agent of launchd."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from everlong.config.files import write_whole
from everlong.errors import ConfigError
from everlong.processes import own_command, system_program

__all__ = ["install_service", "service_file", "service_text", "uninstall_service"]

_LABEL = "everlong.archive"
_UNIT = "everlong-archive.service"
_PASSED = ("EVERLONG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "HERMES_HOME", "PI_CODING_AGENT_DIR", "XDG_DATA_HOME")
"""Variables that say where data is, which a service would not know."""


def service_file(platform: str = sys.platform, home: Path | None = None) -> Path:
    """Return the file of the service on a system.

    Raises:
        ConfigError: The system has no services that are known.
    """
    house = Path.home() if home is None else home
    if platform == "darwin":
        return house / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
    if platform.startswith("linux"):
        config = os.environ.get("XDG_CONFIG_HOME", "").strip()
        return (Path(config) if config else house / ".config") / "systemd" / "user" / _UNIT
    raise ConfigError(
        "user services are known for Linux (systemd) and macOS (launchd); run `everlong archive` yourself"
    )


def service_text(platform: str = sys.platform) -> str:
    """Return the text of that file."""
    command = own_command("everlong", "archive")
    passed = {name: os.environ[name] for name in _PASSED if os.environ.get(name, "").strip()}
    return _plist(command, passed) if platform == "darwin" else _unit(command, passed)


def _unit(command: Sequence[str], passed: dict[str, str]) -> str:
    run = " ".join(_quoted(word) for word in command)
    variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in passed.items())
    return (
        "[Unit]\nDescription=Everlong: archive the logs of coding agents\n\n"
        f"[Service]\nExecStart={run}\n{variables}Restart=on-failure\nRestartSec=10\nNice=10\n\n"
        "[Install]\nWantedBy=default.target\n"
    )


def _quoted(word: str) -> str:
    """Return a word as a unit file has it."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"'


def _plist(command: Sequence[str], passed: dict[str, str]) -> str:
    words = "".join(f"    <string>{escape(word)}</string>\n" for word in command)
    pairs = "".join(
        f"    <key>{escape(name)}</key><string>{escape(value)}</string>\n" for name, value in passed.items()
    )
    variables = f"  <key>EnvironmentVariables</key>\n  <dict>\n{pairs}  </dict>\n" if pairs else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n'
        f'<plist version="1.0">\n<dict>\n  <key>Label</key><string>{_LABEL}</string>\n'
        f"  <key>ProgramArguments</key>\n  <array>\n{words}  </array>\n{variables}"
        "  <key>RunAtLoad</key><true/>\n  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>\n"
        "  <key>ProcessType</key><string>Background</string>\n</dict>\n</plist>\n"
    )


def install_service() -> Iterator[str]:
    """Write the service's file and start it; yield what was done."""
    path = service_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, service_text(), new_mode=0o600)
    yield f"wrote {path}"
    for command in _commands(path, is_start=True):
        problem = _run(command)
        if problem is not None:
            yield f"it starts with the next login; to start it now, run: {' '.join(command)} ({problem})"
            return
    yield "started; `everlong archive --uninstall` removes it"


def uninstall_service() -> Iterator[str]:
    """Stop the service and remove its file; yield what was done."""
    path = service_file()
    if not path.exists():
        yield f"there is no service: {path} is not there"
        return
    for command in _commands(path, is_start=False):
        _run(command)
    path.unlink(missing_ok=True)
    yield f"removed {path}"


def _commands(path: Path, *, is_start: bool) -> list[list[str]]:
    if path.suffix == ".plist":
        return [["launchctl", "load" if is_start else "unload", "-w", str(path)]]
    reload = ["systemctl", "--user", "daemon-reload"]
    if is_start:
        return [reload, ["systemctl", "--user", "enable", _UNIT], ["systemctl", "--user", "restart", _UNIT]]
    return [["systemctl", "--user", "disable", "--now", _UNIT]]


def _run(command: list[str]) -> str | None:
    """Run a command of the system; return what went wrong, if anything did."""
    program = system_program(command[0])
    if program is None:
        return f"{command[0]} is not installed"
    try:
        ran = subprocess.run(  # noqa: S603 - our own words
            [program, *command[1:]], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if ran.returncode == 0 else (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
