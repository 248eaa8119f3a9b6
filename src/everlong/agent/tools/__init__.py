"""Tools of the agent: the built-in ones, and everything to make and run others.

toolbox = Toolbox([*builtin_tools(), tool(my_function, effect="writes")])
context = ToolContext(Workspace("."), store, session.id)
result = toolbox.run(call, context, Approvals(ask_on_terminal))
"""

from dataclasses import replace
from functools import cache
from typing import Any

from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.todo import TodoItem
from everlong.agent.tools.tool import Effect, Tool, ToolOutput, tool
from everlong.agent.tools.toolbox import Toolbox, ToolResult
from everlong.agent.tools.workspace import Workspace

__all__ = [
    "Effect",
    "TodoItem",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolResult",
    "Toolbox",
    "Workspace",
    "builtin_tools",
    "tool",
]


@cache
def builtin_tools() -> tuple[Tool, ...]:
    """Return the built-in tools: files, commands, the to-do list, and the search of earlier messages."""
    from everlong.agent.tools import files, finding, history, shell, todo  # noqa: PLC0415 - as needed

    command = tool(shell.run_command, effect="runs")
    return (
        _reading_tool(files.read_file, "path"),
        _writing_tool(files.write_file, files.preview_write),
        _writing_tool(files.edit_file, files.preview_edit),
        _reading_tool(finding.list_files, "path", "pattern"),
        _reading_tool(finding.search_files, "pattern", "path", "glob"),
        replace(
            command,
            describer=shell.describe_command,
            keyer=shell.key_command,
            previewer=shell.preview_command,
            is_free=shell.is_confined,
        ),
        replace(tool(todo.update_todo), describer=todo.describe_todo),
        _reading_tool(history.recall, "query"),
        _reading_tool(history.search_sessions, "query"),
        _reading_tool(history.read_turn, "id", "page"),
        _reading_tool(history.read_output, "id", "page"),
    )


def _reading_tool(function: Any, *keys: str) -> Tool:
    return replace(tool(function), describer=_describe_by(function.__name__, *keys))


def _describe_by(name: str, *keys: str) -> Any:
    """Return a function that describes a call by the values of some of its arguments."""
    return lambda args: " ".join([name, *(str(args[key]) for key in keys if args.get(key) is not None)])


def _writing_tool(function: Any, preview: Any) -> Tool:
    """Return a tool that changes the file at ``path``; links are followed before the approval."""
    return replace(
        tool(function, effect="writes"),
        describer=_describe_by(function.__name__, "path"),
        keyer=lambda args: str(args["path"]),
        previewer=preview,
        pinner=_pin_path,
    )


def _pin_path(args: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return {**args, "path": context.workspace.pin(args["path"])}
