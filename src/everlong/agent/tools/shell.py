"""``run_command``: any command of the system's shell, with its output and how it ended."""

from __future__ import annotations

import os
import signal
from typing import Annotated, Any

from pydantic import Field

from everlong.agent.text import plain
from everlong.agent.tools import process
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.tool import ToolOutput
from everlong.errors import ToolError, ToolInterrupted

MOST_SECONDS = 3_600

_ENVIRONMENT = {
    "PAGER": "cat",  # nobody turns the pages
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",  # nobody can answer
    "TERM": "dumb",
}


def run_command(
    command: str,
    context: ToolContext,
    timeout: Annotated[float, Field(gt=0, le=MOST_SECONDS)] | None = None,
) -> ToolOutput:
    """Run a shell command in the root folder and get what it prints, errors included, and its exit code.

    Every command starts anew in the root folder: a cd or an exported variable does not last. It has no input and no
    terminal. To leave a server running, put it in the background with its output in a file: cmd > log.txt 2>&1 &

    Args:
        command: The command, in the syntax of the shell.
        timeout: Seconds after which it is stopped, with all that it started.
    """
    if not command.strip():
        raise ToolError("the command is empty")
    if "\0" in command:
        raise ToolError("the command has a NUL character, which no command can have")
    seconds = context.timeout_seconds if timeout is None else timeout
    try:
        ran = process.run(command, context.workspace.root, {**os.environ, **_ENVIRONMENT}, seconds, context.interrupted)
    except (OSError, ValueError) as error:  # too long for the system, no memory, not encodable
        raise ToolError(f"the command could not be started: {error}") from error
    text = plain(ran.output.decode("utf-8", "replace"))
    text += "" if text.endswith("\n") or not text else "\n"
    text += _ending(ran, seconds)
    if ran.end == "interrupt":
        raise ToolInterrupted(text)
    return ToolOutput(text, is_error=ran.code != 0)


def _ending(ran: process.Ran, seconds: float) -> str:
    if ran.end == "interrupt":
        return "[interrupted by the user, and stopped with all that it had started]"
    if ran.end == "time":
        return (
            f"[stopped with all that it had started: it timed out after {seconds:g} seconds. Give it more time with "
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def describe_command(args: dict[str, Any]) -> str:
    """The call as a person would type it."""
    return f"run_command {args['command']}"


def preview_command(args: dict[str, Any], context: ToolContext) -> str:
    """The command as it would be run, and where."""
    return f"{args['command']}\n(in {context.workspace.root})"
