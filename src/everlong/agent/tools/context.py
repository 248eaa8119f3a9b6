"""The context of a tool call: the workspace, the store, the session, the limits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from everlong.agent.tools.sandbox import Confinement
from everlong.agent.tools.workspace import Workspace
from everlong.store import Branch, Store

LEAST_PAGE = 600
PAGES_IN_WINDOW = 4
"""Pages that fit a window even if every character is a token."""


@dataclass
class ToolContext:
    """The context of all tool calls of one conversation, through all its sessions."""

    workspace: Workspace
    store: Store
    session_id: str
    """The session that the conversation is in now; a compaction changes it."""
    interrupted: threading.Event = field(default_factory=threading.Event)
    """Set while the user wants the work to stop."""
    heard: Callable[[bytes], None] | None = None
    """Called with the output of a command as it comes, in another thread; the host may show it."""
    timeout_seconds: float = 120
    """Seconds for a command that does not ask for another time."""
    output_chars: int = 12_000
    """Characters of the longest result that the model gets whole; of a longer one it gets beginning and end."""
    confinement: Confinement = field(default_factory=Confinement)
    """The sandbox for commands; the default has none."""
    pass_env: Sequence[str] = ()
    """Variables that commands see besides the usual ones without secrets."""
    window: int = 0
    """Tokens of the model's window; a page takes a small part of it, in any script. 0 if it is not known."""
    upto: Branch | None = None
    """The current place of the conversation, if its session may go on elsewhere."""

    @property
    def page_chars(self) -> int:
        """Characters of a page of a longer text; also of the beginning that a capped result shows."""
        usual = self.output_chars * 2 // 3
        return min(usual, max(LEAST_PAGE, self.window // PAGES_IN_WINDOW)) if self.window else usual
