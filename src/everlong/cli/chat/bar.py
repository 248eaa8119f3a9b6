"""A bar for how far a summary has come, as one row of a terminal. Knows figures and columns, no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlong.agent import CompactionProgress

__all__ = ["progress_row"]

_WIDEST = 40
_NARROWEST = 5


def progress_row(progress: CompactionProgress, columns: int) -> str:
    """What has come of a summary, no wider than the columns."""
    told = f"{progress.tokens:,} of at most {progress.budget:,} tokens"
    if progress.parts > 1:
        told = f"{progress.parts_done} of {progress.parts} parts"
    figures = f" {100 * progress.share:3.0f} %  {told}"
    width = min(_WIDEST, columns - len("summary ") - len(figures) - 1)
    if width < _NARROWEST:
        return f"summary{figures}"[: columns - 1]
    full = round(progress.share * width)
    return f"summary {'━' * full}{'─' * (width - full)}{figures}"
