"""Docstrings in Google's style, read: what a function does, and what each of its parameters is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?|See Also|Warnings?):\s*$"
)
_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


def read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the parameters of the section ``Args``, each in flowing text."""
    lines = (inspect.getdoc(function) or "").splitlines()
    starts = [place for place, line in enumerate(lines) if _SECTION.match(line)]
    about = lines[: starts[0]] if starts else lines
    parameters: dict[str, str] = {}
    for start in starts:
        if lines[start].startswith(("Args", "Arguments", "Parameters")):
            parameters |= _parameters(lines[start + 1 :])
    return _flowing(about), parameters


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    indent: int | None = None
    current: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = depth if indent is None else indent
        named = _PARAMETER.match(line.strip()) if depth <= indent else None
        if named:
            current = found.setdefault(named[1], [named[2]])
        else:
            current.append(line.strip())
    return {name: " ".join(text).strip() for name, text in found.items()}


def _flowing(lines: list[str]) -> str:
    """Paragraphs on a line each; items of a list keep theirs."""
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if not line.strip():
            paragraphs.append([])
        elif line.lstrip().startswith(("- ", "* ")):
            paragraphs.append([line.strip()])
        else:
            paragraphs[-1].append(line.strip())
    return "\n".join(" ".join(paragraph) for paragraph in paragraphs if paragraph)
