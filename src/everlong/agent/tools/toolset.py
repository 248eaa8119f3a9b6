"""Tools in use: what there is, what it works with, and who approves it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from everlong.agent.approval import Approvals
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.toolbox import Toolbox, ToolResult
from everlong.model import ToolCall

__all__ = ["ToolSet"]


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of one conversation."""

    toolbox: Toolbox
    context: ToolContext
    approvals: Approvals

    @property
    def interrupted(self) -> threading.Event:
        """Set while the user wants whatever runs to stop."""
        return self.context.interrupted

    def describe(self, call: ToolCall) -> str:
        """A call in one line, for people."""
        return self.toolbox.describe(call)

    def ready(self, call: ToolCall) -> Callable[[], ToolResult]:
        """Check and approve a call here and now; what it returns runs it, in any thread."""
        return self.toolbox.ready(call, self.context, self.approvals)
