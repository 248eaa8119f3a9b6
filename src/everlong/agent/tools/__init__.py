"""Tools of the agent: how they are made, what confines them, and those that come with it.

toolbox = Toolbox([*builtin_tools(), tool(my_function, effect="writes")])
context = ToolContext(Workspace("."), store, session.id)
result = toolbox.run(call, context, Approvals(ask_on_terminal))
"""

import posixpath
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
    from everlong.agent.tools import editing, files, finding, history, planning, shell, todo  # noqa: PLC0415 - as needed

    return [
        tool(files.read_file, describe=_named("read_file", "path")),
        tool(
            files.write_file,
            effect="writes",
            describe=_named("write_file", "path"),
            approval_key=_file,
            preview=files.preview_write,
        ),
        tool(
            editing.edit_file,
            effect="writes",
            describe=_named("edit_file", "path"),
            approval_key=_file,
            preview=editing.preview_edit,
        ),
        tool(finding.list_files, describe=_named("list_files", "path", "pattern")),
        tool(finding.search_files, describe=_named("search_files", "pattern", "path", "glob")),
        tool(
            shell.run_command,
            effect="runs",
            describe=shell.describe_command,
            approval_key=lambda args: args["command"].strip(),
            preview=shell.preview_command,
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


def _file(args: dict[str, Any]) -> str:
    return posixpath.normpath(str(args["path"]))
