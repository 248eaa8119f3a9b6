"""``everlong sessions``: the group of commands for the conversations in the store.

``sessions_read.py`` has list, show, search and compactions; ``sessions_change.py`` has rename, delete, forget,
verify, stats, backup and maintain; ``sessions_transfer.py`` has import and export; ``session_graph.py`` does what they
do with the graphs of the lossless engine. ``chosen_store.py`` opens the store.
"""

from __future__ import annotations

import click

from everlong.cli.chosen_store import all_tenants_option, store_option, tenant_option
from everlong.cli.lazy_group import LazyGroup

_READ, _CHANGE, _TRANSFER = (f"everlong.cli.sessions_{name}" for name in ("read", "change", "transfer"))
_COMMANDS = {
    "backup": (f"{_CHANGE}:backup", "Copy the store into a new file."),
    "compactions": (f"{_READ}:compactions", "Show the compaction history of one conversation, or of all."),
    "delete": (f"{_CHANGE}:delete", "Delete conversations."),
    "export": (f"{_TRANSFER}:export", "Write conversations to files: JSONL, JSON, Markdown or HTML."),
    "forget": (f"{_CHANGE}:forget", "Remove messages for good: by a text, or by name."),
    "import": (f"{_TRANSFER}:import_", "Read conversations from files or folders."),
    "list": (f"{_READ}:list_", "List conversations, the last active one first."),
    "maintain": (f"{_CHANGE}:maintain", "Index messages, apply retention and free disk space."),
    "rename": (f"{_CHANGE}:rename", "Give a conversation another title."),
    "search": (f"{_READ}:search", "Find messages, tool calls, results and summaries."),
    "show": (f"{_READ}:show", "Show a conversation."),
    "stats": (f"{_CHANGE}:stats", "Show the size and contents of the store."),
    "verify": (f"{_CHANGE}:verify", "Check every hash and every reference."),
}
"""The place of each command, and its line in ``everlong sessions --help``."""


@click.group("sessions", cls=LazyGroup, lazy=_COMMANDS)
@store_option
@tenant_option
@all_tenants_option
def sessions_group() -> None:
    """Read, search, import, export and clean up the conversations in the store."""
