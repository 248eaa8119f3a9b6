"""Patterns of file names: ``*`` and ``?`` in a name, ``**`` over folders, ``[abc]``, ``{a,b}`` for one of several."""

from __future__ import annotations

import re
from functools import lru_cache

from everlong.errors import ToolError

_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST = 64


@lru_cache(maxsize=64)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """What matches paths with slashes; a pattern without one matches the name of a file in any folder."""
    wanted = glob.strip().replace("\\", "/").removeprefix("./")
    if not wanted:
        raise ToolError("the pattern of file names is empty; give one such as *.py or src/**/*.md")
    if "/" not in wanted:
        wanted = f"**/{wanted}"
    return re.compile("|".join(f"(?:{_translated(one)})" for one in _expanded(wanted.lstrip("/"))))


def _expanded(glob: str) -> list[str]:
    found = [glob]
    while any(_BRACES.search(one) for one in found):
        found = [
            one[: inner.start()] + choice + one[inner.end() :] if inner else one
            for one in found
            for inner in [_BRACES.search(one)]
            for choice in (inner[1].split(",") if inner else [""])
        ]
        if len(found) > _MOST:
            raise ToolError(f"the pattern {glob!r} stands for more than {_MOST} others; use a simpler one")
    return found


def _translated(glob: str) -> str:
    pieces, at = [], 0
    while at < len(glob):
        if glob.startswith("**/", at):
            pieces.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            pieces.append(".*")
            at += 2
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inside = glob[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            pieces.append(f"[{'^' + inside[1:] if inside.startswith('!') else inside}]")
            at = end + 1
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]"}.get(glob[at], re.escape(glob[at])))
            at += 1
    return "".join(pieces)
