"""The system prompt: what the agent is, where it works, the project's own instructions, and what it remembers.

Made once, when a conversation begins, and stored with it: the same bytes are sent until it ends. Knows no model.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from everlong.agent.tools.workspace import Workspace
from everlong.config.paths import INSTRUCTION_FILES
from everlong.errors import ToolError
from everlong.tokens import counter_for

__all__ = ["INSTRUCTION_FILES", "project_instructions", "system_prompt"]

_READ_CHARS_PER_TOKEN = 16
"""More characters than this per token of the budget are not even read."""

_ROLE = """\
You are an agent who works for the user with the tools you are given. Do what was asked, all of it and nothing else; \
look before you change something, and check afterwards that it works. When something fails, say so plainly. Answer in \
the user's language, shortly.

Long conversations are compacted: earlier turns are then replaced by a summary, and nothing is lost. What you need in \
its own words you get back with the tool `recall` (this conversation) or `search_sessions` (earlier ones). A summary \
is background; only messages after it are requests. Keep a todo list with `update_todo` for work of several steps."""


def system_prompt(
    root: Path, *, instructions_tokens: int = 4_000, memory: str = "", role: str = _ROLE, today: date | None = None
) -> str:
    """The system prompt for work in a folder.

    Args:
        root: the working directory.
        instructions_tokens: how much the project's own instructions may take.
        memory: what is remembered from earlier conversations, ready to be read.
        role: what the agent is told about itself.
        today: the date that it is told.
    """
    parts = [
        role,
        f"Working directory: {root}\nSystem: {platform.system()} {platform.machine()}\n"
        f"Today: {(today or date.today()).isoformat()}",
        project_instructions(root, instructions_tokens),
        memory,
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def project_instructions(root: Path, budget_tokens: int) -> str:
    """Return the text of AGENTS.md and CLAUDE.md within a budget, equal files once.

    The caller checks that the folder is trusted. Files that are links out of the folder are ignored.
    """
    if budget_tokens <= 0:
        return ""
    told: list[str] = []
    seen: set[str] = set()
    left = budget_tokens
    for name, text in _files(root, budget_tokens * _READ_CHARS_PER_TOKEN):
        if not text or text in seen or left <= 0:
            continue
        seen.add(text)
        shown, used = _within(text, left)
        left -= used
        rest = "" if shown == text else f"\n[The rest of {name} does not fit; read the file when you need it.]"
        told.append(f"# Instructions of this project ({name})\n\n{shown}{rest}")
    return "\n\n".join(told)


def _files(root: Path, most: int) -> Iterator[tuple[str, str]]:
    workspace = Workspace(root)
    for name in INSTRUCTION_FILES:
        try:
            with os.fdopen(workspace.open(workspace.resolve(name)), encoding="utf-8", errors="replace") as file:
                yield name, file.read(most).replace("\0", "").strip()
        except (ToolError, OSError):  # not there, not ours to read, or not in the folder
            continue


def _within(text: str, budget: int) -> tuple[str, int]:
    """As many whole lines from the beginning as the budget allows, and what they take."""
    count = counter_for(None).count_text
    whole = count(text)
    if whole <= budget:
        return text, whole
    lines = text.splitlines(keepends=True)
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        if count("".join(lines[:middle])) <= budget:
            low = middle
        else:
            high = middle - 1
    shown = "".join(lines[:low]).rstrip()
    return shown, count(shown)
