"""The end of a text as rows of a terminal, where some signs take two columns and some none."""

from __future__ import annotations

from prompt_toolkit.utils import get_cwidth

__all__ = ["last_rows"]

_TAB = "    "


def last_rows(text: str, columns: int, rows: int) -> list[str]:
    """The last rows that a text takes, at most so many; no row is wider than the columns."""
    if not text or columns < 2 or rows < 1:
        return []
    found: list[str] = []
    # More than this cannot be seen, however narrow the signs are.
    for line in text[-columns * rows * 2 :].expandtabs(len(_TAB)).split("\n"):
        found += _rows(line, columns)
    return found[-rows:]


def _rows(line: str, columns: int) -> list[str]:
    rows, row, used = [], "", 0
    for sign in line:
        width = get_cwidth(sign)
        if used + width > columns:
            rows.append(row)
            row, used = "", 0
        row, used = row + sign, used + width
    return [*rows, row]
