"""Tools of the agent: the built-in ones, and everything to make and run others.

toolbox = Toolbox([*builtin_tools(), tool(my_function, effect="writes")])
context = ToolContext(Workspace("."), store, session.id)
result = toolbox.run(call, context, Approvals(ask_on_terminal))
"""

from dataclasses import replace
from typing import Any

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.signature import tool
from everlong.agent.tools.todo import TodoItem, TodoList
from everlong.agent.tools.tool import Effect, Tool, ToolOutput
from everlong.agent.tools.toolbox import Toolbox, ToolResult
from everlong.agent.tools.workspace import Workspace

__all__ = [
    "Effect",
    "TodoItem",
    "TodoList",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolResult",
    "Toolbox",
    "Workspace",
    "builtin_tools",
    "tool",
]


def builtin_tools() -> list[Tool]:
    """Return the built-in tools: files, commands, the to-do list, and the search of earlier messages."""
    from everlong.agent.tools import files, finding, history, planning, shell, todo  # noqa: PLC0415 - as needed

    return [
        tool(files.read_file, describe=_describe_by("read_file", "path")),
        _writing_tool(files.write_file, files.preview_write),
        _writing_tool(files.edit_file, files.preview_edit),
        tool(finding.list_files, describe=_describe_by("list_files", "path", "pattern")),
        tool(finding.search_files, describe=_describe_by("search_files", "pattern", "path", "glob")),
        replace(
            tool(
                shell.run_command,
                effect="runs",
                describe=shell.describe_command,
                approval_key=shell.key_command,
                preview=shell.preview_command,
            ),
            is_free=shell.is_confined,
        ),
        tool(planning.update_todo, describe=todo.describe_todo),
        tool(history.recall, describe=_describe_by("recall", "query")),
        tool(history.search_sessions, describe=_describe_by("search_sessions", "query")),
        tool(history.read_turn, describe=_describe_by("read_turn", "id", "page")),
        tool(history.read_output, describe=_describe_by("read_output", "id", "page")),
    ]


def _describe_by(name: str, *keys: str) -> Any:
    """Return a function that describes a call by the values of some of its arguments."""
    return lambda args: " ".join([name, *(str(args[key]) for key in keys if args.get(key) is not None)])


def _writing_tool(function: Any, preview: Any) -> Tool:
    """Return a tool that changes the file at ``path``; links are followed before the approval."""
    made = tool(
        function,
        effect="writes",
        describe=_describe_by(function.__name__, "path"),
        approval_key=lambda args: str(args["path"]),
        preview=preview,
    )
    return replace(made, pinner=_pin_path)


def _pin_path(args: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return {**args, "path": context.workspace.pin(args["path"])}
