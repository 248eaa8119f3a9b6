"""``!command``: a command of the user's own, whose output the model gets with the next prompt."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from everlong.agent.tools import process
from everlong.agent.watch import Interrupted

if TYPE_CHECKING:
    from everlong.cli.chat.commands import ChatDesk

__all__ = ["run_own_command"]

_LONGEST_SECONDS = 24 * 3_600.0
_MOST_CHARS = 20_000
"""Characters of an output that are shown and that the model gets."""


def run_own_command(desk: ChatDesk, command: str) -> None:
    """Run a command as the user would in a shell, show what it prints, and keep that for the next prompt.

    Raises:
        Interrupted: the user stopped it.
    """
    agent = desk.agent
    context = agent.tools.context
    context.interrupted.clear()
    desk.state.set_busy(command)
    ran = process.run(
        command, context.workspace.root, dict(os.environ), _LONGEST_SECONDS, context.interrupted, heard=context.heard
    )
    output = ran.output.decode("utf-8", "replace").rstrip("\n")
    kept = output
    if len(output) > _MOST_CHARS:
        left_out = len(output) - _MOST_CHARS
        kept = f"{output[: _MOST_CHARS // 2]}\n[… {left_out:,} characters …]\n{output[-_MOST_CHARS // 2 :]}"
    desk.show.end_output()
    if kept:
        desk.show.text(kept)
    if ran.end == "interrupt":
        raise Interrupted
    if ran.code:
        desk.show.note(f"it ended with exit code {ran.code}")
    told = f"<bash-input>{command}</bash-input>\n<bash-stdout>{kept}\n[exit code {ran.code}]</bash-stdout>"
    desk.outputs.append(told)
    desk.show.quiet("the model gets this with your next prompt")
