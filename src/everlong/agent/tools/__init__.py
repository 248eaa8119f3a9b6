"""Tools of the agent: how they are made, what confines them, and those that come with it.

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
    """The tools that come with the agent: files, commands, the to-do list, and what was said before."""
    from everlong.agent.tools import files, finding, history, planning, shell, todo  # noqa: PLC0415 - as needed

    return [
        tool(files.read_file, describe=_named("read_file", "path")),
        _writing(files.write_file, files.preview_write),
        _writing(files.edit_file, files.preview_edit),
        tool(finding.list_files, describe=_named("list_files", "path", "pattern")),
        tool(finding.search_files, describe=_named("search_files", "pattern", "path", "glob")),
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
        tool(history.recall, describe=_named("recall", "query")),
        tool(history.search_sessions, describe=_named("search_sessions", "query")),
        tool(history.read_turn, describe=_named("read_turn", "id", "page")),
        tool(history.read_output, describe=_named("read_output", "id", "page")),
    ]


def _named(name: str, *keys: str) -> Any:
    """A call by the values of some of its arguments."""
    return lambda args: " ".join([name, *(str(args[key]) for key in keys if args.get(key) is not None)])


def _writing(function: Any, preview: Any) -> Tool:
    """A tool that changes the file at ``path``: the real one is approved, and no other is written."""
    made = tool(
        function,
        effect="writes",
        describe=_named(function.__name__, "path"),
        approval_key=lambda args: str(args["path"]),
        preview=preview,
    )
    return replace(made, pinner=_with_real_path)


def _with_real_path(args: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return {**args, "path": context.workspace.pin(args["path"])}
