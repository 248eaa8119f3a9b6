"""What a change to a file would do, as a unified diff for the person who approves it."""

from __future__ import annotations

import difflib

MOST_LINES = 4_000
"""Texts of more lines are not compared line by line, which would take long; both numbers are told instead."""


def diff_of(name: str, before: str, after: str) -> str:
    """The lines that go and come, with three around them."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > MOST_LINES:
        old, new, around = _without_common_ends(old, new)
        if len(old) + len(new) > MOST_LINES:
            lines = [
                f"{name}: {len(old):,} lines become {len(new):,}; the new ones are:",
                *(f"+{line}" for line in new),
            ]
            return "\n".join(lines)
        name = f"{name} (after the first {around:,} lines)"
    made = list(difflib.unified_diff(old, new, f"{name} now", f"{name} then", lineterm=""))
    if not made and before != after:
        return f"{name}: only line ends or the last line's end change"
    return "\n".join(made)


def _without_common_ends(old: list[str], new: list[str]) -> tuple[list[str], list[str], int]:
    """Both without the lines at the beginning and end that are the same, but for three; and how many went first."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    stop = 0
    while stop < min(len(old), len(new)) - start and old[-1 - stop] == new[-1 - stop]:
        stop += 1
    start, stop = max(0, start - 3), max(0, stop - 3)
    return old[start : len(old) - stop], new[start : len(new) - stop], start
