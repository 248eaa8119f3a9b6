"""``run_command``: a command of the system's shell, with its output and exit code."""

from __future__ import annotations

import fnmatch
import os
import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from everlong.agent.text import plain
from everlong.agent.tools import process
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.sandbox import GuardedPlaces, find_sandbox, guarded_names
from everlong.agent.tools.tool import ToolOutput
from everlong.errors import ToolError, ToolInterrupted

__all__ = ["command_environment"]

_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "HOSTNAME", "TMPDIR", "TMP", "TEMP", "TZ", "EDITOR"),
    *("LANG", "LANGUAGE", "LC_*", "CHARSET"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("PIP_*", "UV_*", "NPM_CONFIG_*", "YARN_REGISTRY", "GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GOFLAGS"),
    *("GOPATH", "GOROOT", "GOCACHE", "CARGO_HOME", "CARGO_REGISTRIES_*", "RUSTUP_HOME", "JAVA_HOME", "MAVEN_OPTS"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYTHON*", "NODE_PATH", "NVM_DIR", "GEM_*"),
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_DIRS"),
    *("CI", "DEBIAN_FRONTEND", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"),
    # Windows starts hardly any program without these.
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "HOMEDRIVE", "HOMEPATH"),
    *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES*", "COMMONPROGRAMFILES*", "PROCESSOR_*", "OS"),
    *("NUMBER_OF_PROCESSORS", "USERNAME", "USERDOMAIN", "COMPUTERNAME"),
)
"""Names of variables that commands see, in upper case; a star stands for any letters."""

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE_KEY|_KEY$|_AUTH", re.IGNORECASE)
_NO_SECRET = frozenset({"SSH_AUTH_SOCK"})

_IN_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s,|]*@")
"""The user name and password in the address of a proxy or a package index."""

_FIXED = {
    "PAGER": "cat",  # nobody turns the pages
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",  # nobody can answer
    "TERM": "dumb",
}


