"""A place to try tools at: real files, a real store, and an approver that says what it is told to say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everlong.agent.approval import ApprovalRequest, Approvals, Decision
from everlong.agent.tools import Tool, Toolbox, ToolContext, ToolResult, Workspace, builtin_tools
from everlong.model import ToolCall
from everlong.store import Store


@dataclass
class Desk:
    """Runs calls of tools in a folder of its own."""

    root: Path
    store: Store
    context: ToolContext = field(init=False)
    toolbox: Toolbox = field(init=False)
    approvals: Approvals = field(init=False)
    asked: list[ApprovalRequest] = field(default_factory=list)
    answer: Decision = "once"

    def __post_init__(self) -> None:
        self.context = ToolContext(Workspace(self.root), self.store, "")
        self.toolbox = Toolbox(builtin_tools())
        self.approvals = Approvals(self._decide)

    def _decide(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        return self.answer

    def with_tools(self, tools: Iterable[Tool]) -> Desk:
        self.toolbox = Toolbox(tools)
        return self

    def call(self, name: str, arguments: str) -> ToolResult:
        return self.toolbox.run(ToolCall("call_1", name, arguments), self.context, self.approvals)

    def run(self, name: str, **arguments: Any) -> ToolResult:
        return self.call(name, json.dumps(arguments))

    def done(self, name: str, **arguments: Any) -> str:
        """The text of a call that must succeed."""
        result = self.run(name, **arguments)
        assert result.outcome == "done", result.message["content"]
        return str(result.message["content"])

    def failed(self, name: str, **arguments: Any) -> str:
        """The text of a call that must fail."""
        result = self.run(name, **arguments)
        assert result.outcome == "failed", result.message["content"]
        assert result.message["is_error"] is True
        return str(result.message["content"])

    def file(self, name: str, content: str | bytes = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path
