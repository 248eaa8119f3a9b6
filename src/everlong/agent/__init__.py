"""The agent: a tool loop that goes on past the end of the context window.

    from everlong.agent import AgentOptions, open_agent
    from everlong.config import load_settings

    agent = open_agent(load_settings().settings, "anthropic:claude-sonnet-5")
    print(agent.run("What is in this folder?").text)

Nothing is imported until it is used. Everything below is used here; nothing here knows a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlong.agent.agent import Agent
    from everlong.agent.approval import (
        ApprovalRefused,
        ApprovalRequest,
        Approvals,
        Decision,
        approve_everything,
        refuse_everything,
    )
    from everlong.agent.asking import Asker
    from everlong.agent.compaction import Compactor
    from everlong.agent.conversation import Conversation, Said
    from everlong.agent.engines import resolve_engine
    from everlong.agent.events import (
        AgentEvent,
        Answered,
        CompactionFinished,
        CompactionProgress,
        CompactionStarted,
        Notice,
        Restarted,
        SessionStarted,
        TextDelta,
        ThinkingDelta,
        ToolFinished,
        ToolStarted,
        TurnFinished,
        as_dict,
    )
    from everlong.agent.limits import Limits
    from everlong.agent.loop import Loop
    from everlong.agent.opening import AgentOptions, open_agent
    from everlong.agent.tools.context import ToolContext
    from everlong.agent.tools.signature import tool
    from everlong.agent.tools.tool import Tool, ToolOutput
    from everlong.agent.tools.toolbox import Toolbox
    from everlong.agent.tools.toolset import ToolSet
    from everlong.agent.tools.workspace import Workspace

_HOMES = {
    "agent": ["Agent"],
    "approval": [
        "ApprovalRefused",
        "ApprovalRequest",
        "Approvals",
        "Decision",
        "approve_everything",
        "refuse_everything",
    ],
    "asking": ["Asker"],
    "compaction": ["Compactor"],
    "conversation": ["Conversation", "Said"],
    "engines": ["resolve_engine"],
    "events": [
        "AgentEvent",
        "Answered",
        "CompactionFinished",
        "CompactionProgress",
        "CompactionStarted",
        "Notice",
        "Restarted",
        "SessionStarted",
        "TextDelta",
        "ThinkingDelta",
        "ToolFinished",
        "ToolStarted",
        "TurnFinished",
        "as_dict",
    ],
    "limits": ["Limits"],
    "loop": ["Loop"],
    "opening": ["AgentOptions", "open_agent"],
    "tools.context": ["ToolContext"],
    "tools.signature": ["tool"],
    "tools.tool": ["Tool", "ToolOutput"],
    "tools.toolbox": ["Toolbox"],
    "tools.toolset": ["ToolSet"],
    "tools.workspace": ["Workspace"],
}
_LATER = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentOptions",
    "Answered",
    "ApprovalRefused",
    "ApprovalRequest",
    "Approvals",
    "Asker",
    "CompactionFinished",
    "CompactionProgress",
    "CompactionStarted",
    "Compactor",
    "Conversation",
    "Decision",
    "Limits",
    "Loop",
    "Notice",
    "Restarted",
    "Said",
    "SessionStarted",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolContext",
    "ToolFinished",
    "ToolOutput",
    "ToolSet",
    "ToolStarted",
    "Toolbox",
    "TurnFinished",
    "Workspace",
    "approve_everything",
    "as_dict",
    "open_agent",
    "refuse_everything",
    "resolve_engine",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only needed here

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value  # from now on found without this function
    return value
