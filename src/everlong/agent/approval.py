"""Approvals: a person, or a function in their place, decides on calls that change something.

A tool that only reads needs no approval. An approval for the session is remembered by the tool's key: the same file,
the same command to the letter.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from everlong.agent.text import unmistakable

if TYPE_CHECKING:
    from everlong.agent.tools.context import ToolContext
    from everlong.agent.tools.tool import Effect, Tool

Decision = Literal["once", "session", "no"]
"""Yes for this call, yes for all calls with the same key in this session, or no."""

NO_TERMINAL = "there is no terminal to ask; run with --yes"
CLOSED = "the terminal was closed before there was an answer"
SHOWN_LINES = 60
"""Lines of a diff that are shown at once; the rest on request."""

SETTLING_SECONDS = 0.3
"""Seconds after a question appears in which keys are not answers: the user was still typing something else."""

NOTES_TOOL = "memory at compactions"
"""The name in questions about notes that are kept at a compaction or reset; no tool can have it."""

SAID_NO = "the user said no; do not try the same in another way, but ask what to do instead"


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call to decide on: its tool, the call in one line, and in full (a diff, a command)."""

    tool: str
    effect: Effect
    summary: str
    detail: str
    remembered_as: str = ""
    """The calls that ``session`` would cover, in words."""


Approver = Callable[[ApprovalRequest], Decision]
"""Decides on a call; may raise `ApprovalRefused` to say why not."""


class ApprovalRefused(Exception):  # noqa: N818 - reads as the fact that it states
    """An approver's no with a reason, which the model and the user are told."""


class Ruling(NamedTuple):
    """A decision, with the reason of a no."""

    is_allowed: bool
    reason: str = ""


class Approvals:
    """The approvals of one session: the approver, and the keys approved for the session."""

    def __init__(self, approver: Approver, remembered: Iterable[str] = ()) -> None:
        self.approver = approver
        self.person = ""
        """The person whose calls are decided on, where several talk to the agent: what one approves is for one."""
        self.remembered = {("", key) for key in remembered}
        """Persons and the keys that they approved for the session."""

    def rule(self, tool: Tool, args: dict[str, Any], context: ToolContext) -> Ruling:
        """Decide on a call, and return the decision; raises `ToolError` where the call would fail anyway."""
        if tool.effect == "reads" or (tool.is_free is not None and tool.is_free(args, context)):
            return Ruling(is_allowed=True)
        key = tool.approval_key(args)
        if (self.person, key) in self.remembered:
            return Ruling(is_allowed=True)
        covers = f"every {tool.name}"
        if tool.keyer is not None:
            covers = "this very command" if tool.effect == "runs" else f"all changes to {tool.keyer(args)}"
        preview = tool.preview(args, context)
        return self.decide(key, ApprovalRequest(tool.name, tool.effect, tool.describe(args), preview, covers))

    def decide(self, key: str, request: ApprovalRequest) -> Ruling:
        """Ask the approver, unless the key was approved for the session, and return the decision."""
        if (self.person, key) in self.remembered:
            return Ruling(is_allowed=True)
        person = self.person
        try:
            decision = self.approver(request)
        except ApprovalRefused as refusal:
            return Ruling(is_allowed=False, reason=str(refusal) or SAID_NO)
        if decision == "session":
            self.remembered.add((person, key))
        is_allowed = decision in {"once", "session"}
        return Ruling(is_allowed, "" if is_allowed else SAID_NO)


def approve_everything(request: ApprovalRequest) -> Decision:  # noqa: ARG001 - that is the point
    """Say yes to every call: for ``--yes``, and for agents in a place that they may break."""
    return "once"


def refuse_everything(reason: str = "nothing may be changed in this session") -> Approver:
    """Return an approver that refuses every call, for a reason that the model is told."""

    def refuse(request: ApprovalRequest) -> Decision:  # noqa: ARG001 - that is the point
        raise ApprovalRefused(reason)

    return refuse


# -- a person at a terminal -------------------------------------------------------------------------------------------


def ask_on_terminal(request: ApprovalRequest) -> Decision:
    """Ask on the terminal that the program was started from, even if its input is a pipe; refuse without one."""
    with _terminal() as (reader, writer):
        lines = unmistakable(request.detail).splitlines()
        writer.write(f"\n{unmistakable(request.summary)}\n\n{_first_lines(lines)}\n")
        writer.flush()
        more = ", [v]iew all" if len(lines) > SHOWN_LINES else ""
        session = f", [s] yes to {unmistakable(request.remembered_as)} in this session" if request.remembered_as else ""
        discard_typed(reader)
        while True:
            writer.write(f"Allow it? [y]es once{session}{more}, [n]o: ")
            writer.flush()
            answer = reader.readline()
            if not answer:
                raise ApprovalRefused(CLOSED)
            said = answer.strip().lower()
            if said in {"y", "yes"}:
                return "once"
            if said in {"s", "session"} and session:
                return "session"
            if said in {"n", "no"}:
                return "no"
            if said in {"v", "view"}:
                writer.write("\n".join([*(f"    {line}" for line in lines), ""]))


def discard_typed(reader: IO[str]) -> None:
    """Discard keys typed before the question and in its first moments, when nobody can have read it."""
    time.sleep(SETTLING_SECONDS)
    if sys.platform != "win32":
        import termios  # noqa: PLC0415 - there is none on Windows

        with suppress(termios.error):  # no terminal: then nobody types
            termios.tcflush(reader.fileno(), termios.TCIFLUSH)


def _first_lines(lines: list[str]) -> str:
    left = len(lines) - SHOWN_LINES
    shown = [f"    {line}" for line in lines[:SHOWN_LINES]]
    return "\n".join([*shown, f"    … {left:,} more lines", ""] if left > 0 else [*shown, ""])


@contextmanager
def _terminal() -> Iterator[tuple[IO[str], IO[str]]]:
    """Open the controlling terminal, for reading and writing."""
    with ExitStack() as stack:
        try:
            if sys.platform == "win32":
                reader: IO[str] = stack.enter_context(open("CONIN$", encoding="utf-8"))  # noqa: PTH123 - no path
                writer: IO[str] = stack.enter_context(open("CONOUT$", "w", encoding="utf-8"))  # noqa: PTH123 - no path
            else:
                handle = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
                reader = stack.enter_context(os.fdopen(handle, encoding="utf-8", errors="replace"))
                writer = stack.enter_context(os.fdopen(os.dup(handle), "w", encoding="utf-8", errors="replace"))
        except OSError as error:
            raise ApprovalRefused(NO_TERMINAL) from error
        yield reader, writer
