"""The agent: a tool loop that goes on past the end of the context window.

    from everlong.agent import AgentOptions, open_agent
    from everlong.config import load_settings

    agent = open_agent(load_settings().settings, "anthropic:claude-sonnet-5")
    print(agent.run("What is in this folder?").text)

Nothing is imported until it is used. Everything below is used here; nothing here knows a terminal.
"""

from typing import TYPE_CHECKING

from everlong.exports import export_lazily

if TYPE_CHECKING:
    from everlong.agent.agent import Agent as Agent
    from everlong.agent.approval import (
        ApprovalRefused as ApprovalRefused,
        ApprovalRequest as ApprovalRequest,
        Approvals as Approvals,
        Decision as Decision,
        approve_everything as approve_everything,
        refuse_everything as refuse_everything,
    )
    from everlong.agent.compaction import Compactor as Compactor
    from everlong.agent.conversation import (
        AgentConversation as AgentConversation,
        Said as Said,
    )
    from everlong.agent.engines import resolve_engine as resolve_engine
    from everlong.agent.events import (
        AgentEvent as AgentEvent,
        Answered as Answered,
        CompactionFinished as CompactionFinished,
        CompactionStarted as CompactionStarted,
        Notice as Notice,
        Restarted as Restarted,
        SessionStarted as SessionStarted,
        TextDelta as TextDelta,
        ThinkingDelta as ThinkingDelta,
        ToolFinished as ToolFinished,
        ToolStarted as ToolStarted,
        TurnFinished as TurnFinished,
        as_dict as as_dict,
    )
    from everlong.agent.loop import Limits as Limits, Loop as Loop
    from everlong.agent.model_calls import Asker as Asker
    from everlong.agent.opening import AgentOptions as AgentOptions, open_agent as open_agent
    from everlong.agent.tools.context import ToolContext as ToolContext
    from everlong.agent.tools.tool import Tool as Tool, ToolOutput as ToolOutput, tool as tool
    from everlong.agent.tools.toolbox import Toolbox as Toolbox, ToolSet as ToolSet
    from everlong.agent.tools.workspace import Workspace as Workspace

__all__, __getattr__, __dir__ = export_lazily(
    __name__,
    {
        "agent": "Agent",
        "approval": "ApprovalRefused ApprovalRequest Approvals Decision approve_everything refuse_everything",
        "compaction": "Compactor",
        "conversation": "AgentConversation Said",
        "engines": "resolve_engine",
        "events": (
            "AgentEvent Answered CompactionFinished CompactionStarted Notice Restarted "
            "SessionStarted TextDelta ThinkingDelta ToolFinished ToolStarted TurnFinished as_dict"
        ),
        "loop": "Limits Loop",
        "model_calls": "Asker",
        "opening": "AgentOptions open_agent",
        "tools.context": "ToolContext",
        "tools.tool": "Tool ToolOutput tool",
        "tools.toolbox": "ToolSet Toolbox",
        "tools.workspace": "Workspace",
    },
)