def command_environment(pass_env: Iterable[str] = (), env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command.

    Args:
        pass_env: names of further variables that the user allows; a star stands for any letters.
        env: the environment to filter; by default that of this process.
    """
    env = os.environ if env is None else env
    wanted = list(pass_env)
    named = {name: value for name, value in env.items() if any(fnmatch.fnmatchcase(name, one) for one in wanted)}
    usual = {name: _IN_ADDRESS.sub(r"\1", value) for name, value in env.items() if _passes(name)}
    return usual | named | _FIXED


def _passes(name: str) -> bool:
    upper = name.upper()
    if _SECRET.search(upper) and upper not in _NO_SECRET:
        return False
    return any(fnmatch.fnmatchcase(upper, pattern) for pattern in _PASSED)


MOST_SECONDS = 3_600


def run_command(
    command: str,
    context: ToolContext,
    timeout: Annotated[float, Field(gt=0, le=MOST_SECONDS)] | None = None,
    network: bool = False,
) -> ToolOutput:
    """Run a shell command in the root folder and get what it prints, errors included, and its exit code.

    Every command starts anew in the root folder: a cd or an exported variable does not last. It has no input and no
    terminal. To leave a server running, put it in the background with its output in a file: cmd > log.txt 2>&1 &
    It may run in a sandbox: only the root folder can be written there, but not .git, and there is a network only if
    asked for.

    Args:
        command: The command, in the syntax of the shell.
        timeout: Seconds after which it is stopped, with all that it started.
        network: Whether it needs the network, as for downloads or a server; the user is asked.
    """
    seconds = context.timeout_seconds if timeout is None else timeout
    _check_runnable(command, context)
    env = command_environment(context.pass_env)
    try:
        ran = _run(command, context, env, seconds, network=network)
    except (OSError, ValueError) as error:  # too long for the system, no memory, not encodable
        raise ToolError(f"the command could not be started: {error}") from error
    text = plain(ran.output.decode("utf-8", "replace"))
    text += "" if text.endswith("\n") or not text else "\n"
    text += _ending(ran, seconds)
    if ran.end == "interrupt":
        raise ToolInterrupted(text)
    return ToolOutput(text, is_error=ran.code != 0)


def _run(
    command: str, context: ToolContext, env: dict[str, str], seconds: float, *, network: bool
) -> process.ProcessResult:
    wrap, workspace = _wrap(context, network=network), context.workspace
    if wrap is None:
        return process.run(command, workspace.root, env, seconds, context.interrupted, heard=context.heard)
    is_bubblewrap = context.confinement.sandbox is not None and context.confinement.sandbox.kind == "bubblewrap"
    guarded, is_over = GuardedPlaces([workspace.root, *workspace.allowed] if is_bubblewrap else []), True
    guarded.make()
    try:
        ran = process.run(command, workspace.root, env, seconds, context.interrupted, wrap, context.heard)
        is_over = not ran.has_inside
        return ran
    finally:
        guarded.let_go(is_over=is_over)


def _check_runnable(command: str, context: ToolContext) -> None:
    if not command.strip():
        raise ToolError("the command is empty")
    if "\0" in command:
        raise ToolError("the command has a NUL character, which no command can have")
    if context.confinement.is_missing:
        raise ToolError(
            f"no command may run without a sandbox (agent.sandbox is on), and there is none: {find_sandbox()[1]}"
        )
    root, allowed = context.workspace.root, context.workspace.allowed
    links = (
        folder / name for folder in (root, *allowed) for name in guarded_names(folder) if (folder / name).is_symlink()
    )
    link = next((link for link in links if Path(os.path.realpath(link)) not in allowed), None)
    if link is not None and context.confinement.sandbox is not None:
        raise ToolError(f"{link} is a link, which no sandbox can guard; put the folder itself there")


def _wrap(context: ToolContext, *, network: bool) -> process.Wrap | None:
    confinement, workspace = context.confinement, context.workspace
    if confinement.sandbox is None:
        return None
    folders = [workspace.root, *workspace.allowed]
    return lambda line, told: confinement.wrap(line, folders, network=network, info_fd=told)


def _ending(ran: process.ProcessResult, seconds: float) -> str:
    if ran.end == "interrupt":
        return f"[interrupted by the user, and {_stopped(ran)}]"
    if ran.end == "time":
        return (
            f"[{_stopped(ran)}: it timed out after {seconds:g} seconds. Give it more time with "
            f"timeout (at most {MOST_SECONDS}), or put it in the background with its output in a file]"
        )
    code = ran.code or 0
    said = f"[exit code {code}]" if code >= 0 else f"[ended by signal {-code} ({_signal_name(-code)})]"
    if ran.has_child:
        said += (
            "\n[something that it started still runs and has this output open; what it prints from now on is lost. "
            "Send its output to a file to see it]"
        )
    return said


def _stopped(ran: process.ProcessResult) -> str:
    """Return in words whether everything was stopped."""
    if ran.is_all_ended:
        return "stopped with all that it had started"
    if ran.has_child:
        return "stopped, but something that it had started still runs"
    return "stopped with all that it had started, as far as can be seen"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def describe_command(args: dict[str, Any]) -> str:
    """Return the call in one line, as a person would type it."""
    return f"run_command {args['command']}{' (with the network)' if args.get('network') else ''}"


def key_command(args: dict[str, Any]) -> str:
    """Return the key of an approval for the session: the very same command and use of the network."""
    return str(args["command"]).strip() + ("\0network" if args.get("network") else "")  # no command can contain NUL


def is_confined(args: dict[str, Any], context: ToolContext) -> bool:
    """Return whether a command needs no approval: in the sandbox, without network, if the user chose so."""
    confinement = context.confinement
    return not confinement.asks and confinement.sandbox is not None and not args.get("network")


def preview_command(args: dict[str, Any], context: ToolContext) -> str:
    """Return the command, its folder, and its sandbox, for the person who approves it."""
    _check_runnable(args["command"], context)
    confined = context.confinement.describe(network=bool(args.get("network")))
    return f"{args['command']}\n(in {context.workspace.root}, {confined})"
