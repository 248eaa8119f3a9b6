"""Who may do what: calls that change something are put to a person, or to whatever takes the person's place.

Only what a tool says about itself is known here. A tool that only reads is never asked about. What a person approves
for the session is remembered by the tool's key: the same file, the same command to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from everlong.agent.tools.context import ToolContext
    from everlong.agent.tools.tool import Effect, Tool

Decision = Literal["once", "session", "no"]
"""Yes for this call, yes for all calls with the same key in this session, or no."""

SAID_NO = "the user said no; do not try the same in another way, but ask what to do instead"


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What is to be decided: the tool, the call in one line, and in full (a diff, a command)."""

    tool: str
    effect: Effect
    summary: str
    detail: str
    remembered_as: str = ""
    """What ``session`` would cover, in words."""


Approver = Callable[[ApprovalRequest], Decision]
"""Decides on a call; may raise `ApprovalRefused` to say why not."""


class ApprovalRefused(Exception):  # noqa: N818 - reads as the fact that it states
    """An approver's no with a reason, which the model and the user are told."""


class Ruling(NamedTuple):
    """Whether a call may go ahead, and why not."""

    is_allowed: bool
    reason: str = ""


class Approvals:
    """The approvals of one session: whom to ask, and what was approved for good."""

    def __init__(self, approver: Approver, remembered: Iterable[str] = ()) -> None:
        self.approver = approver
        self.remembered = set(remembered)

    def allows(self, tool: Tool, args: dict[str, Any], context: ToolContext) -> bool:
        """Whether a call may go ahead; asks where that is not known."""
        return self.rule(tool, args, context).is_allowed

    def rule(self, tool: Tool, args: dict[str, Any], context: ToolContext) -> Ruling:
        """As `allows`, with the reason of a no; raises a `ToolError` where the call could not be done anyway."""
        if tool.effect == "reads":
            return Ruling(is_allowed=True)
        key = tool.approval_key(args)
        if key in self.remembered:
            return Ruling(is_allowed=True)
        request = ApprovalRequest(
            tool.name, tool.effect, tool.describe(args), tool.preview(args, context), _covers(tool, args)
        )
        try:
            decision = self.approver(request)
        except ApprovalRefused as refusal:
            return Ruling(is_allowed=False, reason=str(refusal) or SAID_NO)
        if decision == "session":
            self.remembered.add(key)
        is_allowed = decision in {"once", "session"}
        return Ruling(is_allowed, "" if is_allowed else SAID_NO)


def _covers(tool: Tool, args: dict[str, Any]) -> str:
    if tool.keyer is None:
        return f"every {tool.name}"
    return "this very command" if tool.effect == "runs" else f"all changes to {tool.keyer(args)}"


def approve_everything(request: ApprovalRequest) -> Decision:  # noqa: ARG001 - that is the point
    """Say yes to every call: for ``--yes``, and for agents in a place that they may break."""
    return "once"


def refuse_everything(reason: str = "nothing may be changed in this session") -> Approver:
    """Say no to every call that would change something, for a reason that the model is told."""

    def refuse(request: ApprovalRequest) -> Decision:  # noqa: ARG001 - that is the point
        raise ApprovalRefused(reason)

    return refuse
